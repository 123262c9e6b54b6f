"""CSC's max-entropy term: outputs that are sure of themselves are penalised."""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn import functional

from mlcl.errors import check_number
from mlcl.methods.regularisers.base import REGULARISERS, Regulariser
from mlcl.methods.step import Step


@REGULARISERS.register(
    "entropy",
    summary="CSC's max-entropy term: over-confident outputs for all classes so far are penalised.",
    reference="Du et al., ECCV 2024",
)
class Entropy(Regulariser):
    """``strength * (C/e - H)`` from the second task on, ``H`` the entropy of a row's outputs (`confidence`).

    ``lwf`` has it as an option, for CSC's whole recipe. See docs/specification.md#csc.

    Args:
        strength: factor, b in the paper; below 0 the entropy is penalised, as in the released code of CSC.
    """

    def __init__(self, *, strength: float = 0.04) -> None:
        self.strength = check_number("strength", strength, low=-math.inf)

    def penalty(self, step: Step) -> Tensor | None:
        """Return the penalty; None in the first task, where no class can be mistaken for an old one."""
        if step.context.index == 0:
            return None
        return entropy_penalty(step.logits[:, step.context.seen], self.strength)


def entropy_penalty(logits: Tensor, strength: float) -> Tensor:
    """Return ``strength * (C/e - H)``, or ``-strength * H`` for a negative strength: at least 0, the same gradient.

    Args:
        logits: [B, C].
        strength: above 0, a high entropy is rewarded; below 0, a low one.

    >>> import torch
    >>> torch.allclose(entropy_penalty(torch.tensor([[-1.0]]), -1.0), torch.tensor(0.3532), atol=1e-4)  # p 0.269
    True
    """
    if strength >= 0:
        return strength * confidence(logits)
    return -strength * _entropy(logits).mean()


def confidence(logits: Tensor) -> Tensor:
    """Return the mean over rows of ``C/e - H`` with ``H = - sum_c p_c log p_c`` and ``p`` the sigmoid of the logits.

    ``C/e`` is the largest value of ``H`` for C classes, so this is ``- H`` with another constant, and at least 0. ``H``
    is largest where all ``p_c`` are 1/e, so outputs above that are pulled down, and those below are pulled up.

    Args:
        logits: [B, C].

    >>> import torch
    >>> confidence(torch.tensor([[10.0, -10.0]])) > confidence(torch.tensor([[0.0, 0.0]]))
    tensor(True)
    """
    return (logits.shape[1] / math.e - _entropy(logits)).mean().clamp_min(0)  # not below 0 by rounding


def _entropy(logits: Tensor) -> Tensor:
    return -(logits.sigmoid() * functional.logsigmoid(logits)).sum(1)
