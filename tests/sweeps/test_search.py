"""The search for a setting's value, against a brute-force choice over tables of scores."""

from __future__ import annotations

import itertools
import math
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcl.sweeps.tuning import HOPELESS, Rule, beyond, default_grid, search

GRID = (0.01, 0.03, 0.1, 0.3)


def completed(scores, rule, *, grid=GRID, home=None):
    """Search with a table of scores that is only looked at where the search asks; return it and what it asked for."""
    known, asked = {}, []
    while True:
        found = search(grid, lambda *cell, known=known: known.get(cell), rule, home=home)
        if not found.missing:
            return found, asked
        assert not set(found.missing) & set(asked)
        asked += found.missing
        known |= {cell: scores(*cell) for cell in found.missing}


points = st.one_of(st.just(math.nan), st.floats(50, 100))


@given(st.lists(st.tuples(points, points), min_size=4, max_size=4), st.sampled_from(GRID))
def test_the_choice_has_the_best_mean_of_those_that_are_near_the_top_at_the_first_seed(cells, home):
    table = dict(zip(GRID, cells, strict=True))
    found, _ = completed(lambda value, seed: table[value][seed], Rule((0, 1), 0), home=home)
    firsts = [first for first, _ in cells if not math.isnan(first)]
    means = {
        value: fmean(pair)
        for value, pair in table.items()
        if not any(map(math.isnan, pair)) and pair[0] >= max(firsts) - HOPELESS
    }
    if not means:
        assert found.best is None
        return
    best = [value for value, mean in means.items() if mean == max(means.values())]
    nearest = min(abs(GRID.index(value) - GRID.index(home)) for value in best)
    assert found.best in best
    assert abs(GRID.index(found.best) - GRID.index(home)) == nearest


def test_other_seeds_are_for_values_that_are_not_hopeless():
    scores = {0.01: 70.0, 0.03: 80.0, 0.1: 79.0, 0.3: 74.9}
    _, asked = completed(lambda value, _: scores[value], Rule((7, 8, 9)))
    assert asked[:4] == [(value, 7) for value in GRID]
    assert sorted(asked[4:]) == [(0.03, 8), (0.03, 9), (0.1, 8), (0.1, 9)]


@pytest.mark.parametrize(
    ("peak", "extend", "values"),
    [
        (30.0, 2, (*GRID, 0.9, 2.7)),  # the bound: the best one is still at the end
        (1.0, 4, (*GRID, 0.9, 2.7)),  # until the best one has a neighbour
        (0.003, 4, (0.00111111, 0.00333333, *GRID)),
        (0.03, 4, GRID),
    ],
)
def test_a_best_value_at_an_end_extends_the_grid_there(peak, extend, values):
    found, _ = completed(lambda value, _: 90 - abs(math.log(value / peak)), Rule((0,), extend))
    assert found.values == pytest.approx(values, rel=1e-4)
    assert found.best == min(found.values, key=lambda value: abs(math.log(value / peak)))


def test_what_diverges_everywhere_is_tried_lower():
    found, asked = completed(lambda value, _: 80.0 if value < 0.004 else math.nan, Rule((0,)))
    assert found.best == asked[4][0] == pytest.approx(0.01 / 3, rel=1e-4)
    nothing, _ = completed(lambda *_: math.nan, Rule((0,), 2))
    assert nothing.best is None
    assert len(nothing.values) == 6


def test_the_grid_grows_only_to_what_is_allowed():
    found = search((0.5, 1.0), lambda value, _: value, Rule((0,)), allowed=lambda value: value <= 1)
    assert (found.best, found.values) == (1.0, (0.5, 1.0))


@given(st.floats(1e-6, 1e3))
def test_the_default_grid_has_the_value_of_the_row_and_factors_of_two(value):
    grid = default_grid(value)
    assert value in grid
    assert all(high / low == pytest.approx(2) for low, high in itertools.pairwise(grid))


def test_names_and_zero_have_nothing_beyond():
    assert beyond(("a", "b"), -1) is None
    assert beyond((0.0, 0.5), 0) is None
    assert beyond((0.5,), 0) is None
