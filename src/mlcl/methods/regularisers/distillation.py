"""Regularisers that compare with the network as it was: LwF and DER on logits, KRT on session embeddings."""

from __future__ import annotations

import math
from typing import Literal, get_args

from torch import Tensor
from torch.nn import functional

from mlcl.errors import InputError, check_choice, check_number
from mlcl.methods.regularisers.base import REGULARISERS, Regulariser
from mlcl.methods.step import Step

Distance = Literal["bce", "mse", "huber"]


class _Distilling(Regulariser):
    """Compares logits with those that were given before."""

    def __init__(self, strength: float, distance: Distance, temperature: float) -> None:
        self.strength = check_number("strength", strength)
        check_choice("distance", distance, get_args(Distance))
        self.distance: Distance = distance
        self.temperature = check_number("temperature", temperature, open_low=True)


@REGULARISERS.register(
    "entropy",
    summary="CSC's max-entropy term: over-confident outputs for all classes so far are penalised.",
    reference="Du et al., ECCV 2024",
)
class Entropy(Regulariser):
    """``strength * (C/e - H)`` from the second task on, ``H`` the entropy of a row's outputs (`confidence`).

    ``lwf`` has it as an option, for CSC's whole recipe. See specification.md#csc.

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
    """
    return (logits.shape[1] / math.e - _entropy(logits)).mean().clamp_min(0)  # not below 0 by rounding


def _entropy(logits: Tensor) -> Tensor:
    return -(logits.sigmoid() * functional.logsigmoid(logits)).sum(1)


@REGULARISERS.register(
    "lwf",
    summary="Learning without Forgetting: the old network's logits on the old classes are held.",
    reference="Li and Hoiem, ECCV 2016",
)
class LogitDistillation(_Distilling):
    """Hold the old classes' logits on current and memory inputs.

    Args:
        strength: factor on the mean over rows and old classes.
        distance: ``bce``: cross-entropy with the old network's probabilities as soft targets (LwF's, for independent
            labels); ``mse``: squared difference of logits; ``huber``: the same up to a difference of 1 and
            linear beyond, so that a step cannot overshoot further and further.
        temperature: divides both logits before ``bce``; the loss is multiplied by its square, as Hinton et al. do.
        entropy: factor on CSC's penalty of over-confident outputs, as the strength of ``entropy``.
        decay: RebLL's decay: a cell of which the old network is sure with probability q has the weight (1 - q)^decay.
    """

    needs_teacher = True

    def __init__(
        self,
        *,
        strength: float = 1.0,
        distance: Distance = "bce",
        temperature: float = 2.0,
        entropy: float = 0.0,
        decay: float = 0.0,
    ) -> None:
        super().__init__(strength, distance, temperature)
        self.entropy = check_number("entropy", entropy, low=-math.inf)
        self.decay = check_number("decay", decay)

    def penalty(self, step: Step) -> Tensor | None:
        """Return the distillation loss; gradients go through the new network only."""
        if step.context.teacher is None:
            return None
        old = step.context.old
        taught, _ = step.teacher_output
        loss = distillation_loss(
            step.logits[:, old],
            taught[:, old],
            distance=self.distance,
            temperature=self.temperature,
            decay=self.decay,
        )
        penalty = self.strength * loss
        if self.entropy != 0:
            penalty = penalty + entropy_penalty(step.logits[:, step.context.seen], self.entropy)
        return penalty


def distillation_loss(
    logits: Tensor,
    taught: Tensor,
    *,
    distance: Distance = "bce",
    temperature: float = 2.0,
    decay: float = 0.0,
) -> Tensor:
    """Return the mean difference of new logits from the old network's, [B, K] each.

    Args:
        logits: of the new network.
        taught: of the old network.
        decay: cells are weighted by (1 - q)^decay, q the old network's probability; 0: all alike.

    >>> import torch
    >>> distillation_loss(torch.tensor([[1.0]]), torch.tensor([[3.0]]), distance="mse")
    tensor(4.)
    >>> distillation_loss(torch.tensor([[1.0]]), torch.tensor([[0.0]]), distance="mse", decay=2)
    tensor(0.2500)
    """
    # The mean by torch itself where nothing is weighted: it is faster.
    how = "none" if decay > 0 else "mean"
    if distance == "mse":
        loss = functional.mse_loss(logits, taught, reduction=how)
    elif distance == "huber":
        loss = 2 * functional.huber_loss(logits, taught, reduction=how)  # d^2 where |d| < 1, else 2|d| - 1
    else:
        soft = (taught / temperature).sigmoid()
        cells = functional.binary_cross_entropy_with_logits(logits / temperature, soft, reduction=how)
        loss = temperature**2 * cells
    # 1 - sigmoid(x) is sigmoid(-x), without the cancellation.
    return loss if decay == 0 else ((-taught).sigmoid() ** decay * loss).mean()


@REGULARISERS.register(
    "der",
    summary="Dark experience replay: memory rows keep the logits they were stored with; no old network is needed.",
    reference="Buzzega et al., NeurIPS 2020",
)
class DarkReplay(_Distilling):
    """Hold the logits of memory rows near those that the network gave when their task ended.

    Args:
        strength: factor on the mean difference over memory rows and the classes known when they were stored.
        distance: as for ``lwf``; ``mse`` is the authors', and diverges at high learning rates.
    """

    needs_stored = True

    def __init__(
        self, *, strength: float = 1.0, distance: Distance = "huber", temperature: float = 2.0
    ) -> None:
        super().__init__(strength, distance, temperature)

    def penalty(self, step: Step) -> Tensor | None:
        """Return the drift from the stored logits; None where the batch holds none."""
        if step.stored is None:
            return None
        known = ~step.stored.isnan()
        return self.strength * distillation_loss(
            step.logits[known], step.stored[known], distance=self.distance, temperature=self.temperature
        )


@REGULARISERS.register(
    "tokens",
    summary="KRT's knowledge retention: past sessions' embeddings keep their direction.",
    reference="Dong et al., ICCV 2023",
)
class TokenDistillation(Regulariser):
    """``strength * sqrt(|C_seen| / |C_new|) * mean(1 - cos(old e, new e))`` over past sessions.

    See specification.md#krt.

    Args:
        strength: KRT's lambda_T (80 on VOC, 100 on COCO) stands beside ASL summed over batch and classes. The losses
            here are means, so it is divided by the batch size and the number of seen classes.
    """

    needs_teacher = True

    def __init__(self, *, strength: float = 100.0) -> None:
        self.strength = check_number("strength", strength)

    def penalty(self, step: Step) -> Tensor | None:
        """Return the drift of past sessions' embeddings."""
        if step.context.teacher is None:
            return None
        _, taught = step.teacher_output
        if taught is None or step.embeddings is None:
            raise InputError("regulariser 'tokens' needs a head with session embeddings.")
        seen, new = int(step.context.seen.sum()), len(step.context.classes)
        factor = self.strength * math.sqrt(seen / new) / (len(step.logits) * seen)
        return factor * embedding_drift(step.embeddings, taught)


def embedding_drift(embeddings: Tensor, taught: Tensor) -> Tensor:
    """Return the mean of ``1 - cos`` between new and old embeddings of the sessions that both have."""
    past = embeddings[:, : taught.shape[1]]
    return (1 - functional.cosine_similarity(past, taught, dim=-1)).mean()
