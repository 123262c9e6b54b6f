"""The rules of losses; `mlcl.losses.base` says what masks, groups and weights mean."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mlcl.errors import InputError
from mlcl.labels import LabelCounts
from mlcl.losses import LOSSES
from mlcl.testing.rules import CheckedPart, Rule, case_count, check_rules, expect, rules_in


@dataclass(frozen=True)
class LossCase:
    """A batch in float64: logits and labels ``[B, K]``, which cells contribute, and groups of rows with weights."""

    counts: LabelCounts
    logits: Tensor
    labels: Tensor
    mask: Tensor
    groups: Tensor
    weights: Tensor

    def __str__(self) -> str:
        rows, classes = self.logits.shape
        return f"{rows} rows, {classes} classes and {len(self.weights)} groups"

    def arguments(self) -> dict[str, Tensor]:
        """Return mask, groups and weights by keyword."""
        return {"mask": self.mask, "groups": self.groups, "group_weights": self.weights}


def check_loss(
    part: str | Callable[..., nn.Module], *, cases: int = 12, seed: int = 0, **options: Any
) -> None:
    """Check that a loss keeps the rules of all losses, on batches with masks and groups.

    >>> check_loss("asl")
    >>> check_loss("rldam", margin=3.5)
    """
    check_rules(LOSSES, part, options, LOSS_RULES, loss_cases(case_count(cases, seed), seed))


def loss_cases(count: int, seed: int) -> list[LossCase]:
    """Return random batches, the ones with the fewest cells first."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        rows, classes, groups = (int(rng.integers(2, high)) for high in (16, 6, 5))
        dataset = rng.random((40 + rows, classes)) < rng.choice([0.1, 0.4, 0.7])
        dataset[:2] = [
            [True],
            [False],
        ]  # every class has positives and negatives in the dataset, if not in the batch
        labels = dataset[-rows:]
        weights = np.append(rng.random(groups - 1) + 0.1, 0.0)
        found.append(
            LossCase(
                LabelCounts.of(dataset.astype(np.uint8)),
                torch.tensor(2 * rng.normal(size=labels.shape)),
                torch.tensor(labels.astype(np.uint8)),
                torch.tensor(rng.random(labels.shape) < 0.8),
                torch.tensor(rng.integers(0, groups, rows)),
                torch.tensor(weights),
            )
        )
    return sorted(found, key=lambda case: case.logits.numel())


def _loss(part: CheckedPart[LossCase], case: LossCase, **more: Any) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        loss: nn.Module = part.build(case.counts, **more)
    if loss.state_dict():  # running values, of which the rules must hold too: those of other rows
        loss(case.logits.flip(0), case.labels, mask=case.mask)
    return loss.eval()


def _gradient(loss: nn.Module, logits: Tensor, labels: Tensor, **arguments: Tensor) -> tuple[Tensor, Tensor]:
    """Return value and gradient."""
    leaf = logits.clone().requires_grad_()
    value = loss(leaf, labels, **arguments)
    expect(isinstance(value, Tensor) and value.requires_grad, f"returns {value!r}, which has no gradient")
    value.backward()
    expect(leaf.grad is not None, "returns a value whose gradient does not reach the logits")
    return value.detach(), torch.zeros_like(leaf) if leaf.grad is None else leaf.grad


def _near(found: Tensor, expected: Tensor | float, tolerance: float = 1e-9) -> bool:
    gap = (found - torch.as_tensor(expected)).abs()
    return bool((gap <= tolerance * (1 + torch.as_tensor(expected).abs())).all())


def finite_scalar(part: CheckedPart[LossCase], case: LossCase) -> None:
    """A loss takes mask, groups and group weights, and returns one finite number with a gradient for the logits."""
    loss = _loss(part, case)
    for arguments in ({}, {"mask": case.mask}, case.arguments()):
        value, gradient = _gradient(loss, case.logits, case.labels, **arguments)
        expect(value.shape == (), f"returns a tensor of shape {tuple(value.shape)}")
        expect(
            value.isfinite(),
            f"returns {value.item()} for {', '.join(arguments) or 'logits and labels alone'}",
        )
        expect(gradient.isfinite().all(), "has a gradient that is not finite")


def inputs_stay(part: CheckedPart[LossCase], case: LossCase) -> None:
    """A loss does not change the tensors that it is given."""
    given = {"logits": case.logits, "labels": case.labels} | case.arguments()
    before = {name: tensor.clone() for name, tensor in given.items()}
    _loss(part, case)(case.logits, case.labels, **case.arguments())
    changed = [name for name, tensor in given.items() if not torch.equal(tensor, before[name])]
    expect(not changed, f"changes {', '.join(changed)} in place")


def zero_where_nothing_contributes(part: CheckedPart[LossCase], case: LossCase) -> None:
    """A batch in which nothing contributes, wholly masked or without rows, has the loss 0, with a gradient of 0."""
    loss = _loss(part, case)
    nothing = torch.zeros_like(case.mask)
    for rows, what in ((slice(None), "a batch that is wholly masked"), (slice(0), "a batch without rows")):
        value, gradient = _gradient(loss, case.logits[rows], case.labels[rows], mask=nothing[rows])
        expect(value == 0, f"returns {value.item()} for {what}")
        expect((gradient == 0).all(), f"has a gradient for {what}")


