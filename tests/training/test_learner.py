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
            learner.labels[:, others] = 1 - learner.labels[:, others]
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
    assert learner.weights.tolist() == pytest.approx(expected)


def test_optimiser_and_schedule_restart_with_each_task():
    learner = Learner(settings_for("er", train={"epochs": 8, "lr_factor": 0.5}), small_benchmark())
    rates = []
    for stage in learner.tasks[:2]:
        learner.start_task(stage)
        assert not learner.optimiser.state_dict()["state"]
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
