"""The margin-loss family (specification.md#margin-loss): RLDAM, RU, margin only and BCE are one weighted sum.

Every member is ``L = sum_{r,k} W[r,k] l(z[r,k])`` with ``z+ = f - D_k`` on positives and ``z- = -f - D_k``
on negatives. The weights ``W`` come from labels, mask and groups alone, so no gradient runs through them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from mlcl.errors import InputError, check_choice, check_number
from mlcl.labels import LabelCounts
from mlcl.losses.base import (
    LOSSES,
    GroupedBatch,
    GroupedLoss,
    check_batch,
    check_counts,
    inverse,
    mean_weights,
    pair_weights,
    warn_degenerate,
)

_PAPER = "Towards Macro-AUC oriented Imbalanced Multi-Label Continual Learning, AAAI 2025"

Base = Literal["logistic", "hinge", "squared-hinge", "exponential"]
Reweight = Literal["dataset", "batch", "mixed", "none"]
Balance = Literal["dataset", "batch", "mixed"]
MarginCount = Literal["positive", "minority"]

# exp(50) is 5e21: times a logit of 1e4 and a large weight it is still far from the largest float32.
EXPONENTIAL_LIMIT = 50.0


def exponential(z: Tensor) -> Tensor:
    """Return ``exp(-z)``, continued by its tangent line where z is below -50.

    It is still convex, and loss and gradient are finite for logits of 1e4 in float32.
    """
    clamped = z.clamp_min(-EXPONENTIAL_LIMIT)
    return torch.exp(-clamped) * (1 + clamped - z)


BASES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "logistic": lambda z: F.softplus(-z),
    "hinge": lambda z: (1 - z).clamp_min(0),
    "squared-hinge": lambda z: (1 - z).clamp_min(0).square(),
    "exponential": exponential,
}
"""The base losses ``l(z)`` (specification.md#base-losses), each a convex bound on the error ``z <= 0``."""


class ClassConstants(NamedTuple):
    """The constants of each class from the counts of the dataset, ``[K]``; None where the loss does not need them."""

    margin: Tensor | None  # D_k
    shift: Tensor | None  # -2 D_k, so that D + y * shift is -D for a positive and D for a negative
    positive: Tensor | None  # weight of a positive cell, 0 for a class without positives or negatives
    negative: Tensor | None  # weight of a negative cell


def margins(
    positive: Tensor,
    negative: Tensor,
    *,
    margin: float = 1.0,
    power: float = 0.25,
    margin_count: MarginCount = "positive",
) -> Tensor:
    """Return ``D_k = margin / c_k^power``, ``[K]`` (Proposition 1).

    ``c_k`` is ``P_k`` or, for ``minority``, ``min(P_k, N_k)``; a count of 0 becomes 1, as such a class has no loss.

    >>> margins(torch.tensor([1, 16, 81]), torch.tensor([99, 84, 19]))
    tensor([1.0000, 0.5000, 0.3333])
    """
    counts = positive if margin_count == "positive" else torch.minimum(positive, negative)
    if not counts.is_floating_point():
        counts = counts.to(torch.get_default_dtype())
    return margin * counts.clamp_min(1) ** -power


@dataclass(frozen=True)
class Member:
    """One loss of the family, by the options of `margin_loss`."""

    margin: float
    reweight: Reweight
    base: Base
    power: float
    margin_count: MarginCount
    scale: float

    def __post_init__(self) -> None:
        for name in ("margin", "power", "scale"):
            check_number(name, getattr(self, name))
        for name, kind in (("reweight", Reweight), ("base", Base), ("margin_count", MarginCount)):
            check_choice(name, getattr(self, name), get_args(kind))

    def divisor(self, batch: GroupedBatch) -> int:
        """Return the divisor of the constants of the classes.

        In a plain batch S = B and K_g = K, so 1/(K S) is one over the number of cells. Dividing the few constants
        saves a pass over the many cells.
        """
        return batch.logits.numel() if self.reweight == "dataset" and batch.plain else 1

    @torch.no_grad()
    def constants(self, positive: Tensor, negative: Tensor, like: Tensor, divisor: int) -> ClassConstants:
        """Make the constants of each class, on the device and in the dtype of ``like``."""
        if self.margin == 0 and self.reweight in ("batch", "none"):
            return ClassConstants(None, None, None, None)
        positive, negative = positive.to(like), negative.to(like)
        defined, margin, shift = ((positive > 0) & (negative > 0)).to(like), None, None
        if self.margin > 0:
            options: Any = {"margin": self.margin, "power": self.power, "margin_count": self.margin_count}
            margin = margins(positive, negative, **options)
            shift = -2 * margin
        if self.reweight in ("dataset", "mixed"):
            factor = defined * (positive + negative) / divisor
            return ClassConstants(margin, shift, factor * inverse(positive), factor * inverse(negative))
        weight = None if bool(defined.all()) else defined
        return ClassConstants(margin, shift, weight, weight)

    def loss(self, batch: GroupedBatch, constants: ClassConstants) -> Tensor:
        """Return ``scale * sum W l(z)``."""
        weight, mean = None, False
        if constants.positive is not None and constants.negative is not None:
            # lerp is exact at 0 and 1, and one pass over the cells
            weight = torch.lerp(constants.negative, constants.positive, batch.labels)
        if self.reweight == "mixed" and weight is not None:
            weight = _mixed_weights(batch, weight)
        elif batch.plain and self.reweight != "batch":
            mean = self.reweight == "none"
        else:
            groups = _group_weights(batch, self.reweight)
            weight = groups if weight is None else groups * weight
        total = _total(batch, constants, self.base, weight, reduction="mean" if mean else "sum")
        return total if self.scale == 1 else total * self.scale


def margin_loss(
    logits: Tensor,
    labels: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    margin: float = 1.0,
    reweight: Reweight = "dataset",
    base: Base = "logistic",
    power: float = 0.25,
    margin_count: MarginCount = "positive",
    scale: float = 1.0,
    mask: Tensor | None = None,
    groups: Tensor | None = None,
    group_weights: Tensor | None = None,
) -> Tensor:
    """Return the margin loss ``scale * sum_g w_g R_g``, a scalar in float32 or float64.

    It is defined in specification.md#margin-loss. With ``S_gk`` the number of rows of group g that contribute to
    the loss for class k, ``K_g`` the number of classes for which some row of g contributes, and ``n_k = P_k + N_k``:

    - ``dataset``: ``R_g = (1/K_g) sum_k (n_k/S_gk) [sum_{y=1} l(z+)/P_k + sum_{y=0} l(z-)/N_k]``, Eq. 4
      estimated without bias from a uniform sample of rows;
    - ``batch``: ``R_g`` = mean over the classes with positives and negatives in g of
      ``mean_{y=1} l(z+) + mean_{y=0} l(z-)``;
    - ``mixed``: ``batch`` for the last group, ``dataset`` for all groups before it, of which a step sees few rows;
    - ``none``: ``R_g`` = mean of ``l`` over the contributing cells; BCE with margin 0 and the logistic base.

    The first three are about twice as large as ``none`` at the start, because each class contributes two means;
    ``scale`` allows a comparison at equal step sizes. Where the loss uses counts (margin > 0, ``dataset`` or
    ``mixed``), a class with ``P_k = 0`` or ``N_k = 0`` adds nothing, while the number of classes or cells in a mean
    stays the same.
    Where nothing contributes, the loss is 0 with a zero gradient.

    Args:
        logits: ``f``, ``[B, K]``.
        labels: 0 or 1, ``[B, K]``.
        positive: ``P_k``, ``[K]``, counted on the whole dataset of the class's task.
        negative: ``N_k``, ``[K]``.
        margin: ``lambda``; 0: no margin.
        reweight: ``dataset`` (the paper's text), ``batch`` (the released code), ``mixed`` or ``none``.
        base: ``l``: ``logistic`` log(1+exp(-z)), ``hinge``, ``squared-hinge`` or ``exponential``; see
            `BASES`.
        power: the margin's power, 1/4 in the paper.
        margin_count: ``positive`` (the paper) or ``minority`` (which the bound has).
        scale: a factor on the whole loss.
        mask: ``[B, K]``, which cells contribute to the loss; None: all.
        groups: ``[B]``, the group (task) of each row, or ``[1, K]``, of each class; None: one group.
        group_weights: ``w_g``, ``[G]``; None: all 1.

    >>> f = torch.tensor([[2.0, -1.0], [-1.0, 0.5], [0.0, -3.0]])
    >>> y = torch.tensor([[1, 0], [0, 1], [0, 0]])
    >>> margin_loss(f, y, torch.tensor([1, 1]), torch.tensor([2, 2]))
    tensor(1.3503)
    >>> margin_loss(f, y, torch.tensor([1, 1]), torch.tensor([2, 2]), margin=0, reweight="none")  # BCE
    tensor(0.3282)
    """
    member = Member(margin, reweight, base, power, margin_count, scale)
    if positive.dim() != 1 or positive.shape != negative.shape:
        raise InputError(
            f"positive has shape {tuple(positive.shape)} and negative {tuple(negative.shape)}, "
            f"but one count of each was expected for every class"
        )
    batch = check_batch(
        logits, labels, classes=len(positive), mask=mask, groups=groups, group_weights=group_weights
    )
    return member.loss(batch, member.constants(positive, negative, batch.logits, member.divisor(batch)))


class MarginLoss(GroupedLoss):
    """The margin-loss family as a module: `margin_loss` for fixed counts, with the same options.

    Args:
        counts: ``P_k`` and ``N_k`` of the whole dataset of each class's task. If the loss uses counts, one
            warning names the classes that were counted but have no positives or no negatives.
        margin: as in `margin_loss`, like all further options.

    >>> loss = MarginLoss(LabelCounts.of([[1, 0], [0, 1], [0, 0]]), margin=1.0)
    >>> loss(torch.tensor([[2.0, -1.0], [-1.0, 0.5], [0.0, -3.0]]), torch.tensor([[1, 0], [0, 1], [0, 0]]))
    tensor(1.3503)
    """

    positive: Tensor
    negative: Tensor

    def __init__(
        self,
        counts: LabelCounts,
        *,
        margin: float = 1.0,
        reweight: Reweight = "dataset",
        base: Base = "logistic",
        power: float = 0.25,
        margin_count: MarginCount = "positive",
        scale: float = 1.0,
    ) -> None:
        check_counts(counts)
        super().__init__(len(counts))
        self.member = Member(margin, reweight, base, power, margin_count, scale)
        if margin > 0 or reweight in ("dataset", "mixed"):
            warn_degenerate(counts)
        # Whole numbers, so that module.half() cannot round them; the floats are made for the dtype of the logits.
        self.register_buffer("positive", torch.tensor(counts.positive), persistent=False)
        self.register_buffer("negative", torch.tensor(counts.negative), persistent=False)
        self._made: tuple[tuple[torch.dtype, torch.device, int], ClassConstants] | None = None

    @property
    def balanced(self) -> bool:
        """Return whether positives and negatives of a class have the same total weight: see `mlcl.losses.base`."""
        return self.member.reweight != "none"

    def of_batch(self, batch: GroupedBatch) -> Tensor:
        """Return the loss of a checked batch."""
        like = batch.logits
        key = like.dtype, like.device, self.member.divisor(batch)
        if self._made is None or self._made[0] != key:
            self._made = key, self.member.constants(self.positive, self.negative, like, key[2])
        return self.member.loss(batch, self._made[1])

    def extra_repr(self) -> str:
        """Return the settings that differ between the members of the family."""
        chosen = self.member
        return f"classes={self.classes}, margin={chosen.margin:g}, reweight={chosen.reweight}, base={chosen.base}"


def _group_weights(batch: GroupedBatch, reweight: Reweight) -> Tensor:
    """Return the part of each cell's weight that depends on the batch, ``[B, K]``."""
    if reweight == "none":
        return mean_weights(batch)
    if reweight == "dataset":
        (rows,) = batch.group_counts(batch.contributing())  # S_gk
        present = rows.sign()
        classes = present.sum(1, keepdim=True).clamp_min_(1)  # K_g
        return batch.masked(batch.to_rows(batch.group_weight() * present / (classes * rows.clamp_min_(1))))
    positives, negatives, pairs = pair_weights(batch)
    # 1 / positives is negatives / (positives negatives): 0 for a class without positives or negatives.
    ends = batch.to_rows(pairs * positives), batch.to_rows(pairs * negatives)
    return batch.masked(torch.lerp(*ends, batch.labels))


def _mixed_weights(batch: GroupedBatch, weight: Tensor) -> Tensor:
    """Return the weight of each cell: by the batch in the last group, by the dataset (``weight``) in earlier ones."""
    by_batch = _group_weights(batch, "batch") * weight.sign()  # 0 for a class without positives or negatives
    if batch.groups is None or batch.weights is None:
        return by_batch
    last = batch.groups == len(batch.weights) - 1
    last = last if last.dim() == 2 else last.unsqueeze(1)
    return torch.where(last, by_batch, _group_weights(batch, "dataset") * weight)


def _total(
    batch: GroupedBatch,
    constants: ClassConstants,
    base: Base,
    weight: Tensor | None,
    *,
    reduction: Literal["mean", "sum"],
) -> Tensor:
    """Return the sum or mean over all cells of ``weight * l(z)``."""
    logits, labels = batch.logits, batch.labels
    if constants.margin is not None and constants.shift is not None:
        logits = logits + torch.addcmul(constants.margin, labels, constants.shift)  # f - D or f + D
    if base == "logistic":
        # BCE of f -+ D is l(f - D) on positives and l(-f - D) on negatives, in one fused and stable call.
        return F.binary_cross_entropy_with_logits(logits, labels, weight=weight, reduction=reduction)
    cells = BASES[base]((2 * labels - 1) * logits)
    if weight is not None:
        cells = cells * weight
    return cells.mean() if reduction == "mean" else cells.sum()


@LOSSES.register(
    "rldam",
    summary="Reweighted label-distribution-aware margin loss, with margins D_k = margin / P_k^(1/4).",
    reference=_PAPER,
)
def rldam(
    counts: LabelCounts,
    *,
    margin: float = 1.0,
    reweight: Balance = "batch",  # measured better in runs: lab/decisions.md
    base: Base = "logistic",
    power: float = 0.25,
    margin_count: MarginCount = "positive",
    scale: float = 1.0,
) -> MarginLoss:
    """Return the paper's loss: margins and reweighting.

    Args:
        margin: The scale lambda of the margins D_k = lambda / P_k^power; 0 means no margins.
        reweight: Which counts of positives and negatives balance a class: those of the dataset, those of the batch, or
            mixed: of the batch for the current task, of the dataset for rows of the memory.
        base: The base loss of one margin.
        power: The power of the count in the margins; 1/4 in the paper.
        margin_count: The count in the margins: positives, or the smaller of positives and negatives.
        scale: A factor on the whole loss.
    """
    check_choice("reweight", reweight, get_args(Balance))
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
    summary="Reweighted univariate loss: positives and negatives of a class have the same total weight.",
    reference=_PAPER,
)
def ru(
    counts: LabelCounts,
    *,
    reweight: Balance = "batch",  # measured better in runs: lab/decisions.md
    base: Base = "logistic",
    scale: float = 1.0,
) -> MarginLoss:
    """Return reweighting alone, without margins."""
    check_choice("reweight", reweight, get_args(Balance))
    return MarginLoss(counts, margin=0.0, reweight=reweight, base=base, scale=scale)


@LOSSES.register(
    "margin", summary="Margins alone, without reweighting (the paper's ablation).", reference=_PAPER
)
def margin_only(
    counts: LabelCounts,
    *,
    margin: float = 1.0,
    base: Base = "logistic",
    power: float = 0.25,
    margin_count: MarginCount = "positive",
    scale: float = 1.0,
) -> MarginLoss:
    """Return margins alone, without reweighting."""
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
def bce(counts: LabelCounts, *, scale: float = 1.0) -> MarginLoss:
    """Return binary cross-entropy with logits."""
    return MarginLoss(counts, margin=0.0, reweight="none", scale=scale)
