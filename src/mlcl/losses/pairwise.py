"""Baselines over pairs: AUC surrogates, the mean of ``l(f+ - f-)`` over pairs or the hardest of them, and a smooth AP.

A pair is a positive and a negative of one class in one group of the batch. ``R_g`` is the mean over the
classes with positives and negatives among the contributing cells of g, as for ``reweight="batch"``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from mlcl.errors import check_number
from mlcl.labels import LabelCounts
from mlcl.losses.base import LOSSES, GroupedBatch, GroupedLoss, pair_weights


def by_group(order: Tensor, groups: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return an order of the rows in each column with the groups one after another, each in its order.

    Returns:
        The order, and the first place of the group at each place, ``[B]``; None for one group. Every column holds
        every row, so a group has the same places in all columns.
    """
    if groups is None:
        return order, None
    ordered = groups.sort().values
    return order.gather(0, groups[order].argsort(dim=0, stable=True)), torch.searchsorted(ordered, ordered)


def squared_hinge_pairs(batch: GroupedBatch) -> Tensor:
    """Return ``sum_g w_g R_g`` for ``max(0, 1 - (f+ - f-))^2``, in O(B log B) per class instead of O(B^2).

    For a positive with ``a = f+ - 1`` only negatives above a count, and
    ``sum (f- - a)^2 = S2 - 2 a S1 + a^2 S0`` with ``S_j`` the sum of ``(f-)^j`` over them. Sorted by a
    (positives) and f- (negatives), the sums are cumulative sums. They are kept in float64, because the three
    terms nearly cancel; a device without float64 cannot compute this loss.
    """
    weight = batch.to_rows(pair_weights(batch)[2]) * batch.labels
    is_negative = (batch.contributing() - batch.labels).double()
    # Only differences matter; scores around 0 have small squares.
    scores = batch.logits.double() - batch.logits.detach().double().mean(0)
    threshold = scores - 1
    order = torch.where(batch.labels > 0, threshold, scores).detach().argsort(dim=0, descending=True)
    order, start = by_group(order, batch.row_groups)
    above = torch.stack([is_negative, is_negative * scores, is_negative * scores.square()]).gather(
        1, order.expand(3, -1, -1)
    )
    sums = above.cumsum(1)
    if start is not None:  # the sums of a group are those of the column minus those before its first place
        sums = sums - F.pad(sums, (0, 0, 1, 0))[:, start]
    a = threshold.gather(0, order)
    pairs = sums[2] - 2 * a * sums[1] + a.square() * sums[0]
    return (pairs * weight.double().gather(0, order)).sum().to(batch.logits.dtype)


def _of_one_group(batch: GroupedBatch, pairs: Tensor) -> Tensor:
    """Return a table of pairs of rows, ``[B, B, K]``, with 0 where the two are in different groups."""
    if batch.row_groups is None:
        return pairs
    return pairs * (batch.row_groups.unsqueeze(1) == batch.row_groups).unsqueeze(2)


def logistic_pairs(batch: GroupedBatch) -> Tensor:
    """Return ``sum_g w_g R_g`` for ``log(1 + exp(-(f+ - f-)))``; memory and time O(B^2 K).

    A batch of 128 rows and 80 classes needs about 5 MB per float32 copy, and autograd keeps a few.
    """
    first = batch.to_rows(pair_weights(batch)[2]) * batch.labels
    second = batch.contributing() - batch.labels
    weight = _of_one_group(batch, first.unsqueeze(1) * second.unsqueeze(0))  # [positive row, negative row, K]
    gaps = batch.logits.unsqueeze(1) - batch.logits.unsqueeze(0)
    return (weight * -F.logsigmoid(gaps)).sum()


def hardest_negatives(batch: GroupedBatch, share: float) -> Tensor:
    """Mark, in each group and class, the ``share`` of the negatives that score highest, rounded up, ``[B, K]``."""
    negative = batch.contributing() - batch.labels
    scores = torch.where(negative > 0, batch.logits.detach(), -torch.inf)
    order, start = by_group(scores.argsort(dim=0, descending=True, stable=True), batch.row_groups)
    places = torch.arange(len(order), device=order.device)
    places = places if start is None else places - start
    ranks = torch.empty_like(order).scatter_(0, order, places.unsqueeze(1).expand_as(order))
    (count,) = batch.group_counts(negative)
    # A share such as 0.1 of 30 must give 3, not 4 for its rounding error.
    kept = (share * count - 1e-6).ceil()
    return negative * (ranks < batch.to_rows(kept))


def partial_pairs(batch: GroupedBatch, *, share: float = 0.3) -> Tensor:
    """Return `squared_hinge_pairs` over the pairs with one of the `hardest_negatives`."""
    mask = batch.labels + hardest_negatives(batch, share)
    return squared_hinge_pairs(batch._replace(mask=mask))


