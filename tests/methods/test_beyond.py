"""The parts beyond the paper: stored logits, negatives across tasks, averaged weights, automatic augmentation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import SMALL, small_benchmark
from mlcl.config.resolve import config_from
from mlcl.config.schema import TrainConfig
from mlcl.datasets import load_dataset
from mlcl.errors import InputError
from mlcl.memories import MEMORIES
from mlcl.methods.augment import AUGMENTATIONS
from mlcl.methods.labels import TrustedNegatives, lowest_share
from mlcl.methods.regularisers.distillation import DarkReplay
from mlcl.methods.step import Step, TaskContext
from mlcl.models import build_model
from mlcl.training.learner import Learner
from mlcl.training.loop import train
from mlcl.training.optimisation import RunningAverage, learning_rate

ALL = {
    "method": "rldam-wru",
    "augment": "auto",
    "labels": "negatives",
    "regulariser": "der",
    "train": SMALL["train"] | {"schedule": "cosine", "average": 0.9},
}


def a_step(*, old, seen, logits, taught=None, stored=None):
    context = TaskContext(
        index=1,
        classes=torch.nonzero(seen & ~old).flatten(),
        seen=seen,
        old=old,
        model=None,
        teacher=object() if taught is not None else None,
        batches=None,
        generator=torch.Generator(),
    )
    step = Step(context, None, logits, None, stored)
    if taught is not None:
        step.__dict__["teacher_output"] = (taught, None)
    return step


# --- logits stored with the memory


@pytest.mark.parametrize("kind", [name for name in MEMORIES.names() if name != "none"])
def test_stored_logits_follow_their_samples_when_the_memory_shrinks(kind):
    """After each task every sample in memory still has the logits that the network gave it when its task ended."""
    config = config_from(
        SMALL | {"method": "replay", "regulariser": "der", "memory": {"kind": kind, "size": 25}}
    )
    learner = Learner(config, small_benchmark())
    then = {}
    for stage in learner.tasks:
        learner.start_task(stage)
        learner.learn(*learner.plan.step(0))
        learner.finish_task(stage)
        scores = learner.predict(learner.data.train.inputs[stage.train])
        then |= {(stage.index, row): line for row, line in zip(stage.train.tolist(), scores, strict=True)}
        seen = np.isin(np.arange(6), np.concatenate([s.classes for s in learner.tasks[: stage.index + 1]]))
        for samples in learner.memory.tasks:
            logits = samples.extra["logits"]
            for row, line in zip(samples.rows.tolist(), logits, strict=True):
                known = ~np.isnan(line)
                np.testing.assert_allclose(line[known], then[samples.task, row][known], rtol=1e-4, atol=1e-5)
            if samples.task == stage.index and len(samples):
                assert np.array_equal(~np.isnan(logits[0]), seen)
    assert 0 < len(learner.memory) <= 25


def test_the_penalty_is_the_mean_square_over_what_is_stored():
    logits = torch.randn(4, 3, requires_grad=True)
    stored = torch.tensor([[1.0, 2.0, torch.nan]] * 2 + [[torch.nan] * 3] * 2)
    seen = torch.ones(3, dtype=torch.bool)
    step = a_step(old=seen, seen=seen, logits=logits, stored=stored)
    penalty = DarkReplay(strength=2.0, distance="mse").penalty(step)
    cells = [(logits[r, k] - stored[r, k]) ** 2 for r in range(2) for k in range(2)]
    torch.testing.assert_close(penalty, 2 * sum(cells) / 4)
    penalty.backward()
    assert torch.count_nonzero(logits.grad[2:]) == 0
    assert torch.count_nonzero(logits.grad[:, 2]) == 0
    assert DarkReplay().penalty(a_step(old=seen, seen=seen, logits=logits)) is None
    robust = [min(abs(d) ** 2, 2 * abs(d) - 1) if abs(d) >= 1 else d**2 for d in (c.sqrt() for c in cells)]
    torch.testing.assert_close(DarkReplay(strength=2.0).penalty(step), 2 * sum(robust) / 4)


def test_stored_logits_without_a_memory_are_refused():
    with pytest.raises(InputError, match=r"regulariser 'der' holds the logits of stored samples"):
        config_from({"method": "ft", "regulariser": "der"})


def test_stored_logits_hold_the_old_scores():
    """With a strong penalty the scores of stored samples move less than without."""
    moved = []
    for strength in (0.0, 10.0):
        regulariser = {"kind": "der", "strength": strength}
        config = config_from(SMALL | {"method": "replay", "loss": "bce", "regulariser": regulariser})
        learner = Learner(config, small_benchmark(tasks=2))
        train(learner)
        first = learner.memory.tasks[0]
        now = learner.predict(learner.data.train.inputs[first.rows])[:, first.classes]
        moved.append(np.abs(now - first.extra["logits"][:, first.classes]).mean())
    assert moved[1] < 0.5 * moved[0]


# --- negatives across tasks


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.3, 0.75, 1.0]))
def test_the_rows_least_like_a_class_are_its_negatives(seed, share):
    rng = torch.Generator().manual_seed(seed)
    scores, among = torch.randn(9, 4, generator=rng), torch.rand(9, 4, generator=rng) < 0.6
    marked = lowest_share(scores, among, share)
    for k in range(4):
        rows = [r for r in range(9) if among[r, k]]
        rows.sort(key=lambda r: scores[r, k].item())
        expected = set(rows[: int(share * len(rows) + 1e-6)])
        assert set(torch.nonzero(marked[:, k]).flatten().tolist()) == expected


def test_old_classes_ask_the_old_network_and_new_ones_the_network_itself():
    old, seen = torch.tensor([True, False, False]), torch.tensor([True, True, False])
    own = torch.tensor(
        [[False, True, False]] * 2 + [[True, False, False]] * 2
    )  # two new rows, two of the memory
    logits = torch.tensor([[9.0, 0, 0], [-9, 0, 0], [0, 5, 0], [0, -5, 0]], requires_grad=True)
    taught = torch.tensor([[-9.0, 0, 0], [9, 0, 0], [0, 0, 0], [0, 0, 0]])
    known = torch.zeros(4, 3)
    step = a_step(old=old, seen=seen, logits=logits, taught=taught)
    targets, mask = TrustedNegatives(trust=0.5).targets(known, own, step)
    expected = own.clone()
    expected[0, 0] = True  # the old network ranks row 0 lower, whatever the new one thinks
    expected[3, 1] = True
    assert torch.equal(mask, expected)
    assert torch.equal(targets, known)
    first = a_step(old=~seen, seen=seen, logits=logits)
    assert torch.equal(TrustedNegatives().targets(known, own, first)[1], own)
    with pytest.raises(InputError, match=r"trust is 1\.5; expected a number from 0 to 1"):
        TrustedNegatives(trust=1.5)


# --- averaged weights and the schedule


def test_the_average_is_the_recursion():
    network = build_model("mlp", (3,), 2, hidden=4, depth=1)
    average = RunningAverage(network, decay=0.5)
    expected = {name: value.clone() for name, value in network.state_dict().items()}
    for n in range(20):
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(torch.randn_like(parameter))
        keep = min(0.5, (1 + n) / (10 + n))
        for name, value in network.state_dict().items():
            if value.is_floating_point():
                expected[name] = keep * expected[name] + (1 - keep) * value
        average.update()
    average.give()
    for name, value in network.state_dict().items():
        torch.testing.assert_close(value, expected[name])


def test_the_network_is_its_average_after_a_task():
    learner = Learner(
        config_from(SMALL | {"method": "er", "train": SMALL["train"] | {"average": 0.9}}), small_benchmark()
    )
    learner.start_task(learner.tasks[0])
    for step in range(3):
        learner.learn(*learner.plan.step(step))
    average = {name: value.clone() for name, value in learner.optimisation.average.state().items()}
    raw = {name: value.clone() for name, value in learner.network.state_dict().items()}
    learner.finish_task(learner.tasks[0])
    for name, value in learner.network.state_dict().items():
        if name in average:
            assert torch.equal(value, average[name])
    assert any(not torch.equal(raw[name], average[name]) for name in average)


def test_the_cosine_ends_near_zero_and_averages_to_half():
    rates = [learning_rate(TrainConfig(lr=0.2, schedule="cosine"), epoch, 50) for epoch in range(50)]
    assert rates[0] == 0.2
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < 0.001
    assert sum(rates) / 50 == pytest.approx(0.1, rel=0.03)
    with pytest.raises(InputError, match=r"train\.average is 1\.0; expected a decay"):
        TrainConfig(average=1.0)


# --- augmentation


def test_automatic_augmentation_suits_the_data():
    images = torch.arange(2 * 3 * 8 * 8, dtype=torch.uint8).reshape(2, 3, 8, 8)
    first, second = torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)
    for kind in ("flip-crop", "crop", "none"):
        auto, named = AUGMENTATIONS.build("auto", suits=kind), AUGMENTATIONS.build(kind)
        assert torch.equal(auto(images, first), named(images, second))
    features = torch.randn(4, 5)
    assert torch.equal(AUGMENTATIONS.build("auto")(features, first), features)
    # Made anew, and read from the cache.
    assert [load_dataset("digits").augmentation for _ in range(2)] == ["none"] * 2


def test_a_crop_never_mirrors():
    """Columns of a crop rise from left to right, as in the image, but for the zeros of the padding."""
    images = torch.arange(1, 9, dtype=torch.uint8).expand(50, 1, 8, 8)
    cropped = AUGMENTATIONS.build("crop", padding=2)(images, torch.Generator().manual_seed(0)).int()
    inside = (cropped[..., 1:] > 0) & (cropped[..., :-1] > 0)
    assert (cropped[..., 1:] - cropped[..., :-1])[inside].eq(1).all()
    assert (cropped == 0).any()


# --- all of it, exact on resume


@pytest.mark.slow
@pytest.mark.parametrize("place", [(0, 1), (1, 2), (2, 4)])
def test_all_parts_together_are_exact_on_resume(place):
    config, benchmark = config_from(SMALL | ALL), small_benchmark()
    whole = train(Learner(config, benchmark))
    learner = Learner(config, benchmark)
    for stage in learner.tasks[: place[0] + 1]:
        learner.start_task(stage)
        while learner.epoch < learner.epochs:
            learner.start_epoch(stage)
            while learner.step < len(learner.plan):
                learner.learn(*learner.plan.step(learner.step))
                if (learner.task_index, learner.step) == place and learner.epoch == 1:
                    other = Learner(config, benchmark)
                    state = learner.state()
                    other.load_state(state)
                    assert train(other).evaluations.matrix == whole.evaluations.matrix
                    return
            learner.finish_epoch()
        learner.finish_task(stage)
    pytest.fail("the place was not reached")
