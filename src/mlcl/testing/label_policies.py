"""The rules of label policies; `mlcl.methods.labels` has their interface."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mlcl.methods.labels import LABEL_POLICIES, LabelPolicy
from mlcl.methods.step import Step
from mlcl.testing.rules import CheckedPart, Rule, case_count, check_rules, expect, global_state, rules_in
from mlcl.testing.steps import StreamCase, move_weights, stream_cases, teacher_of


@dataclass(frozen=True)
class PolicyStep:
    """A training step inside a task: the policy at that moment, known labels, own classes, and the step."""

    policy: LabelPolicy
    known: Tensor
    own: Tensor
    step: Step

    def targets(self) -> tuple[Tensor, Tensor]:
        """Return targets and mask."""
        return self.policy.targets(self.known, self.own, self.step)


def check_label_policy(
    part: str | Callable[..., LabelPolicy], *, cases: int = 6, seed: int = 0, **options: Any
) -> None:
    """Check that a label policy keeps the rules of all label policies.

    Args:
        part: a name in ``LABEL_POLICIES``, or the class itself.
        cases: how many random streams of two or three tasks are tried.
        seed: of the random streams.
        options: options of the policy.

    Raises:
        AssertionError: a rule is broken; the sentence names the policy, the rule and a small example.

    >>> check_label_policy("pseudo", mean_labels=1.4)
    """
    check_rules(
        LABEL_POLICIES, part, options, LABEL_POLICY_RULES, stream_cases(case_count(cases, seed), seed)
    )


def _moments(
    part: CheckedPart[StreamCase], case: StreamCase, *, restore: bool = False
) -> Iterator[PolicyStep]:
    """Yield a training step of every task; with ``restore`` the policy is saved as JSON and restored before each."""
    policy, network = part.build(), case.network()
    for index in range(len(case.classes)):
        context = case.context(index, network, teacher_of(network, index, needed=[policy.needs_teacher]))
        policy.start_task(context)
        move_weights(network, index)
        if restore:
            saved = json.loads(json.dumps(policy.state()))
            policy = part.build()
            policy.load_state(saved)
        _, known, own = case.batch(index)
        yield PolicyStep(policy, known, own, case.step(context))


def targets_and_mask(part: CheckedPart[StreamCase], case: StreamCase) -> None:
    """A policy returns targets from 0 to 1, without a gradient, and a boolean mask, both ``[B, K]``."""
    for index, moment in enumerate(_moments(part, case)):
        targets, mask = moment.targets()
        for name, found, dtype in (("targets", targets, moment.known.dtype), ("mask", mask, torch.bool)):
            expect(
                found.shape == moment.known.shape and found.dtype == dtype,
                f"returns {name} of shape {tuple(found.shape)} and {found.dtype} in task {index + 1}, "
                f"not {tuple(moment.known.shape)} and {dtype}",
            )
        expect(not targets.requires_grad, f"returns targets with a gradient in task {index + 1}")
        expect(
            ((targets >= 0) & (targets <= 1)).all(), f"returns targets outside of 0 to 1 in task {index + 1}"
        )


def own_classes_contribute(part: CheckedPart[StreamCase], case: StreamCase) -> None:
    """A row contributes to the loss for all classes of its own task, with the labels that are known."""
    for index, moment in enumerate(_moments(part, case)):
        targets, mask = moment.targets()
        expect(mask[moment.own].all(), f"masks a class of a row's own task in task {index + 1}")
        expect(
            torch.equal(targets[moment.own], moment.known[moment.own]),
            f"changes a known label of a row's own task in task {index + 1}",
        )


def inputs_stay(part: CheckedPart[StreamCase], case: StreamCase) -> None:
    """A policy does not change the tensors that it is given."""
    for index, moment in enumerate(_moments(part, case)):
        known, own, logits = moment.known.clone(), moment.own.clone(), moment.step.logits.detach().clone()
        moment.targets()
        same = torch.equal(known, moment.known) and torch.equal(own, moment.own)
        expect(
            same and torch.equal(logits, moment.step.logits),
            f"changes its arguments in place in task {index + 1}",
        )


def same_step_same_targets(part: CheckedPart[StreamCase], case: StreamCase) -> None:
    """The same step gives the same targets and mask; nothing is random."""
    for index, moment in enumerate(_moments(part, case)):
        same = all(torch.equal(a, b) for a, b in zip(moment.targets(), moment.targets(), strict=True))
        expect(same, f"gives other targets the second time in task {index + 1}")


def order_of_rows_is_free(part: CheckedPart[StreamCase], case: StreamCase) -> None:
    """Rows in another order get the same targets and the same mask, in that order."""
    for index, moment in enumerate(_moments(part, case)):
        targets, mask = moment.targets()
        order = torch.arange(len(moment.known)).flip(0)
        step = replace(moment.step, inputs=moment.step.inputs[order], logits=moment.step.logits[order])
        other, masked = moment.policy.targets(moment.known[order], moment.own[order], step)
        same = torch.equal(other, targets[order]) and torch.equal(masked, mask[order])
        expect(same, f"returns other targets or another mask for the rows in reverse in task {index + 1}")


def survives_saving(part: CheckedPart[StreamCase], case: StreamCase) -> None:
    """A policy that is saved as JSON and restored inside a task gives the same targets and the same mask."""
    for one, two in zip(_moments(part, case), _moments(part, case, restore=True), strict=True):
        same = all(torch.equal(a, b) for a, b in zip(one.targets(), two.targets(), strict=True))
        expect(
            same, f"gives other targets in task {one.step.context.index + 1} after it was saved and restored"
        )


def global_random_state_stays(part: CheckedPart[StreamCase], case: StreamCase) -> None:
    """A policy leaves global random generators alone."""
    before = global_state()
    for moment in _moments(part, case):
        moment.targets()
    expect(global_state() == before, "draws from a global random generator")


LABEL_POLICY_RULES: tuple[Rule[StreamCase], ...] = rules_in(__name__)