def smooth_precision(batch: GroupedBatch, *, temperature: float = 0.5) -> Tensor:
    """Return ``sum_g w_g R_g`` with ``R_g`` the mean of ``1 - AP`` over the classes with positives and negatives in g.

    The rank of a positive i is ``1 + sum_j sigmoid((s_j - s_i) / temperature)``; AP is the mean over the positives of
    their rank among positives over their rank among all rows of the group. Memory and time O(B^2 K).
    """
    _, negatives, pairs = pair_weights(batch)
    # w_g / (V_g positives); 0 for a class without negatives
    each = batch.to_rows(pairs * negatives) * batch.labels
    # Of j over i.
    above = torch.sigmoid((batch.logits.unsqueeze(0) - batch.logits.unsqueeze(1)) / temperature)
    same = torch.eye(len(batch.logits), dtype=torch.bool, device=batch.logits.device)
    above = above * _of_one_group(batch, batch.contributing().unsqueeze(0) * ~same.unsqueeze(2))
    among_positives = 1 + (above * batch.labels.unsqueeze(0)).sum(1)
    among_all = 1 + above.sum(1)
    return (each * (1 - among_positives / among_all)).sum()


class PairwiseLoss(GroupedLoss):
    """A mean over pairs as a module: `squared_hinge_pairs` or `logistic_pairs`. It uses no counts.

    Args:
        pairs: the function that returns the loss of a checked batch.
        scale: a factor on the whole loss.

    >>> loss = PairwiseLoss(1, squared_hinge_pairs)
    >>> loss(torch.tensor([[1.0], [0.5], [-1.0]]), torch.tensor([[1], [0], [0]]))  # (0.5^2 + 0) / 2
    tensor(0.1250)
    """

    def __init__(self, classes: int, pairs: Callable[[GroupedBatch], Tensor], *, scale: float = 1.0) -> None:
        super().__init__(classes)
        check_number("scale", scale)
        self.pairs, self.scale = pairs, scale

    def of_batch(self, batch: GroupedBatch) -> Tensor:
        """Return the loss of a checked batch."""
        return self.scale * self.pairs(batch)


@LOSSES.register(
    "pairwise-hinge2",
    summary="Squared hinge over all pairs of a class in the batch, by sorting.",
    reference="Rust and Hocking, A log-linear gradient descent algorithm [...] all pairs squared hinge loss, 2023",
)
def pairwise_hinge2(counts: LabelCounts, *, scale: float = 1.0) -> PairwiseLoss:
    """Return the pairwise squared hinge (`squared_hinge_pairs`)."""
    return PairwiseLoss(len(counts), squared_hinge_pairs, scale=scale)


@LOSSES.register(
    "pairwise-logistic",
    summary="Logistic loss over all pairs of a class in the batch; memory grows with the batch squared.",
    reference="Gao and Zhou, On the consistency of AUC pairwise optimization, IJCAI 2015",
)
def pairwise_logistic(counts: LabelCounts, *, scale: float = 1.0) -> PairwiseLoss:
    """Return the pairwise logistic loss (`logistic_pairs`)."""
    return PairwiseLoss(len(counts), logistic_pairs, scale=scale)


@LOSSES.register(
    "partial-auc",
    summary="Squared hinge over pairs of a positive and one of the highest-scoring negatives in the batch.",
    reference="Zhu et al., When AUC meets DRO: Optimizing Partial AUC [...], ICML 2022 (its exact form)",
)
def partial_auc(counts: LabelCounts, *, share: float = 0.3, scale: float = 1.0) -> PairwiseLoss:
    """Return the one-way partial AUC surrogate (`partial_pairs`).

    Args:
        share: The share of the negatives, the highest-scoring ones, that count: false-positive rates up to this.
    """
    check_number("share", share, high=1, open_low=True)
    return PairwiseLoss(len(counts), partial(partial_pairs, share=share), scale=scale)


@LOSSES.register(
    "smooth-ap",
    summary="One minus a smooth average precision of each class in the batch; memory grows with the batch squared.",
    reference="Brown et al., Smooth-AP: Smoothing the Path Towards Large-Scale Image Retrieval, ECCV 2020",
)
def smooth_ap(counts: LabelCounts, *, temperature: float = 0.5, scale: float = 1.0) -> PairwiseLoss:
    """Return the smooth average precision (`smooth_precision`).

    Args:
        temperature: The gap of logits over which one row passes another; near 0 the loss is 1 - AP, without gradient.
    """
    check_number("temperature", temperature, open_low=True)
    return PairwiseLoss(len(counts), partial(smooth_precision, temperature=temperature), scale=scale)
