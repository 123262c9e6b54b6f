"""Thresholds for a goal, against brute force over all thresholds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, binom

from mlcl.errors import InputError
from mlcl.metrics import Goal, Thresholds, choose_thresholds, f1_scores
from mlcl.metrics.decisions import DOUBT, GROWTH, LEAST, MOST_GIVEN

GOALS = (Goal("f1"), Goal("cost", 3.0), Goal("cost", 0.2))


def problem(seed, rows=30, classes=1):
    """Probabilities with ties, and labels of which every class has enough of both."""
    rng = np.random.default_rng(seed)
    p = rng.integers(0, 9, (rows, classes)) / 8
    y = rng.random(p.shape) < 0.2 + 0.6 * p
    y[:LEAST], y[-LEAST:] = True, False
    return p, y


def every_cut(p):
    """One threshold for each set of rows that a threshold can choose."""
    levels = np.unique(p)
    return [-1.0, *((levels[1:] + levels[:-1]) / 2), 1.0]


def quality(p, y, cut, goal):
    """How good a threshold is for a goal: larger is better. Labels may be probabilities."""
    chosen = p > cut
    hits, missed, false = (chosen * y).sum(), (~chosen * y).sum(), (chosen * (1.0 - y)).sum()
    if goal.kind == "f1":
        return 2 * hits / (2 * hits + missed + false)
    return -(goal.value * missed + false)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.sampled_from(GOALS), st.sampled_from((0.0, 3.0, DOUBT)))
def test_no_threshold_is_better(seed, goal, doubt):
    p, y = problem(seed)
    found = choose_thresholds(p, y, goal=goal, doubt=doubt)
    trust = y.sum() / (y.sum() + doubt)
    y = trust * y + (1 - trust) * p
    most = MOST_GIVEN * y.sum() if doubt and goal.kind == "f1" else len(p)
    cuts = [cut for cut in every_cut(p) if (p > cut).sum() <= max(most, 1)]
    assert found.own.all()
    assert found.reached.all()
    assert quality(p, y, found.values[0], goal) == pytest.approx(
        max(quality(p, y, cut, goal) for cut in cuts)
    )


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.sampled_from((0.5, 0.7, 0.9)), st.sampled_from((0.8, 0.95)))
def test_a_certified_precision_is_that_of_the_longest_run_of_tests_that_pass(seed, wanted, confidence):
    rng = np.random.default_rng(seed)
    y = rng.random(300) < 0.3
    p = (1 / (1 + np.exp(1 - rng.normal(4.0 * y, 1))))[:, None]
    found = choose_thresholds(p, y[:, None], goal=Goal("precision", wanted, confidence))
    hits, last = y[np.argsort(-p[:, 0])], 0
    sizes = np.unique(np.minimum(np.ceil(GROWTH ** np.arange(200)), 300)).astype(int)
    for size in sizes[wanted**sizes <= 1 - confidence]:
        if binom.sf(hits[:size].sum() - 1, size, wanted) > 1 - confidence:
            break
        last = size
    assert (p > found.values).sum() == last
    assert found.reached[0] == (last > 0)
    if last:
        h = hits[:last].sum()
        assert found.bound[0] == pytest.approx(beta.ppf(1 - confidence, h, last - h + 1))
        assert found.bound[0] >= wanted


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.sampled_from((0.5, 0.7, 0.9)), st.sampled_from((0.8, 0.95)))
def test_a_certified_recall_loses_as_many_positives_as_it_can(seed, wanted, confidence):
    p, y = problem(seed, rows=120)
    p = p + np.random.default_rng(seed).random(p.shape) / 100
    found = choose_thresholds(np.minimum(p, 1), y, goal=Goal("recall", wanted, confidence))
    count = int(y.sum())
    # Lost positives are binomial: the j-th smallest is safe where fewer than j of them lie in the allowed share rarely.
    safe = [j for j in range(1, count + 1) if binom.sf(j - 1, count, 1 - wanted) >= confidence]
    assert found.reached[0] == bool(safe)
    if safe:
        assert (y & (p > found.values)).sum() == count - safe[-1] + 1
        assert found.bound[0] >= wanted - 1e-9
    else:
        assert not (p > found.values).any()
        assert found.needed[0] >= 1


@pytest.mark.parametrize("goal", [Goal("precision", 0.8), Goal("recall", 0.8), Goal("precision", 0.9, 0.8)])
def test_the_share_of_classes_below_their_certified_goal_is_as_promised(goal):
    rng = np.random.default_rng(0)
    classes, rows, many = 400, 250, 40_000
    gap = rng.uniform(1.5, 4, classes)

    def draw(n):
        truth = rng.random((n, classes)) < 0.3
        return 1 / (1 + np.exp(2 - rng.normal(gap * truth, 1))), truth

    found = choose_thresholds(*draw(rows), goal=goal)
    p, y = draw(many)
    given = p > found.values
    hits = (given & y).sum(0)
    truly = hits / np.maximum(given.sum(0), 1) if goal.kind == "precision" else hits / y.sum(0)
    sure = found.reached
    assert sure.sum() > 50
    assert np.array_equal(~sure, ~given.any(0))
    assert (truly[sure] < goal.value).sum() <= binom.ppf(0.999, classes, 1 - goal.confidence)
    assert truly[sure].mean() >= goal.value


def test_a_class_that_cannot_be_certified_says_what_it_needs():
    rng = np.random.default_rng(3)
    y = np.arange(200)[:, None] < [[6, 0, 80]]
    p = np.where(y, 0.9, 0.1) + rng.random(y.shape) / 20
    p[:, 2] = rng.random(200)  # says nothing
    found = choose_thresholds(p, y, goal=Goal("precision", 0.9))
    assert not found.reached.any()
    assert found.needed[:2].tolist() == [22 - 6, 22]
    assert found.needed[2] == np.inf
    assert (choose_thresholds(p, y, goal=Goal("recall", 0.9)).needed == [16, 22, 0]).all()
    assert (choose_thresholds(p, y, goal=Goal("precision", 1.0)).needed == np.inf).all()
    enough = choose_thresholds(np.repeat(p, 5, 0), np.repeat(y, 5, 0), goal=Goal("precision", 0.9))
    assert enough.reached.tolist() == [True, False, False]


@settings(deadline=None, max_examples=4)
@given(st.integers(0, 10**6))
def test_no_combination_of_thresholds_has_a_better_overall_f1(seed):
    p, y = problem(seed, rows=25, classes=3)
    found = choose_thresholds(p, y, goal=Goal("f1-overall"), doubt=0).values
    cuts = itertools.product(*(every_cut(p[:, k]) for k in range(3)))
    best = max(f1_scores(p, y, threshold=np.array(cut)).OF1 for cut in cuts)
    assert pytest.approx(best) == f1_scores(p, y, threshold=found).OF1


def test_neighbouring_floats_are_told_apart():
    low = 0.3
    p = np.array([low] * 6 + [np.nextafter(low, 1)] * 6)[:, None]
    y = np.array([0] * 6 + [1] * 6)[:, None]
    assert np.array_equal(choose_thresholds(p, y, doubt=0).tags(p), y > 0)


def test_a_class_of_few_positives_relies_on_its_probabilities():
    p, y = problem(1, rows=60, classes=3)
    y[:, 1] = False
    y[0, 1] = True
    found = choose_thresholds(p, y)
    assert found.own.tolist() == [True, False, True]
    without = choose_thresholds(p[:, 1:2], np.zeros((60, 1)))
    values = [quality(p[:, 1:2], p[:, 1:2], cut, Goal()) for cut in every_cut(p[:, 1:2])]
    allowed = [
        value
        for value, cut in zip(values, every_cut(p[:, 1:2]), strict=True)
        if (p[:, 1:2] > cut).sum() <= MOST_GIVEN * p[:, 1:2].sum()
    ]
    assert quality(p[:, 1:2], p[:, 1:2], without.values[0], Goal()) == pytest.approx(max(allowed))


def test_labels_that_are_not_known_do_not_count():
    p, y = problem(2, rows=60)
    known = np.arange(60)[:, None] % 2 == 0
    known[:LEAST], known[-LEAST:] = True, True
    wild = np.where(known, p, 1 - p)
    assert (
        choose_thresholds(wild, y, mask=known).values
        == choose_thresholds(p[known[:, 0]], y[known[:, 0]]).values
    )


def test_what_nothing_is_known_of_has_one_half_and_what_cannot_be_told_apart_is_never_given():
    assert choose_thresholds(np.zeros((9, 2)), np.zeros((9, 2))).values.tolist() == [0.5, 0.5]
    known = np.zeros((9, 2), np.bool_)
    assert choose_thresholds(np.full((9, 2), 0.2), np.ones((9, 2)), mask=known).values.tolist() == [0.5, 0.5]
    assert not choose_thresholds(np.full((9, 2), 0.2), np.zeros((9, 2))).tags(np.full((1, 2), 0.2)).any()
    assert Thresholds.half(2).tags([[0.6, 0.5]]).tolist() == [[True, False]]


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("f2", None, "goal is 'f2'"),
        ("f1", 0.5, "has the value 0.5"),
        ("recall", 0.0, "recall is 0.0"),
        ("cost", float("nan"), "cost is nan"),
        ("precision", None, "precision is None"),
        ("precision", 0.0, "precision is 0.0"),
    ],
)
def test_a_goal_that_makes_no_sense_is_refused(kind, value, message):
    with pytest.raises(InputError, match=message):
        Goal(kind, value)
