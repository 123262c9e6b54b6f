"""Drift: p-values that are uniform where nothing moved, and small where something did."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import hypergeom, kstest

from mlcl.errors import InputError
from mlcl.metrics.drift import holm, mmd_test, rate_changes


def test_p_values_are_uniform_where_nothing_moved():
    """Heavy tails, unequal sizes, correlated columns: the test assumes none of them away."""
    rng = np.random.default_rng(0)
    found = []
    for seed in range(300):
        rows = rng.standard_t(3, size=(50, 3)) @ np.array([[1, 0.8, 0], [0, 1, 0], [0, 0, 9.0]])
        found.append(mmd_test(rows[:20], rows[20:], permutations=99, seed=seed).p_value)
    # A p-value is a multiple of 1/100; spread evenly below it, uniform ones are uniform.
    spread = np.array(found) - rng.random(300) / 100
    assert kstest(spread, "uniform").pvalue > 0.01
    assert np.mean(np.array(found) <= 0.05) < 0.09


def test_a_planted_shift_is_found():
    rng = np.random.default_rng(1)
    moved = [
        mmd_test(
            rng.normal(size=(100, 8)),
            rng.normal(size=(80, 8)) + 0.9 * (np.arange(8) == 0),
            permutations=99,
            seed=s,
        )
        for s in range(20)
    ]
    assert np.mean([one.p_value < 0.05 for one in moved]) > 0.9
    wider = mmd_test(rng.normal(size=(150, 4)), 2 * rng.normal(size=(150, 4)), permutations=199)
    assert wider.p_value < 0.05


def test_the_statistic_is_that_of_its_definition():
    rng = np.random.default_rng(2)
    one, other = rng.normal(size=(7, 2)), rng.normal(1, 1, size=(5, 2))
    rows = np.concatenate([one, other])
    rows = (rows - rows.mean(0)) / rows.std(0)
    distances = [((a - b) ** 2).sum() for i, a in enumerate(rows) for b in rows[i + 1 :]]
    width = np.median(distances)

    def mean(first, second):
        return np.mean([np.exp(-((a - b) ** 2).sum() / width) for a in first for b in second])

    x, y = rows[:7], rows[7:]
    expected = mean(x, x) + mean(y, y) - 2 * mean(x, y)
    assert mmd_test(one, other, permutations=1).statistic == pytest.approx(expected)


def test_equal_samples_and_constant_columns_have_no_drift():
    rows = np.ones((10, 3))
    assert mmd_test(rows, rows, permutations=19).p_value == 1.0
    same = np.random.default_rng(3).normal(size=(30, 3))
    assert mmd_test(same, same, permutations=49).statistic == pytest.approx(0, abs=1e-12)
    large = np.random.default_rng(3).normal(size=(500, 2))
    assert mmd_test(large, large + 3, most=50, permutations=19).p_value == pytest.approx(1 / 20)


def test_rates_against_the_hypergeometric_distribution():
    rng = np.random.default_rng(4)
    one, other = rng.random((12, 3)) < 0.3, rng.random((9, 3)) < 0.7
    found = rate_changes(one, other)
    for k in range(3):
        total = one[:, k].sum() + other[:, k].sum()
        chances = hypergeom(21, total, 12).pmf(np.arange(13))
        seen = chances[one[:, k].sum()]
        assert found.p_values[k] == pytest.approx(chances[chances <= seen * (1 + 1e-7)].sum())
    assert np.allclose(found.before, one.mean(0))


def test_false_alarms_over_all_labels_stay_below_the_level():
    rng = np.random.default_rng(5)
    alarms = [
        (rate_changes(rng.random((60, 6)) < 0.3, rng.random((50, 6)) < 0.3).adjusted < 0.05).any()
        for _ in range(200)
    ]
    assert np.mean(alarms) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 200)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_is_the_step_down_method(values):
    expected = [
        min(
            1.0,
            max((sum(w > v for w in values) + sum(w == v for w in values)) * v for v in values if v <= value),
        )
        for value in values
    ]
    assert np.allclose(holm(values), expected)


def test_bad_samples_are_refused():
    good = np.zeros((3, 2))
    for first, second, words in (
        (good[:1], good, "first has shape"),
        (good, np.zeros((3, 4)), "columns"),
        (good, np.full((3, 2), np.nan), "second holds values"),
    ):
        with pytest.raises(InputError, match=words):
            mmd_test(first, second)
    with pytest.raises(InputError, match="as many labels"):
        rate_changes(good, np.zeros((3, 4)))
