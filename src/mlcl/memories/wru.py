"""Weight Retain Updating (docs/specification.md#wru): keep samples whose label ratios are those of their task."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlcl.errors import check_choice, check_int
from mlcl.labels import LabelCounts, Labels, Patterns
from mlcl.memories.base import MEMORIES, TaskSamples, quotas
from mlcl.memories.greedy import gaps, greedy, greedy_among

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
    """Choose rows greedily so that each class keeps its ratio of positives to negatives (docs/specification.md#wru).

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

    See docs/specification.md#wru and #memory-distance.

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

    >>> gap_terms(LabelCounts.of([[1, 0], [0, 0], [0, 0], [1, 0]]), np.array([1, 0]), 2, criterion="prevalence")
    array([ 0., nan])
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

    ``new`` may have the extra column ``mass``: how many rows of the stream each of its rows stands for. Rows of a
    pattern are then drawn in proportion to it, and the target comes from its counts instead of its rows. In this way
    a task continues: ``new`` is what is stored of it together with its further rows (see `joined_task`).

    Args:
        stored: What is kept of the past tasks.
        new: All rows of the task.
        size: The largest number of samples kept.
        rng: Random numbers.
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
    chosen = _select(
        Patterns.of(new.labels),
        new.counts,
        fresh,
        rng,
        candidates=candidates,
        criterion=criterion,
        mass=new.extra.get("mass"),
    )
    extra = {name: column for name, column in new.extra.items() if name != "mass"}
    return (*kept, replace(new, extra=extra).take(chosen))


def _select(
    patterns: Patterns,
    counts: LabelCounts,
    size: int,
    rng: np.random.Generator,
    *,
    candidates: int | None,
    criterion: Criterion,
    mass: NDArray[np.float64] | None = None,
) -> NDArray[np.int64]:
    shuffled, picks = _choose_patterns(
        patterns.vectors, patterns.counts, counts, size, rng, candidates=candidates, criterion=criterion
    )
    if mass is not None:  # weighted sampling without replacement: the order of exponential arrival times
        shuffled = np.argsort(rng.exponential(1 / mass))
    # Numbers of 16 bits are sorted in linear time.
    narrow = np.uint16 if len(patterns) < 2**16 else np.int64
    grouped = shuffled[patterns.inverse.astype(narrow)[shuffled].argsort(kind="stable")]
    start = np.cumsum(patterns.counts) - patterns.counts
    return np.asarray(grouped[start[picks] + _occurrence(picks)], dtype=np.int64)


def _choose_patterns(
    rows: Labels,
    counts: NDArray[np.int64],
    task: LabelCounts,
    size: int,
    rng: np.random.Generator,
    *,
    candidates: int | None,
    criterion: Criterion,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a shuffle of all rows, and the label pattern of each choice, which depends on the patterns' counts alone.

    Args:
        rows: Label patterns ``[U, K]`` in lexicographic order.
        counts: How many rows have each, ``[U]``.
        task: Label counts of the task.
        size: Rows to choose.
        rng: Random numbers.
        candidates: As in `select_wru`.
        criterion: As in `select_wru`.
    """
    check_choice("criterion", criterion, get_args(Criterion))
    if candidates is not None:
        check_int("candidates", candidates, 1)
    total = int(counts.sum())
    size = min(size, total)
    if size == 0:
        return np.arange(total), np.zeros(0, dtype=np.int64)
    target, columns = _target(task, criterion)
    # One shuffle, made before any other draw, decides which row of a pattern comes first, which second, ...:
    # a longer selection with the same seed begins with the shorter one.
    shuffled = rng.permutation(total)
    if len(columns) < len(task):
        rows = rows[:, columns]
    if candidates is not None and candidates < total:
        picks = greedy_among(rows, counts, target, size, candidates, rng, criterion=criterion)
    else:
        picks = greedy(rows, counts.copy(), target, np.zeros(len(target)), 0, size, 1, criterion=criterion)
    return shuffled, picks


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
