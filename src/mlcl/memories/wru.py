"""Weight Retain Updating (specification.md#wru): keep samples whose label ratios are those of their task."""

from __future__ import annotations

import warnings
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlcl.errors import check_choice, check_int
from mlcl.labels import LabelCounts, Labels, Patterns
from mlcl.memories.base import MEMORIES, TaskSamples, quotas

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


Criterion = Literal["ratio", "prevalence"]
Shrink = Literal["prefix", "greedy_removal", "random"]


def select_wru(
    labels: ArrayLike,
    size: int,
    *,
    seed: int = 0,
    candidates: int | None = None,
    criterion: Criterion = "ratio",
) -> NDArray[np.int64]:
    """Choose rows greedily so that each class keeps its ratio of positives to negatives (specification.md#wru).

    With class counts ``c`` and ``s`` rows chosen so far, the next row minimises
    ``J = sum_k | P_k/N_k - (c_k + y_k) / (s + 1 - c_k - y_k + 0.01) |``. ``J`` depends on the label
    vector alone, so rows are grouped by label pattern and the greedy choice is exact over all rows.
    Equally good patterns (equal up to rounding): the first in lexicographic order of the label vectors.
    Within a pattern the row is drawn at random.

    Args:
        labels: 0/1 labels ``[n, K]``. Classes without a positive or without a negative stay out of ``J``,
            with a warning.
        size: Rows to choose; more than there are gives all rows, in greedy order.
        seed: Seed of the draws.
        candidates: If given, each step looks at that many random remaining rows only (the paper's appendix): for
            selections of many thousands among very many label patterns.
        criterion: ``"ratio"`` as above, or ``"prevalence"``: ``| P_k/n - (c_k + y_k)/(s + 1) |``.

    Returns:
        Row indices ``[min(size, n)]`` in selection order; the first ``q`` of them are the selection of
        size ``q``.

    >>> labels = np.array([[1, 0], [0, 1], [0, 1], [0, 1], [0, 0], [0, 1], [0, 0], [1, 1]])
    >>> chosen = select_wru(labels, 4)
    >>> labels[chosen].mean(axis=0), labels.mean(axis=0)
    (array([0.25, 0.5 ]), array([0.25 , 0.625]))
    """
    patterns = Patterns.of(labels)
    counts = patterns.label_counts()
    _warn_undefined(counts, np.flatnonzero(~counts.defined))
    rng = np.random.default_rng(check_int("seed", seed, 0))
    size = check_int("size", size, 0)
    return _select(patterns, counts, size, rng, candidates=candidates, criterion=criterion)


def wru_gap(counts: LabelCounts, labels: Labels, *, criterion: Criterion = "ratio") -> float:
    """Return ``J`` of a set of rows: the distance of its label counts from the task's, 0 at best.

    See specification.md#wru and #memory-distance.

    >>> labels = np.array([[1], [0], [0], [1]], dtype=np.uint8)
    >>> round(wru_gap(LabelCounts.of(labels), labels[:2], criterion="prevalence"), 3)
    0.0
    """
    chosen = labels.sum(axis=0, dtype=np.int64)
    return float(gap_terms(counts, chosen, len(labels), criterion=criterion)[counts.defined].sum())


def gap_terms(
    counts: LabelCounts, chosen: NDArray[np.int64], held: int, *, criterion: Criterion = "ratio"
) -> NDArray[np.float64]:
    """Return each class's term of ``J`` if ``held`` rows have the class counts ``chosen``, ``[..., K]``.

    A class without positives or negatives in the task has no term; its value is nan.
    """
    check_choice("criterion", criterion, get_args(Criterion))
    target, columns = _target(counts, criterion)
    terms = np.full(chosen.shape, np.nan)
    terms[..., columns] = gaps(target, chosen[..., columns], held, criterion)
    return terms


