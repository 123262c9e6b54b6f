"""Losses by name, each a module: ``loss(logits, labels, *, mask=None, groups=None, group_weights=None)``.

The margin family of the paper (``rldam``, ``ru``, ``margin``, ``bce``) and others for comparison. A factory
takes the label counts of the data set first, whether its loss uses them or not, then options by keyword.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import nn

from mlcl.labels import LabelCounts
from mlcl.losses.bases import Base
from mlcl.losses.batch import number, one_of, warn_degenerate
from mlcl.losses.elementwise import ElementwiseLoss, asymmetric_cells, balanced_cells, focal_cells
from mlcl.losses.margin import MarginCount, MarginLoss, Reweight, margin_loss, margins
from mlcl.losses.pairwise import PairwiseLoss, logistic_pairs, squared_hinge_pairs
from mlcl.registry import Registry

__all__ = [
    "LOSSES",
    "Base",
    "ElementwiseLoss",
    "MarginCount",
    "MarginLoss",
    "PairwiseLoss",
    "Reweight",
    "build_loss",
    "margin_loss",
    "margins",
]

LOSSES: Registry[Callable[..., nn.Module]] = Registry("loss")

_PAPER = "Towards Macro-AUC oriented Imbalanced Multi-Label Continual Learning, AAAI 2025"
_SORTED = "Rust and Hocking, A log-linear gradient descent algorithm [...] all pairs squared hinge loss, 2023"
_PAIRS = "Gao and Zhou, On the consistency of AUC pairwise optimization, IJCAI 2015"


def build_loss(kind: str, counts: LabelCounts, **options: Any) -> nn.Module:
    """Return the loss called ``kind`` for a data set with these counts; None keeps an option's default.

    >>> counts = LabelCounts.of([[1, 0], [0, 1], [0, 0]])
    >>> build_loss("rldam", counts, margin=3.5)
    MarginLoss(classes=2, margin=3.5, reweight=batch, base=logistic)
    >>> build_loss("bce", counts, margin=3.5)
    Traceback (most recent call last):
    ...
    mlcl.errors.InputError: loss 'bce' takes no option 'margin' (given: 3.5); its options are: scale.
    """
    loss: nn.Module = LOSSES.build(kind, counts, **options)
    return loss


@LOSSES.register(
    "rldam",
    summary="Reweighted label-distribution-aware margin loss, with margins D_k = margin / P_k^(1/4).",
    reference=_PAPER,
)
def _rldam(
    counts: LabelCounts,
    *,
    margin: float = 1.0,
    reweight: Literal["dataset", "batch"] = "batch",  # measured better in runs: docs/decisions.md
    base: Base = "logistic",
    power: float = 0.25,
    margin_count: MarginCount = "positive",
    scale: float = 1.0,
) -> MarginLoss:
    one_of("reweight", reweight, ("dataset", "batch"))
    return MarginLoss(
        counts,
        margin=margin,
        reweight=reweight,
        base=base,
        power=power,
        margin_count=margin_count,
        scale=scale,
    )


@LOSSES.register(
    "ru",
    summary="Reweighted univariate loss: positives and negatives of a class weigh the same.",
    reference=_PAPER,
)
def _ru(
    counts: LabelCounts,
    *,
    reweight: Literal["dataset", "batch"] = "batch",  # measured better in runs: docs/decisions.md
    base: Base = "logistic",
    scale: float = 1.0,
) -> MarginLoss:
    one_of("reweight", reweight, ("dataset", "batch"))
    return MarginLoss(counts, margin=0.0, reweight=reweight, base=base, scale=scale)


@LOSSES.register(
    "margin", summary="Margins alone, without reweighting (the paper's ablation).", reference=_PAPER
)
def _margin(
    counts: LabelCounts,
    *,
    margin: float = 1.0,
    base: Base = "logistic",
    power: float = 0.25,
    margin_count: MarginCount = "positive",
    scale: float = 1.0,
) -> MarginLoss:
    return MarginLoss(
        counts,
        margin=margin,
        reweight="none",
        base=base,
        power=power,
        margin_count=margin_count,
        scale=scale,
    )


@LOSSES.register("bce", summary="Binary cross-entropy: the mean over rows and classes.")
def _bce(counts: LabelCounts, *, scale: float = 1.0) -> MarginLoss:
    return MarginLoss(counts, margin=0.0, reweight="none", scale=scale)


@LOSSES.register(
    "asl",
    summary="Asymmetric loss: easy negatives are focused away, very easy ones dropped.",
    reference="Ridnik et al., Asymmetric Loss For Multi-Label Classification, ICCV 2021",
)
def _asl(
    counts: LabelCounts,
    *,
    gamma_positive: float = 0.0,
    gamma_negative: float = 4.0,
    clip: float = 0.05,
    scale: float = 1.0,
) -> ElementwiseLoss:
    number("gamma_positive", gamma_positive)
    number("gamma_negative", gamma_negative)
    number("clip", clip, high=0.99)
    cells = partial(asymmetric_cells, gamma_positive=gamma_positive, gamma_negative=gamma_negative, clip=clip)
    return ElementwiseLoss(len(counts), cells, scale=scale)


@LOSSES.register(
    "focal",
    summary="Focal loss: cells already right weigh less; no class weight unless alpha is given.",
    reference="Lin et al., Focal Loss for Dense Object Detection, ICCV 2017",
)
def _focal(
    counts: LabelCounts, *, gamma: float = 2.0, alpha: float | None = None, scale: float = 1.0
) -> ElementwiseLoss:
    number("gamma", gamma)
    if alpha is not None:
        number("alpha", alpha, high=1.0)
    return ElementwiseLoss(len(counts), partial(focal_cells, gamma=gamma, alpha=alpha), scale=scale)


@LOSSES.register(
    "db",
    summary="Distribution-balanced loss: weights that know label co-occurrence, and tolerance for negatives.",
    reference="Wu et al., Distribution-Balanced Loss for Multi-Label Classification [...], ECCV 2020",
)
def _db(
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
    for name, value in (("alpha", alpha), ("mu", mu), ("kappa", kappa), ("gamma", gamma)):
        number(name, value)
    number("beta", beta, open_low=True)
    number("lambda_negative", lambda_negative, open_low=True)
    warn_degenerate(counts)
    cells = partial(
        balanced_cells,
        alpha=alpha,
        beta=beta,
        mu=mu,
        kappa=kappa,
        lambda_negative=lambda_negative,
        gamma=gamma,
    )
    positive, negative = torch.tensor(counts.positive), torch.tensor(counts.negative)
    return ElementwiseLoss(len(counts), cells, scale=scale, positive=positive, negative=negative)


@LOSSES.register(
    "pairwise-hinge2",
    summary="Squared hinge over all pairs of a class in the batch, by sorting.",
    reference=_SORTED,
)
def _pairwise_hinge2(counts: LabelCounts, *, scale: float = 1.0) -> PairwiseLoss:
    return PairwiseLoss(len(counts), squared_hinge_pairs, scale=scale)


@LOSSES.register(
    "pairwise-logistic",
    summary="Logistic loss over all pairs of a class in the batch; memory grows with the batch squared.",
    reference=_PAIRS,
)
def _pairwise_logistic(counts: LabelCounts, *, scale: float = 1.0) -> PairwiseLoss:
    return PairwiseLoss(len(counts), logistic_pairs, scale=scale)
