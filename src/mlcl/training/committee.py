"""A committee inside a run: its members are solved at the end of each task, beside the network that was trained on it.

A member's scores are brought to the scale of the network's logits, class by class: the same mean and standard deviation
over all rows so far. Those of a member follow from its sums; those of the network are estimated on the rows at hand,
where a stored row stands for as many rows of its task as the task had per stored row. No row of a later task is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mlcl.config.schema import Config
from mlcl.datasets.base import Split
from mlcl.labels import Labels
from mlcl.memories import Memory
from mlcl.models import Backbone, Network, build_committee
from mlcl.models.committee import ENCODER, MOMENTS
from mlcl.seeds import derive_seed
from mlcl.streams import Task
from mlcl.training.batches import Normaliser
from mlcl.training.caching import FeatureCache, Floats
from mlcl.training.processes import Processes
from mlcl.training.solving import ExactHead, Spread
from mlcl.training.state import with_prefix, without_prefix


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
    """

    def __init__(self, config: Config, network: Network, split: Split, normaliser: Normaliser) -> None:
        chosen, shape = config.committee, split.inputs.shape[1:]
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

    def learn(self, rows: AtHand, encoded: FeatureCache | None, processes: Processes) -> None:
        """Add a task to the sums of all members, and give them the weights that follow.

        Args:
            rows: at hand.
            encoded: the encoder's features of the training split.
            processes: of the run; the first one solves.
        """
        task = rows.task
        like = Spread.of(rows.apply(self.committee.network), rows.weights)
        for name, head in self.heads.items():
            if name == ENCODER and encoded is not None:
                features = encoded(task.train)
            else:
                now = rows.apply(self.committee.network.features)
                if rows.teacher is not None:
                    head.carry(rows.apply(rows.teacher.features), now)
                features = now[: len(task.train)]
            head.learn(features, rows.labels, task.classes, rows.annotated)
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
            head.load_state(without_prefix(state, name))
