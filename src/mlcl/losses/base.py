"""The registry of losses, and the rules that every loss in it keeps.

A loss is a factory in one file, decorated with ``LOSSES.register``:

    factory(counts, *, options...) -> module

``counts`` are the label counts of the dataset (`mlcl.labels.LabelCounts`); a loss that does not need them takes them
nevertheless. The options are keyword-only; each has a type, a default, and a line in the Args section of the factory's
docstring, which becomes its help text on the command line. The factory raises `mlcl.errors.InputError` for a bad value.

The module is called as ``loss(logits, labels, *, mask=None, groups=None, group_weights=None)``:

- ``logits``: floats ``[B, K]``; ``labels``: 0 or 1, ``[B, K]``;
- ``mask``: booleans ``[B, K]``, which cells (row, class) contribute to the loss; None: all of them;
- ``groups``: the group (task) of each row, ``[B]``, or of each class, ``[1, K]``; None: one group;
- ``group_weights``: ``w_g``, ``[G]``; None: all 1.

Rules (specification.md#losses), which ``mlcl.testing.check_loss`` tests:

- It returns ``sum_g w_g R_g``, a finite scalar with a finite gradient, also for float32 logits of 10,000. ``R_g`` is a
  mean over the contributing cells, classes or pairs of group g, and a group that is absent from the batch adds nothing.
- A masked cell has no effect: neither its logit, which may be NaN, nor its label changes the loss or a gradient.
- A class without positives or without negatives gives no loss where the loss needs them (for its counts, its means or
  its pairs).
- Where nothing contributes, and for a batch without rows, the loss is 0 with a zero gradient: a path to the logits
  remains, so that ``backward`` works.
- A loss may keep running values, as buffers in its ``state_dict``, which a checkpoint holds. A call changes them in
  training mode only, and then depends on the calls before; every other rule holds in evaluation mode.
- It does not depend on the order of the rows, and an option ``scale`` is a factor on the whole loss.
- It does not change its arguments, and no gradient flows into labels, counts or group weights.
- Logits with another number of classes than ``counts`` are an `InputError`.

A loss that gives the positives and the negatives of a class the same total weight has an attribute ``balanced`` that is
True: its logits are log-odds where half of the rows are positive, and probabilities are shifted to the share of
positives that there is (`mlcl.metrics.prior_shift`).

`check_batch` and the functions after it compute the weights of cells, one (row, class) pair each, so that a loss is a
few lines.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mlcl.errors import InputError, one_line
from mlcl.labels import LabelCounts
from mlcl.registry import Registry

LOSSES: Registry[Callable[..., nn.Module]] = Registry("loss")
"""The losses by name."""


def build_loss(kind: str, counts: LabelCounts, **options: Any) -> nn.Module:
    """Return the loss called ``kind`` for a dataset with these counts; None keeps an option's default.

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