@MEMORIES.register(
    "wru",
    summary="Keeps each class's ratio of positives to negatives, task by task (the paper's method).",
    reference="Towards Macro-AUC oriented Imbalanced Multi-Label Continual Learning, AAAI 2025",
)
def update_wru(
    stored: tuple[TaskSamples, ...],
    new: TaskSamples,
    size: int,
    rng: np.random.Generator,
    *,
    candidates: int | None = None,
    criterion: Criterion = "ratio",
    shrink: Shrink = "prefix",
) -> tuple[TaskSamples, ...]:
    """Cut the old tasks to their new quota, then choose the quota of the new one as `select_wru` does.

    ``shrink`` says how an old task is cut: ``"prefix"`` keeps the first of its selection order (a prefix
    of a greedy selection is a greedy selection), ``"greedy_removal"`` drops one row at a time so that
    ``J`` of the rest is least (within a pattern the row chosen last), ``"random"`` drops rows uniformly.
    The order of the kept rows never changes.

    Args:
        candidates: How many random remaining rows each step looks at; by default all of them.
        criterion: What each class keeps: its ratio of positives to negatives, or its share of positives.
        shrink: How an old task is cut to its new quota: the first rows of its selection order, greedily, or at random.
    """
    check_choice("shrink", shrink, get_args(Shrink))
    *old, fresh = quotas(size, [len(samples) for samples in (*stored, new)])
    kept = []
    for samples, quota in zip(stored, old, strict=True):
        if shrink == "prefix":
            index = np.arange(quota)
        elif shrink == "random":
            index = np.sort(rng.permutation(len(samples))[:quota])
        else:
            index = _thin_out(samples, quota, criterion)
        kept.append(samples.take(index))
    _warn_undefined(new.counts)
    patterns = Patterns.of(new.labels)
    chosen = _select(patterns, new.counts, fresh, rng, candidates=candidates, criterion=criterion)
    return (*kept, new.take(chosen))


def _select(
    patterns: Patterns,
    counts: LabelCounts,
    size: int,
    rng: np.random.Generator,
    *,
    candidates: int | None,
    criterion: Criterion,
) -> NDArray[np.int64]:
    """Return the rows chosen, in order; the pattern of each choice depends on the patterns' counts alone."""
    check_choice("criterion", criterion, get_args(Criterion))
    if candidates is not None:
        check_int("candidates", candidates, 1)
    total = int(patterns.counts.sum())
    size = min(size, total)
    if size == 0:
        return np.zeros(0, dtype=np.int64)
    target, columns = _target(counts, criterion)
    # One shuffle, made before any other draw, decides which row of a pattern comes first, which second, ...:
    # a longer selection with the same seed begins with the shorter one.
    shuffled, rows = rng.permutation(total), patterns.vectors
    if len(columns) < len(counts):
        rows = rows[:, columns]
    if candidates is not None and candidates < total:
        picks = greedy_among(rows, patterns.counts, target, size, candidates, rng, criterion=criterion)
    else:
        left, none = patterns.counts.copy(), np.zeros(len(target))
        picks = greedy(rows, left, target, none, 0, size, 1, criterion=criterion)
    # Numbers of 16 bits are sorted in linear time.
    narrow = np.uint16 if len(patterns) < 2**16 else np.int64
    grouped = shuffled[patterns.inverse.astype(narrow)[shuffled].argsort(kind="stable")]
    start = np.cumsum(patterns.counts) - patterns.counts
    return np.asarray(grouped[start[picks] + _occurrence(picks)], dtype=np.int64)


def _thin_out(samples: TaskSamples, quota: int, criterion: Criterion) -> NDArray[np.int64]:
    """Return the positions left when rows are removed one by one, each so that ``J`` of the rest is least."""
    check_choice("criterion", criterion, get_args(Criterion))
    if quota >= len(samples):
        return np.arange(len(samples))
    target, columns = _target(samples.counts, criterion)
    patterns = Patterns.of(samples.labels)
    left = patterns.counts.copy()
    have = samples.labels[:, columns].sum(axis=0, dtype=np.float64)
    steps = len(samples) - quota
    greedy(patterns.vectors[:, columns], left, target, have, len(samples), steps, -1, criterion=criterion)
    # The rows of a pattern that were chosen last go first.
    return np.flatnonzero(_occurrence(patterns.inverse) < left[patterns.inverse])


def _target(counts: LabelCounts, criterion: Criterion) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the target of each class that has positives and negatives, and the columns of these classes."""
    columns = np.flatnonzero(counts.defined)
    positive = counts.positive[columns]
    return positive / (counts.negative[columns] if criterion == "ratio" else counts.total), columns


def _occurrence(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return 0 for the first appearance of each id, 1 for its second, and so on."""
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    number = np.empty(len(ids), dtype=np.int64)
    number[order] = np.arange(len(ids)) - np.searchsorted(ordered, ordered)
    return number


def _warn_undefined(counts: LabelCounts, columns: NDArray[np.int64] | None = None) -> None:
    """Warn of classes without positives or negatives, which WRU leaves out of its criterion.

    The sentence names no task and, in a memory, no class: Python shows a warning of the same words once, so a stream
    with many such classes is not a warning per task. Which classes they are is in the notes of its benchmark.
    """
    if counts.total and not counts.defined.all():
        named = (
            ""
            if columns is None
            else f" (columns {', '.join(map(str, columns[:10]))}{', ...' * (len(columns) > 10)})"
        )
        warnings.warn(
            f"classes without a positive or without a negative row{named} stay out of WRU's criterion",
            stacklevel=3,
        )
