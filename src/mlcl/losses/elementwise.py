"""Baseline losses of single cells: asymmetric, focal, distribution-balanced (specification.md#other-losses).

Each is a pure function ``(logits, labels) -> cells [B, K]``; `ElementwiseLoss` takes the mean over the
contributing cells of each group, as ``reweight="none"`` does in the margin family.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mlcl.errors import check_number
from mlcl.labels import LabelCounts
from mlcl.losses.base import LOSSES, GroupedBatch, GroupedLoss, inverse, mean_weights, warn_degenerate


def asymmetric_cells(
    logits: Tensor,
    labels: Tensor,
    *,
    gamma_positive: float = 0.0,
    gamma_negative: float = 4.0,
    clip: float = 0.05,
) -> Tensor:
    """Return the asymmetric loss (ASL) of each cell, ``[B, K]``; Ridnik et al., ICCV 2021.

    With ``p = sigmoid(f)`` and ``p_m = max(p - clip, 0)``: ``-(1-p)^gamma+ log p`` on positives and
    ``-(p_m)^gamma- log(1 - p_m)`` on negatives. The gradient flows through the focusing factors too.
    """
    positive = -F.logsigmoid(logits)
    if gamma_positive > 0:
        positive = positive * torch.exp(gamma_positive * F.logsigmoid(-logits))
    if clip > 0:
        # The smallest number instead of 0, because 0^gamma has no finite gradient for gamma < 1.
        shifted = (torch.sigmoid(logits) - clip).clamp_min(torch.finfo(logits.dtype).tiny)
        negative = -torch.log1p(-shifted) * shifted**gamma_negative
    else:
        negative = -F.logsigmoid(-logits) * torch.exp(gamma_negative * F.logsigmoid(logits))
    return torch.where(labels > 0, positive, negative)


def focal_cells(logits: Tensor, labels: Tensor, *, gamma: float = 2.0, alpha: float | None = None) -> Tensor:
    """Return the focal loss of each cell, ``[B, K]``; Lin et al., ICCV 2017.

    ``-alpha_t (1 - p_t)^gamma log p_t`` with ``p_t`` the probability of the true label; ``alpha_t`` is
    ``alpha`` on positives and ``1 - alpha`` on negatives. The paper uses alpha 0.25, tuned for the anchors
    of a detector; the default here, None, weights positives and negatives by 1.
    """
    signed = torch.where(labels > 0, logits, -logits)  # p_t = sigmoid(signed)
    cells = -F.logsigmoid(signed) * torch.exp(gamma * F.logsigmoid(-signed))
    return cells if alpha is None else torch.where(labels > 0, alpha * cells, (1 - alpha) * cells)


def balanced_cells(
    logits: Tensor,
    labels: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    alpha: float = 0.1,
    beta: float = 10.0,
    mu: float = 0.2,
    kappa: float = 0.05,
    lambda_negative: float = 2.0,
    gamma: float = 0.0,
) -> Tensor:
    """Return the distribution-balanced loss (DB) of each cell, ``[B, K]``; Wu et al., ECCV 2020.

    Re-balanced weighting: ``r_k = (1/P_k) / sum_{j: y_j=1} (1/P_j)`` is the chance of drawing the row for
    class k over that of drawing it for any of its labels; smoothed, it becomes the weight
    ``w_k = alpha + sigmoid(beta (r_k - mu))``. In a row without labels ``r`` is infinite, ``w = alpha + 1``.

    Negative-tolerant regularisation: ``x = f - nu_k`` with ``nu_k = kappa log(N_k / P_k)``, minus kappa
    times the bias that fits the class's frequency. The cell is ``w_k softplus(-x)`` on positives and
    ``w_k softplus(lambda x) / lambda`` on negatives.

    The defaults are the authors' for COCO (for VOC: mu 0.3, lambda 5). With ``gamma`` > 0 the focal factor of
    their DB-focal runs is added; their code then doubles the loss, and it divides ``nu`` by lambda, for which
    one passes ``kappa / lambda``. Classes with ``P_k = 0`` or ``N_k = 0`` give no loss. The labels of masked
    cells must be 0.
    """
    positive, negative = positive.to(logits), negative.to(logits)
    defined = (positive > 0) & (negative > 0)
    chance = inverse(positive)
    drawn = (labels * chance).sum(1, keepdim=True)
    ratio = torch.where(drawn > 0, chance / drawn, torch.inf)
    weight = (alpha + torch.sigmoid(beta * (ratio - mu))) * defined
    bias = kappa * torch.log(negative.clamp_min(1) / positive.clamp_min(1))
    signed = torch.where(labels > 0, logits - bias, lambda_negative * (bias - logits))
    cells = -F.logsigmoid(signed) * weight
    cells = torch.where(labels > 0, cells, cells / lambda_negative)
    return cells if gamma == 0 else cells * torch.exp(gamma * F.logsigmoid(-signed))


class ElementwiseLoss(GroupedLoss):
    """``sum_g w_g`` times the mean over the contributing cells of group g of a loss that treats each row alone.

    Args:
        cells: ``(logits, labels, **constants) -> [B, K]``, finite for finite logits.
        scale: a factor on the whole loss.
        constants: tensors that ``cells`` takes by keyword; they move with the module.

    >>> ElementwiseLoss(2, focal_cells)(torch.tensor([[0.0, 2.0]]), torch.tensor([[1, 0]]))
    tensor(0.9117)
    """

    def __init__(
        self, classes: int, cells: Callable[..., Tensor], *, scale: float = 1.0, **constants: Tensor
    ) -> None:
        super().__init__(classes)
        check_number("scale", scale)
        self.cells, self.scale = cells, scale
        for name, value in constants.items():
            self.register_buffer(name, value, persistent=False)

    def of_batch(self, batch: GroupedBatch) -> Tensor:
        """Return the loss of a checked batch."""
        cells = self.cells(batch.logits, batch.labels, **dict(self.named_buffers()))
        return self.scale * (cells.mean() if batch.plain else (mean_weights(batch) * cells).sum())


@LOSSES.register(
    "asl",
    summary="Asymmetric loss: easy negatives are focused away, very easy ones dropped.",
    reference="Ridnik et al., Asymmetric Loss For Multi-Label Classification, ICCV 2021",
)
def asl(
    counts: LabelCounts,
    *,
    gamma_positive: float = 0.0,
    gamma_negative: float = 4.0,
    clip: float = 0.05,
    scale: float = 1.0,
) -> ElementwiseLoss:
    """Return the asymmetric loss (`asymmetric_cells`).

    Args:
        gamma_positive: The focusing power on positives.
        gamma_negative: The focusing power on negatives.
        clip: The amount by which the probability of a negative is lowered before focusing, from 0 to 0.99.
    """
    check_number("gamma_positive", gamma_positive)
    check_number("gamma_negative", gamma_negative)
    check_number("clip", clip, high=0.99)
    cells = partial(asymmetric_cells, gamma_positive=gamma_positive, gamma_negative=gamma_negative, clip=clip)
    return ElementwiseLoss(len(counts), cells, scale=scale)


@LOSSES.register(
    "focal",
    summary="Focal loss: cells that are already right weigh less; no class weight unless alpha is given.",
    reference="Lin et al., Focal Loss for Dense Object Detection, ICCV 2017",
)
def focal(
    counts: LabelCounts, *, gamma: float = 2.0, alpha: float | None = None, scale: float = 1.0
) -> ElementwiseLoss:
    """Return the focal loss (`focal_cells`).

    Args:
        gamma: The focusing power of the focal factor.
        alpha: In the focal loss, the weight of positives, from 0 to 1; negatives have 1 - alpha.
    """
    check_number("gamma", gamma)
    if alpha is not None:
        check_number("alpha", alpha, high=1.0)
    return ElementwiseLoss(len(counts), partial(focal_cells, gamma=gamma, alpha=alpha), scale=scale)


@LOSSES.register(
    "db",
    summary="Distribution-balanced loss: weights that know label co-occurrence, and tolerance for negatives.",
    reference="Wu et al., Distribution-Balanced Loss for Multi-Label Classification [...], ECCV 2020",
)
def distribution_balanced(
    counts: LabelCounts,
    *,
    alpha: float = 0.1,
    beta: float = 10.0,
    mu: float = 0.2,
    kappa: float = 0.05,
    lambda_negative: float = 2.0,
    gamma: float = 0.0,
    scale: float = 1.0,
) -> ElementwiseLoss:
    """Return the distribution-balanced loss (`balanced_cells`).

    Args:
        alpha: In the distribution-balanced loss, the smallest weight of a cell.
        beta: The slope of the sigmoid that smooths the weights.
        mu: The ratio at which the smoothed weight is half way between its limits.
        kappa: The scale of the bias kappa log(N_k/P_k) that is subtracted from the logits.
        lambda_negative: The factor by which the logits of negatives are scaled; larger tolerates negatives more.
        gamma: The focusing power of the focal factor.
    """
    options: dict[str, Any] = {"alpha": alpha, "mu": mu, "kappa": kappa, "gamma": gamma}
    above: dict[str, Any] = {"beta": beta, "lambda_negative": lambda_negative}
    for name, value in (options | above).items():
        check_number(name, value, open_low=name in above)
    warn_degenerate(counts)
    cells = partial(balanced_cells, **options, **above)
    positive, negative = torch.tensor(counts.positive), torch.tensor(counts.negative)
    return ElementwiseLoss(len(counts), cells, scale=scale, positive=positive, negative=negative)
