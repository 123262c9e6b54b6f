"""Features under a backbone that does not change, each row computed once: what the exact learner reads in a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets import Dataset
from mlcl.streams import Task
from mlcl.training.batches import Rows, slices

Floats = NDArray[np.float32]
Compute = Callable[[NDArray[Any], Sequence[Rows]], Floats]
"""Returns the features of batches of rows of an array, one below the other."""

CACHED = 2 << 30
"""Features of a split are kept in memory up to so many bytes, and computed anew for each task beyond."""


class FeatureCache:
    """The features of a split's rows under a backbone that does not change, each computed once.

    A row is always computed in the same batch, so that a run that was resumed has the same bits.

    Args:
        compute: returns the features of batches of rows, one below the other.
        batches: all rows that will be asked for, each in one batch.
        rows: number of rows of the split.
        width: number of features.
        limit: bytes above which nothing is kept.

    >>> cache = FeatureCache(lambda batches: np.concatenate(batches)[:, None] * np.ones((1, 2), np.float32),
    ...     [np.array([0, 2]), np.array([1])], rows=3, width=2)
    >>> cache(np.array([2, 1]))
    array([[2., 2.],
           [1., 1.]], dtype=float32)
    """

    def __init__(
        self,
        compute: Callable[[Sequence[Rows]], Floats],
        batches: Sequence[Rows],
        *,
        rows: int,
        width: int,
        limit: int = CACHED,
    ) -> None:
        self.compute, self.batches = compute, batches
        self.batch_of = np.full(rows, -1)
        for number, batch in enumerate(batches):
            self.batch_of[batch] = number
        self.known = np.zeros(len(batches), np.bool_)
        self.kept = np.empty((rows, width), np.float32) if 4 * rows * width <= limit else None

    def __call__(self, rows: Rows) -> Floats:
        """Return the features of some rows, ``[len(rows), width]``."""
        if self.kept is None:
            size = max(map(len, self.batches))
            return self.compute([rows[piece] for piece in slices(len(rows), size)])
        wanted = np.unique(self.batch_of[rows])
        missing = [self.batches[number] for number in wanted[~self.known[wanted]]]
        if missing:
            self.kept[np.concatenate(missing)] = self.compute(missing)
            self.known[wanted] = True
        found: Floats = self.kept[rows]
        return found


def first_batches(tasks: Sequence[Task], size: int) -> list[Rows]:
    """Cut the training rows of all tasks into batches, each row in the first task that has it.

    >>> from mlcl.labels import LabelCounts
    >>> def task(rows):
    ...     return Task(0, np.array([0]), np.array(rows), np.array([]), LabelCounts.of(np.zeros((0, 1))))
    >>> first_batches([task([4, 1, 2]), task([0, 1, 3, 4])], 2)
    [array([4, 1]), array([2]), array([0, 3])]
    """
    found: list[Rows] = []
    seen = np.empty(0, np.int64)
    for task in tasks:
        new = task.train[~np.isin(task.train, seen)]
        found += [new[piece] for piece in slices(len(new), size)]
        seen = np.concatenate([seen, new])
    return found


def feature_caches(
    compute: Compute, data: Dataset, tasks: Sequence[Task], *, size: int, width: int
) -> dict[str, FeatureCache]:
    """Return caches of both splits' features, by the name of the split.

    Args:
        compute: returns the features of batches of rows of an array.
        data: the dataset.
        tasks: whose training rows will be asked for.
        size: rows per batch.
        width: number of features.
    """
    test = [np.arange(piece.start, piece.stop) for piece in slices(len(data.test), size)]
    return {
        split: FeatureCache(partial(compute, part.inputs), batches, rows=len(part), width=width)
        for split, part, batches in (
            ("train", data.train, first_batches(tasks, size)),
            ("test", data.test, test),
        )
    }
