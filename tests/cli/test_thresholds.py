"""``mlcl thresholds`` and ``mlcl predict --tags``: decisions of a run, chosen anew without training."""

from __future__ import annotations

import csv
import json
import shutil

import numpy as np
import pytest

from helpers import SMALL, small_arrays, small_benchmark
from mlcl.cli.main import main
from mlcl.config.resolve import config_from, merge
from mlcl.datasets import prepare_source
from mlcl.metrics import Goal
from mlcl.runs import folder as files
from mlcl.runs.run import run
from mlcl.taggers.predict import predict
from mlcl.taggers.thresholds import set_thresholds


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run that held rows out, and one that did not."""
    base = tmp_path_factory.mktemp("decided")
    for name, more in (("held", {"held_out": 0.4}), ("none", {})):
        config = config_from(merge(SMALL, {"method": "er", "train": {"epochs": 1}}, more))
        run(config, benchmark=small_benchmark(n=240), out=base / name)
    np.save(base / "x.npy", small_arrays(n=12, seed=9)[0])
    return base


@pytest.fixture
def held(finished, tmp_path):
    return shutil.copytree(finished / "held", tmp_path / "held")


def measured(folder):
    """Precision and recall per class of the thresholds in a folder on the held-out rows, by counting."""
    result = files.read_result(folder)
    rows = files.read_held_out(folder, result)
    cut = json.loads((folder / "thresholds.json").read_text())["thresholds"]
    chosen = files.read_calibration(folder, result).probabilities(rows.logits) > np.array(cut)
    hits = (chosen & (rows.labels > 0)).sum(0)
    return hits / np.maximum(chosen.sum(0), 1), hits / rows.labels.sum(0), chosen.sum(0)


@pytest.mark.parametrize(("goal", "index"), [("--precision", 0), ("--recall", 1)])
def test_a_wanted_precision_or_recall_is_certified(goal, index, held, capsys):
    before = (held / "weights.safetensors").read_bytes()
    assert main(["thresholds", str(held), goal, "0.8"]) == 0
    shown = capsys.readouterr().out
    assert f"thresholds for {goal[2:]} 0.8 with confidence 0.9" in " ".join(shown.split())
    found = measured(held)
    assert (found[index][found[2] > 0] >= 0.8).all()
    assert (held / "weights.safetensors").read_bytes() == before
    assert not list(held.glob("*.tmp"))


def test_every_goal_is_kept_in_the_folder(held):
    for options, goal, value in (
        (["--f1-overall"], "f1-overall", None),
        (["--cost", "5"], "cost", 5.0),
        (["--f1"], "f1", None),
        ([], "f1", None),
    ):
        assert main(["thresholds", str(held), *options]) == 0
        saved = json.loads((held / "thresholds.json").read_text())
        assert (saved["goal"], saved["value"]) == (goal, value)


def test_what_cannot_be_certified_is_said_and_never_tagged(held, capsys):
    assert main(["thresholds", str(held), "--precision", "0.99", "--confidence", "0.95"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "6 of 6 labels cannot be certified on these rows and are never tags" in shown
    assert " more" in shown
    saved = json.loads((held / "thresholds.json").read_text())
    assert (saved["reached"], saved["thresholds"]) == ([False] * 6, [1.0] * 6)
    assert (saved["confidence"], saved["bound"]) == (0.95, [None] * 6)
    assert all(need > 100 for need in saved["needed"])  # 299 without a miss


def test_what_is_shown_is_of_rows_that_thresholds_were_not_chosen_on(held, capsys, monkeypatch):
    read = files.read_held_out

    def chance(path, result):
        """The held-out rows with labels drawn anew: no threshold is better than another on unseen rows."""
        rows = read(path, result)
        rows.labels[:] = np.random.default_rng(0).random(rows.labels.shape) < 0.3
        return rows

    monkeypatch.setattr(files, "read_held_out", chance)
    found = set_thresholds(held, Goal("cost", 0.5))
    given = found.thresholds.tags(np.ones((1, 6)))[0]
    assert np.nanmean(found.precision[given]) < 0.5


def test_tags_are_those_above_the_thresholds_by_name(held, finished, tmp_path, capsys):
    assert main(["thresholds", str(held), "--recall", "0.9"]) == 0
    capsys.readouterr()
    assert main(["predict", str(held), str(finished / "x.npy"), "--tags"]) == 0
    lines = capsys.readouterr().out.splitlines()
    scores = predict(held, finished / "x.npy")
    cut = np.array(json.loads((held / "thresholds.json").read_text())["thresholds"])
    for number, (line, row) in enumerate(zip(lines, scores.values, strict=True)):
        name, _, tags = line.partition("\t")
        ranked = sorted(np.flatnonzero(row > cut), key=lambda k: -row[k])
        assert (name, tags) == (str(number), ", ".join(scores.classes[k] for k in ranked))
    out = tmp_path / "tags.csv"
    assert main(["predict", str(held), str(finished / "x.npy"), "--tags", "--out", str(out)]) == 0
    rows = list(csv.reader(out.open()))
    assert rows[0] == ["id", "tags"]
    assert [row[1].split(";") if row[1] else [] for row in rows[1:]] == scores.tags()


def test_a_store_with_labels_serves_where_nothing_was_held_out(finished, tmp_path, capsys):
    folder = shutil.copytree(finished / "none", tmp_path / "none")
    assert main(["thresholds", str(folder)]) == 2
    assert "held out no rows" in capsys.readouterr().err
    x, y = small_arrays(n=90, seed=5)
    arrays = tmp_path / "arrays.npz"
    names = np.array([f"class-{k}" for k in range(6)])
    np.savez(arrays, x_train=x[:60], y_train=y[:60], x_test=x[60:], y_test=y[60:], classes=names)
    prepare_source("arrays", arrays, out=tmp_path / "store")
    assert main(["thresholds", str(folder), "--data", str(tmp_path / "store"), "--f1"]) == 0
    saved = json.loads((folder / "thresholds.json").read_text())
    assert (saved["rows"], saved["own"]) == (90, [True] * 6)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["thresholds", "{held}", "--precision", "90"], "precision is 90.0"),
        (["thresholds", "{held}", "--cost", "0"], "cost is 0.0"),
        (["thresholds", "{held}", "--f1", "--recall", "0.5"], "expected one goal"),
        (["thresholds", "{held}", "--data", "no-such-store"], "no-such-store"),
        (["predict", "{held}", "{x}"], "--out is missing"),
        (["predict", "{held}", "{x}", "--tags", "--logits"], "--tags and --logits were given"),
        (["predict", "{held}", "{x}", "--tags", "--out", "tags.npz"], "expected .csv"),
        (["export", "{held}", "--out", "m.pt"], "TorchScript is not written"),
        (["export", "{held}", "--out", "m.zip"], "expected .pt2 or .onnx"),
        (["export", "{held}", "--format", "onnx", "--out", "m.pt2"], "expected .onnx"),
    ],
)
def test_bad_input_is_one_sentence_and_changes_nothing(
    arguments, words, held, finished, capsys, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    before = (held / "thresholds.json").read_bytes()
    assert main([part.format(held=held, x=finished / "x.npy") for part in arguments]) == 2
    assert words in capsys.readouterr().err
    assert (held / "thresholds.json").read_bytes() == before
