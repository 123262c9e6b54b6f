"""Label policies: who is judged on what."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcl.methods.labels import LABEL_POLICIES, PseudoLabels, pseudo_threshold
from mlcl.methods.step import Step, TaskContext
from mlcl.models import build_model

SEEN = torch.tensor([True, True, True, True, False])
OLD = torch.tensor([True, True, False, False, False])
OWN = torch.tensor([[False, False, True, True, False], [True, True, False, False, False]])
KNOWN = torch.tensor([[0.0, 0.0, 1.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0, 0.0]])


def step(teacher=None, inputs=None):
    inputs = torch.randn(2, 4) if inputs is None else inputs
    task = TaskContext(
        index=1,
        classes=torch.tensor([2, 3]),
        seen=SEEN,
        old=OLD,
        model=teacher,
        teacher=teacher,
        batches=lambda: iter([(inputs, KNOWN)]),
        generator=torch.Generator(),
    )
    return Step(task, inputs, torch.zeros(2, 5), None)


@pytest.mark.parametrize(
    ("kind", "mask"), [("task", OWN), ("seen", SEEN.expand(2, 5)), ("none", torch.ones(2, 5) > 0)]
)
def test_masks(kind, mask):
    targets, found = LABEL_POLICIES.build(kind).targets(KNOWN, OWN, step())
    assert torch.equal(found, mask)
    assert torch.equal(targets, KNOWN)


def test_pseudo_labels_add_old_classes_where_the_old_network_is_sure():
    teacher = build_model("mlp", (4,), 5, seed=3).eval()
    inputs = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    now = step(teacher, inputs)
    policy = PseudoLabels(mean_labels=1.0)
    policy.start_task(now.context)
    targets, mask = policy.targets(KNOWN, OWN, now)
    chances = teacher(inputs).sigmoid()
    for b in range(2):
        for k in range(5):
            sure = bool(OLD[k]) and not bool(OWN[b, k]) and chances[b, k] > policy.threshold
            assert targets[b, k] == max(float(KNOWN[b, k]), float(sure))
    assert torch.equal(mask, SEEN.expand(2, 5))


def test_pseudo_threshold_starts_inert_before_there_is_an_old_network():
    policy = PseudoLabels()
    policy.start_task(step().context)
    targets, _ = policy.targets(KNOWN, OWN, step())
    assert torch.equal(targets, KNOWN)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 30), st.integers(1, 6), st.floats(0, 6), st.integers(0, 1000))
def test_the_threshold_meets_its_goal_as_nearly_as_a_count_can(images, classes, goal, seed):
    p = torch.rand(images, classes, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    found = float((p > pseudo_threshold(p, goal)).sum()) / images
    assert abs(found - min(goal, classes)) <= 0.5 / images + 1e-9


@pytest.mark.parametrize("threshold", [0.5, 0.6])
def test_relabelling_asks_the_old_network_for_old_classes_and_the_new_one_for_new_classes(threshold):
    teacher = build_model("mlp", (4,), 5, seed=3).eval()
    inputs = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    logits = torch.randn(2, 5, generator=torch.Generator().manual_seed(1))
    now = Step(step(teacher, inputs).context, inputs, logits, None)
    targets, mask = LABEL_POLICIES.build("relabel", threshold=threshold).targets(KNOWN, OWN, now)
    old, new = teacher(inputs).sigmoid(), logits.sigmoid()
    for b in range(2):
        for k in range(5):
            if OWN[b, k]:
                assert targets[b, k] == KNOWN[b, k]
            elif SEEN[k]:
                assert targets[b, k] == float((old if OLD[k] else new)[b, k] > threshold)
    assert torch.equal(mask, SEEN.expand(2, 5))


def test_relabelling_of_the_first_task_is_its_labels():
    targets, mask = LABEL_POLICIES.build("relabel").targets(KNOWN, OWN, step())
    assert torch.equal(targets, KNOWN)
    assert torch.equal(mask, OWN)
