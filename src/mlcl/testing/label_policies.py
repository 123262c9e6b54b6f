"""The rules of label policies; `mlcl.methods.labels` has their interface."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mlcl.methods.labels import LABEL_POLICIES, LabelPolicy
from mlcl.methods.step import Step
from mlcl.testing.rules import CheckedPart, Rule, case_count, check_rules, expect, global_state, rules_in
from mlcl.testing.steps import StreamCase, moments, stream_cases


def check_label_policy(
    part: str | Callable[..., LabelPolicy], *, cases: int = 6, seed: int = 0, **options: Any
) -> None:
    """Check that a label policy keeps the rules of all label policies, on streams of two or three tasks.

    >>> check_label_policy("pseudo", mean_labels=1.4)
    """
    check_rules(
        LABEL_POLICIES, part, options, LABEL_POLICY_RULES, stream_cases(case_count(cases, seed), seed)
    )


def _targets(policy: LabelPolicy, step: Step) -> tuple[Tensor, Tensor]:
    return policy.targets(step.known, step.own, step)


def _same(one: tuple[Tensor, Tensor], two: tuple[Tensor, Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def targets_and_mask(part: CheckedPart[StreamCase], case: StreamCase) -> None:
    """A policy returns targets from 0 to 1, without a gradient, and a boolean mask, both ``[B, K]``."""
    for index, (policy, step) in enumerate(moments(part, case)):
        targets, mask = _targets(policy, step)
        for name, found, dtype in (("targets", targets, step.known.dtype), ("mask", mask, torch.bool)):
            expect(
                found.shape == step.known.shape and found.dtype == dtype,
                f"returns {name} of shape {tuple(found.shape)} and {found.dtype} in task {index + 1}, "
                f"not {tuple(step.known.shape)} and {dtype}",
            )
        expect(not targets.requires_grad, f"returns targets with a gradient in task {index + 1}")
        inside = (targets >= 0) & (targets <= 1)
        expect(inside.all(), f"returns targets outside of 0 to 1 in task {index + 1}")


def own_classes_contribute(part: CheckedPart[StreamCase], case: StreamCase) -> None:
    """A row contributes to the loss for all classes of its own task, with the labels that are known."""
    for index, (policy, step) in enumerate(moments(part, case)):
        targets, mask = _targets(policy, step)
        expect(mask[step.own].all(), f"masks a class of a row's own task in task {index + 1}")
        same = torch.equal(targets[step.own], step.known[step.own])
        expect(same, f"changes a known label of a row's own task in task {index + 1}")


def inputs_stay(part: CheckedPart[StreamCase], case: StreamCase) -> None:
    """A policy does not change the tensors that it is given."""
    for index, (policy, step) in enumerate(moments(part, case)):
        given = (step.known, step.own, step.logits)
        before = [tensor.detach().clone() for tensor in given]
        _targets(policy, step)
        same = all(map(torch.equal, given, before))
        expect(same, f"changes its arguments in place in task {index + 1}")


def same_step_same_targets(part: CheckedPart[StreamCase], case: StreamCase) -> None:
    """The same step gives the same targets and mask; nothing is random."""
    for index, (policy, step) in enumerate(moments(part, case)):
        same = _same(_targets(policy, step), _targets(policy, step))
        expect(same, f"gives other targets the second time in task {index + 1}")


def order_of_rows_is_free(part: CheckedPart[StreamCase], case: StreamCase) -> None:
    """Rows in another order get the same targets and the same mask, in that order."""
    for index, (policy, step) in enumerate(moments(part, case)):
        targets, mask = _targets(policy, step)
        order = torch.arange(len(step.known)).flip(0)
        turned = replace(step, inputs=step.inputs[order], logits=step.logits[order])
        other = policy.targets(step.known[order], step.own[order], turned)
        same = _same(other, (targets[order], mask[order]))
        expect(same, f"returns other targets or another mask for the rows in reverse in task {index + 1}")


def survives_saving(part: CheckedPart[StreamCase], case: StreamCase) -> None:
    """A policy that is saved as JSON and restored inside a task gives the same targets and the same mask."""
    restored = moments(part, case, saved=lambda state: json.loads(json.dumps(state)))
    for index, (one, two) in enumerate(zip(moments(part, case), restored, strict=True)):
        same = _same(_targets(*one), _targets(*two))
        expect(same, f"gives other targets in task {index + 1} after it was saved and restored")


def global_random_state_stays(part: CheckedPart[StreamCase], case: StreamCase) -> None:
    """A policy leaves global random generators alone."""
    before = global_state()
    for moment in moments(part, case):
        _targets(*moment)
    expect(global_state() == before, "draws from a global random generator")


LABEL_POLICY_RULES: tuple[Rule[StreamCase], ...] = rules_in(__name__)
