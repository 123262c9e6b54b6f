"""The interface of regularisers.

A regulariser is a class with keyword-only options, registered in `REGULARISERS`. The rules it keeps:

- `penalty` returns a scalar tensor on the graph of the new network, or None for nothing; before a task has ended there
  is nothing to hold on to.
- All that it must keep between tasks is in `state`, as tensors, and `load_state` restores it: a resumed run continues
  with the same bits. Names like ``importance.<parameter>`` grow with the head when a run is extended.
- It draws random numbers from ``context.generator`` only.

`mlcl.testing.check_regulariser` runs these checks on a regulariser of your own.
"""

from __future__ import annotations

from torch import Tensor

from mlcl.methods.step import Step, TaskContext
from mlcl.registry import Registry

REGULARISERS: Registry[type[Regulariser]] = Registry("regulariser")


class Regulariser:
    """Adds a penalty to the loss of a step. Subclasses override what differs.

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

    def after_backward(self, step: Step) -> None:
        """Change the gradients of ``step.context.model``, if at all, before the optimiser makes its step with them."""

    def end_task(self, context: TaskContext) -> None:
        """Look back at a learnt task; the network is in evaluation mode."""

    def state(self) -> dict[str, Tensor]:
        """Return what must be kept for the next task."""
        return {}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore what `state` returned."""


@REGULARISERS.register("none", summary="No regulariser.")
class NoRegulariser(Regulariser):
    """No penalty."""
