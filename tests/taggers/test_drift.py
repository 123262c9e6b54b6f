"""Drift of a run's inputs: none on rows of the same kind, and a planted one."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from helpers import EXACT, label_settings, label_store, small_arrays
from mlcl.cli.main import main
from mlcl.metrics.drift import mmd_test, rate_changes
from mlcl.models.mlp import VectorBackbone
from mlcl.runs.continuing import update
from mlcl.runs.run import run
from mlcl.taggers.drift import drift, one_of_each


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    base = tmp_path_factory.mktemp("drift")
    store = label_store(base, "store", [0, 1, 2, 3], seed=60, sizes=(270, 60))
    run(label_settings(store, "exact", **EXACT, exact={"unlabelled": 0.0}), out=base / "run")
    rows, labels = small_arrays(n=200, classes=8, seed=50)
    rows, labels = rows[labels[:, :4].any(1)], labels[labels[:, :4].any(1)]
    np.save(base / "same.npy", rows)
    np.save(base / "moved.npy", rows + np.float32(1.5))
    np.save(base / "rare.npy", rows[labels[:, 0] == 0])  # a label that no longer occurs
    return base


def test_rows_of_the_same_kind_have_not_moved(place):
    found = drift(place / "run", place / "same.npy")
    assert not found.inputs_moved
    assert not found.moved
    again = drift(place / "run", place / "same.npy", reference=place / "store")
    assert again.record()["labels"] == found.record()["labels"]


def test_the_backbone_sees_every_row_once(place, monkeypatch):
    seen = []
    forward = VectorBackbone.forward

    def counted(self, inputs):
        seen.append(len(inputs))
        return forward(self, inputs)

    monkeypatch.setattr(VectorBackbone, "forward", counted)
    found = drift(place / "run", place / "same.npy")
    assert sum(seen) == found.rows + found.reference_rows


def test_a_planted_shift_and_a_vanished_label_are_found(place, capsys, tmp_path):
    assert drift(place / "run", place / "moved.npy").inputs_moved
    out = tmp_path / "drift.json"
    assert main(["drift", str(place / "run"), str(place / "rare.npy"), "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "rates of predicted labels moved for ant" in shown
    record = json.loads(out.read_text())
    assert record["moved"][0] == "ant"
    assert record["labels"]["ant"]["after"] < record["labels"]["ant"]["before"]


def test_of_an_updated_run_all_tests_are_the_reference(place, tmp_path):
    more = label_store(tmp_path, "more", [0, 4], seed=30)
    update(place / "run", more, out=tmp_path / "second")
    found = drift(tmp_path / "second", place / "same.npy")
    alone = drift(place / "run", place / "same.npy")
    assert found.reference_rows > alone.reference_rows
    assert found.labels[-1] == "eel"


def test_what_cannot_be_compared_is_one_sentence(place, tmp_path, capsys):
    run_folder = shutil.copytree(place / "run", tmp_path / "run")
    np.save(tmp_path / "one.npy", np.zeros((1, 8), np.float32))
    config = run_folder / "config.yaml"
    config.write_text(config.read_text().replace(str(place / "store"), str(tmp_path / "gone")))
    for arguments, words in (
        ([str(place / "run"), str(tmp_path / "one.npy")], "at least 2"),
        ([str(place / "run"), str(place / "same.npy"), "--level", "7"], "--level"),
        ([str(run_folder), str(place / "same.npy")], "--reference STORE"),
        ([str(place / "run"), str(place / "same.npy"), "--out", "x.csv"], "expected .json"),
    ):
        assert main(["drift", *arguments]) == 2
        error = capsys.readouterr().err
        assert words in error
        assert error.count("\n") == 1


def test_rows_in_fives_are_no_drift_where_their_groups_are_named():
    rng = np.random.default_rng(0)
    alarms = {None: [], "fives": []}
    for seed in range(60):
        reference = rng.normal(size=(150, 3))
        bursts = np.repeat(rng.normal(size=(40, 3)), 5, axis=0) + rng.normal(0, 0.1, (200, 3))
        chosen = one_of_each(np.repeat(np.arange(40), 5), seed)
        for name, rows in ((None, bursts), ("fives", bursts[chosen])):
            moved = mmd_test(reference, rows, permutations=100, seed=seed).p_value
            rates = rate_changes(reference > 0.5, rows > 0.5).adjusted.min()
            alarms[name].append((moved < 0.05, rates < 0.05))
    assert np.mean(alarms[None], axis=0).min() > 0.25
    assert np.mean(alarms["fives"], axis=0).max() < 0.13  # 3 of 60 are expected, and 8 in one case of fifty


def test_groups_are_a_column_or_a_file_beside(place, tmp_path, capsys):
    rows = np.load(place / "same.npy")[:60]
    names = [f"{k // 5}" for k in range(60)]
    np.savez(tmp_path / "rows.npz", inputs=rows, ids=np.array([f"r{k}" for k in range(60)]))
    lines = "".join(f"r{k},{name}\n" for k, name in enumerate(names[:50]))
    (tmp_path / "groups.csv").write_text("id,group\n" + lines)
    found = drift(place / "run", tmp_path / "rows.npz", group=str(tmp_path / "groups.csv"))
    assert found.rows == 10 + 10  # ten groups, and ten rows that the file does not name
    given = ["drift", str(place / "run"), str(tmp_path / "rows.npz"), "--group"]
    assert main([*given, "burst"]) == 2
    assert "expected a .csv with the columns id and group" in capsys.readouterr().err
    (tmp_path / "wrong.csv").write_text("id,burst\nr1,2\n")
    assert main([*given, str(tmp_path / "wrong.csv")]) == 2
    assert "no column 'group'" in capsys.readouterr().err
