"""Changes of the AUC per class: against scikit-learn, and the chance of a false alarm."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

from mlcl.errors import InputError
from mlcl.metrics.bootstrap import bootstrap_class_auc
from mlcl.metrics.changes import ModelAnswers, auc_changes, pooled_changes


def drawn(rng, n, classes, *, rate=0.15, loss=0.0):
    """Labels, and scores of two models that are equally good, except that the second loses ``loss`` on class 0."""
    labels = rng.random((n, classes)) < rate
    labels[:2] = [[True], [False]]
    shared = rng.normal(size=(n, classes))
    first, second = (1.2 * labels + shared + 0.6 * rng.normal(size=(n, classes)) for _ in range(2))
    second[:, 0] -= loss * labels[:, 0]
    return first, second, labels


def pairs_won(scores, labels):
    """The AUC by its definition; no two rows of different labels score the same here."""
    return (scores[labels][:, None] > scores[~labels]).mean()


def test_the_values_are_those_of_scikit_learn_and_of_the_same_rows():
    first, second, labels = drawn(np.random.default_rng(0), 120, 3)
    found = auc_changes(first, second, labels)
    for k in range(3):
        before, after = (roc_auc_score(labels[:, k], scores[:, k]) for scores in (first, second))
        assert found.before[k] == pytest.approx(before)
        assert found.after[k] == pytest.approx(after)
        assert found.change[k] == pytest.approx(after - before)
    assert (found.low < found.change).all()
    assert (found.change < found.high).all()
    same = auc_changes(first, first, labels)  # paired: what is the same has no noise
    assert not same.change.any()
    assert not same.high.any()


def test_the_spread_is_that_of_brute_force():
    rng = np.random.default_rng(1)
    first, second, labels = drawn(rng, 80, 1, rate=0.4)
    found = auc_changes(first, second, labels, level=0.9)
    values = []
    for _ in range(2000):
        rows = rng.integers(0, 80, 80)
        values.append(
            pairs_won(second[rows, 0], labels[rows, 0]) - pairs_won(first[rows, 0], labels[rows, 0])
        )
    from scipy.stats import t

    fewer = min(labels.sum(), (~labels).sum())
    expected = t.ppf(0.9, fewer - 1) * np.std(values, ddof=1)
    assert found.high[0] - found.change[0] == pytest.approx(expected, rel=0.1)


def test_equal_models_are_rarely_called_worse_and_a_planted_loss_is_found():
    """Five classes, no change in truth: the upper end of any class is below 0 in at most one of twenty test sets."""
    rng = np.random.default_rng(2)
    alarms = [(auc_changes(*drawn(rng, 150, 5)).high < 0).any() for _ in range(400)]
    # 0.05 and three standard deviations of 400 draws of it.
    assert np.mean(alarms) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)
    assert np.mean(alarms) > 0.005  # not so wide that nothing is ever noticed
    found = [auc_changes(*drawn(rng, 150, 5, loss=1.2)).high for _ in range(40)]
    assert np.mean([high[0] < 0 for high in found]) > 0.9


def test_classes_that_cannot_be_judged():
    labels = np.array([[1, 0, 1], [0, 0, 1], [0, 0, 0], [0, 0, 0]])
    first = np.array([[3.0, 1, 4], [2, 1, 3], [1, 1, 2], [0, 1, 1]])
    found = auc_changes(first, -first, labels)
    assert found.change[0] == -1
    assert found.high[0] == np.inf  # one positive says nothing of others
    assert np.isnan(found.change[1])
    assert np.isnan(found.high[1])
    assert found.high[2] >= -1
    with pytest.raises(InputError, match="no rows"):
        auc_changes(first[:0], first[:0], labels[:0])
    assert found.gated.tolist() == [False] * 3
    assert found.smallest(0.01).tolist() == [np.inf] * 3
    assert found.together(0.01) == 1


def scored(scores):
    """All that one model says of rows, from its scores."""
    probabilities = 1 / (1 + np.exp(1.5 - 1.2 * scores))
    return ModelAnswers(scores, probabilities, probabilities > 0.5)


def test_pooled_values_are_those_of_scikit_learn():
    first, second, labels = drawn(np.random.default_rng(4), 400, 7)
    known = np.random.default_rng(5).random(labels.shape) < 0.8
    found = {
        (c.measure, c.part): c for c in pooled_changes(scored(first), scored(second), labels, mask=known)
    }
    assert len(found) == 13
    order = np.argsort(-(labels & known).sum(0), kind="stable")
    for part, columns in {"all": order, "head": order[:3], "medium": order[3:5], "tail": order[5:]}.items():
        rows = [(known[:, k], labels[known[:, k], k], second[known[:, k], k]) for k in columns]
        auc = np.mean([roc_auc_score(y, s) for _, y, s in rows])
        ap = np.mean([average_precision_score(y, s) for _, y, s in rows])
        brier = sum(np.mean((scored(s).probabilities - y) ** 2) for _, y, s in rows)
        prior = sum(y.mean() * (1 - y.mean()) for _, y, s in rows)
        assert found["AUC", part].after == pytest.approx(auc)
        assert found["AP", part].after == pytest.approx(ap)
        assert found["Brier skill", part].after == pytest.approx(1 - brier / prior)
    tags = scored(second).tags
    assert found["F1", "all"].after == pytest.approx(f1_score(labels[known], tags[known]))


def test_the_errors_of_pooled_changes_are_those_of_drawing_rows_anew():
    rng = np.random.default_rng(6)
    first, second, labels = drawn(rng, 250, 6, rate=0.3)
    second += 0.5 * rng.normal(size=(250, 1))  # rows that are hard are hard for all classes
    found = pooled_changes(scored(first), scored(second), labels)
    again = []
    for _ in range(300):
        rows = rng.integers(0, 250, 250)
        again.append(
            [c.change for c in pooled_changes(scored(first[rows]), scored(second[rows]), labels[rows])]
        )
    for k, change in enumerate(found):
        if change.part in ("all", "head"):  # the thirds of drawn rows are others
            assert change.error == pytest.approx(np.std([row[k] for row in again]), rel=0.3)


def test_small_losses_of_many_classes_are_seen_together():
    rng = np.random.default_rng(7)
    worse, equal = [], []
    for _ in range(40):
        first, second, labels = drawn(rng, 300, 20)
        equal.append(auc_changes(first, second, labels).together(0.02))
        found = auc_changes(first, second - 0.5 * labels, labels)
        worse.append(found.together(0.02))
    assert np.mean(np.array(equal) < 0.025) < 0.1
    assert np.mean(np.array(worse) < 0.025) > 0.8
    assert (found.smallest(0.02)[found.gated] > 0.02).all()
    pooled = pooled_changes(scored(first), scored(second - 0.5 * labels), labels)
    assert next(c for c in pooled if (c.measure, c.part) == ("AUC", "all")).p_value(0.02) < 1e-3


def test_rows_that_come_in_fives_count_as_one():
    rng = np.random.default_rng(0)
    labels = rng.random((300, 3)) < 0.3
    before = labels + rng.normal(size=labels.shape)
    after = before + rng.normal(0, 0.5, before.shape)
    one = auc_changes(before, after, labels)
    again = [np.repeat(part, 5, axis=0) for part in (before, after, labels)]
    groups = np.repeat(np.arange(300), 5)
    many, alone = auc_changes(*again, groups=groups), auc_changes(*again)
    assert np.allclose(many.error, one.error, rtol=0.01)
    assert np.array_equal(many.fewer, one.fewer)
    assert np.allclose(alone.error, one.error / np.sqrt(5), rtol=0.01)
    answers = [ModelAnswers(part, special.expit(part), part > 1) for part in (before, after)]
    wide = [ModelAnswers(part, special.expit(part), part > 1) for part in again[:2]]
    for single, five in zip(
        pooled_changes(*answers, labels), pooled_changes(*wide, again[2], groups=groups), strict=True
    ):
        assert five.error == pytest.approx(single.error, rel=0.02)
        assert five.rows == single.rows
    with pytest.raises(InputError, match="expected one group per row"):
        auc_changes(before, after, labels, groups=[1, 2])


def test_a_bootstrap_of_groups_is_as_wide_as_that_of_single_rows():
    rng = np.random.default_rng(1)
    labels = rng.random((200, 2)) < 0.3
    scores = labels + rng.normal(size=labels.shape)
    many = [np.repeat(part, 4, axis=0) for part in (scores, labels)]
    drawn = bootstrap_class_auc(*many, groups=np.repeat(np.arange(200), 4), seed=3)
    assert np.allclose(drawn, bootstrap_class_auc(scores, labels, seed=3))
