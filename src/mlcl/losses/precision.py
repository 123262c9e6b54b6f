"""A smooth average precision, for those who report mAP (docs/specification.md#other-losses)."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from mlcl.errors import check_number
from mlcl.labels import LabelCounts
from mlcl.losses.base import LOSSES
from mlcl.losses.batch import GroupedBatch, pair_weights
from mlcl.losses.pairwise import PairwiseLoss


def smooth_precision(batch: GroupedBatch, *, temperature: float = 0.5) -> Tensor:
    """Return ``sum_g w_g R_g`` with ``R_g`` the mean of ``1 - AP`` over the classes with positives and negatives in g.

    The rank of a positive i is ``1 + sum_j sigmoid((s_j - s_i) / temperature)``; AP is the mean over the positives of
    their rank among positives over their rank among all rows of the group. Memory and time O(B^2 K).

    >>> from mlcl.losses.batch import check_batch
    >>> scores, labels = torch.tensor([[9.0], [1.0], [5.0]]), torch.tensor([[1], [1], [0]])
    >>> smooth_precision(check_batch(scores, labels, classes=1), temperature=0.1)  # AP (1/1 + 2/3) / 2
    tensor(0.1667)
    """
    _, negatives, pairs = pair_weights(batch)
    each = (
        batch.to_rows(pairs * negatives) * batch.labels
    )  # w_g / (V_g positives); 0 for a class without negatives
    above = torch.sigmoid(
        (batch.logits.unsqueeze(0) - batch.logits.unsqueeze(1)) / temperature
    )  # of j over i
    others = batch.contributing().unsqueeze(0) * ~torch.eye(
        len(batch.logits), dtype=torch.bool, device=batch.logits.device
    ).unsqueeze(2)
    if batch.row_groups is not None:
        others = others * (batch.row_groups.unsqueeze(1) == batch.row_groups).unsqueeze(2)
    above = above * others
    among_positives = 1 + (above * batch.labels.unsqueeze(0)).sum(1)
    among_all = 1 + above.sum(1)
    return (each * (1 - among_positives / among_all)).sum()


@LOSSES.register(
    "smooth-ap",
    summary="One minus a smooth average precision of each class in the batch; memory grows with the batch squared.",
    reference="Brown et al., Smooth-AP: Smoothing the Path Towards Large-Scale Image Retrieval, ECCV 2020",
)
def smooth_ap(counts: LabelCounts, *, temperature: float = 0.5, scale: float = 1.0) -> PairwiseLoss:
    """Return the smooth average precision (`smooth_precision`).

    Args:
        counts: label counts of the dataset, of which it needs the number of classes.
        temperature: The gap of logits over which one row passes another; near 0 the loss is 1 - AP, without gradient.
        scale: A factor on the whole loss.
    """
    check_number("temperature", temperature, open_low=True)
    return PairwiseLoss(len(counts), partial(smooth_precision, temperature=temperature), scale=scale)
