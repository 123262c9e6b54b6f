"""A-GEM (Chaudhry et al., ICLR 2019): no step raises the loss of the memory's rows, to first order.

    mlcl run --plugin examples/agem.py --method agem

The network learns from the rows of the task alone (``memory.weight_scale`` is 0); where their gradient points against
that of the memory's rows, the part that does is taken out of it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mlcl.methods import PRESETS, Preset
from mlcl.methods.regularisers import REGULARISERS, Regulariser
from mlcl.methods.step import Step

REFERENCE = "Chaudhry et al., Efficient Lifelong Learning with A-GEM, ICLR 2019"


@REGULARISERS.register("agem", summary="A step does not raise the loss of the memory's rows.")
class AveragedGradients(Regulariser):
    """Project the gradient of a step onto those that do not raise the loss of the memory."""

    def penalty(self, step: Step) -> Tensor | None:
        """Take the gradient of the memory's rows while the graph of the step is there; add nothing to the loss."""
        self.old: dict[Tensor, Tensor] = {}
        if step.memory.any():
            weights = [p for p in step.context.model.parameters() if p.requires_grad]
            found = torch.autograd.grad(step.loss(step.memory), weights, retain_graph=True, allow_unused=True)
            self.old = {p: old for p, old in zip(weights, found, strict=True) if old is not None}
        return None

    def after_backward(self, step: Step) -> None:  # noqa: ARG002
        """Take the part out of the gradient that points against the memory's."""
        pairs = [(p.grad, old) for p, old in self.old.items() if p.grad is not None]
        if pairs and (product := sum((new * old).sum() for new, old in pairs)) < 0:
            share = product / sum(old.square().sum() for _, old in pairs)
            for new, old in pairs:
                new -= share * old


PRESETS["agem"] = Preset(
    "A-GEM: the gradient of a step is projected where it would raise the loss of the memory's rows.",
    REFERENCE,
    {
        "loss": {"kind": "bce"},
        "memory": {"kind": "random", "weight": "size", "weight_scale": 0.0},
        "regulariser": {"kind": "agem"},
    },
)
