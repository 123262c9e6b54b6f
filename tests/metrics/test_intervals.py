"""Spreads over seeds against the standard library and scipy."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from mlcl.errors import InputError
from mlcl.metrics import mean_std, paired_interval

runs = st.lists(st.floats(0, 100), min_size=2, max_size=10)


@given(runs)
@settings(deadline=None, max_examples=40)
def test_mean_and_sample_deviation(values):
    mean, deviation = mean_std(values)
    assert mean == pytest.approx(statistics.fmean(values), abs=1e-9)
    assert deviation == pytest.approx(statistics.stdev(values), abs=1e-6)


def test_one_seed_has_no_deviation():
    mean, deviation = mean_std([70.0])
    assert mean == 70.0
    assert np.isnan(deviation)
    assert np.isnan(mean_std([70.0, float("nan")])[0])


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("seeds", [2, 3, 5, 30])
def test_paired_interval_is_that_of_scipy(level, seeds):
    rng = np.random.default_rng(seeds)
    a, b = rng.normal(70, 3, seeds), rng.normal(69, 3, seeds)
    expected = ttest_rel(a, b).confidence_interval(level)
    got = paired_interval(a, b, level=level)
    assert (got.low, got.high) == pytest.approx((expected.low, expected.high))
    assert got.estimate == pytest.approx(np.mean(a - b))
    assert got.level == level


def test_what_seeds_share_drops_out():
    shared = np.array([0.0, 30.0, -20.0, 5.0])
    gain = np.array([1.0, 1.2, 0.8, 1.0])
    assert paired_interval(shared + gain, shared).low == pytest.approx(paired_interval(gain, 0 * gain).low)
    assert 0.0 not in paired_interval(shared + gain, shared)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mean_std([]), "values is empty"),
        (lambda: mean_std([[1.0]]), r"values has shape \(1, 1\)"),
        (lambda: mean_std(["x"]), "values is not a vector of numbers"),
        (lambda: paired_interval([1.0], [2.0]), "a has 1 values and b has 1"),
        (lambda: paired_interval([1.0, 2.0], [2.0]), "a has 2 values and b has 1"),
        (lambda: paired_interval([1.0, 2.0], [2.0, np.nan]), "b is .* but finite values"),
        (lambda: paired_interval([1.0, 2.0], [2.0, 3.0], level=1), "level is 1"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
