"""The loop: deterministic, learning, measured as specified, and stopped when the loss is not finite."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from helpers import CONVOLUTIONAL, settings_for, small_benchmark
from mlcl.methods.presets import PRESETS
from mlcl.metrics import macro_auc
from mlcl.runs.run import run
from mlcl.training.learner import Learner
from mlcl.training.loop import train
from mlcl.training.optimisation import TrainingError


@pytest.mark.slow
@pytest.mark.parametrize("method", PRESETS)
def test_every_preset_learns_and_is_deterministic(method):
    benchmark = small_benchmark(images=method in CONVOLUTIONAL)
    first, second = (run(settings_for(method), benchmark=benchmark) for _ in range(2))
    assert first.matrix.tobytes() == second.matrix.tobytes()
    assert first.matrix.shape == ((1, 3) if method.startswith("joint") else (3, 3))
    floor = 55 if method in CONVOLUTIONAL else 70
    assert np.diag(first.matrix)[-1] > floor or first.macro_auc > floor
    assert len(first.learner.memory) <= 30


def test_another_seed_gives_another_matrix():
    benchmark = small_benchmark()
    first, second = (run(settings_for("er", seed=seed), benchmark=benchmark) for seed in (0, 1))
    assert not np.array_equal(first.matrix, second.matrix)


def test_the_global_random_state_is_left_alone():
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    expected = torch.rand(3), np.random.rand(3)  # noqa: NPY002
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    run(settings_for("rldam-wru"), benchmark=small_benchmark())
    assert torch.equal(torch.rand(3), expected[0])
    assert np.array_equal(np.random.rand(3), expected[1])  # noqa: NPY002


def test_the_matrix_is_macro_auc_of_each_task_on_its_own_classes():
    benchmark = small_benchmark()
    learner = train(Learner(settings_for("rldam-wru"), benchmark))
    scores = learner.predict(benchmark.dataset.test.inputs)
    for task in benchmark.tasks:
        labels = benchmark.dataset.test.labels[task.test][:, task.classes]
        expected = macro_auc(scores[task.test][:, task.classes], labels)
        assert learner.evaluations.matrix[-1][task.index] == pytest.approx(expected, abs=1e-12)


def test_a_loss_that_is_not_finite_stops_with_task_epoch_and_step():
    config = settings_for("er", train={"lr": 1e30}, loss={"kind": "rldam", "base": "squared-hinge"})
    with pytest.raises(TrainingError, match=r"the loss became (nan|inf) in task 1, epoch \d+, step \d+"):
        run(config, benchmark=small_benchmark())
