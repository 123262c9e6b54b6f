"""Greedy selection over label patterns: the inner loop of WRU (docs/specification.md#wru).

``J``, the gap between the label counts of a selection and those wanted, depends on label vectors alone. So the
choice is between the distinct vectors, the patterns, and one product scores all of them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mlcl.labels import Labels

# A matrix of so few cells is multiplied whole whatever is in it, and one of so many never: as doubles it would
# take 96 MB. Between the two, it is faster to add up its ones where they are fewer than one cell in five.
_SMALL, _LARGE = 1 << 16, 1 << 22


def greedy(
    rows: Labels,
    left: NDArray[np.int64],
    target: NDArray[np.float64],
    have: NDArray[np.float64],
    held: int,
    steps: int,
    sign: int,
    *,
    criterion: str,
) -> NDArray[np.int64]:
    """Add (``sign`` 1) or remove (-1) rows one at a time so that ``J`` is least; return the patterns taken.

    ``rows`` are the patterns ``[U, K]``, ``left`` how many rows of each can still be taken (counted down
    in place), ``have`` the class counts of the ``held`` rows to start from.

    For each class there are only two possible counts after a step, ``c_k`` and ``c_k + sign``, so
    ``J(pattern) = sum_k J_k(c_k) + pattern . (J(c + sign) - J(c))``: one product scores all patterns.
    """
    whole = rows.size <= _SMALL or (rows.size <= _LARGE and rows.size <= 5 * np.count_nonzero(rows))
    table = _Dense(rows, left) if whole else _Sparse(rows, left)
    counts, target = np.stack([have, have + sign]), np.stack([target, target])
    terms = np.empty_like(counts)
    stay, move = terms
    remaining = left.tolist()
    picks = []
    # About 6 microseconds per step where patterns are few, most of it the cost of calling numpy: so arrays are
    # made once and changed in place, and none is broadcast.
    for step in range(steps):
        gaps(target, counts, held + sign * (step + 1), criterion, out=terms)
        if step % 32 == 0:
            slack = _slack(stay)
        np.subtract(move, stay, out=table.delta)
        best = table.best(slack)
        picks.append(best)
        if sign > 0:
            counts += table.twice(best)
        else:
            counts -= table.twice(best)
        remaining[best] -= 1
        if remaining[best] == 0:
            table.close(best)
    left[:] = remaining
    return np.array(picks, dtype=np.int64)


def greedy_among(
    rows: Labels,
    left: NDArray[np.int64],
    target: NDArray[np.float64],
    steps: int,
    candidates: int,
    rng: np.random.Generator,
    *,
    criterion: str,
) -> NDArray[np.int64]:
    """Add rows one at a time, each the best of ``candidates`` drawn from those left; return the patterns taken.

    A step costs O(candidates), however many rows or patterns there are.
    """
    pool = np.repeat(np.arange(len(rows)), left)  # the pattern of each row that is left
    counts = np.zeros((2, len(target)))
    counts[1] = 1
    # The classes of each pattern, filled up with the number K, for which there is nothing to add.
    width = rows.sum(axis=1, dtype=np.int64)
    members = np.full((len(rows), max(int(width.max()), 1)), len(target), dtype=np.int32)
    which, column = np.nonzero(rows)
    members[which, np.arange(len(which)) - np.repeat(np.cumsum(width) - width, width)] = column
    delta = np.zeros(len(target) + 1)
    picks = []
    for step in range(steps):
        rest = len(pool) - step
        at = rng.choice(rest, size=min(candidates, rest), replace=False, shuffle=False)
        terms = gaps(target, counts, step + 1, criterion)
        np.subtract(terms[1], terms[0], out=delta[:-1])
        drawn = pool[at]
        score = delta.take(members[drawn]).sum(axis=1)
        good = np.flatnonzero(score <= score.min() + _slack(terms[0]))
        best = good[drawn[good].argmin()]
        picks.append(drawn[best])
        counts += rows[drawn[best]]
        pool[at[best]] = pool[rest - 1]  # what is last takes the free place
    return np.array(picks, dtype=np.int64)


class _Dense:
    """The patterns as a matrix of doubles, to be multiplied by `delta`: what each class adds to ``J``."""

    def __init__(self, rows: Labels, left: NDArray[np.int64]) -> None:
        # The last column, always taken whole, is infinite for a pattern that is used up.
        self.rows = np.asfortranarray(np.column_stack([rows, np.where(left > 0, 0.0, np.inf)]))
        self.pairs = np.stack([rows, rows], axis=1).astype(np.float64)
        self.factor = np.ones(rows.shape[1] + 1)
        self.delta = self.factor[:-1]
        self.score, self.good = np.empty(len(rows)), np.empty(len(rows), dtype=np.bool_)

    def best(self, slack: float) -> int:
        """Return the first pattern that is best up to ``slack``: the choice does not depend on the order of a sum."""
        score = self.rows.dot(self.factor, self.score)
        return int(np.less_equal(score, score[score.argmin()] + slack, out=self.good).argmax())

    def twice(self, pattern: int) -> NDArray[np.float64]:
        """Return a pattern as two equal rows."""
        pair: NDArray[np.float64] = self.pairs[pattern]
        return pair

    def close(self, pattern: int) -> None:
        """Note that a pattern is used up."""
        self.rows[pattern, -1] = np.inf


class _Sparse:
    """The same from the labels that the patterns have, where patterns times classes are too many.

    Patterns with many labels come first, so that all first labels, all second labels, ... are each added to the
    scores by one call, which costs as much as there are labels.
    """

    def __init__(self, rows: Labels, left: NDArray[np.int64]) -> None:
        parts = np.array_split(rows, 1 + rows.size // _LARGE)  # numpy's working memory is eight times a part
        width = np.concatenate([np.count_nonzero(part, axis=1) for part in parts])
        column = np.concatenate([np.nonzero(part)[1] for part in parts])
        self.order = np.argsort(-width, kind="stable")
        start = (np.cumsum(width) - width)[self.order]
        longer = [int(np.count_nonzero(width > place)) for place in range(int(width.max(initial=0)))]
        self.layers = [column[start[:many] + place] for place, many in enumerate(longer)]
        self.rows, self.delta = rows, np.empty(rows.shape[1])
        self.place = np.empty(len(rows), dtype=np.int64)
        self.place[self.order] = np.arange(len(rows))
        self.closed = np.where(left > 0, 0.0, np.inf)[self.order]

    def best(self, slack: float) -> int:
        """Return the first pattern that is best up to ``slack``."""
        score = self.closed.copy()
        for layer in self.layers:
            score[: len(layer)] += self.delta[layer]
        return int(self.order[score <= score[score.argmin()] + slack].min())

    def twice(self, pattern: int) -> Labels:
        """Return a pattern as two equal rows."""
        return np.stack([self.rows[pattern], self.rows[pattern]])

    def close(self, pattern: int) -> None:
        """Note that a pattern is used up."""
        self.closed[self.place[pattern]] = np.inf


def _slack(stay: NDArray[np.float64]) -> float:
    """Return the difference up to which two values of ``J`` count as equal; ``stay`` sums up to one such value."""
    return 1e-12 * (1.0 + 2.0 * float(stay.sum()))


def gaps(
    target: NDArray[np.float64],
    counts: NDArray[np.int64] | NDArray[np.float64],
    held: int,
    criterion: str,
    out: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Return each class's part of ``J`` for class counts ``[..., K]`` among ``held`` rows."""
    if criterion == "ratio":
        out = np.subtract(held + 0.01, counts, out=out)
        out = np.divide(counts, out, out=out)
    else:
        out = np.divide(counts, max(held, 1), out=out)
    out = np.subtract(target, out, out=out)
    return np.abs(out, out=out)
