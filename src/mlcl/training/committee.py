"""A committee inside a run: its members are solved at the end of each task, beside the network that was trained on it.

A member's scores are brought to the scale of the network's logits, class by class: the same mean and standard deviation
over all rows so far. Those of a member follow from its sums; those of the network are estimated on the rows at hand,
where a stored row stands for as many rows of its task as the task had per stored row. No row of a later task is needed.

The member on a fixed encoder depends on nothing that the network learns, so it is solved before the network is trained
on a task, and can then teach it (`Lesson`): for the classes that a row was not annotated for it knows more than the old
network, because the rows of every task are among its negatives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mlcl.arrays import section
from mlcl.config.schema import Config
from mlcl.datasets.base import Split
from mlcl.exact import Learner as ExactLearner
from mlcl.labels import LabelCounts, Labels
from mlcl.losses import LOSSES
from mlcl.memories import Memory
from mlcl.methods.regularisers.distillation import distillation_loss
from mlcl.metrics.scaling import prior_shift
from mlcl.models import Backbone, Network, build_committee
from mlcl.models.committee import ENCODER, MOMENTS
from mlcl.seeds import derive_seed
from mlcl.streams import Task
from mlcl.training.batches import Normaliser, Rows
from mlcl.training.caching import FeatureCache, Floats
from mlcl.training.processes import Processes
from mlcl.training.solving import ExactHead, Spread
from mlcl.training.state import with_prefix


@dataclass(frozen=True)
class AtHand:
    """The rows that can still be looked at when a task ends: the task's own, then those in the memory.

    Attributes:
        task: the task.
        labels: of its rows and classes.
        annotated: which of them are known; None: all.
        weights: how many rows each row at hand stands for.
        apply: applies a function of inputs to all rows at hand.
        teacher: the network as it was before the task; None in the first task.
    """

    task: Task
    labels: Labels
    annotated: NDArray[np.bool_] | None
    weights: NDArray[np.float64]
    apply: Callable[[Callable[[Tensor], Tensor]], Floats]
    teacher: Network | None


def row_weights(task: Task, memory: Memory) -> NDArray[np.float64]:
    """Return how many rows each row at hand stands for.

    >>> from mlcl.labels import LabelCounts
    >>> from mlcl.memories import TaskSamples
    >>> stored = TaskSamples.of(0, [0], rows=range(6), labels=np.ones((6, 1)))
    >>> memory = Memory("random", 2)
    >>> memory.update(stored)
    >>> row_weights(Task(1, np.array([1]), np.arange(3), np.arange(0), LabelCounts.of(np.ones((3, 1)))), memory)
    array([1., 1., 1., 3., 3.])
    """
    stored = [np.full(len(one), one.counts.total / max(len(one), 1)) for one in memory.tasks]
    return np.concatenate([np.ones(len(task.train)), *stored])


@dataclass(frozen=True)
class Lesson:
    """What the member on the encoder says of the rows of a task and of the memory, for the network to learn.

    Attributes:
        place: of each row of the training split among the task's rows, -1 for others.
        count: n, the number of the task's rows.
        scores: log-odds of the task's rows, then of the memory's, ``[n + m, K]``.
        defined: the classes that have two positives and two negatives so far, ``[K]``.
        compare: the loss ``ru``, by which member and network are compared on the labels that there are.
        strength: factor on the penalty.
    """

    place: NDArray[np.int64]
    count: int
    scores: Tensor
    defined: Tensor
    compare: nn.Module
    strength: float

    def penalty(
        self, logits: Tensor, labels: Tensor, known: Tensor, missing: Tensor, rows: Rows, slots: Rows
    ) -> Tensor | None:
        """Return the mean Huber loss of logits and scores over the cells without a label; None if there is none.

        It is multiplied by the ratio of the network's loss to the member's on the cells with a label, if that is below
        1: a network that is better than the member learns less from it.

        Args:
            logits: of the network, [B, K].
            labels: zero where they are not known, [B, K].
            known: the classes that a row was annotated for, [B, K].
            missing: the other classes so far, [B, K].
            rows: row numbers in the training split, [B].
            slots: their places in the memory, -1 for rows of the task.
        """
        cells = missing & self.defined
        if not bool(cells.any()):
            return None
        at = np.where(slots >= 0, self.count + slots, self.place[rows])
        taught = self.scores[torch.from_numpy(at).to(self.scores.device)]
        with torch.no_grad():
            mine, theirs = (self.compare(one, labels, mask=known).item() for one in (logits, taught))
        trust = min(1.0, mine / theirs) if theirs > 0 else 1.0
        return self.strength * trust * distillation_loss(logits[cells], taught[cells], distance="huber")


class CommitteeSolver:
    """The sums behind the members of a committee.

    Args:
        config: of the run.
        network: the trained network.
        split: the training split.
        normaliser: of the network's inputs.

    Attributes:
        committee: the network and its members, one module that scores inputs.
        heads: the sums of each member.
        begun: the sums of the encoder's member with those of the task that is being learnt.
    """

    def __init__(self, config: Config, network: Network, split: Split, normaliser: Normaliser) -> None:
        chosen, shape = config.committee, split.inputs.shape[1:]
        self.strength = chosen.teach
        self.begun: ExactLearner | None = None
        self.committee = build_committee(
            network,
            shape,
            split.labels.shape[1],
            encoder=chosen.encoder,
            weight=chosen.weight,
            moments=chosen.moments,
            seed=derive_seed(config.seed, "encoder"),
            options=chosen.encoder_options,
        ).to(normaliser.scale.device)
        self.inputs = normaliser
        if self.encoder is not None and self.encoder.normalises:
            self.inputs = Normaliser.fit(split, normalise=False).to(normaliser.scale.device)
            scale = self.inputs.scale / normaliser.scale
            self.committee.member(ENCODER).adapt(scale, self.inputs.shift - normaliser.shift * scale)
        self.heads = {
            name: ExactHead(
                config.exact,
                self.committee.member(name).linear,
                projects=name == ENCODER and bool(self.encoder and self.encoder.projects),
                seed=derive_seed(config.seed, "exact"),
            )
            for name in self.committee.members
        }

    @property
    def encoder(self) -> Backbone | None:
        """Return the fixed encoder, if there is one."""
        return self.committee.encoder

    @property
    def needs_teacher(self) -> bool:
        """Return whether features before and after a task are compared."""
        return MOMENTS in self.heads

    def begin(
        self,
        task: Task,
        labels: Labels,
        annotated: NDArray[np.bool_] | None,
        *,
        counts: LabelCounts,
        balanced: bool,
        encoded: FeatureCache,
        stored: Callable[[], Floats],
        processes: Processes,
    ) -> Lesson | None:
        """Add a task to the sums of the encoder's member, and return what it has to teach, if it is to teach.

        Args:
            task: the task.
            labels: of its rows and classes.
            annotated: which of them are known; None: all.
            counts: of all classes so far.
            balanced: whether the network learns log-odds at equal numbers of positives and negatives, or at those of
                the tasks.
            encoded: the encoder's features of the training split.
            stored: returns those of the memory's rows.
            processes: of the run; the first one solves.
        """
        head, features = self.heads[ENCODER], encoded(task.train)
        self.begun = head.after(features, labels, task.classes, annotated)
        if not self.strength:
            return None
        weights, bias, defined = processes.from_first(partial(_log_odds, head, self.begun, balanced=balanced))
        place = np.full(len(encoded.batch_of), -1)
        place[task.train] = np.arange(len(task.train))
        scores = np.concatenate([rows @ weights.T for rows in (features, stored())]) + bias
        device = self.inputs.scale.device
        return Lesson(
            place,
            len(features),
            torch.from_numpy(scores).to(device),
            torch.from_numpy(defined).to(device),
            LOSSES.build("ru", counts).to(device),
            self.strength,
        )

    def learn(self, rows: AtHand, processes: Processes) -> None:
        """Add a task to the sums of all members, and give them the weights that follow.

        Args:
            rows: at hand.
            processes: of the run; the first one solves.
        """
        task = rows.task
        like = Spread.of(rows.apply(self.committee.network), rows.weights)
        for name, head in self.heads.items():
            if name == ENCODER:
                head.learner, self.begun = self.begun, None
            else:
                now = rows.apply(self.committee.network.features)
                if rows.teacher is not None:
                    head.carry(rows.apply(rows.teacher.features), now)
                head.learn(now[: len(task.train)], rows.labels, task.classes, rows.annotated)
            head.write(*processes.from_first(partial(head.solve, like)))

    def add_encoded(self, scores: Floats, features: Floats) -> Floats:
        """Return the committee's scores from what `Committee.of_network` gave and the encoder's features."""
        with torch.inference_mode():
            device = self.inputs.scale.device
            added = self.committee.of_encoder(torch.from_numpy(features).to(device))
            found: Floats = scores + added.float().cpu().numpy()
            return found

    def state(self) -> dict[str, Tensor]:
        """Return the sums of all members as tensors by name."""
        found: dict[str, Tensor] = {}
        for name, head in self.heads.items():
            found |= with_prefix(name, head.state())
        return found

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take the sums from `state`."""
        for name, head in self.heads.items():
            head.load_state(section(state, name))


def _log_odds(
    head: ExactHead, learner: ExactLearner, *, balanced: bool
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Return weights and biases of log-odds, ``balanced``: at a share of 1/2, and for which classes they say something.

    Those are the classes with two positives and two negatives: of unseen rows, one of them says nothing.
    """
    found, sums = head.solution(learner), learner.sums
    bias = found.intercepts + (prior_shift(found.prior, np.full_like(found.prior, 0.5)) if balanced else 0.0)
    counts = [[side.count for side in sums.sides(k, found.choice.unlabelled)] for k in range(sums.classes)]
    return found.weights.astype(np.float32), bias.astype(np.float32), np.min(counts, axis=1) > 1
