"""The exact head inside a run: features of a fixed backbone, the sums of them, and the weights that follow.

Nothing is trained. At the end of a task its rows go through the backbone once, their sums are added to those of the
tasks before, and the weights of the linear layer are solved anew: see docs/specification.md#exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mlcl.config.schema import ExactConfig
from mlcl.errors import InputError
from mlcl.exact import Learner as ExactLearner
from mlcl.exact import Options, solve
from mlcl.exact.ridge import Choice
from mlcl.labels import Labels
from mlcl.models import LinearHead, Network
from mlcl.streams import Task
from mlcl.training.batches import Rows, slices

Floats = NDArray[np.float32]

DIMENSIONS = 256
"""Principal components of features, unless a setting or the backbone says otherwise."""
CACHED = 2 << 30
"""Features of a split are kept in memory up to so many bytes, and computed anew for each task beyond."""


class ExactHead:
    """The sums behind a network's exact head.

    Args:
        config: what is solved.
        network: with a linear head, whose weights `write` sets.
        seed: of directions that the first rows do not determine.

    Attributes:
        learner: feature map and sums; None before the first task.
        choice: ridge, exponent and weight of unlabelled rows of the last solution.
    """

    def __init__(self, config: ExactConfig, network: Network, *, seed: int) -> None:
        self.config, self.seed = config, seed
        self.linear = cast(LinearHead, network.head).linear
        self.dimensions = config.dimensions or (None if network.backbone.projects else DIMENSIONS)
        self.learner: ExactLearner | None = None
        self.choice: Choice | None = None

    @property
    def nbytes(self) -> int:
        """Return the size of the sums in bytes: all that the head remembers."""
        return 0 if self.learner is None else self.learner.nbytes

    def learn(
        self, features: Floats, labels: Labels, classes: Rows, annotated: NDArray[np.bool_] | None = None
    ) -> None:
        """Add the rows of a task to the sums; the first ones also fix the feature map.

        Args:
            features: ``[n, D]``.
            labels: of the task's classes, ``[n, len(classes)]``.
            classes: their ids.
            annotated: which labels are known; all by default.
        """
        if self.learner is None:
            self.learner = ExactLearner.begin(features, dimensions=self.dimensions, seed=self.seed)
        if (total := self.linear.out_features) > self.learner.classes:
            # All classes at once: those that no row was annotated for yet then share their empty sums.
            nothing = np.zeros((0, total), np.uint8)
            self.learner = self.learner.learn(features[:0], nothing, range(total))
        self.learner = self.learner.learn(features, labels, classes.tolist(), annotated=annotated)

    def solve(self) -> tuple[Floats, Floats]:
        """Return weights ``[K, D]`` and biases ``[K]``, whose scores are log-odds; zeros for classes to come."""
        if self.learner is None:
            raise InputError("the exact head has learnt no rows yet.")
        config, sums = self.config, self.learner.sums
        found = solve(
            self.learner,
            Options(
                unlabelled=config.unlabelled, goal=config.goal, ridge=config.ridge, exponent=config.exponent
            ),
        )
        self.choice = found.choice
        known = np.array([sums.annotated_for(k).count > 0 for k in range(sums.classes)])
        return found.weights.astype(np.float32), np.where(known, found.intercepts, 0).astype(np.float32)

    def write(self, weights: Floats, bias: Floats) -> None:
        """Put what `solve` found into the network's linear layer."""
        with torch.no_grad():
            self.linear.weight.copy_(torch.from_numpy(weights))
            self.linear.bias.copy_(torch.from_numpy(bias))

    def state(self) -> dict[str, Tensor]:
        """Return the sums and the feature map as tensors by name: what a checkpoint and a run folder hold."""
        found = {} if self.learner is None else self.learner.arrays()
        return {name: torch.from_numpy(value) for name, value in found.items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take sums and feature map from `state`; what does not fit together is an `InputError`."""
        if not state:
            self.learner = None
            return
        try:
            self.learner = ExactLearner.from_arrays(
                {name: value.cpu().numpy() for name, value in state.items()}
            )
        except KeyError as error:
            raise InputError(f"the sums of the exact head have no {error}.") from None


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
