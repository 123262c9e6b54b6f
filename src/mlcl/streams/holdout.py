"""Rows of the training split that are not trained on: a validation benchmark, and rows for probabilities."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets.base import Dataset, Split
from mlcl.errors import InputError
from mlcl.streams.benchmark import Benchmark
from mlcl.streams.draws import HOLD_OUT, KEEP_OUT, generator
from mlcl.streams.tasks import Task

B = TypeVar("B", bound=Benchmark)


def hold_out(dataset: Dataset, *, fraction: float = 0.2, seed: int = 0) -> Dataset:
    """Return a dataset whose test split is a part of the training rows; the real test split is not in it.

    Rows are drawn uniformly, once for all tasks, and stay in their order. Inputs in memory are copied; of a
    memory map only the row numbers are kept, and rows are read when they are needed.

    Args:
        dataset: the dataset whose training split is divided.
        fraction: share of the training rows to hold out, above 0 and below 1; either part has at least one row.
        seed: seed of the draw.

    >>> y = np.ones((10, 1))
    >>> part = hold_out(Dataset.of("tiny", ["cat"], np.arange(10)[:, None], y, np.zeros((3, 1)), y[:3]))
    >>> part.train.inputs.ravel(), part.test.inputs.ravel()
    (array([0., 1., 2., 3., 4., 6., 7., 8.], dtype=float32), array([5., 9.], dtype=float32))
    """
    if not 0 < fraction < 1:
        raise InputError(f"fraction is {fraction}; expected a number above 0 and below 1")
    total = len(dataset.train)
    if total < 2:
        raise InputError(
            f"{dataset.name!r} has {total} training row, but at least 2 were expected to hold out one"
        )
    count = min(max(1, round(total * fraction)), total - 1)
    order = generator(seed, HOLD_OUT).permutation(total)
    held, kept = np.sort(order[:count]), np.sort(order[count:])
    # Derived from the known fingerprint and the row numbers: the content need not be read again.
    digest = hashlib.sha256(dataset.fingerprint.encode() + held.astype("<i8").tobytes())
    return Dataset(
        name=f"{dataset.name}-validation",
        classes=dataset.classes,
        train=_take(dataset.train, kept),
        test=_take(dataset.train, held),
        fingerprint=digest.hexdigest()[:16],
        augmentation=dataset.augmentation,
        origin=dataset.origin,
        options=dataset.options,
    )


def keep_out(benchmark: B, *, share: float, seed: int = 0, rows: NDArray[np.int64] | None = None) -> B:
    """Return the benchmark without a share of its training rows, which are its ``held_out`` rows.

    They are drawn uniformly, once for all tasks, so that a row that is held out is trained on for no class; but no
    class loses the last positive of its task, and no task its last row.

    Args:
        benchmark: the tasks.
        share: of the training rows, above 0 and below 1.
        seed: seed of the draw.
        rows: the rows to draw from; those of all tasks by default.

    >>> y = np.array([[1, 1], [1, 0], [0, 1], [1, 0], [0, 1]] * 2)
    >>> stream = Benchmark.from_arrays(np.arange(10)[:, None], y, np.zeros((5, 1)), y[:5], tasks=1)
    >>> part = keep_out(stream, share=0.2)
    >>> part.held_out, part.tasks[0].train, part.tasks[0].counts.positive.tolist()
    (array([1, 7]), array([0, 2, 3, 4, 5, 6, 8, 9]), [5, 5])
    """
    if not 0 < share < 1:
        raise InputError(f"held_out is {share}; expected a share above 0 and below 1")
    pool = np.unique(np.concatenate([task.train for task in benchmark.tasks])) if rows is None else rows
    train, labels = benchmark.dataset.train, benchmark.dataset.train.labels
    count = min(max(1, round(len(pool) * share)), max(len(pool) - 1, 0))
    held = np.zeros(len(labels), np.bool_)
    held[generator(seed, KEEP_OUT).permutation(pool)[:count]] = True
    for task in benchmark.tasks:
        own = labels[np.ix_(task.train, task.classes)] > 0
        lost = own.any(axis=0) & ~own[~held[task.train]].any(axis=0)
        held[task.train[own[:, lost].any(axis=1)]] = False
        if held[task.train].all():
            held[task.train[:1]] = False
    tasks = tuple(_without(task, held, train) for task in benchmark.tasks)
    return replace(benchmark, tasks=tasks, held_out=np.flatnonzero(held))


def _without(task: Task, held: NDArray[np.bool_], split: Split) -> Task:
    """Return a task without the rows that are held out; one that loses none stays as it is."""
    if not held[task.train].any():
        return task
    left = task.train[~held[task.train]]
    return replace(task, train=left, counts=split.counts(left, task.classes))


class RowView:
    """Some rows of an array that is too large to copy; indexed by row only, and the rows that are taken are copied."""

    def __init__(self, base: NDArray[Any], rows: NDArray[np.int64]) -> None:
        self.base, self.rows = base, rows
        self.shape = (len(rows), *base.shape[1:])
        self.dtype, self.ndim = base.dtype, base.ndim
        self.nbytes = base.nbytes // max(1, len(base)) * len(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> NDArray[Any]:
        return np.asarray(self.base[self.rows[index]])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:].astype(self.dtype if dtype is None else dtype, copy=False)


def _take(split: Split, rows: NDArray[np.int64]) -> Split:
    """Return some rows of a split."""
    large = isinstance(split.inputs, np.memmap | RowView)
    inputs = RowView(split.inputs, rows) if large else split.inputs[rows]
    known = None if split.known is None else split.known[rows]
    return Split(cast("NDArray[Any]", inputs), split.labels[rows], known)
