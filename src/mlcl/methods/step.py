"""What the parts of a method may look at: the task that is being learnt, and one training step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from mlcl.models import Network


@dataclass(frozen=True)
class TaskContext:
    """One task, as the parts of a method see it.

    Attributes:
        index: number of the task, from 0.
        classes: the task's class ids, int64 [K_t].
        seen: which of the K classes were learnt before or are learnt now, bool [K].
        old: which of the K classes were learnt before, bool [K].
        model: the network.
        teacher: the frozen network as it was before the task, where a part asked for it.
        batches: iterates over the task's training data in order, without augmentation: inputs and the labels of all K
            columns, zero outside the task's classes.
        generator: random numbers for this task's parts.
        lr: learning rate that the task starts with; 0 if not known.
    """

    index: int
    classes: Tensor
    seen: Tensor
    old: Tensor
    model: Network
    teacher: Network | None
    batches: Callable[[], Iterator[tuple[Tensor, Tensor]]]
    generator: torch.Generator
    lr: float = 0.0


@dataclass(frozen=True)
class Share:
    """Consecutive rows of a batch: the part that one of several processes works on.

    Attributes:
        rows: from where to where.
        total: rows of the whole batch.
    """

    rows: slice
    total: int

    @classmethod
    def of(cls, total: int, number: int, parts: int) -> Share:
        """Return one of ``parts`` shares of as equal size as can be.

        >>> [Share.of(5, number, 2).rows for number in (0, 1)]
        [slice(0, 2, None), slice(2, 5, None)]
        """
        return cls(slice(number * total // parts, (number + 1) * total // parts), total)


def _as_they_are(logits: Tensor, embeddings: Tensor) -> tuple[Tensor, Tensor]:
    return logits, embeddings


@dataclass(frozen=True)
class Step:
    """One training step: the inputs of current and memory rows, and what the network made of them.

    Attributes:
        context: the task.
        inputs: of this process's rows.
        logits: of all rows, [B, K].
        embeddings: of all rows, [B, sessions, d].
        stored: the logits that memory rows were stored with, [B, K]; nan for current rows and classes unknown then.
        gather: turns outputs for this process's rows into those of all rows.
    """

    context: TaskContext
    inputs: Tensor
    logits: Tensor
    embeddings: Tensor | None
    stored: Tensor | None = None
    gather: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = _as_they_are

    @cached_property
    def teacher_output(self) -> tuple[Tensor, Tensor | None]:
        """Logits and embeddings of the old network on all rows; computed once, however many parts ask."""
        teacher = self.context.teacher
        if teacher is None:
            raise RuntimeError("this part did not ask for a teacher")
        with torch.no_grad():
            return self.gather(*teacher.forward_with_embeddings(self.inputs))
