"""The loop: deterministic, masked, weighted as specified, and learning."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from helpers import SMALL, SMALL_IMAGES, small_benchmark

from mlcl.config.resolve import config_from, merge
from mlcl.config.schema import TrainConfig
from mlcl.datasets.base import Split
from mlcl.memories import Memory, TaskSamples
from mlcl.methods.presets import PRESETS
from mlcl.metrics import macro_auc
from mlcl.runs.run import run
from mlcl.streams import Benchmark
from mlcl.training.batches import Normaliser, cycle_rows, plan_epoch
from mlcl.training.learner import Learner
from mlcl.training.loop import train
from mlcl.training.optimisation import TrainingError, make_optimiser

CONVOLUTIONAL = ("krt", "krt-r")


def settings_for(method, **changes):
    base = SMALL_IMAGES if method in CONVOLUTIONAL else SMALL
    return config_from(merge(base, {"method": method}, changes))


@pytest.mark.parametrize("method", PRESETS)
def test_every_preset_learns_and_is_deterministic(method):
    benchmark = small_benchmark(images=method in CONVOLUTIONAL)
    first, second = (run(settings_for(method), benchmark=benchmark) for _ in range(2))
    assert first.matrix.tobytes() == second.matrix.tobytes()
    assert first.matrix.shape == ((1, 3) if method == "joint" else (3, 3))
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


def test_a_loss_that_is_not_finite_stops_with_task_epoch_and_step():
    config = settings_for("er", train={"lr": 1e30}, loss={"kind": "rldam", "base": "squared-hinge"})
    with pytest.raises(TrainingError, match=r"the loss became (nan|inf) in task 0, epoch \d+, step \d+"):
        run(config, benchmark=small_benchmark())


def test_joint_training_sees_every_label_of_every_image_once():
    benchmark = small_benchmark()
    learner = Learner(settings_for("joint"), benchmark)
    (stage,) = learner.tasks
    assert len(np.unique(stage.train)) == len(stage.train) == 120
    assert stage.counts.positive.tolist() == benchmark.dataset.train.labels.sum(0).tolist()


def test_an_epoch_plan_covers_the_task_and_balances_the_memory():
    memory = Memory("random", 20, seed=0)
    for task, base in enumerate((0, 100)):
        rows = np.arange(base, base + 50)
        memory.update(TaskSamples.of(task, [task], rows, np.ones((50, 1), np.uint8)))
    plan = plan_epoch(
        np.arange(200, 243),
        memory,
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


def test_a_run_folder_holds_what_was_measured(tmp_path):
    result = run(settings_for("rldam-wru"), benchmark=small_benchmark(), out=tmp_path / "run")
    written = json.loads((tmp_path / "run/result.json").read_text())
    assert written["macro_auc"] == pytest.approx(result.macro_auc)
    assert np.allclose(written["matrix"], result.matrix)
    assert np.mean(written["matrix"][-1]) == pytest.approx(written["macro_auc"])
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert sum(line["name"] == "test/macro_auc" for line in lines) == 9
    assert config_from(tmp_path / "run/config.yaml") == result.config
    assert {p.name for p in (tmp_path / "run").iterdir()} == {
        "config.yaml",
        "environment.json",
        "metrics.jsonl",
        "result.json",
        "weights.safetensors",
        "memory.safetensors",
    }


def test_the_optimiser_is_plain_sgd_to_the_bit():
    settings = TrainConfig(lr=0.2, momentum=0.9, weight_decay=1e-3)
    generator = torch.Generator().manual_seed(0)
    ours, plain = (
        [torch.nn.Parameter(w.clone()) for w in (torch.linspace(-1, 1, 37), torch.ones(3, 4, 2, 2))]
        for _ in range(2)
    )
    ours[1].data = ours[1].data.contiguous(memory_format=torch.channels_last)
    optimiser = make_optimiser(settings, ours)
    twin = torch.optim.SGD(plain, lr=0.2, momentum=0.9, weight_decay=1e-3, fused=False, foreach=False)
    for _ in range(4):
        for mine, other in zip(ours, plain, strict=True):
            other.grad = torch.randn(other.shape, generator=generator)
            mine.grad = torch.empty_like(mine).copy_(other.grad)
        optimiser.step()
        twin.step()
        assert all(torch.equal(mine, other) for mine, other in zip(ours, plain, strict=True))
