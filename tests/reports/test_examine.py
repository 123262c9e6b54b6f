"""What a run says of its test rows: against scikit-learn and loops, and from the folder of a real run."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from sklearn.metrics import (
    average_precision_score,
    brier_score_loss,
    log_loss,
    precision_score,
    recall_score,
    roc_auc_score,
)

from examining import examined
from helpers import EXACT, label_settings, label_store
from mlcl.cli.main import main
from mlcl.datasets import open_store, read_ids
from mlcl.errors import InputError
from mlcl.reports.examine import confusions, examine, label_lines, mistakes, suspects
from mlcl.runs.continuing import update
from mlcl.runs.folder import read_config
from mlcl.runs.run import run
from mlcl.runs.trained import load_trained
from mlcl.runs.versions import current_folder


def test_measures_per_label_are_those_of_scikit_learn():
    found = examined()
    for k, line in enumerate(label_lines(found)):
        y, p = found.labels[:, k], found.probabilities[:, k]
        given = p > found.thresholds[k]
        assert line.auc == pytest.approx(roc_auc_score(y, p))
        assert line.ap == pytest.approx(average_precision_score(y, p))
        assert line.precision == pytest.approx(precision_score(y, given))
        assert line.recall == pytest.approx(recall_score(y, given))
        assert line.brier == pytest.approx(brier_score_loss(y, p))
        assert line.log_loss == pytest.approx(log_loss(y, p))
        assert line.low < line.auc < line.high
        assert (line.name, line.positive, line.test_positive) == ("abcd"[k], k, y.sum())
        assert line.reliability.count.sum() == len(y)


def test_a_label_without_test_rows_has_no_measures():
    found = examined(labels=np.zeros((60, 4), np.uint8), thresholds=np.ones(4))
    line = label_lines(found)[0]
    assert np.isnan([line.auc, line.low, line.ap, line.precision, line.recall]).all()


def test_mistakes_one_by_one():
    found = examined(n=200)
    for k in range(4):
        p, y, t = found.probabilities[:, k], found.labels[:, k], found.thresholds[k]
        false = sorted((i for i in range(200) if p[i] > t and not y[i]), key=lambda i: -p[i])
        missed = sorted((i for i in range(200) if p[i] <= t and y[i]), key=lambda i: p[i])
        chosen = mistakes(found, k, 5)
        assert chosen.false.tolist() == false[:5]
        assert chosen.missed.tolist() == missed[:5]
        assert (chosen.false_count, chosen.missed_count) == (len(false), len(missed))
        doubt = np.abs(np.log(p / (1 - p)) - np.log(t / (1 - t)))[chosen.doubtful]
        assert (np.diff(doubt) >= 0).all()
        assert chosen.doubtful[0] == np.argmin(np.abs(p - t)) or doubt[0] < 0.1


def test_a_planted_confusion_comes_first():
    rng = np.random.default_rng(1)
    labels = (rng.random((400, 4)) < 0.2).astype(np.uint8)
    p = np.where(labels, 0.9, 0.1) + 0.0
    noise = rng.random(labels.shape) < 0.05
    p = np.where(noise, 1 - p, p)
    swap = (labels[:, 2] == 1) & (labels[:, 1] == 0) & (rng.random(400) < 0.5)
    p[swap, 2], p[swap, 1] = 0.1, 0.9  # rows with c are given b
    found = examined(n=400, labels=labels, probabilities=p, thresholds=np.full(4, 0.5))
    first, *_ = confusions(found)
    assert (first.missed, first.instead) == ("c", "b")
    given = p > 0.5
    expected = sum(labels[i, 2] and not given[i, 2] and not labels[i, 1] and given[i, 1] for i in range(400))
    assert first.rows == expected
    assert first.expected < first.rows / 3


def test_suspects_are_cells():
    found = examined()
    cells = suspects(found)
    assert cells.shape[1] == 2
    assert set(cells[:, 1].tolist()) <= {0, 1, 2, 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run on a store of images, the store, and another one with some of its labels."""
    place = tmp_path_factory.mktemp("look")
    store = label_store(place, "store", [0, 1, 2, 3], images=True)
    label_store(place, "other", [3, 1], images=True, seed=5)
    run(label_settings(store, "er", images=True), out=place / "run")
    return place


def test_the_rows_of_a_run(folder):
    found = examine(folder / "run")
    data = open_store(folder / "store")
    assert found.classes == data.classes
    assert list(found.ids) == read_ids(folder / "store")[len(data.train) :]
    assert np.array_equal(found.labels, data.test.labels)
    expected = load_trained(folder / "run").probabilities(data.test.inputs)
    assert np.array_equal(found.probabilities, expected)
    assert np.array_equal(found.image(7), data.test.inputs[7])


def test_a_store_that_was_named_from_another_folder_is_found(tmp_path, monkeypatch):
    label_store(tmp_path, "store", [0, 1, 2, 3])
    label_store(tmp_path, "more", [0, 4], seed=3)
    (tmp_path / "elsewhere").mkdir()
    quick = {"method": "exact", "model": {"kind": "fixed"}, "memory": {"size": 0}, "stream": {"tasks": 2}}
    monkeypatch.chdir(tmp_path)
    run({"benchmark": "store", **quick}, out="run")
    update("run", "more", out="updated")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert list(examine("../run").ids) == read_ids(tmp_path / "store")[len(open_store("../store").train) :]
    assert read_config(tmp_path / "updated").data == str((tmp_path / "more").resolve())


