"""Joint training of both kinds: who contributes for what, how it is counted, and that it is recorded."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import SMALL, small_arrays, small_benchmark
from mlcl.config.resolve import config_from, merge
from mlcl.runs.folder import read_memory, read_result
from mlcl.runs.run import resume, run
from mlcl.streams import Benchmark, joint_mask, joint_task
from mlcl.training.callbacks import Callback, Interrupted
from mlcl.training.learner import Learner
from mlcl.training.optimisation import TrainingError

MASKED = merge(SMALL, {"method": "joint-masked"})


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from([("overlap", "in_task"), ("overlap", "all"), ("disjoint", "in_task")]),
)
def test_a_row_contributes_for_the_classes_of_its_tasks_and_no_others(seed, rules):
    setting, negatives = rules
    stream = small_benchmark(seed=seed, setting=setting, negatives=negatives)
    mask, task = joint_mask(stream), joint_task(stream, masked=True)
    for row in range(len(stream.dataset.train)):
        mine = {int(k) for one in stream.tasks if row in one.train for k in one.classes}
        assert set(np.flatnonzero(mask[row])) == mine
    assert set(task.train) == {row for one in stream.tasks for row in one.train.tolist()}
    labels = stream.dataset.train.labels
    assert np.array_equal(task.counts.positive, (labels * mask).sum(0))
    assert np.array_equal(task.counts.negative, ((1 - labels) * mask).sum(0))


@pytest.mark.parametrize("loss", ["bce", "rldam"])
def test_a_step_is_the_loss_over_the_masked_cells(loss):
    benchmark = small_benchmark()
    learner = Learner(config_from(merge(MASKED, {"loss": {"kind": loss}})), benchmark)
    (task,) = learner.tasks
    learner.start_task(task)
    seen = {}
    criterion = learner.optimisation.criterion

    def spy(logits, targets, *, mask, groups, group_weights):
        seen.update(mask=mask, targets=targets, groups=groups, weights=group_weights)
        return criterion(logits, targets, mask=mask, groups=groups, group_weights=group_weights)

    learner.optimisation.criterion = spy
    rows, tags, slots = learner.plan.step(0)
    learner.learn(rows, tags, slots)
    mask = joint_mask(benchmark)[rows]
    assert np.array_equal(seen["mask"].numpy(), mask)
    assert np.array_equal(seen["targets"].numpy(), benchmark.dataset.train.labels[rows] * mask)
    assert seen["weights"].tolist() == pytest.approx([(6 / 4) ** 0.5])  # six classes: train.class_power
    assert sorted(np.concatenate([learner.plan.step(s)[0] for s in range(len(learner.plan))])) == sorted(
        task.train
    )


def test_with_one_task_both_kinds_are_the_same():
    x, y = small_arrays()
    benchmark = Benchmark.from_arrays(x, y, x, y, tasks=1)
    both = [
        run(merge(SMALL, {"method": method}), benchmark=benchmark) for method in ("joint", "joint-masked")
    ]
    assert np.array_equal(both[0].matrix, both[1].matrix)


def test_masked_joint_training_learns():
    result = run(merge(MASKED, {"train": {"epochs": 6}}), benchmark=small_benchmark(n=400))
    assert result.matrix.shape == (1, 3)
    assert result.macro_auc > 90


class StopAt(Callback):
    def __init__(self, step):
        self.left = step

    def on_step(self, learner, loss):
        self.left -= 1
        if self.left == 0:
            raise Interrupted


@pytest.mark.parametrize("method", ["joint-masked", "rldam-wru"])
def test_steps_and_rows_are_counted_also_after_a_resume(method, tmp_path):
    benchmark = small_benchmark()
    config = config_from(merge(SMALL, {"method": method}))
    learner = Learner(config, benchmark)
    steps = rows = 0
    if method == "joint-masked":
        (task,) = learner.tasks
        epochs = config.train.epochs * len(benchmark.tasks)
        rows, steps = epochs * len(task.train), epochs * -(-len(task.train) // config.train.batch_size)
    whole = run(config, benchmark=benchmark, out=tmp_path / "whole")
    if method == "joint-masked":
        assert (whole.steps, whole.rows) == (steps, rows)
    with pytest.raises(Interrupted):
        run(config, benchmark=benchmark, out=tmp_path / "part", callback=StopAt(11))
    part = resume(tmp_path / "part", benchmark=benchmark)
    assert (part.steps, part.rows) == (whole.steps, whole.rows)
    found = json.loads((tmp_path / "part" / "result.json").read_text())
    assert (found["steps"], found["rows"]) == (whole.steps, whole.rows)
    kept = read_memory(
        tmp_path / "part", read_result(tmp_path / "part")
    )  # reports read it, also where it is empty
    assert [len(samples) for samples in kept.memory.tasks] == found["memory"]


def test_a_network_that_diverged_in_its_last_step_is_named():
    learner = Learner(config_from(SMALL), small_benchmark())
    learner.start_task(learner.tasks[0])
    with torch.no_grad():
        next(iter(learner.network.parameters())).fill_(float("nan"))
    with pytest.raises(TrainingError, match=r"the network diverged: .* no longer finite after task 1"):
        learner.finish_task(learner.tasks[0])


def test_a_run_that_hardly_learns_says_so():
    settings = merge(SMALL, {"train": {"lr": 1e-9, "epochs": 1}})
    with pytest.warns(UserWarning, match="Macro-AUC on its training rows is .*, where chance is 50"):
        run(settings, benchmark=small_benchmark(n=200, seed=3, tasks=2))
