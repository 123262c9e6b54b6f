"""Memories where no process has all labels: each knows the rows of its own shard, and nobody sends an image.

What a memory looks at is label patterns. So the processes exchange histograms of patterns (WRU, whatever the number of
rows), or a pattern number a row (all others), and every process comes to the choice that one process with all labels
would make, row by row. ``exchange`` gives a value to all processes and returns what each of them gave, in order:
`mlcl.training.processes.Processes.exchange`, or ``torch.distributed.all_gather_object`` in a loop of your own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlcl.errors import InputError
from mlcl.labels import LabelCounts, Labels, Patterns, as_labels
from mlcl.memories.base import TaskSamples, check_int
from mlcl.memories.wru import choose_patterns, occurrence, warn_undefined

Exchange = Callable[[Any], Sequence[Any]]


class Histogram(NamedTuple):
    """How often each label vector occurs in some rows.

    Attributes:
        rows: The distinct label vectors in lexicographic order ``[U, K]``.
        counts: How many rows have each ``[U]``.
    """

    rows: Labels
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, labels: ArrayLike) -> Histogram:
        """Count the rows of a label matrix."""
        found = Patterns.of(labels)
        return cls(found.rows, found.counts)

    def numbers(self, labels: Labels) -> NDArray[np.int64]:
        """Return the pattern of each row of some labels, all of which must occur here."""
        return Patterns.of(np.concatenate([self.rows, labels])).inverse[len(self.rows) :]


class Offer(NamedTuple):
    """Rows of a shard that may be chosen, an entry a row: its pattern, its place in the shuffle, its position."""

    pattern: NDArray[np.int64]
    place: NDArray[np.int64]
    position: NDArray[np.int64]


def merge_histograms(shards: Sequence[Histogram]) -> Histogram:
    """Add up histograms.

    >>> shards = [Histogram.of(labels) for labels in ([[1, 0], [0, 1]], [[1, 0]])]
    >>> merged = merge_histograms(shards)
    >>> merged.rows.tolist(), merged.counts.tolist()
    ([[0, 1], [1, 0]], [1, 2])
    """
    widths = {shard.rows.shape[1] for shard in shards}
    if len(widths) != 1:
        raise InputError(
            f"labels of the shards have {sorted(widths)} columns, expected the same classes everywhere"
        )
    merged = Patterns.of(np.concatenate([shard.rows for shard in shards]))
    counts = np.zeros(len(merged), dtype=np.int64)
    np.add.at(counts, merged.inverse, np.concatenate([shard.counts for shard in shards]))
    return Histogram(merged.rows, counts)


def offer_rows(
    patterns: NDArray[np.int64],
    positions: NDArray[np.int64],
    shuffled: NDArray[np.int64],
    picks: NDArray[np.int64],
) -> Offer:
    """Return the rows of a shard that can be among those chosen: of a pattern chosen t times, its first t.

    Args:
        patterns: Number of each row's pattern in the merged histogram ``[m]``.
        positions: Where each row stands among the rows of all shards ``[m]``.
        shuffled: The shuffle of all rows ``[n]``.
        picks: The pattern of each choice.
    """
    place = np.empty(len(shuffled), dtype=np.int64)
    place[shuffled] = np.arange(len(shuffled))
    order = np.argsort(place[positions])
    own = patterns[order]
    wanted = np.bincount(picks, minlength=int(own.max(initial=-1)) + 1)
    order = order[occurrence(own) < wanted[own]]
    return Offer(patterns[order], place[positions[order]], positions[order])


def settle(offers: Sequence[Offer], picks: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the positions of the rows chosen, in selection order: the j-th choice of a pattern is its j-th place."""
    pattern, place, position = (np.concatenate(columns) for columns in zip(*offers, strict=True))
    order = np.lexsort((place, pattern))
    start = np.searchsorted(pattern[order], picks)
    return np.asarray(position[order][start + occurrence(picks)], dtype=np.int64)


