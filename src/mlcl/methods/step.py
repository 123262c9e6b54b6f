"""What the parts of a method may look at: the task that is being learnt, and one training step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
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
            columns, zero outside the task's classes, nan where they are not known.
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


@dataclass
class Step:
    """One training step: the inputs of current and memory rows, what the network made of them, and how they are judged.

    Attributes:
        context: the task.
        inputs: of this process's rows.
        logits: of all rows, [B, K].
        embeddings: of all rows, [B, sessions, d].
        stored: the logits that memory rows were stored with, [B, K]; nan for current rows and classes unknown then.
        gather: turns outputs for this process's rows into those of all rows.
        rows: row numbers in the training split, [B].
        slots: places in the memory, -1 for rows of the current task, [B].
        known: the labels that are known, 0 elsewhere, [B, K].
        own: which labels are known, bool [B, K].
        labels: targets that the label policy made of them, [B, K].
        mask: which cells contribute to the loss, bool [B, K].
        groups: the task of each row [B], or of each class [1, K].
        weights: w_i of each task so far.
        criterion: the loss.
    """

    context: TaskContext
    inputs: Tensor
    logits: Tensor
    embeddings: Tensor | None
    stored: Tensor | None = None
    gather: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = lambda logits, embeddings: (
        logits,
        embeddings,
    )
    rows: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    slots: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    known: Tensor = field(default_factory=lambda: torch.zeros(0))
    own: Tensor = field(default_factory=lambda: torch.zeros(0))
    labels: Tensor = field(default_factory=lambda: torch.zeros(0))
    mask: Tensor = field(default_factory=lambda: torch.zeros(0))
    groups: Tensor | None = None
    weights: Tensor | None = None
    criterion: Callable[..., Tensor] | None = None

    @cached_property
    def memory(self) -> Tensor:
        """Which rows are the memory's, bool [B]."""
        return torch.from_numpy(self.slots >= 0).to(self.logits.device)

    @cached_property
    def teacher_output(self) -> tuple[Tensor, Tensor | None]:
        """Logits and embeddings of the old network on all rows; computed once, however many parts ask."""
        teacher = self.context.teacher
        if teacher is None:
            raise RuntimeError("this part did not ask for a teacher")
        with torch.no_grad():
            return self.gather(*teacher.forward_with_embeddings(self.inputs))

    def loss(self, rows: Tensor | None = None) -> Tensor:
        """Return the loss of all rows, or of those that a mask [B] marks, without a penalty.

        Of some rows every task has weight 1: the weights say how the memory's part compares with the current one.
        """
        if self.criterion is None:
            raise RuntimeError("this step has no loss")
        at, groups, weights = slice(None) if rows is None else rows, self.groups, self.weights
        if rows is not None:
            groups = groups if groups is None or groups.ndim == 2 else groups[rows]
            weights = None if weights is None else torch.ones_like(weights)
        cells = {"mask": self.mask[at], "groups": groups, "group_weights": weights}
        return self.criterion(self.logits[at], self.labels[at], **cells)
