"""L3A's head inside a run: the place of `mlcl.training.solving.ExactHead` where ``exact.solver`` is ``l3a``."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mlcl.config.schema import ExactConfig
from mlcl.errors import InputError
from mlcl.exact.analytic import Analytic
from mlcl.labels import Labels
from mlcl.training.batches import Rows
from mlcl.training.solving import Floats

PSEUDO = 0.7
"""The threshold of pseudo-labels in L3A."""
FIELDS = ("gram", "cross", "seen", "count")
"""What is kept of the sums."""


class AnalyticHead:
    """The two sums behind a head that L3A solves.

    Args:
        config: ridge and threshold of pseudo-labels.
        linear: the layer whose weights `write` sets; there are no biases.
        projects: is not used: features are taken as they are.
        seed: is not used, as nothing is drawn.
    """

    def __init__(self, config: ExactConfig, linear: nn.Linear, *, projects: bool, seed: int) -> None:  # noqa: ARG002
        self.ridge = float(config.ridge)
        self.threshold = PSEUDO if config.pseudo is None else config.pseudo
        self.linear = linear
        self.sums = Analytic.begin(self.linear.in_features, self.linear.out_features)

    @property
    def nbytes(self) -> int:
        """Return the size of the sums in bytes: all that the head remembers."""
        return self.sums.nbytes

    def learn(
        self, features: Floats, labels: Labels, classes: Rows, annotated: NDArray[np.bool_] | None = None
    ) -> None:
        """Add the rows of a task to the sums, with pseudo-labels for the classes before.

        Args:
            features: ``[n, d]``.
            labels: of the task's classes, ``[n, len(classes)]``.
            classes: their ids.
            annotated: is refused: every row of a task has all its labels.
        """
        if annotated is not None:
            raise InputError("exact.solver 'l3a' learns task by task; protocol 'joint-masked' was given.")
        self.sums = self.sums.learn(features, labels, classes, threshold=self.threshold, ridge=self.ridge)

    def solve(self) -> tuple[Floats, Floats]:
        """Return weights ``[K, d]``, and biases, which are 0."""
        found = self.sums.solve(self.ridge)
        return found.T.astype(np.float32), np.zeros(found.shape[1], np.float32)

    def write(self, weights: Floats, bias: Floats) -> None:
        """Put what `solve` found into the network's linear layer."""
        with torch.no_grad():
            self.linear.weight.copy_(torch.from_numpy(np.ascontiguousarray(weights)))
            self.linear.bias.copy_(torch.from_numpy(bias))

    def state(self) -> dict[str, Tensor]:
        """Return the sums as tensors by name: what a checkpoint and a run folder hold."""
        sums = self.sums
        return {f"analytic.{name}": torch.from_numpy(getattr(sums, name)) for name in FIELDS}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take the sums from `state`; what does not fit is an `InputError`."""
        if not state:
            return
        try:
            gram, cross, seen, count = (state[f"analytic.{name}"].cpu().numpy() for name in FIELDS)
        except KeyError as error:
            raise InputError(f"the sums of the head have no {error}.") from None
        width, before = len(self.sums.gram), len(seen)
        classes = len(self.sums.seen)
        fits = gram.shape == (width, width) and cross.shape == (width, before) and count.shape == seen.shape
        if not fits or before > classes:
            raise InputError(
                f"the sums of the head have shapes {gram.shape} and {cross.shape}; expected {width} features and at "
                f"most {classes} classes."
            )
        more = classes - before  # an extended run has more classes than those before it
        self.sums = Analytic(
            gram, np.pad(cross, ((0, 0), (0, more))), np.pad(seen, (0, more)), np.pad(count, (0, more))
        )
