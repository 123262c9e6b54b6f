"""Labels that are likely, and withheld because a wanted precision is not certified for them."""

from __future__ import annotations

import csv

import numpy as np
import pytest

import mlcl
from mlcl.cli.main import main
from mlcl.integrations.serving.model import Model
from mlcl.metrics import Goal, Thresholds
from mlcl.sklearn import ExactTagger


def test_what_is_unsure_is_likely_and_no_tag():
    values, none = np.array([0.8, 1.0, 0.3]), np.zeros(3, bool)
    p = [[0.9, 0.9, 0.4], [0.7, 0.4, 0.2]]
    certified = Thresholds(values, none, none, Goal("precision", 0.9), 10)
    assert certified.unsure(p).tolist() == [[False, True, False], [True, False, False]]
    assert not Thresholds(values, none, none, Goal("cost", 2.0), 10).unsure(p).any()


@pytest.fixture(scope="module")
def tagger(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unsure")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 4)).astype(np.float32)
    y = x[:, :2] + rng.normal(0, [0.3, 1.5], (4000, 2)) > 0.5  # one that is sure, one that cannot be
    exact = ExactTagger(decide="precision", decide_value=0.9, calibrate=400).fit(x, y, classes=["a", "b"])
    exact.save(folder / "tagger")
    np.save(folder / "rows.npy", x[:50])
    return folder


def test_predict_says_what_is_unsure(tagger, capsys):
    inputs = [str(tagger / "tagger"), str(tagger / "rows.npy"), "--tags"]
    assert main(["predict", *inputs, "--unsure", "--out", str(tagger / "tags.csv")]) == 0
    loaded = mlcl.load(tagger / "tagger")
    p = loaded.predict_proba(np.load(tagger / "rows.npy"))
    expected = (p > 0.5) & ~loaded.thresholds.tags(p)
    assert expected[:, 1].any()
    with (tagger / "tags.csv").open() as file:
        rows = list(csv.DictReader(file))
    for row, marks in zip(rows, expected, strict=True):
        assert set(filter(None, row["unsure"].split(";"))) == {"ab"[k] for k in np.flatnonzero(marks)}
    capsys.readouterr()
    assert main(["predict", *inputs, "--unsure"]) == 0
    assert sum("b?" in line for line in capsys.readouterr().out.splitlines()) == expected[:, 1].sum()
    assert main(["predict", *inputs[:2], "--unsure", "--out", str(tagger / "x.csv")]) == 2
    (answer,) = Model(tagger / "tagger")._tag(np.load(tagger / "rows.npy")[[3]])
    assert {one["label"] for one in answer["unsure"]} == {"ab"[k] for k in np.flatnonzero(expected[3])}


def test_without_a_certified_goal_nothing_is_unsure(tagger, tmp_path, capsys):
    x = np.load(tagger / "rows.npy")
    ExactTagger().fit(x, x[:, :2] > 0, classes=["a", "b"]).save(tmp_path / "plain")
    assert main(["predict", str(tmp_path / "plain"), str(tagger / "rows.npy"), "--tags", "--unsure"]) == 2
    assert "mlcl thresholds --precision P" in capsys.readouterr().err
