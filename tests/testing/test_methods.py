"""Regularisers, label policies, augmentations: all shipped ones pass, and each rule meets a part that breaks it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from mlcl.methods.augment import AUGMENTATIONS
from mlcl.methods.labels import LABEL_POLICIES, LabelPolicy
from mlcl.methods.regularisers import REGULARISERS, Regulariser
from mlcl.testing import (
    AUGMENTATION_RULES,
    LABEL_POLICY_RULES,
    REGULARISER_RULES,
    check_augmentation,
    check_label_policy,
    check_regulariser,
)

STRAY = torch.Generator().manual_seed(0)


# Regularisers


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *((kind, {}) for kind in REGULARISERS.names()),
        ("ewc", {"online": True, "decay": 0.5, "samples": 2}),
        ("ewc", {"fisher": "true"}),
        ("lwf", {"distance": "huber", "strength": 3.0}),
    ],
    ids=str,
)
def test_shipped_regularisers(kind, options):
    check_regulariser(kind, **options)


class Anchor(Regulariser):
    """A regulariser that keeps all rules: the squared distance to the weights after the last task."""

    def __init__(self):
        self.anchor = {}

    def penalty(self, step):
        if not self.anchor:
            return None
        return sum(
            (p - self.anchor[name]).square().sum() for name, p in step.context.model.named_parameters()
        )

    def end_task(self, context):
        self.anchor = {name: p.detach().clone() for name, p in context.model.named_parameters()}

    def state(self):
        return dict(self.anchor)

    def load_state(self, state):
        self.anchor = dict(state)


class FromTheStart(Anchor):
    def penalty(self, step):
        return sum(p.square().sum() for p in step.context.model.parameters())


class OneValuePerRow(Anchor):
    def penalty(self, step):
        found = super().penalty(step)
        return None if found is None else found.expand(3)


class WithoutGradient(Anchor):
    def penalty(self, step):
        found = super().penalty(step)
        return None if found is None else found.detach()


class Negative(Anchor):
    def penalty(self, step):
        found = super().penalty(step)
        return None if found is None else -found


class ShrinksWeights(Anchor):
    def end_task(self, context):
        super().end_task(context)
        with torch.no_grad():
            for p in context.model.parameters():
                p *= 0.9


class LeavesTrainingMode(Anchor):
    def end_task(self, context):
        super().end_task(context)
        context.model.train()


class TeachesTheTeacher(Anchor):
    needs_teacher = True

    def penalty(self, step):
        if step.context.teacher is None:
            return None
        with torch.no_grad():
            for p in step.context.teacher.parameters():
                p += 1
        return super().penalty(step)


class StateOfFloats(Anchor):
    def state(self):
        return super().state() | {"tasks": 1.0}


class ForgetsItsAnchor(Anchor):
    def state(self):
        return {}


class NeedsItsStart(Anchor):
    """Prepares in `start_task`, which is not called again when a run is resumed inside a task."""

    def __init__(self):
        super().__init__()
        self.factor = 0.0

    def start_task(self, context):
        self.factor = 1.0

    def penalty(self, step):
        found = super().penalty(step)
        return None if found is None else self.factor * found


class DrawsElsewhere(Anchor):
    def penalty(self, step):
        found = super().penalty(step)
        return None if found is None else found * torch.rand((), generator=STRAY)


class DrawsGlobally(Anchor):
    def end_task(self, context):
        torch.rand(1)
        super().end_task(context)


BROKEN_REGULARISERS = [
    ("no_penalty_in_the_first_task", FromTheStart),
    ("penalty_is_a_finite_scalar", OneValuePerRow),
    ("penalty_is_a_finite_scalar", WithoutGradient),
    ("penalty_is_a_finite_scalar", Negative),
    ("networks_stay", ShrinksWeights),
    ("networks_stay", LeavesTrainingMode),
    ("networks_stay", TeachesTheTeacher),
    ("state_is_tensors", StateOfFloats),
    ("survives_saving", ForgetsItsAnchor),
    ("survives_saving", NeedsItsStart),
    ("same_generator_same_penalty", DrawsElsewhere),
    ("global_random_state_stays", DrawsGlobally),
]


# Label policies


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *((kind, {}) for kind in LABEL_POLICIES.names()),
        ("pseudo", {"mean_labels": 1.4}),
        ("negatives", {"trust": 0.3}),
    ],
    ids=str,
)
def test_shipped_label_policies(kind, options):
    check_label_policy(kind, **options)


class Seen(LabelPolicy):
    """A label policy that keeps all rules."""

    def __init__(self):
        self.level = 0.0

    def targets(self, known, own, step):
        return known, step.context.seen.expand_as(own)


class MaskOfFloats(Seen):
    def targets(self, known, own, step):
        return known, own.float()


class TargetsOf2(Seen):
    def targets(self, known, own, step):
        return torch.where(own, known, 2.0), own


class LearntTargets(Seen):
    def targets(self, known, own, step):
        return torch.where(own, known, step.logits.sigmoid()), own


class MasksOwnClasses(Seen):
    def targets(self, known, own, step):
        return known, ~own


class SmoothsOwnLabels(Seen):
    def targets(self, known, own, step):
        return known * 0.9 + 0.05, own


class ClearsInPlace(Seen):
    def targets(self, known, own, step):
        known[~own] = 0.5
        return known, own


class FirstRowsOnly(Seen):
    def targets(self, known, own, step):
        mask = own.clone()
        mask[: len(own) // 2] |= step.context.seen
        return known, mask


class KeepsItsLevel(Seen):
    def start_task(self, context):
        self.level = 0.25

    def targets(self, known, own, step):
        return torch.where(own, known, self.level), own


class CountsSteps(Seen):
    def targets(self, known, own, step):
        self.level = 1 - self.level
        return torch.where(own, known, self.level), own

    def state(self):
        return {"level": self.level}

    def load_state(self, state):
        self.level = state["level"]


class PolicyDrawsGlobally(Seen):
    def targets(self, known, own, step):
        np.random.random()  # noqa: NPY002
        return known, own


BROKEN_LABEL_POLICIES = [
    ("targets_and_mask", MaskOfFloats),
    ("targets_and_mask", TargetsOf2),
    ("targets_and_mask", LearntTargets),
    ("own_classes_contribute", MasksOwnClasses),
    ("own_classes_contribute", SmoothsOwnLabels),
    ("inputs_stay", ClearsInPlace),
    ("order_of_rows_is_free", FirstRowsOnly),
    ("survives_saving", KeepsItsLevel),
    ("same_step_same_targets", CountsSteps),
    ("global_random_state_stays", PolicyDrawsGlobally),
]


# Augmentations


@pytest.mark.parametrize(
    ("kind", "options"),
    [*((kind, {}) for kind in AUGMENTATIONS.names()), ("crop", {"padding": 3}), ("auto", {"suits": "flip"})],
    ids=str,
)
def test_shipped_augmentations(kind, options):
    check_augmentation(kind, **options)


def darker():
    """An augmentation that keeps all rules."""
    return lambda images, generator, share=None: images // 2


def as_floats():
    return lambda images, generator, share=None: images / 2


def smaller():
    return lambda images, generator, share=None: images[:, :, :1]


def in_place():
    return lambda images, generator, share=None: images.zero_()


def noise_from_elsewhere():
    def apply(images, generator, share=None):
        return torch.randint(0, 256, images.shape, dtype=torch.uint8, generator=STRAY)

    return apply


def noise_per_share():
    def apply(images, generator, share=None):
        return torch.randint(0, 256, images.shape, dtype=torch.uint8, generator=generator)

    return apply


def draws_globally():
    def apply(images, generator, share=None):
        torch.rand(1)
        return images

    return apply


BROKEN_AUGMENTATIONS = [
    ("shape_and_dtype_stay", as_floats),
    ("shape_and_dtype_stay", smaller),
    ("inputs_stay", in_place),
    ("same_generator_same_images", noise_from_elsewhere),
    ("shares_make_the_batch", noise_per_share),
    ("global_random_state_stays", draws_globally),
]

KINDS: list[tuple[str, Any, Any, Any]] = [
    ("regulariser", check_regulariser, REGULARISER_RULES, BROKEN_REGULARISERS),
    ("label policy", check_label_policy, LABEL_POLICY_RULES, BROKEN_LABEL_POLICIES),
    ("augmentation", check_augmentation, AUGMENTATION_RULES, BROKEN_AUGMENTATIONS),
]


@pytest.mark.parametrize(
    ("noun", "check", "rule", "part"),
    [(noun, check, rule, part) for noun, check, _, broken in KINDS for rule, part in broken],
    ids=lambda v: getattr(v, "__name__", v),
)
def test_a_part_that_breaks_a_rule_is_named_with_the_rule(noun, check, rule, part):
    with pytest.raises(
        AssertionError, match=rf"{noun} '{part.__name__}' breaks the rule '{rule}' \(.*\): with "
    ):
        check(part)


@pytest.mark.parametrize(("rules", "broken"), [kind[2:] for kind in KINDS], ids=[kind[0] for kind in KINDS])
def test_every_rule_has_a_part_that_breaks_it(rules, broken):
    assert {rule for rule, _ in broken} == {rule.__name__ for rule in rules}


@pytest.mark.parametrize(
    ("check", "part"), [(check_regulariser, Anchor), (check_label_policy, Seen), (check_augmentation, darker)]
)
def test_a_good_part_of_ones_own_passes(check, part):
    check(part)
