"""The bootstrap against `macro_auc` of rows that were really drawn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from mlcl.errors import InputError
from mlcl.metrics import bootstrap, bootstrap_interval, bootstrap_macro_auc, columns, macro_auc
from mlcl.metrics.bootstrap import draw_counts, resampled_auc, sort_classes


@st.composite
def problems(draw):
    n, k = draw(st.integers(1, 60)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    levels = draw(st.sampled_from([1, 3, 0]))
    scores = rng.integers(0, levels, (n, k)).astype(float) if levels else rng.normal(size=(n, k))
    return scores, rng.random((n, k)) < rng.choice([0.03, 0.2, 0.5, 0.9], k)


@given(problems(), st.integers(0, 1000))
@settings(deadline=None, max_examples=50)
def test_weighted_auc_is_that_of_the_rows_drawn(problem, seed):
    scores, labels = problem
    counts = draw_counts(np.random.default_rng(seed), len(scores), 5)
    got = resampled_auc(sort_classes(scores, labels), counts)
    for row, count in zip(got, counts, strict=True):
        drawn = np.repeat(np.arange(len(scores)), count)
        np.testing.assert_array_equal(row, macro_auc(scores[drawn], labels[drawn], average=None))


@pytest.mark.parametrize("prevalence", [0.01, 0.05, 0.4, 0.97])
@pytest.mark.parametrize("decimals", [1, 15])
def test_both_ways_of_summing_are_exact(prevalence, decimals):
    rng = np.random.default_rng(0)
    labels = rng.random((900, 2)) < prevalence
    scores = (rng.normal(size=(900, 2)) + labels).round(decimals)
    classes = sort_classes(scores, labels)
    if decimals == 15:  # without ties, few and many needles are summed differently
        assert (classes[0].starts is None) == (prevalence == 0.4)
    counts = draw_counts(np.random.default_rng(1), 900, 4)
    for row, count in zip(resampled_auc(classes, counts), counts, strict=True):
        drawn = np.repeat(np.arange(900), count)
        np.testing.assert_array_equal(row, macro_auc(scores[drawn], labels[drawn], average=None))
        np.testing.assert_allclose(row, roc_auc_score(labels[drawn], scores[drawn], average=None), atol=1e-12)


def test_values_are_means_over_the_classes_left(monkeypatch):
    monkeypatch.setattr(bootstrap, "_BLOCK", 60)  # three resamples a block, the last block of one
    rng = np.random.default_rng(2)
    scores, labels = rng.normal(size=(20, 3)), rng.random((20, 3)) < 0.06
    values = bootstrap_macro_auc(scores, labels, resamples=7, seed=4)
    streams = np.random.default_rng(4).spawn(3)
    counts = np.concatenate([draw_counts(s, 20, size) for s, size in zip(streams, (3, 3, 1), strict=True)])
    expected = []
    for count in counts:
        drawn = np.repeat(np.arange(20), count)
        expected.append(macro_auc(scores[drawn], labels[drawn]))
    np.testing.assert_allclose(values, expected, atol=1e-12)


def test_counts_are_draws_with_replacement():
    counts = draw_counts(np.random.default_rng(0), 50, 400)
    assert counts.shape == (400, 50)
    assert (counts.sum(axis=1) == 50).all()
    # Binomial(50, 1/50): mean 1, variance 0.98; 20,000 draws have a standard error below 0.02.
    assert abs(counts.var() - 0.98) < 0.1
    assert abs((counts == 0).mean() - (1 - 1 / 50) ** 50) < 0.02


def test_seed_and_threads(monkeypatch):
    rng = np.random.default_rng(2)
    scores, labels = rng.normal(size=(200, 4)), rng.random((200, 4)) < 0.2
    monkeypatch.setattr(bootstrap, "_BLOCK", 2000)
    first = bootstrap_macro_auc(scores, labels, resamples=64, seed=1)
    monkeypatch.setattr(columns, "_WORTH_THREADS", 0)
    monkeypatch.setattr(columns, "cores", lambda: 4)
    np.testing.assert_array_equal(first, bootstrap_macro_auc(scores, labels, resamples=64, seed=1))
    assert not np.array_equal(first, bootstrap_macro_auc(scores, labels, resamples=64, seed=2))


def test_two_models_see_the_same_resamples():
    rng = np.random.default_rng(2)
    scores, labels = rng.normal(size=(200, 4)), rng.random((200, 4)) < 0.2
    order_kept = bootstrap_macro_auc(3 * scores + 1, labels, resamples=20)
    np.testing.assert_array_equal(bootstrap_macro_auc(scores, labels, resamples=20), order_kept)


def test_interval_is_made_of_percentiles():
    rng = np.random.default_rng(2)
    labels = rng.random((300, 4)) < 0.2
    scores = rng.normal(size=(300, 4)) + labels
    values = bootstrap_macro_auc(scores, labels, resamples=99, seed=3)
    interval = bootstrap_interval(scores, labels, resamples=99, level=0.9, seed=3)
    assert interval.estimate == macro_auc(scores, labels)
    assert (interval.low, interval.high) == pytest.approx(
        (np.quantile(values, 0.05), np.quantile(values, 0.95))
    )
    assert interval.level == 0.9
    assert interval.estimate in interval
    wide = bootstrap_interval(scores, labels, resamples=99, level=0.99, seed=3)
    assert wide.low < interval.low < interval.high < wide.high


def test_interval_covers_the_truth_about_as_often_as_it_says():
    # Scores N(0, 1) and N(1, 1): the true AUC is Phi(1 / sqrt 2) = 0.7602.
    held = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        labels = rng.random((150, 2)) < 0.4
        scores = rng.normal(size=(150, 2)) + labels
        held += 0.7602 in bootstrap_interval(scores, labels, resamples=200, level=0.9, seed=seed)
    assert 46 <= held <= 60  # 54 expected; five sigma is 12


def test_no_class_left_is_nan():
    interval = bootstrap_interval([[0.1], [0.2]], [[0], [0]], resamples=5)
    assert np.isnan([interval.estimate, interval.low, interval.high]).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"resamples": 0}, "resamples is 0"),
        ({"resamples": 1.5}, "resamples is 1.5"),
        ({"level": 95}, "level is 95, but a number between 0 and 1"),
        ({"level": float("nan")}, "level is nan"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        bootstrap_interval([[0.1], [0.2]], [[0], [1]], **options)


def test_bad_input_is_refused():
    with pytest.raises(InputError, match="scores has the value nan at row 1, column 0"):
        bootstrap_interval([[0.1], [np.nan]], [[0], [1]])
    with pytest.raises(InputError, match="scores has no rows"):
        bootstrap_macro_auc(np.zeros((0, 2)), np.zeros((0, 2)))
