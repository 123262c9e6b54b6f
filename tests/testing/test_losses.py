"""`check_loss`: each rule meets a loss that breaks it; the shipped ones pass in tests/losses."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mlcl.losses import ElementwiseLoss
from mlcl.losses.base import check_batch, mean_weights
from mlcl.testing import LOSS_RULES, check_loss


def cells(logits, labels):
    return F.binary_cross_entropy_with_logits(logits, labels, reduction="none")


def good(counts, *, scale: float = 1.0):
    """A loss that keeps all rules."""
    return ElementwiseLoss(len(counts), cells, scale=scale)


class Loss(nn.Module):
    """A loss that is good except for what a function changes."""

    def __init__(self, counts, change):
        super().__init__()
        self.good, self.change = good(counts), change

    def forward(self, logits, labels, **arguments):
        return self.change(self.good, logits, labels, **arguments)


def broken(change):
    def factory(counts):
        return Loss(counts, change)

    factory.__name__ = change.__name__
    return factory


def not_a_scalar(loss, logits, labels, **arguments):
    return loss(logits, labels, **arguments).expand(2)


def no_gradient(loss, logits, labels, **arguments):
    return loss(logits, labels, **arguments).detach()


def nan_without_cells(loss, logits, labels, mask=None, groups=None, group_weights=None):
    value = loss(logits, labels, mask=mask, groups=groups, group_weights=group_weights)
    return value if mask is None or mask.any() else value / 0


def a_constant_on_top(loss, logits, labels, **arguments):
    return loss(logits, labels, **arguments) + 1


def forgets_the_mask(loss, logits, labels, mask=None, groups=None, group_weights=None):
    if mask is not None and not mask.any():
        return 0 * logits.sum()
    return loss(logits, labels, groups=groups, group_weights=group_weights)


def multiplies_by_the_mask(loss, logits, labels, mask=None, groups=None, group_weights=None):
    """A nan in a masked cell times 0 is a nan."""
    if mask is not None and groups is None:
        return (cells(logits, labels.to(logits)) * mask).sum() / mask.sum().clamp_min(1)
    return loss(logits, labels, mask=mask, groups=groups, group_weights=group_weights)


def one_mean_for_all_groups(loss, logits, labels, mask=None, groups=None, group_weights=None):
    return loss(logits, labels, mask=mask)


def row_groups_only(loss, logits, labels, mask=None, groups=None, group_weights=None):
    if groups is not None and groups.dim() == 2:
        groups = group_weights = None
    return loss(logits, labels, mask=mask, groups=groups, group_weights=group_weights)


def logarithm_of_a_sigmoid(counts):
    def unsafe(logits, labels):
        p = logits.sigmoid()
        return -(labels * p.log() + (1 - labels) * (1 - p).log())

    return ElementwiseLoss(len(counts), unsafe)


class _HalfGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits):
        return logits.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient / 2


def half_the_gradient(loss, logits, labels, **arguments):
    return loss(_HalfGradient.apply(logits), labels, **arguments)


def weighs_by_position(counts):
    class Weighted(nn.Module):
        def forward(self, logits, labels, mask=None, groups=None, group_weights=None):
            batch = check_batch(
                logits, labels, classes=len(counts), mask=mask, groups=groups, group_weights=group_weights
            )
            table = mean_weights(batch) * cells(batch.logits, batch.labels)
            if groups is not None and groups.dim() == 1:  # the place of a row inside its group
                place = torch.stack([(groups[:i] == g).sum() for i, g in enumerate(groups)])
            else:
                place = torch.arange(len(logits))
            return (table / (1 + place.unsqueeze(1))).sum()

    return Weighted()


def scale_squared(counts, *, scale: float = 1.0):
    return good(counts, scale=scale**2)


def scale_on_top(counts, *, scale: float = 1.0):
    """Scales what a whole batch adds, but rounds down."""
    return good(counts, scale=float(min(scale, 2)))


def centres_in_place(loss, logits, labels, **arguments):
    value = loss(logits, labels, **arguments)
    if not logits.requires_grad:
        logits -= logits.mean()
    return value


def broadcasts(loss, logits, labels, **arguments):
    wide = logits.shape[1] > loss.classes
    return (
        loss(logits[:, : loss.classes], labels[:, : loss.classes])
        if wide
        else loss(logits, labels, **arguments)
    )


def counts_calls_always(counts, *, scale: float = 1.0):
    """Keeps a running value that changes in evaluation mode too."""

    class Counting(nn.Module):
        calls: torch.Tensor

        def __init__(self):
            super().__init__()
            self.inner = good(counts, scale=scale)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, *given, **arguments):
            self.calls += 1
            return self.inner(*given, **arguments)

    return Counting()


BROKEN = [
    ("finite_scalar", broken(not_a_scalar)),
    ("finite_scalar", broken(no_gradient)),
    ("zero_where_nothing_contributes", broken(nan_without_cells)),
    ("zero_where_nothing_contributes", broken(a_constant_on_top)),
    ("masked_cells_do_not_count", broken(forgets_the_mask)),
    ("masked_cells_do_not_count", broken(multiplies_by_the_mask)),
    ("groups_add_up", broken(one_mean_for_all_groups)),
    ("group_of_weight_0", broken(row_groups_only)),
    ("finite_for_huge_logits", logarithm_of_a_sigmoid),
    ("gradient_of_the_value", broken(half_the_gradient)),
    ("order_of_rows_is_free", weighs_by_position),
    ("scale_is_a_factor", scale_squared),
    ("scale_is_a_factor", scale_on_top),
    ("inputs_stay", broken(centres_in_place)),
    ("other_classes_are_refused", broken(broadcasts)),
    ("running_values", counts_calls_always),
]


@pytest.mark.parametrize(("rule", "part"), BROKEN, ids=lambda v: getattr(v, "__name__", v))
def test_a_loss_that_breaks_a_rule_is_named_with_the_rule(rule, part):
    with pytest.raises(
        AssertionError, match=rf"loss '{part.__name__}' breaks the rule '{rule}' \(.*\): with \d+ rows"
    ):
        check_loss(part)


def test_every_rule_has_a_loss_that_breaks_it():
    assert {rule for rule, _ in BROKEN} == {rule.__name__ for rule in LOSS_RULES}


def test_a_good_loss_of_ones_own_passes():
    check_loss(good, scale=0.5)
