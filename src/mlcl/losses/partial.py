"""One-way partial AUC: only the negatives that score highest count (docs/specification.md#other-losses)."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from mlcl.errors import check_number
from mlcl.labels import LabelCounts
from mlcl.losses.base import LOSSES
from mlcl.losses.batch import GroupedBatch
from mlcl.losses.pairwise import PairwiseLoss, by_group, squared_hinge_pairs


def hardest_negatives(batch: GroupedBatch, share: float) -> Tensor:
    """Mark, in each group and class, the ``share`` of the negatives that score highest, rounded up: 0 or 1, ``[B, K]``.

    >>> from mlcl.losses.batch import check_batch
    >>> scores, labels = torch.tensor([[3.0], [1.0], [2.0], [0.0]]), torch.tensor([[1], [0], [0], [0]])
    >>> hardest_negatives(check_batch(scores, labels, classes=1), 0.5).flatten()
    tensor([0., 1., 1., 0.])
    """
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
    """Return `squared_hinge_pairs` over the pairs with one of the `hardest_negatives`.

    >>> from mlcl.losses.batch import check_batch
    >>> scores, labels = torch.tensor([[1.0], [0.5], [-1.0]]), torch.tensor([[1], [0], [0]])
    >>> partial_pairs(check_batch(scores, labels, classes=1), share=0.5)  # 0.5^2
    tensor(0.2500)
    """
    mask = batch.labels + hardest_negatives(batch, share)
    return squared_hinge_pairs(batch._replace(mask=mask))


@LOSSES.register(
    "partial-auc",
    summary="Squared hinge over pairs of a positive and one of the highest-scoring negatives in the batch.",
    reference="Zhu et al., When AUC meets DRO: Optimizing Partial AUC [...], ICML 2022 (its exact form)",
)
def partial_auc(counts: LabelCounts, *, share: float = 0.3, scale: float = 1.0) -> PairwiseLoss:
    """Return the one-way partial AUC surrogate (`partial_pairs`).

    Args:
        counts: label counts of the dataset, of which it needs the number of classes.
        share: The share of the negatives, the highest-scoring ones, that count: false-positive rates up to this.
        scale: A factor on the whole loss.
    """
    check_number("share", share, high=1, open_low=True)
    return PairwiseLoss(len(counts), partial(partial_pairs, share=share), scale=scale)
