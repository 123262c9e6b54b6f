"""The linear tagger's solution, against scikit-learn's and against weights written out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from mlcl.labels import LabelCounts
from mlcl.memories import TaskSamples
from mlcl.metrics import macro_auc
from mlcl.sklearn import ContinualTagger, linear
from mlcl.sklearn.learning import logits
from mlcl.sklearn.linear import solve_linear, weigh
from taggers import problem


def one_group(x, y):
    """All rows as one label set, with the weights of Eq. 4."""
    return weigh(x, [TaskSamples.of(0, np.arange(y.shape[1]), np.arange(len(x)), y)], np.arange(y.shape[1]))


@pytest.mark.parametrize("most", [0, 2**25])
def test_without_margins_it_is_a_weighted_logistic_regression(monkeypatch, most):
    """Whether rows are standardised once or in every step, block by block."""
    monkeypatch.setattr(linear, "MOST_CELLS", most)
    monkeypatch.setattr(linear, "BLOCK", 64)
    x, y = problem(300, noise=1.0)
    x = x * np.float32([1, 5, 0.2, 3]) + np.float32([0, 7, 0, -2])
    found = solve_linear(one_group(x, y), margins=np.zeros(4), penalty=np.array([0.5, 0.1, 0.02, 1.0]))
    z = (x - x.mean(0)) / x.std(0)
    for k, penalty in enumerate((0.5, 0.1, 0.02, 1.0)):
        model = LogisticRegression(C=1 / penalty, tol=1e-8, max_iter=1000)
        model.fit(z, y[:, k], sample_weight=np.where(y[:, k], 1 / y[:, k].sum(), 1 / (1 - y[:, k]).sum()))
        np.testing.assert_allclose(found[0][k] * x.std(0), model.coef_[0], atol=1e-3)
        np.testing.assert_allclose(x @ found[0][k] + found[1][k], model.decision_function(z), atol=3e-3)


def test_at_the_minimum_the_gradient_of_the_margin_loss_is_zero():
    """By differences of the loss written out, with margins."""
    x, y = problem(80, noise=1.0)
    cells, margin, penalty = one_group(x, y), np.array([0.3, 0.4, 0.5, 0.6]), np.full(4, 0.2)
    weights, biases = solve_linear(cells, margins=margin, penalty=penalty)

    def loss(w, b, k):
        f, own = x @ w + b, y[:, k] == 1
        ends = np.log1p(np.exp(-(f[own] - margin[k]))).mean() + np.log1p(np.exp(f[~own] + margin[k])).mean()
        return ends + penalty[k] / 2 * ((w * x.std(0)) ** 2).sum()

    for k in range(4):
        for d, step in ((d, np.eye(4)[d] * 1e-4) for d in range(4)):
            rise = loss(weights[k] + step, biases[k], k) - loss(weights[k] - step, biases[k], k)
            assert abs(rise / 2e-4) < 1e-4, (k, d)
        assert (
            abs(loss(weights[k], biases[k] + 1e-4, k) - loss(weights[k], biases[k] - 1e-4, k)) / 2e-4 < 1e-4
        )


def test_stored_rows_stand_for_all_rows_of_their_label_set():
    """30 rows of which 3 are stored, beside 4 new ones: each stored positive counts for its share of all positives."""
    stored = TaskSamples.of(0, np.array([0, 1]), np.arange(3), np.array([[1, 0], [1, 0], [0, 0]], np.uint8))
    stored = TaskSamples(**{**vars(stored), "counts": LabelCounts(np.array([10, 5]), np.array([20, 25]), 30)})
    new = TaskSamples.of(1, np.array([1]), np.arange(3, 7), np.array([[1], [0], [0], [0]], np.uint8))
    cells = weigh(np.zeros((7, 2), np.float32), [stored, new], np.array([1]))
    # Class 1: no stored positive is left, so the one new positive is all; 25 old and 3 new negatives.
    assert cells.positive.tolist() == [[0.0], [1.0]]
    np.testing.assert_allclose(cells.negative, [[25 / 28 / 3], [1 / 28]])
    assert cells.labels[:, 0].tolist() == [0, 0, 0, 1, 0, 0, 0]


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 40))
def test_positives_sum_to_one_and_negatives_too(seed, sets, rows):
    rng = np.random.default_rng(seed)
    parts, begin = [], 0
    for task in range(sets):
        classes = np.sort(rng.permutation(4)[: rng.integers(1, 5)])
        y = rng.integers(0, 2, (rows, len(classes))).astype(np.uint8)
        parts.append(
            TaskSamples.of(task, classes, begin + np.arange(rows), y).take(np.arange((rows + 1) // 2))
        )
        begin += rows
    cells = weigh(np.zeros((sum(map(len, parts)), 1), np.float32), parts, np.arange(4))
    for side, label in ((cells.positive, 1), (cells.negative, 0)):
        annotated = np.array([np.isin(np.arange(4), part.classes) for part in parts])[cells.group]
        total = (side[cells.group] * (cells.labels == label) * annotated).sum(0)
        has = ((cells.labels == label) & annotated).any(0)
        np.testing.assert_allclose(total, has.astype(float), atol=1e-12)


def test_features_that_never_vary_and_classes_without_positives_get_no_weight():
    x, y = problem(60)
    x[:, 2], y[:, 1] = 3.0, 0
    weights, biases = solve_linear(one_group(x, y), margins=np.zeros(4), penalty=np.ones(4))
    assert not weights[:, 2].any()
    assert not weights[1].any()
    assert biases[1] == 0
    assert np.isfinite(weights).all()


def test_the_units_of_features_do_not_matter_even_if_the_first_call_hardly_varied():
    """Standardised over the rows at hand: the statistics of the first call are not those of all that come."""
    x, y = problem(400)
    narrow = x[:200] * np.float32([1e-3, 1, 1, 1])
    found = []
    for scale in (1.0, 1e4):
        tagger = ContinualTagger(random_state=0).partial_fit(narrow * scale, y[:200, :2], classes=["a", "b"])
        tagger.partial_fit(x[200:] * scale, y[200:, :1], classes=["c"])
        found.append(tagger.decision_function(x * scale)[:, 2])
    np.testing.assert_allclose(*found, rtol=1e-3, atol=1e-3)
    assert macro_auc(found[0][:, None], y[:, :1]) > 0.85


def test_many_calls_with_the_same_labels_come_near_one_call_with_all_rows():
    x, y = problem(1500, noise=1.2)
    test, truth = problem(1000, seed=1, noise=1.2)
    whole = ContinualTagger(random_state=0).fit(x, y)
    pieces = ContinualTagger(random_state=0, memory_size=300)
    for rows in np.array_split(np.arange(1500), 10):
        pieces.partial_fit(x[rows], y[rows])
    assert abs(whole.score(test, truth) - pieces.score(test, truth)) < 0.01
    assert not np.array_equal(logits(whole._learnt, test), logits(pieces._learnt, test))
