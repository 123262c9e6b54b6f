"""Method committee from the command line to the run folder: resumed, extended, with the bytes of its sums."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest
import torch

from helpers import SMALL, SMALL_IMAGES, small_arrays, small_benchmark
from mlcl.cli.main import main
from mlcl.config.resolve import config_from, merge
from mlcl.datasets import prepare_source
from mlcl.errors import InputError
from mlcl.runs.continuing import update
from mlcl.runs.folder import read_memory, read_result
from mlcl.runs.run import resume, run
from mlcl.runs.trained import load_trained
from mlcl.training.callbacks import Callback, Interrupted

BOTH = {
    "method": "committee",
    "exact": {"ridge": 0.3, "exponent": 0.0},
    "train": {"epochs": 2},
}
PATCHES = {"committee": {"encoder_options": {"centres": 16, "dimensions": 20}}}


class StopAt(Callback):
    """Stops inside a task, or at its end."""

    def __init__(self, task, step):
        self.task, self.step = task, step

    def on_step(self, learner, loss):
        if (self.task, self.step) == (learner.task_index, learner.step):
            raise Interrupted

    def on_task_end(self, learner):
        if (self.task, self.step) == (learner.task_index - 1, None):
            raise Interrupted


@pytest.fixture(scope="module")
def uninterrupted():
    """A function from a kind to its benchmark, its config and its whole run, which is made once."""

    @cache
    def made(kind, method):
        benchmark = small_benchmark(images=kind == "images")
        small = merge(SMALL_IMAGES, PATCHES) if kind == "images" else SMALL
        config = config_from(merge(small, BOTH, {"method": method}))
        return benchmark, config, run(config, benchmark=benchmark)

    return made


@pytest.mark.parametrize(
    ("kind", "method", "task", "step"),
    [
        ("vectors", "committee", 0, 2),
        ("vectors", "committee", 0, None),
        ("vectors", "committee", 1, 2),
        ("vectors", "taught-committee", 1, None),
        ("vectors", "taught-committee", 1, 2),
        pytest.param("images", "taught-committee", 1, 2, marks=pytest.mark.slow),
    ],
)
def test_a_run_stopped_anywhere_ends_with_the_same_bits(kind, method, task, step, tmp_path, uninterrupted):
    benchmark, config, whole = uninterrupted(kind, method)
    with pytest.raises(Interrupted):
        run(config, benchmark=benchmark, out=tmp_path / "run", callback=StopAt(task, step))
    result = resume(tmp_path / "run", benchmark=benchmark)
    assert result.matrix.tobytes() == whole.matrix.tobytes()
    assert result.pooled == whole.pooled
    for name, value in whole.learner.head.module.state_dict().items():
        assert torch.equal(value, result.learner.head.module.state_dict()[name])
    assert result.learner.head.choices() == whole.learner.head.choices()
    assert set(whole.learner.head.choices()) == {"encoder", "moments"}
    for name, value in whole.learner.head.state().items():
        assert torch.equal(value, result.learner.head.state()[name])


def test_the_bytes_of_the_sums_count_beside_stored_samples(tmp_path):
    benchmark = small_benchmark()
    for name, method in (("both", BOTH), ("alone", {"method": "distilled-replay"})):
        run(config_from(merge(SMALL, method)), benchmark=benchmark, out=tmp_path / name)
    both, alone = (read_result(tmp_path / name) for name in ("both", "alone"))
    kept = read_memory(tmp_path / "both", both).exact
    assert {name.partition(".")[0] for name in kept} == {"encoder", "moments"}
    # Second moments of 6 inputs and of 16 features, of all rows, 3 tasks and 6 classes.
    assert kept["encoder.sums.seconds"].shape == (1 + 3 + 6, 6 * 7 // 2)
    assert kept["moments.sums.seconds"].shape == (1 + 3 + 6, 16 * 17 // 2)
    sums = sum(value.numel() * value.element_size() for value in kept.values())
    assert both.values["memory_bytes"] == alone.values["memory_bytes"] + sums


def make_store(folder, name, columns):
    """A store of vectors with some of the classes."""
    arrays = {}
    for split, n, seed in (("train", 240, 0), ("test", 80, 1)):
        inputs, labels = small_arrays(n=n, seed=seed)
        keep = labels[:, columns].any(1)
        arrays |= {f"x_{split}": inputs[keep], f"y_{split}": labels[keep][:, columns]}
    np.savez(folder / f"{name}.npz", **arrays, classes=np.array([f"class-{k}" for k in columns]))
    prepare_source("arrays", folder / f"{name}.npz", out=folder / name, jobs=1)
    return folder / name


@pytest.mark.parametrize("method", ["committee", "taught-committee"])
def test_a_finished_committee_learns_more_classes(method, tmp_path):
    old, new = make_store(tmp_path, "old", [0, 1, 2, 3]), make_store(tmp_path, "new", [4, 5])
    settings = merge(SMALL, BOTH, {"method": method, "benchmark": str(old), "stream": {"tasks": 2}})
    first = run(config_from(settings), out=tmp_path / "first")
    whole = update(tmp_path / "first", new, out=tmp_path / "second", known=False)
    assert np.allclose(whole.matrix[:2, :2], first.matrix)
    assert whole.macro_auc > 80
    # The sums of the encoder's member are those of the first run and of the new rows.
    before, after = (r.learner.head.sums["encoder"].learner.sums for r in (first, whole))
    assert after.total.count == before.total.count + len(whole.learner.tasks[-1].train)
    np.testing.assert_array_equal(after.positive[0].sum, before.positive[0].sum)
    with pytest.raises(Interrupted):
        update(tmp_path / "first", new, out=tmp_path / "again", callback=StopAt(2, 2), known=False)
    assert resume(tmp_path / "again").matrix.tobytes() == whole.matrix.tobytes()


def test_members_that_do_not_fit_the_settings_are_refused(tmp_path):
    run(config_from(merge(SMALL, BOTH)), benchmark=small_benchmark(), out=tmp_path / "run")
    path = tmp_path / "run" / "config.yaml"
    path.write_text(path.read_text().replace("moments: 0.5", "moments: 0.0"))
    with pytest.raises(InputError, match=r"committee.moments is .0\.0., but result.json"):
        load_trained(tmp_path / "run")


def test_from_the_command_line(tmp_path, capsys):
    store = make_store(tmp_path, "vectors", [0, 1, 2, 3])
    given = ["run", "--benchmark", str(store), "--stream.tasks", "2", "--train.epochs", "1", "--quiet"]
    assert main([*given, "--method", "committee", "--unlabelled", "0.5", "--out", str(tmp_path / "run")]) == 0
    written = json.loads((tmp_path / "run/result.json").read_text())
    assert written["config"]["exact"]["unlabelled"] == 0.5
    assert written["config"]["committee"]["encoder"] == "fixed"
    assert written["steps"] > 0
    capsys.readouterr()
    assert (
        main([*given, "--method", "er", "--committee.encoder", "fixd", "--out", str(tmp_path / "bad")]) == 2
    )
    assert "unknown model 'fixd'" in capsys.readouterr().err
