"""WRU, PRS and OCDM as storage policies and RLDAM as a criterion, inside the real Avalanche."""

from __future__ import annotations

import importlib
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from avalanche.training import Naive
from avalanche.training.plugins import EvaluationPlugin, ReplayPlugin

from helpers import small_benchmark
from mlcl.errors import InputError
from mlcl.integrations.avalanche import (
    UNKNOWN,
    MultiLabelBuffer,
    MultiLabelCriterion,
    experience_targets,
    multilabel_benchmark,
    multilabel_dataset,
)
from mlcl.labels import LabelCounts
from mlcl.losses import MarginLoss
from mlcl.memories import Memory, TaskSamples, select_wru
from mlcl.metrics import macro_auc
from mlcl.models import build_model

KINDS = ["wru", "prs", "ocdm", "random", "reservoir"]


@pytest.fixture(scope="module")
def benchmark():
    return small_benchmark(tasks=3, n=200)


@pytest.fixture(scope="module")
def scenario(benchmark):
    return multilabel_benchmark(benchmark, normalise=False)


def strategy(benchmark, buffer, criterion, **options):
    model = build_model("mlp", benchmark.dataset.train.inputs.shape[1:], 6, hidden=16, depth=1)
    return Naive(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        criterion=criterion,
        train_mb_size=16,
        plugins=[ReplayPlugin(mem_size=buffer.max_size, storage_policy=buffer)],
        evaluator=EvaluationPlugin(),
        **options,
    )


def contents(dataset):
    """Inputs and targets of all samples, as Avalanche returns them."""
    pairs = [dataset[row] for row in range(len(dataset))]
    return torch.stack([x for x, _ in pairs]).numpy(), torch.stack([y for _, y in pairs]).numpy()


def test_experiences_are_the_tasks_with_unknown_labels(benchmark, scenario):
    for task, experience in zip(benchmark.tasks, scenario.train_stream, strict=True):
        inputs, targets = contents(experience.dataset)
        assert np.allclose(inputs, benchmark.dataset.train.inputs[task.train])
        others = np.setdiff1d(np.arange(6), task.classes)
        assert (targets[:, others] == UNKNOWN).all()
        assert np.array_equal(
            targets[:, task.classes], benchmark.dataset.train.labels[task.train][:, task.classes]
        )
        found, classes = experience_targets(experience.dataset)
        assert np.array_equal(found, targets)
        assert np.array_equal(classes, np.sort(task.classes))


@pytest.mark.parametrize("kind", KINDS)
def test_a_buffer_holds_what_the_memory_chooses(benchmark, scenario, kind):
    """The oracle: an `mlcl.Memory` over row numbers of the training split, without Avalanche."""
    buffer, memory = MultiLabelBuffer(31, kind, seed=4), Memory(kind, 31, seed=4)
    data = benchmark.dataset.train
    for task, experience in zip(benchmark.tasks, scenario.train_stream, strict=True):
        buffer.post_adapt(None, experience)
        classes = np.sort(task.classes)
        memory.update(TaskSamples.of(task.index, classes, task.train, data.labels[task.train][:, classes]))
        inputs, targets = contents(buffer.buffer)
        assert len(inputs) == len(memory) == 31
        assert np.allclose(inputs, data.inputs[memory.rows])
        for place, (row, number) in enumerate(zip(memory.rows, memory.task_of_row, strict=True)):
            own = np.sort(benchmark.tasks[number].classes)
            assert np.array_equal(np.flatnonzero(targets[place] >= 0), own)
            assert np.array_equal(targets[place, own], data.labels[row, own])
        for stored, expected in zip(buffer.memory.tasks, memory.tasks, strict=True):
            assert stored.counts == expected.counts


@pytest.mark.parametrize("kind", KINDS)
def test_a_smaller_size(scenario, kind):
    buffer = MultiLabelBuffer(30, kind)
    for experience in scenario.train_stream:
        buffer.post_adapt(None, experience)
    before = {tuple(x) for x in contents(buffer.buffer)[0].tolist()}
    first = contents(buffer.buffer)[0]
    buffer.resize(None, 40)
    assert len(buffer.buffer) == 30
    buffer.resize(None, 12)
    kept, _ = contents(buffer.buffer)
    assert len(kept) == len(buffer.memory) == buffer.max_size == 12
    assert {tuple(x) for x in kept.tolist()} <= before
    assert len(buffer.memory.tasks) == 3
    if kind == "wru":  # a prefix of a greedy selection is a greedy selection
        assert np.array_equal(kept, np.concatenate([first[0:4], first[10:14], first[20:24]]))
    buffer.post_adapt(None, scenario.train_stream[0])
    assert len(buffer.buffer) == 12


def test_the_first_experience_is_chosen_by_wru(benchmark, scenario):
    buffer = MultiLabelBuffer(9, "wru", seed=0)
    buffer.post_adapt(None, scenario.train_stream[0])
    task = benchmark.tasks[0]
    labels = benchmark.dataset.train.labels[task.train][:, np.sort(task.classes)]
    chosen = labels[select_wru(labels, 9)]
    _, targets = contents(buffer.buffer)
    assert targets[:, np.sort(task.classes)].sum(0).tolist() == chosen.sum(0).tolist()


