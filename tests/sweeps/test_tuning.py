"""``--tune``: settings are chosen row by row on validation rows, resumably, and test rows have no say in it."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import yaml

from helpers import small_arrays
from mlcl.cli.main import main
from mlcl.datasets import prepare_source
from mlcl.runs.folder import has_result, read_result_json
from mlcl.sweeps import Finished
from mlcl.sweeps.sweep import attempt

TABLE = """\
title: Two losses
reference: er
rows:
  - {label: er, method: er}
  - {label: er + margin, method: replay, loss: margin}
  - {label: sums, method: exact}
"""
FLAGS = [
    *("--model.kind", "mlp", "--model.hidden", "8", "--model.depth", "1", "--memory.size", "24"),
    *("--train.epochs", "1", "--train.batch_size", "32", "--stream.tasks", "3"),
]


def here(runs, **_):
    """Run what is not done in this process: workers would take longer to start than a run."""
    return [
        Finished(run, read_result_json(run.folder))
        if has_result(run.folder)
        else Finished(run, *attempt(run))
        for run in runs
    ]


@pytest.fixture(scope="module", autouse=True)
def _in_this_process():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlcl.cli.reproduce.run_all", here)
        yield


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "two.yaml"
    path.write_text(TABLE)
    return path


def reproduce(table, store, out, *more, tune="train.lr=0.02:0.2", flags=FLAGS):
    arguments = ["reproduce", str(table), "--benchmark", str(store), "--out", str(out), "--jobs", "1"]
    return main([*arguments, "--seeds", "2", "--tune", tune, *flags, *more])


@pytest.fixture(scope="module")
def tuned(table, store, tmp_path_factory):
    """The whole command."""
    out = tmp_path_factory.mktemp("tuned") / "two"
    assert reproduce(table, store, out, "--tune-extend", "1") == 0
    return out


def lines(out, name="tuning.csv"):
    with (out / name).open(newline="") as file:
        return list(csv.DictReader(file))


def chosen(out):
    return yaml.safe_load((out / "sweep.yaml").read_text())["tuning"]["chosen"]


def test_each_row_has_the_best_mean_on_validation_rows_and_the_table_is_run_at_it(tuned):
    for label in ("er", "er + margin"):
        cells = {}
        for line in lines(tuned):
            if line["row"] == label:
                cells.setdefault(float(line["value"]), []).append(float(line["macro_auc"]))
        means = {value: np.mean(points) for value, points in cells.items() if len(points) == 2}
        best = max(means, key=means.__getitem__)
        assert chosen(tuned)[label] == {"train.lr": best}
        assert {
            float(line["value"]) for line in lines(tuned) if line["row"] == label and line["chosen"] == "1"
        } == {best}
        for run in lines(tuned, "runs.csv"):
            if run["label"] == label:
                assert float(run["train.lr"]) == best
                config = json.loads((tuned / run["folder"] / "result.json").read_text())["config"]
                assert config["train"]["lr"] == best
                assert not config["validate"]
    assert chosen(tuned)["sums"] == {}


def test_tuning_has_its_own_seeds_and_holds_rows_out(tuned):
    assert {line["seed"] for line in lines(tuned)} == {"1000", "1001"}
    for line in lines(tuned):
        config = json.loads((tuned / line["folder"] / "result.json").read_text())["config"]
        assert config["validate"]
        assert config["train"]["lr"] == float(line["value"])
    assert {line["seed"] for line in lines(tuned, "runs.csv")} == {"0", "1"}


def test_test_rows_have_no_say_in_the_choice(tuned, table, tmp_path):
    train = small_arrays(n=120)
    x_test, y_test = small_arrays(n=80, seed=1)
    noise = np.random.default_rng(3)
    arrays = dict(zip(("x_train", "y_train"), train, strict=True))
    labels = noise.integers(0, 2, y_test.shape, dtype=np.uint8)
    np.savez(tmp_path / "tiny.npz", **arrays, x_test=noise.permutation(x_test), y_test=labels)
    prepare_source("arrays", tmp_path / "tiny.npz", out=tmp_path / "tiny")
    out = tmp_path / "two"
    assert reproduce(table, tmp_path / "tiny", out, "--tune-extend", "1") == 0

    def without_time(folder):
        return [
            {name: v for name, v in line.items() if name not in ("seconds", "folder")}
            for line in lines(folder)
        ]

    assert without_time(out) == without_time(tuned)
    assert chosen(out) == chosen(tuned)
    results = [[run["macro_auc"] for run in lines(folder, "runs.csv")] for folder in (out, tuned)]
    assert results[0] != results[1]  # the test rows do differ


def test_an_interrupted_tuning_continues_to_the_same_bits(tuned, table, store, tmp_path, capsys, monkeypatch):
    out, calls = tmp_path / "two", []

    def limited(runs, **_):
        calls.append(len(runs))
        if len(calls) == 1:
            here(runs[:2])
            raise KeyboardInterrupt
        return here(runs)

    monkeypatch.setattr("mlcl.cli.reproduce.run_all", limited)
    assert reproduce(table, store, out, "--tune-extend", "1") == 3
    assert "and 2 of tuning" in " ".join(capsys.readouterr().err.split())
    before = {path: path.stat().st_mtime_ns for path in out.glob("tuning/*/result.json")}
    assert len(before) == 2
    assert reproduce(table, store, out, "--tune-extend", "1") == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert chosen(out) == chosen(tuned)
    for kind in ("runs", "tuning"):
        ours, theirs = (
            {
                path.parent.name: json.loads(path.read_text())["matrix"]
                for path in folder.glob(f"{kind}/*/result.json")
            }
            for folder in (out, tuned)
        )
        assert ours == theirs


def test_the_budget_is_printed_and_counts_the_chosen_rows(tuned, table, store, capsys):
    assert reproduce(table, store, tuned, "--tune-extend", "1", "--rows", "er") == 0
    shown = " ".join(capsys.readouterr().err.split())
    assert "tuning train.lr on validation rows (rows of the table: 1, seeds: 2)" in shown
    done = [line for line in lines(tuned) if line["row"] == "er" and line["value"] in ("0.02", "0.2")]
    assert f"at most 4 runs for the first grid of train.lr ({len(done)} are done)" in shown
    assert "then 2 runs of the table" in shown


def test_what_diverges_is_a_result_and_another_value_is_chosen(table, store, tmp_path):
    flags = [*FLAGS, "--loss.base", "squared-hinge"]
    code = reproduce(
        table, store, tmp_path / "two", "--rows", "er + margin", tune="train.lr=0.02:1e30", flags=flags
    )
    assert code == 0
    assert chosen(tmp_path / "two")["er + margin"]["train.lr"] < 1e30
    (diverged,) = [line for line in lines(tmp_path / "two") if line["value"] == "1e+30"]
    assert diverged["error"]
    assert diverged["macro_auc"] == ""


@pytest.mark.parametrize(
    ("tune", "more", "words"),
    [
        ("train.lrr", [], "unknown setting 'train.lrr'. Did you mean 'train.lr'"),
        ("memory.kind", [], "expected a setting of training or of a part"),
        ("train.lr=0.1:0.1", [], "has a value twice"),
        ("train.lr=fast", [], "train.lr"),
        ("regulariser.strength=1:2", [], "no row can be tuned"),
        ("train.lr", ["--tune-seeds", "0"], "--tune-seeds is 0"),
        ("train.lr", ["--tune-metric", "auc"], "--tune-metric"),
        ("train.lr", ["--tune-extend", "-1"], "--tune-extend is -1"),
    ],
)
def test_bad_options_are_one_sentence(tune, more, words, table, store, tmp_path, capsys):
    assert reproduce(table, store, tmp_path / "out", *more, tune=tune) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert words in error
    assert "Traceback" not in error
    assert not (tmp_path / "out" / "tuning").exists()
