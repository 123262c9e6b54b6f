"""What every loss shares: checking a batch, and weighing its cells by group.

A cell is one (row, class) pair. ``mask[r, k]`` says whether row r is judged on class k, ``groups[r]`` names
the group (the task) of row r, or ``groups[0, k]`` that of class k, so that rows of all tasks meet in a class;
``group_weights[g]`` is ``w_g``. Every loss is ``sum_g w_g R_g`` with ``R_g``
a mean over the judged cells, classes or pairs of group g; a group absent from the batch adds nothing.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mlcl.errors import InputError, nearest
from mlcl.labels import LabelCounts


class Batch(NamedTuple):
    """A checked batch. Unjudged cells hold logit 0 and label 0: nothing in them can reach the loss."""

    logits: Tensor  # [B, K], float32 or float64
    labels: Tensor  # [B, K], 0 or 1 in the logits' dtype
    mask: Tensor | None  # [B, K], 1 for a judged cell and 0 for another, in the logits' dtype
    groups: Tensor | None  # [B] int64 for rows, [1, K] for classes
    weights: Tensor | None  # [G] in the logits' dtype; None only for one group of weight 1

    @property
    def plain(self) -> bool:
        """Say whether the batch is not empty, wholly judged, and one group of weight 1."""
        return self.mask is None and self.weights is None and self.logits.numel() > 0

    def judged(self) -> Tensor:
        """Return 1 for a judged cell and 0 for another, ``[B, K]`` in the logits' dtype."""
        return torch.ones_like(self.labels) if self.mask is None else self.mask

    def if_judged(self, cells: Tensor) -> Tensor:
        """Return ``cells``, or 0 where a cell is not judged."""
        return cells if self.mask is None else cells * self.mask

    def group_counts(self, *tables: Tensor) -> tuple[Tensor, ...]:
        """Count for each group and class the rows with a 1: ``[G, K]`` for each table ``[B, K]`` of 0 and 1."""
        if self.groups is None or self.weights is None:
            return tuple(table.sum(0, keepdim=True) for table in tables)
        numbers = torch.arange(len(self.weights), device=self.groups.device).unsqueeze(1)
        members = (self.groups == numbers).to(self.labels.dtype)
        if self.groups.dim() == 2:  # each class is in one group, whatever the row
            return tuple(members * table.sum(0) for table in tables)
        # A product with who is in which group: exact for 0 and 1, and several times as fast as index_add.
        return tuple(members @ table for table in tables)

    def group_weight(self) -> Tensor:
        """Return ``w_g`` as a column ``[G, 1]``."""
        return self.labels.new_ones(1, 1) if self.weights is None else self.weights.unsqueeze(1)

    def to_rows(self, table: Tensor) -> Tensor:
        """Give each row what a table ``[G, K]`` or ``[G, 1]`` says of its group, or each class of its own.

        The result broadcasts to ``[B, K]``.
        """
        if self.groups is None:
            return table
        if self.groups.dim() == 2:
            return table.expand(-1, self.groups.shape[1]).gather(0, self.groups)
        return table.index_select(0, self.groups)

    @property
    def row_groups(self) -> Tensor | None:
        """Return the group of each row, ``[B]``; None if rows of all groups may meet in a class."""
        return None if self.groups is None or self.groups.dim() == 2 else self.groups


def check_batch(
    logits: Tensor,
    labels: Tensor,
    *,
    classes: int,
    mask: Tensor | None = None,
    groups: Tensor | None = None,
    group_weights: Tensor | None = None,
) -> Batch:
    """Check the arguments of a loss and bring them to the logits' device; half precision becomes float32.

    Args:
        logits: floats ``[B, K]``.
        labels: 0 or 1, ``[B, K]``; booleans, integers or floats. The values are not checked, which would
            cost as much as the loss: `mlcl.labels.as_labels` checks them where data enter.
        classes: the ``K`` that is expected.
        mask: booleans ``[B, K]``, or None: every cell is judged.
        groups: integers from 0 to G-1, ``[B]`` for rows or ``[1, K]`` for classes, or None: one group.
        group_weights: ``w_g``, ``[G]``, or None: all 1. Constants: no gradient reaches them.

    >>> check_batch(torch.zeros(2, 3), torch.zeros(2, 2), classes=3)
    Traceback (most recent call last):
    ...
    mlcl.errors.InputError: labels has shape (2, 2), but that of logits, (2, 3), was expected
    """
    if logits.dim() != 2 or logits.shape[1] != classes:
        raise InputError(f"logits has shape {tuple(logits.shape)}, but [rows, {classes}] was expected")
    if labels.shape != logits.shape:
        raise InputError(
            f"labels has shape {tuple(labels.shape)}, but that of logits, {tuple(logits.shape)}, was expected"
        )
    if not logits.is_floating_point() or labels.is_complex():
        raise InputError(
            f"logits is {logits.dtype} and labels is {labels.dtype}, "
            f"but floats and numbers 0 and 1 were expected"
        )
    if logits.dtype != torch.float64 and logits.dtype != torch.float32:
        logits = logits.float()
    labels = labels.to(logits)  # dtype and device
    if mask is None and groups is None and group_weights is None:
        return Batch(logits, labels, None, None, None)

    if mask is not None:
        if mask.shape != logits.shape or mask.dtype != torch.bool:
            raise InputError(
                f"mask is {mask.dtype} of shape {tuple(mask.shape)}, "
                f"but torch.bool of shape {tuple(logits.shape)} was expected"
            )
        mask = mask.to(logits.device)
        logits = torch.where(mask, logits, 0.0)  # not a product: a logit that is not judged may be NaN
        mask = mask.to(logits.dtype)
        labels = labels * mask
    if group_weights is not None:
        if group_weights.dim() != 1 or len(group_weights) == 0:
            raise InputError(f"group_weights has shape {tuple(group_weights.shape)}, but [G] was expected")
        group_weights = group_weights.detach().to(logits)
    if groups is None:
        if group_weights is not None and len(group_weights) != 1:
            raise InputError(
                f"group_weights has {len(group_weights)} values, but without groups one value was expected"
            )
    else:
        groups, count = _check_groups(groups, tuple(logits.shape), group_weights)
        groups = groups.to(logits.device)
        if group_weights is None:
            group_weights = logits.new_ones(count)
    return Batch(logits, labels, mask, groups, group_weights)


