"""Drift of a run's inputs: none on rows of the same kind, and a planted one."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from helpers import EXACT, label_settings, label_store, small_arrays
from mlcl.cli.main import main
from mlcl.models.mlp import VectorBackbone
from mlcl.runs.continuing import update
from mlcl.runs.run import run
from mlcl.taggers.drift import drift


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