@pytest.mark.parametrize("weight", ["mean", "equal"])
def test_the_criterion_is_the_sum_over_experiences(benchmark, scenario, weight):
    """The oracle: each experience's rows alone, in the columns of its classes, with its own counts."""
    criterion = MultiLabelCriterion("rldam", classes=6, memory_weight=weight, reweight="dataset", margin=2.0)
    for number, experience in enumerate(scenario.train_stream):
        criterion.start(experience.dataset, key=number)
        criterion.start(experience.dataset, key=number)  # trained twice, counted once
    rng = torch.Generator().manual_seed(0)
    rows, total = [], torch.zeros(())
    for task, experience in zip(benchmark.tasks, scenario.train_stream, strict=True):
        _, targets = contents(experience.dataset)
        batch = torch.from_numpy(targets[: 7 + task.index])
        logits = torch.randn(len(batch), 6, generator=rng)
        rows.append((logits, batch))
        classes = torch.from_numpy(np.sort(task.classes))
        counts = LabelCounts.of(targets[:, classes.numpy()])
        loss = MarginLoss(counts, margin=2.0, reweight="dataset")(logits[:, classes], batch[:, classes])
        total = total + loss * (1.0 if weight == "equal" or task.index == 2 else 0.5)
    logits, targets = (torch.cat(parts) for parts in zip(*rows, strict=True))
    order = torch.randperm(len(logits), generator=rng)
    assert torch.allclose(criterion(logits[order], targets[order]), total, atol=1e-5)


def test_experiences_not_learnt_yet_give_no_loss(scenario):
    criterion = MultiLabelCriterion("bce", classes=6)
    with pytest.raises(InputError, match="has seen no experience yet"):
        criterion(torch.zeros(1, 6), torch.zeros(1, 6))
    criterion.start(scenario.train_stream[0].dataset, key=0)
    _, targets = contents(scenario.test_stream[1].dataset)
    logits = torch.zeros(len(targets), 6, requires_grad=True)
    loss = criterion(logits, torch.from_numpy(targets))
    loss.backward()
    assert (loss.item(), logits.grad.abs().sum().item()) == (0.0, 0.0)


@pytest.mark.parametrize("kind", ["wru", "prs", "ocdm"])
def test_a_replay_strategy_learns_and_remembers(benchmark, scenario, kind):
    torch.manual_seed(0)
    buffer = MultiLabelBuffer(30, kind)
    learner = strategy(benchmark, buffer, MultiLabelCriterion("rldam", classes=6), train_epochs=8)
    for experience in scenario.train_stream:
        learner.train(experience)
        learner.eval(scenario.test_stream)  # future experiences among them
    assert len(buffer.buffer) == 30
    scores = score_all(learner.model, scenario)
    assert min(scores) > 0.8
    # Avalanche registered the criterion as a plugin: it has counted the labels of all experiences.
    counted = learner._criterion.counts.positive
    for task in benchmark.tasks:
        assert np.array_equal(counted[task.classes], task.counts.positive)


def score_all(model, scenario):
    found = []
    for experience in scenario.test_stream:
        inputs, targets = contents(experience.dataset)
        own = targets[0] >= 0
        with torch.no_grad():
            found.append(macro_auc(model(torch.from_numpy(inputs)).numpy()[:, own], targets[:, own]))
    return found


def test_bad_input_raises_one_sentence(scenario):
    with pytest.raises(InputError, match=r"classes is \[0, 9\], but ids from 0 to 1"):
        multilabel_dataset(np.zeros((2, 3)), [[0, 1], [1, 0]], classes=[0, 9])
    with pytest.raises(InputError, match="labels has 2 rows, but 3 were expected"):
        multilabel_dataset(np.zeros((3, 3)), [[0, 1], [1, 0]], classes=[0])
    with pytest.raises(InputError, match="memory 'herding' needs features"):
        MultiLabelBuffer(5, "herding")
    with pytest.raises(InputError, match="unknown memory 'wur'"):
        MultiLabelBuffer(5, "wur")
    with pytest.raises(InputError, match="loss 'bce' takes no option 'margin'"):
        MultiLabelCriterion("bce", classes=6, margin=1.0)
    with pytest.raises(InputError, match="memory_weight is 'size'"):
        MultiLabelCriterion("bce", classes=6, memory_weight="size")
    with pytest.raises(InputError, match="targets have 6 classes, but 5 were expected"):
        MultiLabelCriterion("bce", classes=5).start(scenario.train_stream[0].dataset, key=0)
    with pytest.raises(InputError, match="no attribute 'targets'"):
        experience_targets(torch.utils.data.TensorDataset(torch.zeros(2, 2)))
    labels = np.eye(3, dtype=np.uint8)
    criterion = MultiLabelCriterion("bce", classes=3)
    criterion.start(multilabel_dataset(np.zeros((3, 2)), labels, classes=[0, 1]), key=0)
    with pytest.raises(InputError, match=r"classes \[1\] were labelled by an earlier experience"):
        criterion.start(multilabel_dataset(np.zeros((3, 2)), labels, classes=[1, 2]), key=1)
    mixed = multilabel_dataset(np.zeros((3, 2)), labels, classes=[0]).concat(
        multilabel_dataset(np.zeros((3, 2)), labels, classes=[0, 1])
    )
    with pytest.raises(InputError, match="sample 3 of an experience labels 2 classes and sample 0 labels 1"):
        experience_targets(mixed)


def test_without_avalanche_the_module_names_the_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.delitem(sys.modules, "mlcl.integrations.avalanche")
    with pytest.raises(InputError, match=r"avalanche is not installed; .*pip install 'mlcl\[avalanche\]'"):
        importlib.import_module("mlcl.integrations.avalanche")


def test_the_example_runs(capsys):
    path = Path(__file__).resolve().parents[2] / "examples" / "avalanche_replay.py"
    matrix = runpy.run_path(str(path))["main"](["--tasks", "2", "--epochs", "1", "--size", "50"])
    assert (matrix[-1] > 55).all()
    assert "Macro-AUC" in capsys.readouterr().out
