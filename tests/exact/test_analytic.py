"""L3A's sums against one weighted ridge regression on all rows, and its parts against their formulas."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from mlcl.errors import InputError
from mlcl.exact.analytic import Analytic, class_weights, pseudo_labels, row_weights


def problem(seed, rows=60, dimensions=7, classes=5):
    rng = np.random.default_rng(seed)
    labels = (rng.random((rows, classes)) < 0.3).astype(np.uint8)
    labels[np.arange(rows), rng.integers(0, classes, rows)] = 1
    return np.maximum(0, rng.normal(size=(rows, dimensions))), labels


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_weights_follow_their_formulas(seed):
    _, labels = problem(seed, rows=12)
    labels[:, 0] = 0  # a class without positives has no weight
    count = labels.sum(0)
    have = [k for k in range(5) if count[k]]
    expected = {k: len(have) * count[k] ** -0.5 / sum(count[j] ** -0.5 for j in have) for k in have}
    found = class_weights(count)
    assert found[0] == 0
    assert {k: found[k] for k in have} == pytest.approx(expected)
    for row, weight in zip(labels, row_weights(labels, count), strict=True):
        own = [expected[k] for k in range(5) if row[k]]
        assert weight == pytest.approx(np.mean(own) if own else 1.0)


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.7, 1.0])
def test_pseudo_labels_are_where_the_sigmoid_is_above(threshold):
    scores = np.linspace(-3, 3, 41)[:, None]
    assert np.array_equal(pseudo_labels(scores, threshold), 1 / (1 + np.exp(-scores)) > threshold)


def test_one_task_is_a_weighted_ridge_regression():
    rows, labels = problem(0)
    found = Analytic.begin(7, 5).learn(rows, labels, list(range(5))).solve(2.5)
    weights = row_weights(labels, labels.sum(0))
    ridge = Ridge(alpha=2.5, fit_intercept=False).fit(rows, labels, sample_weight=weights)
    np.testing.assert_allclose(found, ridge.coef_.T, rtol=1e-8)


def test_tasks_add_up_to_one_regression_on_all_rows_with_their_pseudo_labels():
    (first, y1), (second, y2) = problem(1), problem(2)
    one = Analytic.begin(7, 5).learn(first, y1[:, :2], [0, 1], threshold=0.6, ridge=0.5)
    both = one.learn(second, y2[:, 2:], [2, 3, 4], threshold=0.6, ridge=0.5)
    # By hand: old rows are negatives of new classes, new rows have pseudo-labels of old ones.
    old = np.hstack([y1[:, :2], np.zeros((60, 3))])
    guessed = 1 / (1 + np.exp(-(second @ one.solve(0.5)[:, :2]))) > 0.6
    new = np.hstack([guessed, y2[:, 2:]])
    assert 0 < guessed.sum() < guessed.size
    # Class counts: annotated positives of all tasks so far, no pseudo-labels.
    counts = [y1.sum(0) * [1, 1, 0, 0, 0], np.concatenate([y1.sum(0)[:2], y2.sum(0)[2:]])]
    weights = np.concatenate(
        [row_weights(part.astype(np.uint8), count) for part, count in zip((old, new), counts, strict=True)]
    )
    ridge = Ridge(alpha=0.5, fit_intercept=False)
    ridge.fit(np.vstack([first, second]), np.vstack([old, new]), sample_weight=weights)
    np.testing.assert_allclose(both.solve(0.5), ridge.coef_.T, rtol=1e-8)
    assert not one.solve(0.5)[:, 2:].any()
    assert one.seen.tolist() == [True, True, False, False, False]
    assert both.count.tolist() == counts[1].tolist()
    assert both.nbytes == 8 * (7 * 7 + 7 * 5 + 5)


def test_bad_shapes_and_ridges():
    rows, labels = problem(3)
    with pytest.raises(InputError, match="rows has shape"):
        Analytic.begin(6, 5).learn(rows, labels, [0, 1, 2, 3, 4])
    with pytest.raises(InputError, match="ridge is 0"):
        Analytic.begin(7, 5).solve(0.0)
