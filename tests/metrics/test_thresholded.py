"""Precision, recall and F1 against scikit-learn and explicit counting; frequency thirds against loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import precision_recall_fscore_support

from mlcl.errors import InputError
from mlcl.metrics import by_frequency, f1_scores


def random_problem(seed, n, k, levels=8):
    rng = np.random.default_rng(seed)
    return rng.integers(0, levels, (n, k)) / levels, (rng.random((n, k)) < rng.random(k)).astype(int)


@pytest.mark.slow
@given(
    st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(2, 6), st.sampled_from([-1.0, 0.25, 0.5, 2.0])
)
@settings(deadline=None, max_examples=50)
def test_agrees_with_scikit_learn_on_classes_with_positives(seed, n, k, threshold):
    scores, labels = random_problem(seed, n, k)
    result = f1_scores(scores, labels, threshold=threshold)
    predicted = (scores > threshold).astype(int)
    kept = labels.any(axis=0)
    per_class = precision_recall_fscore_support(labels, predicted, average=None, zero_division=0)
    for got, expected in zip((result.precision, result.recall, result.f1), per_class, strict=False):
        np.testing.assert_allclose(got[kept], expected[kept], atol=1e-12)
        assert np.isnan(got[~kept]).all()
    if not kept.any():
        assert np.isnan([result.CP, result.CR, result.CF1, result.OP, result.OR, result.OF1]).all()
        return
    cp, cr = per_class[0][kept].mean(), per_class[1][kept].mean()
    cf1 = 2 * cp * cr / (cp + cr) if cp + cr else 0.0
    overall = precision_recall_fscore_support(labels, predicted, average="micro", zero_division=0)
    got = [result.CP, result.CR, result.CF1, result.OP, result.OR, result.OF1]
    np.testing.assert_allclose(got, [cp, cr, cf1, *overall[:3]], atol=1e-12)


def test_prediction_needs_a_score_above_the_threshold():
    result = f1_scores([[0.5], [0.6]], [[1], [1]], threshold=0.5)
    assert result.recall.tolist() == [0.5]


def test_a_threshold_for_each_class():
    scores, labels = random_problem(1, 40, 3)
    cuts = [0.1, 0.5, 0.9]
    together = f1_scores(scores, labels, threshold=cuts)
    for k, cut in enumerate(cuts):
        alone = f1_scores(scores[:, [k]], labels[:, [k]], threshold=cut)
        assert together.f1[k] == alone.f1[0]
        assert together.precision[k] == alone.precision[0]


def test_zero_over_zero():
    # Class 0 is never predicted, class 1 has no positive but one prediction.
    result = f1_scores([[-1.0, 1.0], [-1.0, -1.0]], [[1, 0], [0, 0]], threshold=0)
    np.testing.assert_array_equal(result.precision, [0.0, np.nan])
    np.testing.assert_array_equal(result.recall, [0.0, np.nan])
    assert (result.CP, result.CR, result.CF1, result.OP, result.OR, result.OF1) == (0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("threshold", [np.nan, [0.1, 0.2, 0.3], "high", True])
def test_bad_threshold_is_refused(threshold):
    with pytest.raises(InputError, match=r"threshold is .* classes"):
        f1_scores([[0.1, 0.2]], [[1, 0]], threshold=threshold)


@given(st.integers(0, 2**32 - 1), st.integers(0, 14))
@settings(deadline=None, max_examples=50)
def test_thirds_by_counting(seed, k):
    rng = np.random.default_rng(seed)
    values, positive = rng.random(k), rng.integers(0, 5, k)
    values[rng.random(k) < 0.2] = np.nan
    order = sorted(range(k), key=lambda c: (-positive[c], c))
    head, medium = -(-k // 3), -(-(k - 1) // 3)
    parts = {"head": order[:head], "medium": order[head : head + medium], "tail": order[head + medium :]}
    got = by_frequency(values, positive)
    assert list(got) == ["head", "medium", "tail"]
    for name, classes in parts.items():
        known = [values[c] for c in classes if not np.isnan(values[c])]
        assert got[name] == pytest.approx(np.mean(known) if known else np.nan, nan_ok=True)


@pytest.mark.parametrize(
    ("values", "positive", "message"),
    [
        ([0.1, 0.2], [1], r"values has shape \(2,\) and positive \(1,\)"),
        ([[0.1]], [[1]], r"values has shape \(1, 1\)"),
        ([0.1, 0.2], [1, -1], "positive is .*counts >= 0"),
        ([0.1, 0.2], [1, np.nan], "positive is .*counts >= 0"),
        (["a"], [1], "values is not a vector of numbers"),
    ],
)
def test_bad_frequencies_are_refused(values, positive, message):
    with pytest.raises(InputError, match=message):
        by_frequency(values, positive)
