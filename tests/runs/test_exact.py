"""Method exact from the command line to the run folder: resumed, extended, merged into tables."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest
import torch

from helpers import small_arrays, small_benchmark
from mlcl.cli.main import main
from mlcl.config.resolve import config_from, merge
from mlcl.datasets import prepare_source
from mlcl.errors import InputError
from mlcl.exact import ExactLearner, Options, solve
from mlcl.runs.continuing import load_base, update
from mlcl.runs.folder import read_memory, read_result
from mlcl.runs.result import describe_solved
from mlcl.runs.run import resume, run
from mlcl.runs.trained import load_trained
from mlcl.training.callbacks import Callback, Interrupted

PATCHES = {"method": "exact", "model": {"kind": "patches", "centres": 24, "dimensions": 30}}
VECTORS = {"method": "exact"}
WITHOUT_STEPS = {"vectors": VECTORS, "images": PATCHES, "l3a": {"method": "l3a"}}


class StopAt(Callback):
    """Stops at the start or the end of a task."""

    def __init__(self, event, task):
        self.event, self.task = event, task

    def on_task_start(self, learner, task, steps):
        if (self.event, self.task) == ("start", task.index):
            raise Interrupted

    def on_task_end(self, learner):
        if (self.event, self.task) == ("end", learner.task_index - 1):
            raise Interrupted


@pytest.fixture(scope="module")
def uninterrupted():
    """A function from a kind to its benchmark, its config and its whole run, which is made once."""

    @cache
    def made(kind):
        benchmark = small_benchmark(images=kind == "images")
        # Small batches: a row's features must not depend on which other rows were computed before.
        config = config_from(merge(WITHOUT_STEPS[kind], {"train": {"eval_batch_size": 7}}))
        return benchmark, config, run(config, benchmark=benchmark)

    return made


@pytest.mark.parametrize("kind", WITHOUT_STEPS)
@pytest.mark.parametrize(("event", "task"), [("start", 0), ("end", 0), ("start", 1), ("end", 1)])
def test_a_run_stopped_anywhere_ends_with_the_same_bits(kind, event, task, tmp_path, uninterrupted):
    benchmark, config, whole = uninterrupted(kind)
    with pytest.raises(Interrupted):
        run(config, benchmark=benchmark, out=tmp_path / "run", callback=StopAt(event, task))
    result = resume(tmp_path / "run", benchmark=benchmark)
    assert result.matrix.tobytes() == whole.matrix.tobytes()
    for name, value in whole.learner.network.state_dict().items():
        assert torch.equal(value, result.learner.network.state_dict()[name])
    for name, value in whole.learner.head.state().items():
        assert torch.equal(value, result.learner.head.state()[name])


def test_what_was_chosen_is_known_after_a_resume_at_the_very_end(tmp_path, uninterrupted):
    benchmark, config, whole = uninterrupted("vectors")
    with pytest.raises(Interrupted):
        run(
            config,
            benchmark=benchmark,
            out=tmp_path / "run",
            callback=StopAt("end", len(benchmark.tasks) - 1),
        )
    assert (
        resume(tmp_path / "run", benchmark=benchmark).learner.head.choices() == whole.learner.head.choices()
    )
    assert set(whole.learner.head.choices()["head"]) == {"unlabelled", "ridge", "exponent"}
    assert uninterrupted("l3a")[2].learner.head.choices() == {}  # it chooses nothing


def make_store(folder, name, rows, columns, *, images):
    """Rows of one dataset that have one of some classes, with these classes only."""
    train, test = (small_arrays(images=images, n=n, seed=seed) for n, seed in ((240, 0), (80, 1)))
    arrays = {}
    for split, (inputs, labels) in (("train", train), ("test", test)):
        keep = np.arange(len(labels)) % 2 == rows
        keep &= labels[:, columns].any(1)
        arrays |= {f"x_{split}": inputs[keep], f"y_{split}": labels[keep][:, columns]}
    np.savez(folder / f"{name}.npz", **arrays, classes=np.array([f"class-{k}" for k in columns]))
    prepare_source("arrays", folder / f"{name}.npz", out=folder / name, jobs=1)
    return folder / name


@pytest.mark.parametrize("images", [False, True], ids=["vectors", "images"])
def test_an_extended_run_is_one_that_learnt_all_tasks_at_once(images, tmp_path):
    """The sums in the folder are all that is needed of the old tasks."""
    settings = merge(
        PATCHES if images else VECTORS, {"exact": {"unlabelled": 0.5}, "stream": {"order": "sorted"}}
    )
    old = make_store(tmp_path, "old", 0, [0, 1, 2, 3], images=images)
    new = make_store(tmp_path, "new", 1, [4, 5], images=images)
    first = run(
        config_from(merge(settings, {"benchmark": str(old), "stream": {"tasks": 2}})), out=tmp_path / "first"
    )
    extended = update(tmp_path / "first", new, out=tmp_path / "second", known=False)
    assert len(extended.learner.data.classes) == 6
    assert np.allclose(extended.matrix[:2, :2], first.matrix)
    # At once: the learner of the first run, which has never been on disk, sees the new rows.
    learner = first.learner
    added = extended.learner.tasks[-1]
    inputs = np.asarray(extended.learner.data.train.inputs[added.train])
    features = learner.setup.scorer(learner.network.features, inputs, np.arange(len(inputs)))
    labels = extended.learner.data.train.labels[added.train][:, added.classes]
    learner.head.sums["head"].learn(features, labels, added.classes)
    weights, bias = learner.head.sums["head"].solve()
    found = extended.learner.network.head.linear
    np.testing.assert_allclose(found.weight.detach().numpy(), weights, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found.bias.detach().numpy(), bias, rtol=1e-6, atol=1e-6)
    assert extended.macro_auc > 75


def test_an_extension_stopped_goes_on_to_the_same_bits(tmp_path):
    old = make_store(tmp_path, "old", 0, [0, 1, 2, 3], images=False)
    new = make_store(tmp_path, "new", 1, [4, 5], images=False)
    run(config_from(merge(VECTORS, {"benchmark": str(old), "stream": {"tasks": 2}})), out=tmp_path / "first")
    whole = update(tmp_path / "first", new, out=tmp_path / "whole", known=False)
    with pytest.raises(Interrupted):
        update(tmp_path / "first", new, out=tmp_path / "again", callback=StopAt("start", 2), known=False)
    assert resume(tmp_path / "again").matrix.tobytes() == whole.matrix.tobytes()


def test_bytes_of_sums_and_of_stored_samples_are_in_the_result(tmp_path):
    benchmark = small_benchmark()
    run(config_from(VECTORS), benchmark=benchmark, out=tmp_path / "exact")
    run(
        config_from({"method": "er", "model": "mlp", "memory": {"size": 30}}),
        benchmark=benchmark,
        out=tmp_path / "er",
    )
    for name in ("exact", "er"):
        folder = tmp_path / name
        result = read_result(folder)
        size = (folder / "memory.safetensors").stat().st_size
        assert 0.5 * size < result.values["memory_bytes"] <= size  # all but the header of the file
    # Sums of all rows, of 3 tasks and of the positives of 6 classes; the second moments of 6 features are a triangle.
    kept = read_memory(tmp_path / "exact", read_result(tmp_path / "exact"))
    assert kept.exact["sums.seconds"].shape == (1 + 3 + 6, 6 * 7 // 2)
    assert len(kept.memory) == 0


def test_from_the_command_line(tmp_path, capsys):
    store = make_store(tmp_path, "vectors", 0, [0, 1, 2, 3], images=False)
    given = ["run", "--benchmark", str(store), "--stream.tasks", "2", "--method", "exact", "--quiet"]
    assert main([*given, "--unlabelled", "1", "--out", str(tmp_path / "run")]) == 0
    written = json.loads((tmp_path / "run/result.json").read_text())
    assert written["config"]["exact"]["unlabelled"] == 1
    assert written["config"]["train"]["epochs"] == 0
    assert written["steps"] == 0
    assert load_trained(tmp_path / "run").config.model.head == "exact"
    assert main([*given[:-1], "--unlabelled", "auto", "--out", str(tmp_path / "auto")]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("solved with")]
    used = json.loads((tmp_path / "auto/result.json").read_text())["solved"]
    assert line == f"solved with {describe_solved(used)}"
    # The same choice as that of a tagger with the sums of the run.
    sums = load_base(tmp_path / "auto").kept.exact
    learner = ExactLearner.from_arrays({name: value.numpy() for name, value in sums.items()})
    chosen = config_from({"method": "exact", "exact": {"unlabelled": "auto"}}).exact
    choice = solve(learner, Options(chosen.unlabelled, chosen.goal, chosen.ridge, chosen.exponent)).choice
    assert used == {"head": {name: getattr(choice, name) for name in ("unlabelled", "ridge", "exponent")}}
    assert read_result(tmp_path / "auto").solved == used
    assert main(["report", str(tmp_path / "auto"), "--out", str(tmp_path / "page.html")]) == 0
    assert describe_solved(used) in (tmp_path / "page.html").read_text()
    capsys.readouterr()
    assert main([*given, "--unlabelled", "2", "--out", str(tmp_path / "bad")]) == 2
    expected = "expected a number from 0 to 1, or 'in-task' or 'pooled'."
    assert f"exact.unlabelled is 2.0; {expected}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"memory": {"kind": "wru"}},
            "is solved and not trained; memory.kind is 'wru', expected 'none'",
        ),
        ({"loss": {"kind": "rldam"}}, "loss.kind is 'rldam', expected 'bce'"),
        ({"regulariser": {"kind": "lwf"}}, "regulariser.kind is 'lwf', expected 'none'"),
        ({"labels": {"kind": "seen"}}, "labels.kind is 'seen', expected 'task'"),
        ({"augment": {"kind": "flip"}}, "augment.kind is 'flip', expected 'none'"),
    ],
)
def test_parts_that_only_training_uses_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        config_from(merge(VECTORS, settings))


def test_a_backbone_with_random_weights_is_warned_of():
    with pytest.warns(UserWarning, match="'mlp' has random weights, which the exact learner does not train"):
        run(config_from(merge(VECTORS, {"model": {"kind": "mlp", "hidden": 8}})), benchmark=small_benchmark())