class GroupedBatch(NamedTuple):
    """A checked batch. Masked cells hold logit 0 and label 0: nothing in them can reach the loss."""

    logits: Tensor  # [B, K], float32 or float64
    labels: Tensor  # [B, K], 0 or 1 in the logits' dtype
    mask: Tensor | None  # [B, K], 1 for a contributing cell and 0 for a masked one, in the logits' dtype
    groups: Tensor | None  # [B] int64 for rows, [1, K] for classes
    weights: Tensor | None  # [G] in the logits' dtype; None only for one group of weight 1

    @property
    def plain(self) -> bool:
        """Return whether the batch is not empty, has no mask, and is one group of weight 1."""
        return self.mask is None and self.weights is None and self.logits.numel() > 0

    def contributing(self) -> Tensor:
        """Return 1 for a contributing cell and 0 for a masked one, ``[B, K]`` in the logits' dtype."""
        return torch.ones_like(self.labels) if self.mask is None else self.mask

    def masked(self, cells: Tensor) -> Tensor:
        """Return ``cells``, with 0 for masked ones."""
        return cells if self.mask is None else cells * self.mask

    def group_counts(self, *tables: Tensor) -> tuple[Tensor, ...]:
        """Count for each group and class the rows with a 1: ``[G, K]`` for each table ``[B, K]`` of 0 and 1."""
        if self.groups is None or self.weights is None:
            return tuple(table.sum(0, keepdim=True) for table in tables)
        numbers = torch.arange(len(self.weights), device=self.groups.device).unsqueeze(1)
        members = (self.groups == numbers).to(self.labels.dtype)
        if self.groups.dim() == 2:  # each class is in one group, whatever the row
            return tuple(members * table.sum(0) for table in tables)
        # A product with the membership matrix: exact for 0 and 1, and several times as fast as index_add.
        return tuple(members @ table for table in tables)

    def group_weight(self) -> Tensor:
        """Return ``w_g`` as a column ``[G, 1]``."""
        return self.labels.new_ones(1, 1) if self.weights is None else self.weights.unsqueeze(1)

    def to_rows(self, table: Tensor) -> Tensor:
        """Return, for each row (or for each class), the entry of its group in a table ``[G, K]`` or ``[G, 1]``.

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
    labels: Tensor | NDArray[Any] | Sequence[Any],
    *,
    classes: int,
    mask: Tensor | None = None,
    groups: Tensor | None = None,
    group_weights: Tensor | None = None,
    validate: bool = True,
) -> GroupedBatch:
    """Check the arguments of a loss and bring them to the logits' device; half precision becomes float32.

    Args:
        logits: floats ``[B, K]``.
        labels: 0 or 1, ``[B, K]``; booleans, integers or floats; numpy and lists are taken as well. The
            values are not checked, which would cost as much as the loss: `mlcl.labels.as_labels` checks them where
            data enter.
        classes: the expected ``K``.
        mask: booleans ``[B, K]``, or None: every cell contributes.
        groups: integers from 0 to G-1, ``[B]`` for rows or ``[1, K]`` for classes, or None: one group.
        group_weights: ``w_g``, ``[G]``, or None: all 1. Constants: no gradient reaches them.
        validate: whether to check at all. The numbers of groups are compared on the CPU, for which a GPU is waited for.

    >>> check_batch(torch.zeros(2, 3), torch.zeros(2, 2), classes=3)
    Traceback (most recent call last):
    ...
    mlcl.errors.InputError: labels has shape (2, 2), but that of logits, (2, 3), was expected
    """
    if not isinstance(labels, Tensor):
        labels = _as_tensor(labels, "labels")
    if validate:
        _check_logits(logits, labels, classes)
        _check_cells(mask, groups, group_weights, logits)
    logits = logits if logits.dtype in (torch.float64, torch.float32) else logits.float()
    labels = labels.to(logits)
    if mask is None and groups is None and group_weights is None:
        return GroupedBatch(logits, labels, None, None, None)
    if mask is not None:
        mask = mask.to(logits.device)
        logits = torch.where(mask, logits, 0.0)  # not a product: the logit of a masked cell may be NaN
        mask = mask.to(logits.dtype)
        labels = labels * mask
    weights = None if group_weights is None else group_weights.detach().to(logits)
    if groups is None:
        return GroupedBatch(logits, labels, mask, None, weights)
    if weights is None:
        weights = logits.new_ones(int(groups.max()) + 1 if groups.numel() else 1)
    return GroupedBatch(logits, labels, mask, groups.long().to(logits.device), weights)


def _as_tensor(value: Any, name: str) -> Tensor:
    """Return labels that come from numpy, or as lists, as a tensor."""
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{name} is a {type(value).__name__} that torch cannot read ({one_line(error)}); a tensor was expected"
        ) from None


def _check_logits(logits: Any, labels: Tensor, classes: int) -> None:
    """Refuse logits and labels of other shapes or types."""
    if not isinstance(logits, Tensor):
        raise InputError(
            f"logits is a {type(logits).__name__}, but a tensor, which has a gradient, was expected"
        )
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


def _check_cells(
    mask: Tensor | None, groups: Tensor | None, group_weights: Tensor | None, logits: Tensor
) -> None:
    """Refuse a mask, groups or weights of other shapes or types, and group numbers without a weight."""
    if mask is not None and (mask.shape != logits.shape or mask.dtype != torch.bool):
        raise InputError(
            f"mask is {mask.dtype} of shape {tuple(mask.shape)}, "
            f"but torch.bool of shape {tuple(logits.shape)} was expected"
        )
    if group_weights is not None and (group_weights.dim() != 1 or len(group_weights) == 0):
        raise InputError(f"group_weights has shape {tuple(group_weights.shape)}, but [G] was expected")
    if groups is None:
        if group_weights is not None and len(group_weights) != 1:
            raise InputError(
                f"group_weights has {len(group_weights)} values, but without groups one value was expected"
            )
        return
    rows, classes = logits.shape
    whole = not (groups.is_floating_point() or groups.is_complex() or groups.dtype == torch.bool)
    if not whole or groups.shape not in {(rows,), (1, classes)}:
        raise InputError(
            f"groups is {groups.dtype} of shape {tuple(groups.shape)}, "
            f"but whole numbers of shape ({rows},), or (1, {classes}), were expected"
        )
    if groups.numel():
        low, high = (int(value) for value in torch.aminmax(groups))
        count = high + 1 if group_weights is None else len(group_weights)
        if low < 0 or high >= count:
            raise InputError(
                f"groups has the value {low if low < 0 else high}, "
                f"but values from 0 to {max(count - 1, 0)} were expected"
            )


class GroupedLoss(nn.Module):
    """A loss of batches with so many classes; subclasses define `of_batch`.

    Attributes:
        validate: whether each batch is checked. A loop whose shapes stay as they were can switch it off.
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes, self.validate = classes, True

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
            logits,
            labels,
            classes=self.classes,
            mask=mask,
            groups=groups,
            group_weights=group_weights,
            validate=self.validate,
        )
        return self.of_batch(batch)

    def of_batch(self, batch: GroupedBatch) -> Tensor:
        """Return the loss of a checked batch."""
        raise NotImplementedError


