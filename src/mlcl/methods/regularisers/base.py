"""The interface of regularisers."""

from __future__ import annotations

from torch import Tensor

from mlcl.methods.step import Step, TaskContext
from mlcl.registry import Registry

REGULARISERS: Registry[type[Regulariser]] = Registry("regulariser")


class Regulariser:
    """Adds a penalty to the loss of a step. Subclasses say only what differs.

    ``needs_teacher`` asks for a frozen copy of the network as it was before the task, ``needs_stored`` for the logits
    that the rows of the memory had when they were stored.
    """

    needs_teacher = False
    needs_stored = False

    def start_task(self, context: TaskContext) -> None:
        """Prepare for a task."""

    def penalty(self, step: Step) -> Tensor | None:  # noqa: ARG002
        """Return what is added to the loss, or None for nothing."""
        return None

    def end_task(self, context: TaskContext) -> None:
        """Look back at a learnt task; the network is in evaluation mode."""

    def state(self) -> dict[str, Tensor]:
        """Return what must be kept to go on with the next task."""
        return {}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what `state` gave."""


@REGULARISERS.register("none", summary="No regulariser.")
class NoRegulariser(Regulariser):
    """No penalty."""
