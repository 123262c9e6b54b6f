"""Pairwise AUC surrogates, the rivals of RU: the mean of ``l(f+ - f-)`` over pairs.

A pair is a positive and a negative of one class in one group of the batch. ``R_g`` is the mean over the
classes with both signs among the judged rows of g, as for ``reweight="batch"``.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mlcl.losses.batch import Batch, check_batch, number, pair_weights


def squared_hinge_pairs(batch: Batch) -> Tensor:
    """Return ``sum_g w_g R_g`` for ``max(0, 1 - (f+ - f-))^2``, in O(B log B) a class instead of O(B^2).

    For a positive with ``a = f+ - 1`` only negatives above a count, and
    ``sum (f- - a)^2 = S2 - 2 a S1 + a^2 S0`` with ``S_j`` the sum of ``(f-)^j`` over them. Sorted by a
    (positives) and f- (negatives), the sums are running sums. They are kept in float64, since the three
    terms nearly cancel (so a device without float64 cannot run it).

    >>> scores, labels = torch.tensor([[1.0], [0.5], [-1.0]]), torch.tensor([[1], [0], [0]])
    >>> squared_hinge_pairs(check_batch(scores, labels, classes=1))  # (0.5^2 + 0) / 2
    tensor(0.1250)
    """
    weight = batch.to_rows(pair_weights(batch)[2]) * batch.labels
    is_negative = (batch.judged() - batch.labels).double()
    # Pairs see differences alone; around 0 the squares are small.
    scores = batch.logits.double() - batch.logits.detach().double().mean(0)
    threshold = scores - 1
    order = torch.where(batch.labels > 0, threshold, scores).detach().argsort(dim=0, descending=True)
    start = None
    if batch.row_groups is not None:
        # Groups one after another, each in its order. Every column holds every row, so a group has the same
        # places in all columns, and its running sums are the whole's minus those before its first place.
        regroup = batch.row_groups[order].argsort(dim=0, stable=True)
        order = order.gather(0, regroup)
        ordered = batch.row_groups.sort().values
        start = torch.searchsorted(ordered, ordered)
    above = torch.stack([is_negative, is_negative * scores, is_negative * scores.square()]).gather(
        1, order.expand(3, -1, -1)
    )
    sums = above.cumsum(1)
    if start is not None:
        sums = sums - F.pad(sums, (0, 0, 1, 0))[:, start]
    a = threshold.gather(0, order)
    pairs = sums[2] - 2 * a * sums[1] + a.square() * sums[0]
    return (pairs * weight.double().gather(0, order)).sum().to(batch.logits.dtype)


def logistic_pairs(batch: Batch) -> Tensor:
    """Return ``sum_g w_g R_g`` for ``log(1 + exp(-(f+ - f-)))``; memory and time O(B^2 K).

    A batch of 128 rows and 80 classes needs about 5 MB a float32 copy, and autograd keeps a few.

    >>> scores, labels = torch.tensor([[1.0], [1.0], [1.0]]), torch.tensor([[1], [0], [0]])
    >>> logistic_pairs(check_batch(scores, labels, classes=1))  # log 2
    tensor(0.6931)
    """
    first = batch.to_rows(pair_weights(batch)[2]) * batch.labels
    second = batch.judged() - batch.labels
    weight = first.unsqueeze(1) * second.unsqueeze(0)  # [positive row, negative row, K]
    if batch.row_groups is not None:
        weight = weight * (batch.row_groups.unsqueeze(1) == batch.row_groups).unsqueeze(2)
    gaps = batch.logits.unsqueeze(1) - batch.logits.unsqueeze(0)
    return (weight * -F.logsigmoid(gaps)).sum()


class PairwiseLoss(nn.Module):
    """A mean over pairs as a module: `squared_hinge_pairs` or `logistic_pairs`. It uses no counts.

    Args:
        classes: the number of classes ``K``.
        pairs: what it computes of a checked batch.
        scale: a factor on the whole loss.

    >>> loss = PairwiseLoss(1, squared_hinge_pairs)
    >>> loss(torch.tensor([[1.0], [0.5], [-1.0]]), torch.tensor([[1], [0], [0]]))  # (0.5^2 + 0) / 2
    tensor(0.1250)
    """

    def __init__(self, classes: int, pairs: Callable[[Batch], Tensor], *, scale: float = 1.0) -> None:
        super().__init__()
        number("scale", scale)
        self.classes, self.pairs, self.scale = classes, pairs, scale

    def forward(
        self,
        logits: Tensor,
        labels: Tensor,
        *,
        mask: Tensor | None = None,
        groups: Tensor | None = None,
        group_weights: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of a batch; see `mlcl.losses.margin.margin_loss` for the shapes."""
        batch = check_batch(
            logits, labels, classes=self.classes, mask=mask, groups=groups, group_weights=group_weights
        )
        return self.scale * self.pairs(batch)
