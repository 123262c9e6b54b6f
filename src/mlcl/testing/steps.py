"""Small tasks and training steps, as regularisers and label policies see them: what they are checked with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mlcl.labels import LabelCounts
from mlcl.losses import LOSSES
from mlcl.methods.regularisers import Regulariser
from mlcl.methods.step import Step, TaskContext
from mlcl.models import Network, build_model, frozen_copy
from mlcl.testing.rules import CheckedPart

WIDTH = 4
FUTURE = 1
"""Classes after those of all tasks: nobody has met them yet."""


@dataclass(frozen=True)
class StreamCase:
    """Tasks with these numbers of classes, the rows of each, and a seed for inputs, labels and networks."""

    classes: tuple[int, ...]
    rows: int
    seed: int

    def __str__(self) -> str:
        return f"tasks of {', '.join(map(str, self.classes))} classes, {self.rows} rows each and seed {self.seed}"

    def columns(self, index: int) -> list[int]:
        """Return the classes of a task."""
        first = sum(self.classes[:index])
        return list(range(first, first + self.classes[index]))

    def network(self) -> Network:
        """Return a small network for all classes, in evaluation mode."""
        total = sum(self.classes) + FUTURE
        return build_model("mlp", (WIDTH,), total, seed=self.seed, hidden=6, depth=1).eval()

    def data(self, index: int) -> tuple[Tensor, Tensor]:
        """Return inputs and labels of a task: float ``[rows, K]``, zero outside the task's classes."""
        generator = torch.Generator().manual_seed(1000 * self.seed + index)
        inputs = torch.randn(self.rows, WIDTH, generator=generator)
        labels = torch.zeros(self.rows, sum(self.classes) + FUTURE)
        own = self.columns(index)
        labels[:, own] = (torch.rand(self.rows, len(own), generator=generator) < 0.4).float()
        return inputs, labels

    def context(self, index: int, network: Network, teacher: Network | None) -> TaskContext:
        """Return a task."""
        inputs, labels = self.data(index)
        first, last = self.columns(index)[0], self.columns(index)[-1]
        numbers = torch.arange(sum(self.classes) + FUTURE)
        half = (self.rows + 1) // 2
        return TaskContext(
            index=index,
            classes=torch.tensor(self.columns(index)),
            seen=numbers <= last,
            old=numbers < first,
            model=network,
            teacher=teacher,
            batches=lambda: iter(
                [
                    (inputs[rows], labels[rows])
                    for rows in (slice(half), slice(half, None))
                    if len(inputs[rows])
                ]
            ),
            generator=torch.Generator().manual_seed(self.seed + index),
        )

    def step(self, context: TaskContext, *, stored: bool) -> Step:
        """Return a training step on rows of the task, then of each past task.

        With ``stored`` the latter have the logits they were stored with.
        """
        index = context.index
        tags = torch.tensor([index, *range(index)]).repeat_interleave(self.rows)
        inputs, known = (
            torch.cat(parts) for parts in zip(*map(self.data, (index, *range(index))), strict=True)
        )
        own = torch.zeros(known.shape, dtype=torch.bool)
        for task in range(index + 1):
            own[(tags == task).nonzero(), self.columns(task)] = True
        logits, embeddings = context.model.forward_with_embeddings(inputs)
        step = Step(context, inputs, logits, embeddings, known=known, own=own, labels=known, mask=own)
        step.groups, step.weights = tags, torch.ones(index + 1)
        step.slots = np.arange(len(inputs)) - self.rows  # the task's own rows come first
        step.slots[: self.rows] = -1
        step.criterion = LOSSES.build("bce", LabelCounts.of(own.numpy()))
        if not stored or index == 0:
            return step
        before = torch.randn(logits.shape, generator=torch.Generator().manual_seed(self.seed))
        before[: self.rows] = torch.nan
        before[:, ~context.old] = torch.nan
        return replace(step, stored=before)


def stream_cases(count: int, seed: int) -> list[StreamCase]:
    """Return streams of two and three tasks, the ones with the fewest rows first."""
    generator = torch.Generator().manual_seed(seed)

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=generator))

    found = [
        StreamCase(tuple(draw(1, 4) for _ in range(draw(2, 4))), draw(1, 9), draw(0, 1000))
        for _ in range(count)
    ]
    return sorted(found, key=lambda case: case.rows * len(case.classes))


def move_weights(network: Network, seed: int) -> None:
    """Move the weights of a network a little, as training would."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))


def teacher_of(network: Network, index: int, *, needed: bool) -> Network | None:
    """Return the frozen network as it was before the task, if a part asked for it and there is one."""
    return frozen_copy(network) if needed and index > 0 else None


def moments(
    part: CheckedPart[StreamCase], case: StreamCase, *, saved: Callable[[Any], Any] | None = None
) -> Iterator[tuple[Any, Step]]:
    """Yield a regulariser or label policy, and a training step, of every task.

    With ``saved``, which makes of a state what is read again, it is saved and restored before each step. As in a run
    that is resumed, `start_task` is not called again for the restored one.
    """
    built, network = part.build(), case.network()
    for index in range(len(case.classes)):
        teacher = teacher_of(network, index, needed=built.needs_teacher)
        context = case.context(index, network, teacher)
        built.start_task(context)
        move_weights(network, index)
        if saved is not None:
            state, built = saved(built.state()), part.build()
            built.load_state(state)
        if not isinstance(built, Regulariser):
            yield built, case.step(context, stored=False)
            continue
        yield built, case.step(context, stored=built.needs_stored)
        network.eval()
        built.end_task(context)