def test_the_rows_of_another_store(folder):
    found = examine(folder / "run", on=str(folder / "other"))
    data = open_store(folder / "other")
    assert found.classes == tuple(
        name for name in open_store(folder / "store").classes if name in data.classes
    )
    columns = [data.classes.index(name) for name in found.classes]
    assert np.array_equal(found.labels, data.test.labels[:, columns])
    own = [open_store(folder / "store").classes.index(name) for name in found.classes]
    expected = load_trained(folder / "run").probabilities(data.test.inputs)[:, own]
    assert np.array_equal(found.probabilities, expected)


def test_images_of_another_store_by_id(folder):
    found = examine(folder / "run", images=str(folder / "store"))
    data = open_store(folder / "store")
    assert np.array_equal(found.image(3), data.test.inputs[3])
    with pytest.raises(InputError, match=r"has no image 'test-\d+'; expected one for each"):
        examine(folder / "run", on=str(folder / "store"), images=str(folder / "other"))


def test_other_data_under_the_same_name_are_refused(folder, tmp_path):
    shutil.copytree(folder / "run", tmp_path / "run")
    text = (folder / "run" / "environment.json").read_text()
    fingerprint = open_store(folder / "store").fingerprint
    (tmp_path / "run" / "environment.json").write_text(text.replace(fingerprint, "0123456789abcdef"))
    with pytest.raises(InputError, match="was made with 0123456789abcdef"):
        examine(tmp_path / "run")


@pytest.fixture(scope="module")
def updated(tmp_path_factory):
    """A run of the exact learner, a version with a new label and more rows, and one that forgot a label."""
    place = tmp_path_factory.mktemp("updated")
    for name, columns in (("old", [0, 1, 2, 3]), ("new", [4, 1])):
        label_store(place, name, columns, seed=len(name + str(columns)))
    run(label_settings(place / "old", "exact", **EXACT), out=place / "run")
    assert main(["update", str(place / "run"), "--data", str(place / "new"), "--quiet"]) == 0
    return place


def test_the_rows_of_an_updated_version_are_those_of_all_its_stores(updated):
    found = examine(current_folder(updated / "run"))
    old, new = (open_store(updated / name) for name in ("old", "new"))
    assert found.where == f"{(updated / 'new').resolve()} and {updated / 'old'}"
    names = [read_ids(updated / name)[len(data.train) :] for name, data in (("old", old), ("new", new))]
    assert list(found.ids) == names[0] + names[1]
    n = len(old.test)
    for k, name in enumerate(found.classes):
        for data, rows in ((old, slice(0, n)), (new, slice(n, None))):
            if name in data.classes:
                column = data.test.labels[:, data.classes.index(name)]
                assert np.array_equal(
                    found.labels[rows, k][found.known[rows, k]], column[found.known[rows, k]]
                )
                assert found.labels[rows, k].sum() == column.sum()
            else:
                assert not found.known[rows, k].any()
    assert found.known[n:, found.classes.index("eel")].all()


def test_a_label_is_measured_on_the_rows_that_were_annotated_for_it(updated):
    found = examine(current_folder(updated / "run"))
    for k, line in enumerate(label_lines(found)):
        rows = found.known[:, k]
        y, p = found.labels[rows, k], found.probabilities[rows, k]
        assert line.auc == pytest.approx(roc_auc_score(y, p))
        assert line.precision == pytest.approx(
            precision_score(y, p > found.thresholds[k], zero_division=np.nan), nan_ok=True
        )
        assert line.low <= line.auc <= line.high
        chosen = mistakes(found, k, 10**6)
        assert sorted(chosen.doubtful.tolist()) == np.flatnonzero(rows).tolist()
        assert rows[chosen.false].all()
    cells = suspects(found)
    assert found.known[cells[:, 0], cells[:, 1]].all()
    given = found.given
    for pair in confusions(found):
        a, b = found.classes.index(pair.missed), found.classes.index(pair.instead)
        both = found.known[:, a] & found.known[:, b]
        missed, false = (found.labels[:, a] > 0) & ~given[:, a], (found.labels[:, b] == 0) & given[:, b]
        assert pair.rows == (missed & false & both).sum()
        assert pair.expected == pytest.approx((missed & both).sum() * (false & both).sum() / both.sum())


def test_report_and_card_of_a_version_have_its_test_rows(updated, tmp_path, capsys):
    assert main(["forget", str(updated / "run"), "--label", "cat"]) == 0
    for number in (2, 3):
        folder = updated / "run" / "versions" / str(number)
        assert main(["report", str(folder), "--out", str(tmp_path / f"{number}.html")]) == 0
        assert main(["card", str(folder), "--out", str(tmp_path / f"{number}.md")]) == 0
        assert "test rows of" in (tmp_path / f"{number}.html").read_text()
        card = (tmp_path / f"{number}.md").read_text()
        assert "| Label | Training rows | Test rows |" in card
        assert "No test row was annotated for all labels" in card
        assert ("| cat |" in card) == (number == 2)
    assert "left out" not in capsys.readouterr().err


def test_data_of_an_earlier_version_that_changed_are_named(updated, tmp_path):
    shutil.copytree(updated / "run", tmp_path / "run")
    shutil.copytree(updated / "old", tmp_path / "old")
    shutil.rmtree(updated / "old")
    try:
        with (
            pytest.warns(UserWarning, match=r"the data of .*run were not found"),
            pytest.raises(InputError, match="with the data of the versions before it, has the fingerprint"),
        ):
            examine(tmp_path / "run" / "versions" / "2")
    finally:
        shutil.copytree(tmp_path / "old", updated / "old")
