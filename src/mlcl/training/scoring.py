"""The forward pass over many rows: the one place where rows of an array become features, logits or scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mlcl.datasets import Dataset
from mlcl.streams import Task
from mlcl.training.batches import Normaliser, Rows, gather, slices
from mlcl.training.processes import Processes

Floats = NDArray[np.float32]
Compute = Callable[[NDArray[Any], Sequence[Rows]], Floats]
"""Returns the features of batches of rows of an array, one below the other."""

CACHED = 2 << 30
"""Features of a split are kept in memory up to so many bytes, and computed anew for each task beyond."""


class Scorer:
    """Applies functions of a network to the rows of arrays, in batches; several processes take turns with them.

    Args:
        network: is switched to evaluation mode.
        size: rows per batch.
        processes: that share the work; None: this one alone.

    >>> scorer = Scorer(nn.Identity(), Normaliser(torch.ones(1, 2), torch.zeros(1, 2)), 2)
    >>> scorer(lambda x: 2 * x, np.arange(6, dtype=np.float32).reshape(3, 2), np.array([2, 0]))
    array([[ 8., 10.],
           [ 0.,  2.]], dtype=float32)
    """

    def __init__(
        self, network: nn.Module, normaliser: Normaliser, size: int, processes: Processes | None = None
    ) -> None:
        self.network, self.normaliser, self.size, self.processes = network, normaliser, size, processes

    def __call__(
        self, function: Callable[[Tensor], Tensor], inputs: NDArray[Any], rows: Rows | None = None
    ) -> Floats:
        """Return what the function makes of some rows of an array, or of all."""
        rows = np.arange(len(inputs)) if rows is None else rows
        return self.batches(function, inputs, [rows[piece] for piece in slices(len(rows), self.size)])

    def batches(
        self, function: Callable[[Tensor], Tensor], inputs: NDArray[Any], batches: Sequence[Rows]
    ) -> Floats:
        """Return what the function makes of batches of rows, one below the other."""
        self.network.eval()
        rows, ends = np.concatenate(batches), np.cumsum([len(batch) for batch in batches]).tolist()
        cuts = [slice(end - len(batch), end) for batch, end in zip(batches, ends, strict=True)]
        device, found = self.normaliser.scale.device, []

        def outputs(piece: slice) -> Tensor:
            return function(self.normaliser(gather(inputs, rows[piece]).to(device)))

        with torch.inference_mode():
            if self.processes is None:
                found = [outputs(cut).float().cpu() for cut in cuts]
            else:
                for piece, counts in self.processes.pieces(iter(cuts)):
                    found.append(self.processes.gather(outputs(piece), counts).float().cpu())
        return torch.cat(found).numpy()


class FeatureCache:
    """The features of a split's rows under a backbone that does not change, each computed once.

    A row is always computed in the same batch, so that a run that was resumed has the same bits.

    Args:
        compute: returns the features of batches of rows, one below the other.
        batches: all rows that will be asked for, each in one batch.
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
    """Return caches of both splits' features, by the name of the split."""
    test = [np.arange(piece.start, piece.stop) for piece in slices(len(data.test), size)]
    return {
        split: FeatureCache(partial(compute, part.inputs), batches, rows=len(part), width=width)
        for split, part, batches in (
            ("train", data.train, first_batches(tasks, size)),
            ("test", data.test, test),
        )
    }