def inverse(counts: Tensor) -> Tensor:
    """Return ``1 / counts``, and 0 for 0: a mean over nothing adds nothing."""
    return counts.sign() / counts.clamp_min(1)


def mean_weights(batch: GroupedBatch) -> Tensor:
    """Return the weight of each cell in ``sum_g w_g mean over the contributing cells of g``, ``[B, K]``."""
    (rows,) = batch.group_counts(batch.contributing())
    return batch.masked(batch.to_rows(batch.group_weight() * inverse(rows.sum(1, keepdim=True))))


def pair_weights(batch: GroupedBatch) -> tuple[Tensor, Tensor, Tensor]:
    """Return what means inside the batch need: each group's positives and negatives, and the weight of a pair.

    Returns:
        The numbers of positives and negatives ``[G, K]``, and ``w_g / (V_g positives negatives)``, ``[G, K]``, with
        ``V_g`` the number of classes with positives and negatives in group g. Other classes have no pairs.
    """
    if batch.mask is None and batch.groups is None:
        (positives,) = batch.group_counts(batch.labels)
        negatives = len(batch.labels) - positives
    else:
        positives, rows = batch.group_counts(batch.labels, batch.contributing())
        negatives = rows - positives
    pairs = positives * negatives
    defined = torch.linalg.vector_norm(pairs, ord=0, dim=1, keepdim=True)  # V_g: how many are not 0
    weight = pairs.mul_(defined).clamp_min_(1).reciprocal_()
    return positives, negatives, weight if batch.weights is None else weight * batch.group_weight()


def check_counts(counts: object) -> None:
    """Refuse labels where their counts are expected."""
    if not isinstance(counts, LabelCounts):
        raise InputError(
            f"counts is a {type(counts).__name__}, but LabelCounts was expected, such as LabelCounts.of(labels)"
        )


def warn_degenerate(counts: LabelCounts) -> None:
    """Warn of classes that were counted but lack positives or negatives; a class without counts is still to come."""
    check_counts(counts)
    columns = np.flatnonzero((counts.positive + counts.negative > 0) & ~counts.defined)
    if columns.size:
        more = f" and {len(columns) - 10} more" if len(columns) > 10 else ""
        warnings.warn(
            f"the classes in columns {columns[:10].tolist()}{more} have no positive or no negative sample: "
            f"they give no loss",
            UserWarning,
            stacklevel=3,
        )