def select_wru_sharded(
    labels: ArrayLike,
    positions: ArrayLike,
    size: int,
    *,
    exchange: Exchange,
    seed: int = 0,
    candidates: int | None = None,
    criterion: str = "ratio",
) -> NDArray[np.int64]:
    """Choose as `mlcl.select_wru` does on the rows of all processes together; every process calls it.

    Two exchanges: the histograms of patterns, and at most ``size`` row numbers a process.

    Args:
        labels: 0/1 labels of this process's rows ``[m, K]``.
        positions: Where these rows stand among the n rows of all processes, from 0 to n - 1 ``[m]``.
        size: Rows to choose over all processes.
        exchange: See the module.
        seed: Seed of the draws, the same everywhere.
        candidates: As in `select_wru`.
        criterion: As in `select_wru`.

    Returns:
        Positions of all rows chosen, in selection order, the same in every process.

    >>> from mlcl import select_wru
    >>> labels = np.array([[1, 0], [0, 1], [0, 1], [0, 1], [0, 0], [0, 1], [0, 0], [1, 1]])
    >>> alone = select_wru_sharded(labels, np.arange(8), 4, exchange=lambda value: [value])
    >>> np.array_equal(alone, select_wru(labels, 4))
    True
    """
    checked = as_labels(labels)
    where = _checked(positions, len(checked))
    merged = merge_histograms(exchange(Histogram.of(checked)))
    total = int(merged.counts.sum())
    _inside(where, total)
    positive = merged.counts @ merged.rows.astype(np.int64)
    counts = LabelCounts(positive, total - positive, total)
    warn_undefined(counts, np.arange(checked.shape[1]), "labels")
    rng = np.random.default_rng(check_int("seed", seed, 0))
    size = check_int("size", size, 0)
    shuffled, picks = choose_patterns(*merged, counts, size, rng, candidates=candidates, criterion=criterion)
    return settle(exchange(offer_rows(merged.numbers(checked), where, shuffled, picks)), picks)


def gather_samples(own: TaskSamples, positions: ArrayLike, *, exchange: Exchange) -> TaskSamples:
    """Return all rows of a task in every process, from the rows that each one has; every process calls it.

    With it any memory that looks at labels updates itself everywhere alike: ``memory.update(gather_samples(...))``.
    Sent are the distinct label vectors, and 24 bytes a row. Extra columns are not sent.

    Args:
        own: This process's rows of the task, with their labels.
        positions: Where these rows stand among those of all processes ``[m]``.
        exchange: See the module.

    >>> own = TaskSamples.of(0, [4, 7], rows=[10, 11], labels=[[1, 0], [1, 1]])
    >>> gather_samples(own, [1, 0], exchange=lambda value: [value]).rows
    array([11, 10])
    """
    where = _checked(positions, len(own))
    found = Patterns.of(own.labels)
    parts = exchange((own.task, own.classes, where, own.rows, found.rows, found.inverse))
    for task, classes, *_ in parts:
        if task != own.task or not np.array_equal(classes, own.classes):
            raise InputError(
                f"task {own.task} meets task {task} of another shard, expected the same task and classes"
            )
    total = sum(len(part[2]) for part in parts)
    rows = np.zeros(total, dtype=np.int64)
    labels = np.zeros((total, len(own.classes)), dtype=np.uint8)
    for _, _, there, numbers, patterns, inverse in parts:
        _inside(there, total)
        rows[there], labels[there] = numbers, patterns[inverse]
    return TaskSamples.of(own.task, own.classes, rows, labels)


def _checked(positions: ArrayLike, rows: int) -> NDArray[np.int64]:
    where = np.asarray(positions, dtype=np.int64)
    if where.shape != (rows,) or len(np.unique(where)) != rows:
        raise InputError(
            f"positions has shape {where.shape}, expected {rows} distinct numbers: one for each row"
        )
    return where


def _inside(where: NDArray[np.int64], total: int) -> None:
    if len(where) and not 0 <= where.min() <= where.max() < total:
        raise InputError(
            f"positions run from {where.min()} to {where.max()}, expected numbers from 0 to {total - 1}"
        )
