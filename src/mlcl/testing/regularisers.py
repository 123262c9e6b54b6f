"""The rules of regularisers; `mlcl.methods.regularisers.base` has their interface."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mlcl.methods.regularisers import REGULARISERS, Regulariser
from mlcl.models import Network
from mlcl.testing.rules import CheckedPart, Rule, case_count, check_rules, expect, global_state, rules_in
from mlcl.testing.steps import StreamCase, moments, move_weights, stream_cases, teacher_of


def check_regulariser(
    part: str | Callable[..., Regulariser], *, cases: int = 6, seed: int = 0, **options: Any
) -> None:
    """Check that a regulariser keeps the rules of all regularisers, on streams of two or three tasks.

    >>> check_regulariser("ewc", strength=3.0)
    """
    check_rules(REGULARISERS, part, options, REGULARISER_RULES, stream_cases(case_count(cases, seed), seed))


def _weights(network: Network) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in network.state_dict().items()}


def _same_weights(network: Network, before: dict[str, Tensor]) -> bool:
    return all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def no_penalty_in_the_first_task(part: CheckedPart[StreamCase], case: StreamCase) -> None:
    """There is no penalty in the first task, when there is no old network to stay near: None, or 0."""
    regulariser, step = next(moments(part, case))
    penalty = regulariser.penalty(step)
    none = penalty is None or penalty.item() == 0
    expect(none, f"returns {penalty} in the first task, before anything was learnt")


def penalty_is_a_finite_scalar(part: CheckedPart[StreamCase], case: StreamCase) -> None:
    """A penalty is None, or one finite number of at least 0 with a gradient for the network."""
    for index, (regulariser, step) in enumerate(moments(part, case)):
        penalty, place, model = regulariser.penalty(step), f"in task {index + 1}", step.context.model
        if penalty is None:
            continue
        expect(isinstance(penalty, Tensor) and penalty.shape == (), f"returns {penalty!r} {place}")
        expect(penalty.isfinite() and penalty >= 0, f"returns {penalty.item()} {place}")
        if index == 0:
            continue
        expect(penalty.requires_grad, f"returns a penalty without a gradient {place}")
        penalty.backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        expect(gradients, f"returns a penalty whose gradient does not reach the network {place}")
        finite = all(g.isfinite().all() for g in gradients)
        expect(finite, f"has a gradient that is not finite {place}")
        model.zero_grad()


def networks_stay(part: CheckedPart[StreamCase], case: StreamCase) -> None:
    """A regulariser changes neither the network nor the old network, and gives the old one no gradient."""
    regulariser, network = part.build(), case.network()
    for index in range(len(case.classes)):
        teacher = teacher_of(network, index, needed=regulariser.needs_teacher)
        context = case.context(index, network, teacher)
        taught = {} if teacher is None else _weights(teacher)
        before = _weights(network)
        regulariser.start_task(context)
        expect(_same_weights(network, before), f"changes the network when task {index + 1} starts")
        move_weights(network, index)
        before = _weights(network)
        penalty = regulariser.penalty(case.step(context, stored=regulariser.needs_stored))
        if penalty is not None and penalty.requires_grad:
            penalty.backward()
            network.zero_grad()
        regulariser.end_task(context)
        expect(_same_weights(network, before), f"changes the network in task {index + 1}")
        expect(not network.training, f"leaves the network in training mode after task {index + 1}")
        frozen = [name for name, p in network.named_parameters() if not p.requires_grad]
        expect(not frozen, f"freezes {frozen} of the network in task {index + 1}")
        if teacher is not None:
            expect(_same_weights(teacher, taught), f"changes the old network in task {index + 1}")
            touched = [name for name, p in teacher.named_parameters() if p.grad is not None]
            expect(not touched, f"gives {touched} of the old network a gradient in task {index + 1}")


def state_is_tensors(part: CheckedPart[StreamCase], case: StreamCase) -> None:
    """The state of a regulariser is a mapping of names to tensors, as a checkpoint holds them."""
    for index, (regulariser, _) in enumerate(moments(part, case)):
        state = regulariser.state()
        bad = {name: value for name, value in state.items() if not isinstance(value, Tensor)}
        expect(isinstance(state, dict) and not bad, f"has {bad} in its state in task {index + 1}")
        plain = not any(value.requires_grad for value in state.values())
        expect(plain, f"has tensors that need a gradient in its state in task {index + 1}")


def same_generator_same_penalty(part: CheckedPart[StreamCase], case: StreamCase) -> None:
    """The same tasks and generators give the same penalties; nothing else is random."""
    _same_penalties(part, case, None, "the second time")


def survives_saving(part: CheckedPart[StreamCase], case: StreamCase) -> None:
    """A regulariser that is saved and restored inside a task gives the same penalties, then and in later tasks."""
    _same_penalties(part, case, copy.deepcopy, "after it was saved and restored")


def _same_penalties(part: CheckedPart[StreamCase], case: StreamCase, saved: Any, when: str) -> None:
    both = zip(moments(part, case), moments(part, case, saved=saved), strict=True)
    for index, pair in enumerate(both):
        penalties = [regulariser.penalty(step) for regulariser, step in pair]
        first, second = (None if value is None else value.item() for value in penalties)
        expect(first == second, f"returns {first} in task {index + 1}, and {second} {when}")


def global_random_state_stays(part: CheckedPart[StreamCase], case: StreamCase) -> None:
    """A regulariser draws from the task's generator and leaves global random generators alone."""
    before = global_state()
    for regulariser, step in moments(part, case):
        regulariser.penalty(step)
    expect(global_state() == before, "draws from a global random generator")


REGULARISER_RULES: tuple[Rule[StreamCase], ...] = rules_in(__name__)
