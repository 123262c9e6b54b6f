"""The learner: labels masked and memory weighted as specified, a new optimiser for each task."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from helpers import settings_for, small_benchmark
from mlcl.training.learner import Learner


def test_only_the_rows_own_task_enters_the_loss():
    """Changing labels outside a task's classes, or classes of tasks to come, changes no gradient."""
    benchmark = small_benchmark()
    config = settings_for("rldam-wru")
    gradients = []
    for flip in (False, True):
        learner = Learner(config, benchmark)
        stage = learner.tasks[0]
        learner.start_task(stage)
        if flip:
            others = np.setdiff1d(np.arange(6), stage.classes)
            learner.setup.known.on_device[:, others] = 1 - learner.setup.known.on_device[:, others]
        learner.learn(*learner.plan.step(0))
        gradients.append(torch.cat([p.grad.flatten() for p in learner.network.parameters()]))
        head = learner.network.head.linear.weight.grad
        assert torch.count_nonzero(head[others]) == 0 if flip else True
    assert torch.equal(*gradients)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("equal", [1, 1, 1]), ("mean", [0.5, 0.5, 1]), ("size", None)],
)
def test_memory_weights_are_those_of_the_specification(kind, expected):
    extra = {"weight_scale": 3.0} if kind == "size" else {}
    config = settings_for("er", memory={"weight": kind, **extra})
    learner = Learner(config, small_benchmark())
    for stage in learner.tasks[:2]:
        learner.start_task(stage)
        learner.finish_task(stage)
    stage = learner.tasks[2]
    learner.start_task(stage)
    if expected is None:
        stored = [len(samples.rows) for samples in learner.memory.tasks]
        expected = [3 * stored[0] / len(stage.train), 3 * stored[1] / len(stage.train), 1]
    assert learner.optimisation.weights.tolist() == pytest.approx(expected)


def test_optimiser_and_schedule_restart_with_each_task():
    learner = Learner(settings_for("er", train={"epochs": 8, "lr_factor": 0.5}), small_benchmark())
    rates = []
    for stage in learner.tasks[:2]:
        learner.start_task(stage)
        assert not learner.optimisation.optimiser.state_dict()["state"]
        for learner.epoch in range(8):
            learner.start_epoch(stage)
            rates.append(learner.lr)
        learner.learn(*learner.plan.step(0))
    one = [0.1] * 3 + [0.05] * 2 + [0.025] * 3  # cuts after 3/8 and 5/8 of the epochs
    assert rates == pytest.approx(one * 2)


def test_joint_training_sees_every_label_of_every_image_once():
    benchmark = small_benchmark()
    learner = Learner(settings_for("joint"), benchmark)
    (stage,) = learner.tasks
    assert len(np.unique(stage.train)) == len(stage.train) == 120
    assert stage.counts.positive.tolist() == benchmark.dataset.train.labels.sum(0).tolist()


@pytest.mark.parametrize("method", ["er", "joint", "joint-masked"])
def test_the_normaliser_knows_the_first_task_alone(method):
    """Rows that are in later tasks only change nothing of how inputs are normalised."""
    benchmark = small_benchmark()
    first = benchmark.tasks[0].train
    later = np.setdiff1d(np.arange(len(benchmark.dataset.train)), first)
    assert len(later)
    expected = benchmark.dataset.train.inputs[first].astype(np.float64)
    benchmark.dataset.train.inputs[later] += 1000
    learner = Learner(settings_for(method), benchmark)
    shown = learner.normaliser(torch.from_numpy(benchmark.dataset.train.inputs[first])).numpy()
    np.testing.assert_allclose(shown, (expected - expected.mean(0)) / expected.std(0), atol=1e-4)


@pytest.mark.parametrize(("method", "classes"), [("er", 6), ("er", 12), ("joint", 6), ("joint-masked", 20)])
def test_the_loss_grows_with_the_classes_of_a_task(method, classes):
    """(K / 4)^power times the mean over classes, where a task has more than four."""
    tasks = 2 if method == "er" else 3
    benchmark = small_benchmark(classes=classes, tasks=tasks)
    wide = classes // tasks if method == "er" else classes
    losses = []
    for power in (0.0, 0.5, 1.0):
        learner = Learner(settings_for(method, train={"class_power": power}), benchmark)
        learner.start_task(learner.tasks[0])
        losses.append(learner.learn(*learner.plan.step(0)))
    factor = max(1.0, wide / 4)
    assert losses[1:] == pytest.approx([losses[0] * factor**0.5, losses[0] * factor], rel=1e-5)


def test_batches_are_validated_in_the_first_step_of_a_task_alone():
    learner = Learner(settings_for("er"), small_benchmark())
    for task in learner.tasks[:2]:
        learner.start_task(task)
        assert learner.optimisation.criterion.validate
        learner.learn(*learner.plan.step(0))
        assert not learner.optimisation.criterion.validate
        learner.finish_task(task)
