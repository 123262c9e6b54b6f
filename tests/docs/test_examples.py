"""The examples run, and show what they are to show. Those that need an extra are in tests/extras."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers import SMALL, small_benchmark
from mlcl import plugins
from mlcl.config.resolve import config_from, merge
from mlcl.plugins import load_plugin
from mlcl.registry import REGISTRATIONS
from mlcl.runs.run import run
from mlcl.runs.trained import load_trained
from mlcl.testing import check_memory, check_regulariser
from mlcl.training.learner import Learner
from mlcl.training.loop import train

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(autouse=True)
def own_plugins(monkeypatch):
    """What an example registers is not registered any more after the test."""
    count = len(REGISTRATIONS)
    monkeypatch.setattr(plugins, "_loaded", {})
    yield
    REGISTRATIONS.undo_to(count)


@pytest.mark.slow
def test_the_plain_loop(capsys):
    """It learns, and stores what it may. That a memory pays shows in a whole run of it: docs/howto/use-the-loss.md."""
    main = runpy.run_path(str(EXAMPLES / "pytorch_loop.py"))["main"]
    assert main(200, train_size=1500, epochs=3) > 0.55
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert "over 20 labels, 200 rows stored" in lines[-1]
    main(0, train_size=100, epochs=1)
    assert "over 20 labels, 0 rows stored" in capsys.readouterr().out


def test_a_head_a_regulariser_and_a_memory_of_ones_own(tmp_path):
    """One file of at most 60 lines each, which keeps the rules of its kind; a finished run predicts as it measured."""
    benchmark = small_benchmark()
    methods = {
        "agem": {"method": "agem"},
        "nearest_mean": {"method": "icarl"},
        "highest_loss": {"method": "er", "memory": {"kind": "highest-loss"}},
    }
    for name, chosen in methods.items():
        file = EXAMPLES / f"{name}.py"
        assert len(file.read_text().splitlines()) <= 60
        load_plugin(file)
        result = run(config_from(merge(SMALL, chosen)), benchmark=benchmark, out=tmp_path / name)
        assert result.macro_auc > 70
        scores = load_trained(tmp_path / name).logits(benchmark.dataset.test.inputs)
        np.testing.assert_allclose(scores, result.learner.test_scores(), atol=1e-6)
    check_regulariser("agem")
    check_memory("highest-loss", skip=0.1)


def flat(gradients):
    return torch.cat([one.flatten() for one in gradients])


def test_a_projected_gradient_does_not_raise_the_loss_of_the_memory():
    load_plugin(EXAMPLES / "agem.py")
    learner = Learner(config_from(merge(SMALL, {"method": "agem"})), small_benchmark())
    against = 0
    for task in learner.tasks:
        learner.start_task(task)
        for number in range(len(learner.plan)):
            step, weights = learner._forward(*learner.plan.step(number)), [*learner.network.parameters()]
            raw = flat(torch.autograd.grad(step.loss(), weights, retain_graph=True))
            replayed = bool(step.memory.any())
            old = flat(torch.autograd.grad(step.loss(step.memory), weights)) if replayed else raw
            learner.learn(*learner.plan.step(number))
            used = flat([p.grad for p in weights if p.grad is not None])
            expected = raw - min(0.0, float(raw @ old)) / (old @ old) * old
            torch.testing.assert_close(used, expected, atol=1e-5, rtol=1e-4)
            against += bool(raw @ old < 0)
        learner.finish_task(task)
    assert against


def test_class_means_are_those_of_a_loop_over_rows():
    load_plugin(EXAMPLES / "nearest_mean.py")
    settings = merge(SMALL, {"method": "icarl", "memory": {"size": 400}})  # it holds every row
    learner = train(Learner(config_from(settings), small_benchmark()))
    labels = learner.data.train.labels
    features = learner.setup.scorer(learner.network.features, learner.data.train.inputs).astype(np.float64)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    means = learner.network.head.get_buffer("means").numpy()
    for task in learner.tasks:
        for k in task.classes:
            sides = [[features[row] for row in task.train if labels[row, k] == side] for side in (1, 0)]
            expected = np.mean(sides[0], axis=0) - np.mean(sides[1], axis=0)
            np.testing.assert_allclose(means[k], expected, atol=1e-5)


def test_the_memory_keeps_the_rows_with_the_highest_loss():
    load_plugin(EXAMPLES / "highest_loss.py")
    config = config_from(merge(SMALL, {"method": "er", "memory": {"kind": "highest-loss", "size": 12}}))
    learner = Learner(config, small_benchmark())
    task = learner.tasks[0]
    learner.start_task(task)
    learner.finish_task(task)
    logits = learner.predict(learner.data.train.inputs[task.train])[:, task.classes].astype(np.float64)
    chances = 1 / (1 + np.exp(-logits))
    own = learner.data.train.labels[np.ix_(task.train, task.classes)]
    losses = -(np.log(chances) * own + np.log(1 - chances) * (1 - own)).mean(1)
    assert set(learner.memory.rows) == set(task.train[np.argsort(-losses)[:12]])
