"""Epoch plans, the rows of a step, and the normalisation of inputs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mlcl.config.resolve import config_from
from mlcl.datasets.base import Split
from mlcl.memories import Memory, TaskSamples
from mlcl.streams import Benchmark
from mlcl.training.batches import Normaliser, cycle_rows, plan_epoch
from mlcl.training.learner import Learner
from mlcl.training.optimisation import TrainingError


def test_an_epoch_plan_covers_the_task_and_balances_the_memory():
    memory = Memory("random", 20, seed=0)
    for task, base in enumerate((0, 100)):
        rows = np.arange(base, base + 50)
        memory.update(TaskSamples.of(task, [task], rows, np.ones((50, 1), np.uint8)))
    plan = plan_epoch(
        np.arange(200, 243),
        (memory.rows, memory.task_of_row),
        np.random.default_rng(0),
        task=2,
        batch_size=10,
        memory_batch=8,
        sampling="balanced",
    )
    rows, tags, slots = zip(*(plan.step(i) for i in range(len(plan))), strict=True)
    assert len(plan) == 5
    assert sorted(np.concatenate([r[t == 2] for r, t in zip(rows, tags, strict=True)])) == list(
        range(200, 243)
    )
    for r, t, s in zip(rows, tags, slots, strict=True):
        assert [(t == 0).sum(), (t == 1).sum()] == [4, 4]
        assert np.array_equal(memory.rows[s[t < 2]], r[t < 2])
        assert set(s[t == 2]) == {-1}
        assert set(r[t == 0]) <= set(memory.tasks[0].rows)


def test_a_row_left_over_joins_the_last_step():
    """A ResNet's last map of one pixel cannot be normalised over a batch of one row."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (9, 3, 32, 32), dtype=np.uint8)
    labels = np.eye(3, dtype=np.uint8)[np.arange(9) % 3]
    benchmark = Benchmark.from_arrays(images, labels, images, labels, tasks=1, seed=0)

    def learner(batch_size):
        train = {"epochs": 1, "batch_size": batch_size, "lr": 0.01}
        made = Learner(
            config_from({"method": "ft", "model": {"kind": "resnet18"}, "train": train}), benchmark
        )
        made.start_task(made.tasks[0])
        return made

    made = learner(4)
    steps = [made.plan.step(number) for number in range(len(made.plan))]
    assert [len(rows) for rows, *_ in steps] == [4, 5]
    assert sorted(np.concatenate([rows for rows, *_ in steps])) == list(range(9))
    made.learn(*steps[1])
    alone = learner(1)
    with pytest.raises(TrainingError, match=r"a step of one row.*train.batch_size \(now 1\)"):
        alone.learn(*alone.plan.step(0))


def test_cycled_rows_come_once_before_any_comes_twice():
    drawn = cycle_rows(np.arange(7), 17, np.random.default_rng(0))
    assert np.bincount(drawn).tolist() != [3] * 7
    assert set(np.bincount(drawn[:14])) == {2}


@pytest.mark.parametrize("images", [True, False])
def test_normalised_inputs_have_mean_zero_and_deviation_one(images):
    rng = np.random.default_rng(0)
    inputs = (
        rng.integers(0, 200, (300, 3, 5, 5), dtype=np.uint8)
        if images
        else rng.normal(3, 9, (300, 4)).astype("f4")
    )
    out = Normaliser.fit(Split(inputs, np.ones((300, 1), np.uint8)), normalise=True)(torch.from_numpy(inputs))
    axes = (0, 2, 3) if images else (0,)
    assert torch.allclose(out.mean(axes), torch.zeros(()), atol=1e-4)
    assert torch.allclose(out.std(axes, correction=0), torch.ones(()), atol=1e-4)
