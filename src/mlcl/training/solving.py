"""Sums over the features of a linear layer, and its weights that follow: what is solved inside a run, and not trained.

At the end of a task the features of its rows are added to the sums of the tasks before, and the weights of the layer
are solved anew: see specification.md#exact. The layer is the head of a network, or a member of a committee.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mlcl.config.schema import ExactConfig
from mlcl.errors import InputError
from mlcl.exact import ExactLearner, Options, carried, solve
from mlcl.exact.analytic import Analytic
from mlcl.exact.learner import Form
from mlcl.exact.ridge import Choice
from mlcl.exact.solving import Solution
from mlcl.labels import Labels
from mlcl.training.batches import Rows

Floats = NDArray[np.float32]

DIMENSIONS = 256
"""Principal components of features in the full form, unless a setting or the backbone says otherwise."""
WIDE = 8192
"""Dimensions that the shared form keeps: a projection of words costs more time and precision than it saves space."""
PSEUDO = 0.7
"""The threshold of pseudo-labels in L3A."""
FIELDS = ("gram", "cross", "seen", "count")
"""What is kept of L3A's sums."""


@dataclass(frozen=True, eq=False)
class ScoreScale:
    """Mean and standard deviation of the scores of each class, ``[K]``.

    >>> ScoreScale.of(np.array([[1.0], [4.0]]), np.array([2.0, 1.0]))
    ScoreScale(means=array([2.]), deviations=array([1.41421356]))
    """

    means: NDArray[np.float64]
    deviations: NDArray[np.float64]

    @classmethod
    def of(cls, scores: NDArray[np.floating], weights: NDArray[np.float64]) -> ScoreScale:
        """Return it for scores ``[n, K]`` of rows with a weight each."""
        shares = weights / weights.sum()
        means = shares @ scores
        return cls(means, np.sqrt(shares @ (scores - means) ** 2))


class ExactSums:
    """The sums of the exact learner behind a linear layer.

    Args:
        projects: whether its features are principal components already.
        drifts: whether its features change, and the sums are carried: whole second moments alone stay exact then.
        seed: of directions that the first rows do not determine.

    Attributes:
        learner: feature map and sums; None before the first task.
    """

    def __init__(
        self,
        config: ExactConfig,
        linear: nn.Linear,
        *,
        projects: bool = False,
        drifts: bool = False,
        seed: int = 0,
    ) -> None:
        self.config, self.linear, self.seed = config, linear, seed
        self.projects = projects
        self.form: Form = "full" if drifts and config.form == "auto" else config.form
        self.learner: ExactLearner | None = None
        self._solved: tuple[ExactLearner, Solution] | None = None

    @property
    def choice(self) -> Choice | None:
        """Return ridge, exponent and weight of unlabelled rows that the sums are solved with; None without rows."""
        return None if self.learner is None else self.solution(self.learner).choice

    def learn(
        self, features: Floats, labels: Labels, classes: Rows, known: NDArray[np.bool_] | None = None
    ) -> None:
        """Add the rows of a task to the sums; the arguments are those of `after`."""
        self.learner = self.after(features, labels, classes, known)

    def after(
        self, features: Floats, labels: Labels, classes: Rows, known: NDArray[np.bool_] | None = None
    ) -> ExactLearner:
        """Return the learner that has also seen the rows of a task; the first ones also fix the feature map.

        Args:
            labels: of the task's classes, ``[n, len(classes)]``.
            known: which of these labels are known; all by default.
        """
        learner = self.learner
        if learner is None:
            learner = ExactLearner.begin(
                features, dimensions=self.dimensions, seed=self.seed, form=self.form, fixed=True
            )
        if (total := self.linear.out_features) > learner.classes:
            # All classes at once: those that no row was annotated for yet then share their empty sums.
            learner = learner.learn(features[:0], np.zeros((0, total), np.uint8), range(total))
        return learner.learn(features, labels, classes.tolist(), annotated=known)

    @property
    def dimensions(self) -> int | None:
        """Return to how many dimensions features are projected."""
        usual = None if self.projects else DIMENSIONS if self.form == "full" else WIDE
        return self.config.dimensions or usual

    def carry(self, old: Floats, new: Floats) -> None:
        """Carry all sums over to features that have drifted; a head without sums has nothing to carry.

        Args:
            old: features of some rows as they were when the sums were made, ``[n, D]``.
            new: features of the same rows now, ``[n, D]``.
        """
        if self.learner is not None:
            self.learner = carried(self.learner, old, new, dimensions=self.dimensions, seed=self.seed)

    def solve(self, like: ScoreScale | None = None) -> tuple[Floats, Floats]:
        """Return weights ``[K, D]`` and biases ``[K]``; zeros for classes to come.

        Args:
            like: the scores of all rows so far have these means and standard deviations. Not given: scores are
                log-odds.
        """
        if self.learner is None:
            raise InputError("the exact head has learnt no rows yet.")
        found, sums = self.solution(self.learner), self.learner.sums
        known = np.array([sums.annotated_for(k).count > 0 for k in range(sums.classes)])
        weights, bias = found.weights, found.intercepts
        if like is not None:
            spread = found.deviations
            ratio = np.divide(like.deviations, spread, out=np.zeros_like(spread), where=spread > 0)
            weights, bias = ratio[:, None] * weights, ratio * (bias - found.means) + like.means
        return weights.astype(np.float32), np.where(known, bias, 0).astype(np.float32)

    def solution(self, learner: ExactLearner) -> Solution:
        """Return the solution for a learner's sums; that of the last learner is kept, not solved again."""
        if self._solved is None or self._solved[0] is not learner:
            fields = (field.name for field in dataclasses.fields(Options))
            options = Options(**{name: getattr(self.config, name) for name in fields})
            self._solved = learner, solve(learner, options)
        return self._solved[1]

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


class AnalyticSums:
    """The two sums behind a linear layer that L3A solves, for ``exact.solver`` ``l3a``; there are no biases."""

    choice = None

    def __init__(self, config: ExactConfig, linear: nn.Linear) -> None:
        self.ridge = float(config.ridge)
        self.threshold = PSEUDO if config.pseudo is None else config.pseudo
        self.linear = linear
        self.sums = Analytic.begin(self.linear.in_features, self.linear.out_features)

    def learn(
        self, features: Floats, labels: Labels, classes: Rows, known: NDArray[np.bool_] | None = None
    ) -> None:
        """Add the rows of a task to the sums, with pseudo-labels for the classes before."""
        if known is not None:
            raise InputError("exact.solver 'l3a' learns task by task; protocol 'joint-masked' was given.")
        self.sums = self.sums.learn(features, labels, classes, threshold=self.threshold, ridge=self.ridge)

    def solve(self) -> tuple[Floats, Floats]:
        """Return weights ``[K, d]``, and biases, which are 0."""
        found = self.sums.solve(self.ridge)
        return found.T.astype(np.float32), np.zeros(found.shape[1], np.float32)

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


def write_weights(linear: nn.Linear, weights: Floats, bias: Floats) -> None:
    """Put what was solved into a layer."""
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(np.ascontiguousarray(weights)))
        linear.bias.copy_(torch.from_numpy(bias))
