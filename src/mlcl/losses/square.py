"""The square loss of AUC by its moments, with running means: a batch without positives still has a gradient.

Over all pairs of a class, ``mean (m - (s+ - s-))^2 = Var(s+) + Var(s-) + (m - (a - b))^2`` with ``a`` and ``b`` the
mean scores of positives and negatives. The last term is cut at 0 where the gap exceeds the margin, as in AUCM.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mlcl.errors import check_number
from mlcl.labels import LabelCounts
from mlcl.losses.base import LOSSES, GroupedBatch, GroupedLoss, inverse


class SquareLoss(GroupedLoss):
    """``Var(s+) + Var(s-) + max(0, m - (a - b))^2``, the mean over classes (specification.md#auc-square).

    With ``c = max(0, m - a + b)`` it is ``mean+ [(s - a)^2 - 2 c (s - a)] + mean- [(s - b)^2 + 2 c (s - b)] + c^2``,
    and its gradient needs of the other rows only ``a`` and ``b``, the very means that make it stationary in them. So
    they may be running means: each row then has the gradient that it has among all recent rows, whatever else is in the
    batch. In training mode a call first takes its rows into the running means; in evaluation mode they stay. Before
    the first call in training mode the means are those of the batch, and the loss is exactly the one above.

    With running means the value is no longer bounded below by 0; its gradient is what it is for.

    Args:
        margin: ``m``, the gap between the means that is asked for.
        momentum: what running sums and counts keep in a call that has rows of their kind.
        scale: a factor on the whole loss.
    """

    sums: Tensor
    counts: Tensor

    def __init__(
        self, classes: int, *, margin: float = 1.0, momentum: float = 0.9, scale: float = 1.0
    ) -> None:
        super().__init__(classes)
        check_number("margin", margin)
        check_number("momentum", momentum, high=1)
        check_number("scale", scale)
        self.margin, self.momentum, self.scale = margin, momentum, scale
        # Of positives and negatives. Part of state_dict: a run that is resumed goes on with them.
        self.register_buffer("sums", torch.zeros(2, classes, dtype=torch.float64))
        self.register_buffer("counts", torch.zeros(2, classes, dtype=torch.float64))

    def of_batch(self, batch: GroupedBatch) -> Tensor:
        """Return the loss of a checked batch."""
        kinds = (batch.labels, batch.contributing() - batch.labels)
        if self.training:
            self._update(batch, kinds)
        return self.scale * self._value(batch, kinds)

    @torch.no_grad()
    def _update(self, batch: GroupedBatch, kinds: tuple[Tensor, Tensor]) -> None:
        """Take the rows of a batch into the running sums; those of a kind that the batch lacks stay."""
        counts = torch.stack([kind.sum(0) for kind in kinds]).to(self.counts)
        sums = torch.stack([(kind * batch.logits).sum(0, dtype=torch.float64) for kind in kinds])
        keep = torch.where(counts > 0, self.momentum, 1.0)
        self.counts.mul_(keep).add_(counts)
        self.sums.mul_(keep).add_(sums.to(self.sums))

    def _value(self, batch: GroupedBatch, kinds: tuple[Tensor, Tensor]) -> Tensor:
        found = torch.stack(batch.group_counts(*kinds))  # [2, G, K]
        with torch.no_grad():
            sums = torch.stack(batch.group_counts(*(kind * batch.logits for kind in kinds)))
            means = sums * inverse(found)
            running = self.counts.unsqueeze(1) > 0
            # Counts may be below 1 with a small momentum, so this is no place for `inverse`.
            mean = self.sums / torch.where(self.counts > 0, self.counts, 1.0)
            means = torch.where(running, mean.unsqueeze(1).to(means), means)
            known = (found > 0) | running  # [2, G, K]
            counted = (known.all(0) & (found > 0).any(0)).to(means)  # [G, K]
            lack = (self.margin - means[0] + means[1]).clamp_min(0)  # c
            each = batch.group_weight() * counted / counted.sum(1, keepdim=True).clamp_min(1)
        total = (each * lack.square()).sum()
        for sign, kind, count, centre in zip((-1, 1), kinds, found, means, strict=True):
            gap = batch.logits - batch.to_rows(centre)
            cells = gap.square() + 2 * sign * batch.to_rows(lack) * gap
            total = total + (kind * batch.to_rows(each * inverse(count)) * cells).sum()
        return total


@LOSSES.register(
    "auc-square",
    summary="Square loss of AUC by its moments, with running means: a batch without positives has a gradient.",
    reference="Ying et al., NeurIPS 2016; the cut at the margin: Yuan et al., ICCV 2021",
)
def auc_square(
    counts: LabelCounts, *, margin: float = 1.0, momentum: float = 0.9, scale: float = 1.0
) -> SquareLoss:
    """Return the square loss of AUC (`SquareLoss`).

    Args:
        margin: The gap between the mean scores of positives and negatives that is asked for.
        momentum: What the running means keep in a step, from 0 (none of it) to 1.
    """
    return SquareLoss(len(counts), margin=margin, momentum=momentum, scale=scale)
