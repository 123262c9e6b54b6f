"""Margins, Proposition 1 and the terms of Theorem 1, against other optimisers and plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from mlcl.errors import InputError
from mlcl.labels import LabelCounts
from mlcl.theory import best_margins, check_proposition, imbalance_terms, numeric_margins, optimal_margins

COUNTS = st.lists(st.integers(1, 100_000), min_size=1, max_size=12)


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(COUNTS, st.floats(0.1, 20))
def test_the_numeric_optimum_is_that_of_a_constrained_optimiser(positive, total):
    """SLSQP gets the constraint of the proposition; the optimiser of the package works without one."""
    weights = np.array(positive, float) ** -0.5
    scaled = weights / weights.max()  # the same minimiser, on the scale that SLSQP's tolerance is made for
    found = minimize(
        lambda d: (scaled / d).sum(),
        np.full(len(weights), 1 / len(weights)),
        jac=lambda d: -scaled / d**2,
        method="SLSQP",
        bounds=[(1e-9, 1)] * len(weights),
        constraints={"type": "eq", "fun": lambda d: d.sum() - 1, "jac": np.ones_like},
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    ours = numeric_margins(weights, total)
    assert ours.sum() == pytest.approx(total)
    assert ours / total == pytest.approx(found.x, rel=1e-3)
    assert (weights / ours).sum() <= (weights / (total * found.x)).sum() * (1 + 1e-9)


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(COUNTS)
def test_proposition_1(positive):
    found = check_proposition(positive)
    counts = np.array(positive, float)
    assert found.closed == pytest.approx(counts**-0.25)
    assert found.difference < 1e-5
    assert found.numeric_value == pytest.approx(found.value, rel=1e-9)
    assert found.value == pytest.approx(
        sum(1 / (d * math.sqrt(p)) for d, p in zip(found.closed, positive, strict=True))
    )
    assert found.equal_value >= found.value * (1 - 1e-12)
    assert found.within == pytest.approx((1, 1), rel=1e-5)
    # the ratios of the paper: D_i : D_j = P_j^(1/4) : P_i^(1/4)
    assert np.outer(found.numeric, counts**0.25) == pytest.approx(
        np.outer(counts**0.25, found.numeric).T, rel=1e-4
    )


def test_two_classes_on_a_grid():
    """The paper's case: of all ways to cut a sum of 3 in two, the formula's is the best."""
    for first, second in ((1, 10_000), (50, 3005), (7, 7)):
        grid = np.linspace(1e-4, 3 - 1e-4, 300_001)
        values = 1 / (grid * math.sqrt(first)) + 1 / ((3 - grid) * math.sqrt(second))
        found = check_proposition([first, second], total=3.0)
        assert found.closed[0] == pytest.approx(grid[values.argmin()], abs=2e-5)
        assert found.value <= values.min() + 1e-12
        formula = 3 * second**0.25 / (first**0.25 + second**0.25)
        assert found.closed[0] == pytest.approx(formula)


def test_within_a_class_equal_margins_are_best():
    grid = np.linspace(0.01, 1.99, 19_801)
    assert grid[(1 / grid + 1 / (2 - grid)).argmin()] == pytest.approx(1)
    assert check_proposition([37]).within == pytest.approx((1, 1))


def test_a_wrong_exponent_is_noticed():
    """The check can fail: a third instead of a quarter is not the optimum that is found."""
    counts = np.array([10.0, 1000.0])
    wrong = counts ** (-1 / 3)
    found = numeric_margins(counts**-0.5, wrong.sum())
    assert abs(found / wrong - 1).max() > 0.1


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.tuples(st.integers(1, 500), st.integers(1, 500)), min_size=1, max_size=6), st.floats(0.1, 9)
)
def test_terms_against_a_loop(pairs, margin):
    total = max(p + n for p, n in pairs)
    # one dataset: every class is counted on the same rows
    pairs = [(p, total - p) for p, _ in pairs if total - p > 0] or [(1, total - 1)]
    positive, negative = np.array(pairs).T
    counts = LabelCounts(positive, negative, total)
    margins = optimal_margins(counts, margin=margin)
    first = second = plain = 0.0
    for p, n in pairs:
        tau = min(p, n) / total
        d = margin / p**0.25
        first += math.sqrt(1 / tau) * (1 / d + 1 / d) / len(pairs)
        plain += math.sqrt(1 / tau) * 2 / len(pairs)
        second += 1 / tau / len(pairs)
    terms = imbalance_terms(counts, margins)
    assert terms.complexity == pytest.approx(first)
    assert terms.complexity_lipschitz == pytest.approx(plain)
    assert terms.deviation == pytest.approx(math.sqrt(second))
    assert terms.rate() == pytest.approx(first / math.sqrt(total))
    assert (terms.rows, terms.classes, terms.lost) == (total, len(pairs), 0)
    # any other margins of the same sum are between the best and the rest
    assert terms.complexity_best <= min(terms.complexity, terms.complexity_equal) * (1 + 1e-12)
    some = np.random.default_rng(len(pairs)).dirichlet(np.ones(len(pairs)), 50) * margins.sum() + 1e-12
    assert all(imbalance_terms(counts, d).complexity >= terms.complexity_best * (1 - 1e-9) for d in some)


def test_margins_of_the_minority_are_the_best_for_the_bound():
    """The theorem has min(P, N): where P is the larger, the paper's margins are not the optimum of its own term."""
    counts = LabelCounts([90, 5, 40], [10, 95, 60], 100)
    paper, minority = (
        imbalance_terms(counts, optimal_margins(counts, margin_count=count))
        for count in ("positive", "minority")
    )
    assert minority.complexity == pytest.approx(minority.complexity_best)
    assert paper.complexity > 1.01 * paper.complexity_best


def test_terms_of_lost_classes_and_of_nothing():
    lost = imbalance_terms(LabelCounts([0, 2], [4, 2], 4), [1.0, 1.0])
    assert (lost.lost, lost.complexity, lost.deviation, lost.rate("deviation")) == (
        1,
        math.inf,
        math.inf,
        math.inf,
    )
    for counts in (LabelCounts([0], [0], 0), LabelCounts([], [], 5)):
        terms = imbalance_terms(counts, np.ones(len(counts)))
        assert math.isnan(terms.complexity)
        assert math.isnan(terms.rate())


def test_an_undefined_class_has_no_margin():
    assert np.isnan(optimal_margins(LabelCounts([0, 4, 16], [4, 0, 3], 19))).tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: optimal_margins(LabelCounts([1], [1], 2), margin=0.0), "margin is 0.0"),
        (lambda: optimal_margins(LabelCounts([1], [1], 2), margin=math.nan), "margin is nan"),
        (lambda: check_proposition([3, 0]), r"positive is \[3.0, 0.0\]"),
        (lambda: check_proposition([]), r"positive is \[\]"),
        (lambda: check_proposition([3], total=-1.0), "total is -1.0"),
        (lambda: best_margins([[1.0]], 1.0), "weights is"),
        (lambda: imbalance_terms(LabelCounts([1], [1], 2), [1.0, 1.0]), "for each of 1 classes"),
        (lambda: imbalance_terms(LabelCounts([1], [1], 2), [math.inf]), "margins is"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(InputError, match=words):
        call()
