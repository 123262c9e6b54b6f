"""The search for a setting's best value, as pure functions: which cells are to be measured next, and the choice.

A cell is a value at a seed. Values are tried at the first seed; those that are not far below the best one there are
tried at the other seeds; the best mean is chosen; and where it is at an end of the grid, the grid grows at that end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

Value = str | int | float
Score = Callable[[Value, int], float | None]
"""What a value gives at a seed: more is better, nan where training diverged, None if it is not known yet."""

FACTOR = 2.0
STEPS = (-3, -2, -1, 0, 1, 2)
"""The default grid: these powers of the factor, times the value that the row has without tuning."""
HOPELESS = 5.0
"""Points below the best value at the first seed from which on a value is not tried at the other seeds."""


@dataclass(frozen=True)
class Rule:
    """How values are compared: each at the first seed, those that are not hopeless at the others, too.

    At each end of the grid ``extend`` values may be added.
    """

    seeds: tuple[int, ...]
    extend: int = 4


@dataclass(frozen=True)
class Found:
    """How far a search is: the grid as far as it has grown, the cells to measure next, and at the end the choice.

    Nothing is chosen where every value diverged.
    """

    values: tuple[Value, ...]
    missing: tuple[tuple[Value, int], ...] = ()
    best: Value | None = None


def default_grid(value: object) -> tuple[Value, ...]:
    """Return the default grid around a value; whole numbers stay whole. There is none unless it is a number above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        return ()
    values = [value * FACTOR**step for step in STEPS]
    return tuple(dict.fromkeys(round(v) for v in values if v >= 1)) if isinstance(value, int) else (*values,)


def search(
    values: Sequence[Value],
    score: Score,
    rule: Rule,
    *,
    home: Value | None = None,
    allowed: Callable[[Value], bool] = lambda _: True,
) -> Found:
    """Return what to measure next, or the choice; it depends on nothing but the scores.

    Args:
        values: the grid to begin with, in order.
        score: what is known.
        rule: seeds and bounds.
        home: the value without tuning; of equally good values the nearest to it in the grid is chosen.
        allowed: whether the grid may grow to a value.

    >>> points = {0.1: 70.0, 0.2: 74.0, 0.4: 73.0}
    >>> search([0.1, 0.2], lambda value, seed: points.get(value), Rule((0,)))
    Found(values=(0.1, 0.2, 0.4), missing=(), best=0.2)
    >>> search([0.1, 0.4, 1.6], lambda value, seed: points.get(value), Rule((0,))).missing
    ((1.6, 0),)
    """
    grid, left = list(values), {0: rule.extend, -1: rule.extend}
    while True:
        if missing := _missing(grid, score, rule):
            return Found(tuple(grid), missing)
        best = _best(grid, score, rule, home)
        end = 0 if best in (None, grid[0]) else -1  # what diverges everywhere is tried lower
        more = beyond(grid, end) if left[end] and best in (None, grid[end]) else None
        if more is None or not allowed(more):
            return Found(tuple(grid), (), best)
        grid.insert(0 if end == 0 else len(grid), more)
        left[end] -= 1


def beyond(grid: Sequence[Value], end: int) -> Value | None:
    """Return the value that continues a grid at an end (0 or -1) by the ratio that it has there; None if none does."""
    edge, inner = (
        (grid[0], grid[1]) if end == 0 and len(grid) > 1 else (grid[-1], grid[max(len(grid) - 2, 0)])
    )
    if isinstance(edge, str) or isinstance(inner, str) or edge == inner or edge <= 0 or inner <= 0:
        return None
    value = float(f"{edge * edge / inner:.6g}")
    if not all(isinstance(one, int) for one in grid):
        return value
    whole = round(value) if round(value) != edge else edge + (1 if edge > inner else -1)
    return whole if whole >= 1 else None


def _missing(grid: Sequence[Value], score: Score, rule: Rule) -> tuple[tuple[Value, int], ...]:
    """Return the cells to measure next: at the first seed, and when all of these are known, at the others."""
    first = tuple((value, rule.seeds[0]) for value in grid if score(value, rule.seeds[0]) is None)
    promising = [] if first else _promising(grid, score, rule)
    return first or tuple(
        (value, seed) for seed in rule.seeds[1:] for value in promising if score(value, seed) is None
    )


def _promising(grid: Sequence[Value], score: Score, rule: Rule) -> list[Value]:
    """Return the values that are not far below the best one at the first seed."""
    points = {value: _points(score(value, rule.seeds[0])) for value in grid}
    top = max(points.values())
    return [value for value in grid if math.isfinite(points[value]) and points[value] >= top - HOPELESS]


def _best(grid: Sequence[Value], score: Score, rule: Rule, home: Value | None) -> Value | None:
    """Return the value with the best mean over all seeds; one that diverges at any of them is worst."""
    means = {
        value: fmean(_points(score(value, seed)) for seed in rule.seeds)
        for value in _promising(grid, score, rule)
    }
    known = [value for value, mean in means.items() if math.isfinite(mean)]
    near = grid.index(home) if home in grid else len(grid) // 2
    return max(known, key=lambda value: (means[value], -abs(grid.index(value) - near)), default=None)


def _points(score: float | None) -> float:
    return -math.inf if score is None or math.isnan(score) else score