def _check_groups(groups: Tensor, shape: tuple[int, ...], group_weights: Tensor | None) -> tuple[Tensor, int]:
    """Return the group of each row, or of each class, as int64, and the number of groups G."""
    rows, classes = shape
    if (
        groups.shape not in {(rows,), (1, classes)}
        or groups.is_floating_point()
        or groups.is_complex()
        or groups.dtype == torch.bool
    ):
        raise InputError(
            f"groups is {groups.dtype} of shape {tuple(groups.shape)}, "
            f"but whole numbers of shape ({rows},), or (1, {classes}), were expected"
        )
    if groups.numel() == 0:
        return groups.long(), 1 if group_weights is None else len(group_weights)
    low, high = (int(value) for value in torch.aminmax(groups))
    count = high + 1 if group_weights is None else len(group_weights)
    if low < 0 or high >= count:
        raise InputError(
            f"groups has the value {low if low < 0 else high}, "
            f"but values from 0 to {max(count - 1, 0)} were expected"
        )
    return groups.long(), count


def inverse(counts: Tensor) -> Tensor:
    """Return ``1 / counts``, and 0 for 0: a mean over nothing adds nothing.

    >>> inverse(torch.tensor([0.0, 4.0]))
    tensor([0.0000, 0.2500])
    """
    return counts.sign() / counts.clamp_min(1)


def mean_weights(batch: Batch) -> Tensor:
    """Return the weight of each cell in ``sum_g w_g mean over the judged cells of g``, ``[B, K]``.

    >>> mask = torch.tensor([[True, True], [True, False]])
    >>> mean_weights(check_batch(torch.zeros(2, 2), torch.zeros(2, 2), classes=2, mask=mask))
    tensor([[0.3333, 0.3333],
            [0.3333, 0.0000]])
    """
    (rows,) = batch.group_counts(batch.judged())
    return batch.if_judged(batch.to_rows(batch.group_weight() * inverse(rows.sum(1, keepdim=True))))


def pair_weights(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Return what means inside the batch need: each group's positives and negatives, and the weight of a pair.

    Returns:
        positives and negatives ``[G, K]``, and ``w_g / (V_g positives negatives)``, ``[G, K]``, with ``V_g`` the
        number of classes with both signs in group g. Without both signs there is no pair to be weighed.

    >>> y = torch.tensor([[1, 1, 0], [0, 1, 1], [0, 1, 1]])
    >>> positives, negatives, weights = pair_weights(check_batch(torch.zeros(3, 3), y, classes=3))
    >>> positives.tolist(), negatives.tolist(), weights.tolist()
    ([[1.0, 3.0, 2.0]], [[2.0, 0.0, 1.0]], [[0.25, 1.0, 0.25]])
    """
    if batch.mask is None and batch.groups is None:
        (positives,) = batch.group_counts(batch.labels)
        negatives = len(batch.labels) - positives
    else:
        positives, rows = batch.group_counts(batch.labels, batch.judged())
        negatives = rows - positives
    pairs = positives * negatives
    defined = torch.linalg.vector_norm(pairs, ord=0, dim=1, keepdim=True)  # V_g: how many are not 0
    weight = pairs.mul_(defined).clamp_min_(1).reciprocal_()
    return positives, negatives, weight if batch.weights is None else weight * batch.group_weight()


def warn_degenerate(counts: LabelCounts) -> None:
    """Warn of classes that were counted but lack a sign. Classes counted on no sample are still to come."""
    columns = np.flatnonzero((counts.positive + counts.negative > 0) & ~counts.defined)
    if columns.size:
        warnings.warn(
            f"the classes in columns {columns.tolist()} have no positive or no negative sample: "
            f"they give no loss",
            UserWarning,
            stacklevel=3,
        )


def one_of(name: str, value: str, allowed: Iterable[str]) -> None:
    """Refuse a value that is not among those allowed."""
    known = list(allowed)
    if value not in known:
        raise InputError(
            f"{name} is {value!r}, but one of {', '.join(known)} was expected.{nearest(str(value), known)}"
        )


def number(
    name: str, value: object, *, low: float = 0.0, high: float = math.inf, open_low: bool = False
) -> None:
    """Refuse a value that is not a finite number from ``low`` (above it, if ``open_low``) to ``high``."""
    good = isinstance(value, int | float) and math.isfinite(value) and low <= value <= high
    if not good or (open_low and value == low):
        limits = f"{'>' if open_low else '>='} {low:g}" + ("" if math.isinf(high) else f" and <= {high:g}")
        raise InputError(f"{name} is {value!r}, but a number {limits} was expected")