def masked_cells_do_not_count(part: CheckedPart[LossCase], case: LossCase) -> None:
    """A masked cell has no gradient, and its logit and label, whatever they are, do not change the loss."""
    loss = _loss(part, case)
    value, gradient = _gradient(loss, case.logits, case.labels, mask=case.mask)
    expect((gradient[~case.mask] == 0).all(), "has a gradient in a masked cell")
    logits = torch.where(case.mask, case.logits, torch.nan)
    labels = torch.where(case.mask, case.labels, 1 - case.labels)
    other, gradient = _gradient(loss, logits, labels, mask=case.mask)
    expect(
        _near(other, value), f"returns {other.item()}, not {value.item()}, for other values in masked cells"
    )
    expect(gradient.isfinite().all(), "has a gradient that is not finite where a masked logit is nan")


def groups_add_up(part: CheckedPart[LossCase], case: LossCase) -> None:
    """With groups of rows the loss is the sum over groups of the weight times the loss of the group's rows."""
    loss = _loss(part, case)
    found = loss(case.logits, case.labels, **case.arguments())
    expected = torch.zeros((), dtype=torch.float64)
    for group, weight in enumerate(case.weights):
        rows = case.groups == group
        expected += weight * loss(case.logits[rows], case.labels[rows], mask=case.mask[rows])
    expect(_near(found, expected), f"returns {found.item()}, where the groups alone sum to {expected.item()}")


def group_of_weight_0(part: CheckedPart[LossCase], case: LossCase) -> None:
    """A group of weight 0 has no gradient, be it a group of rows ``[B]`` or of classes ``[1, K]``."""
    loss = _loss(part, case)
    off = len(case.weights) - 1
    _, gradient = _gradient(loss, case.logits, case.labels, **case.arguments())
    expect((gradient[case.groups == off] == 0).all(), "has a gradient for the rows of a group of weight 0")
    classes = (torch.arange(case.logits.shape[1]) % len(case.weights)).unsqueeze(0)
    _, gradient = _gradient(loss, case.logits, case.labels, **(case.arguments() | {"groups": classes}))
    expect(
        (gradient[:, classes[0] == off] == 0).all(), "has a gradient for the classes of a group of weight 0"
    )


def finite_for_huge_logits(part: CheckedPart[LossCase], case: LossCase) -> None:
    """Value and gradient are finite for float32 logits of 10,000 and -10,000, right or wrong."""
    huge = 1e4 * case.logits.sign().float()
    for logits in (huge, -huge):
        value, gradient = _gradient(_loss(part, case), logits, case.labels, **case.arguments())
        expect(value.isfinite(), f"returns {value.item()} for logits of 10,000 and -10,000")
        expect(
            gradient.isfinite().all(), "has a gradient that is not finite for logits of 10,000 and -10,000"
        )


def gradient_of_the_value(part: CheckedPart[LossCase], case: LossCase) -> None:
    """The gradient is that of the value: it agrees with finite differences in float64."""
    loss, step = _loss(part, case), 1e-6
    _, gradient = _gradient(loss, case.logits, case.labels, **case.arguments())
    for cell in range(min(case.logits.numel(), 40)):
        move = torch.zeros_like(case.logits)
        move.view(-1)[cell] = step
        above, below = (loss(case.logits + way * move, case.labels, **case.arguments()) for way in (1, -1))
        slope, found = (above - below) / (2 * step), gradient.view(-1)[cell]
        expect(
            _near(found, slope.detach(), 1e-5),
            f"has the gradient {found.item():.6g} in cell {cell}, where the value rises by {slope.item():.6g}",
        )


def order_of_rows_is_free(part: CheckedPart[LossCase], case: LossCase) -> None:
    """The loss of a batch does not depend on the order of its rows."""
    loss = _loss(part, case)
    order = torch.arange(len(case.logits)).flip(0)
    value = loss(case.logits, case.labels, **case.arguments())
    other = loss(
        case.logits[order],
        case.labels[order],
        mask=case.mask[order],
        groups=case.groups[order],
        group_weights=case.weights,
    )
    expect(_near(other, value), f"returns {value.item()}, and {other.item()} for the rows in reverse")


def scale_is_a_factor(part: CheckedPart[LossCase], case: LossCase) -> None:
    """An option ``scale``, where a loss has one, is a factor on the loss."""
    if not part.takes("scale"):
        return
    one, three = (
        _loss(part, case, scale=scale)(case.logits, case.labels, **case.arguments()) for scale in (1.0, 3.0)
    )
    expect(_near(three, 3 * one), f"returns {one.item()} with scale 1, and {three.item()} with scale 3")


def other_classes_are_refused(part: CheckedPart[LossCase], case: LossCase) -> None:
    """Logits with another number of classes than the counts are an `InputError`, never broadcast."""
    loss = _loss(part, case)
    wider = torch.zeros(len(case.logits), case.logits.shape[1] + 1)
    try:
        value = loss(wider, wider)
    except InputError:
        return
    raise AssertionError(f"returns {value} for logits of shape {tuple(wider.shape)}")


def running_values(part: CheckedPart[LossCase], case: LossCase) -> None:
    """Running values, where a loss has them, stay finite in training mode and do not change in evaluation mode."""
    loss = _loss(part, case)
    before = {name: value.clone() for name, value in loss.state_dict().items()}
    if not before:
        return
    loss(case.logits, case.labels, **case.arguments())
    changed = [name for name, value in loss.state_dict().items() if not torch.equal(value, before[name])]
    expect(not changed, f"changes {', '.join(changed)} in evaluation mode")
    loss.train()
    for logits in (case.logits, 1e4 * case.logits.sign()):
        value, gradient = _gradient(loss, logits, case.labels, **case.arguments())
        expect(value.isfinite() and gradient.isfinite().all(), "is not finite in training mode")
        expect(
            all(found.isfinite().all() for found in loss.state_dict().values()),
            "has running values that are not finite",
        )


LOSS_RULES: tuple[Rule[LossCase], ...] = rules_in(__name__)
