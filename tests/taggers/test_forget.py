"""An exact run forgets rows or a label: as if it had never seen them."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

from helpers import EXACT, LABELS, label_settings, label_store
from mlcl.cli.main import main
from mlcl.datasets import load_dataset, prepare_source, read_ids
from mlcl.errors import InputError
from mlcl.exact import ExactLearner, Sums
from mlcl.runs.continuing import load_base, update
from mlcl.runs.run import resume, run
from mlcl.runs.trained import load_trained
from mlcl.runs.versions import current_folder, versions
from mlcl.taggers.forget import forget
from mlcl.taggers.predict import predict


def without(folder, name, store, rows):
    """A copy of a store whose training part lacks some rows."""
    data = load_dataset(str(store))
    kept = np.delete(np.arange(len(data.train)), rows)
    np.savez(
        folder / f"{name}.npz",
        x_train=data.train.inputs[kept],
        y_train=data.train.labels[kept],
        x_test=data.test.inputs,
        y_test=data.test.labels,
        classes=np.array(data.classes),
    )
    prepare_source("arrays", folder / f"{name}.npz", out=folder / name, jobs=1)
    return folder / name


# As the features are: else the first rows fix a normalisation that rows which were forgotten had a part in.
SETTINGS = EXACT | {"train": {"normalise": False}, "exact": {"ridge": 0.1, "exponent": 0.0}}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    base = tmp_path_factory.mktemp("forget")
    first, second = label_store(base, "first", [0, 1, 2, 3]), label_store(base, "second", [4, 1], seed=10)
    run(label_settings(first, "exact", **SETTINGS), out=base / "run")
    update(base / "run", second, out=base / "updated")
    return base


def weights(folder):
    linear = load_trained(folder).network.head.linear
    return np.column_stack([linear.weight.numpy(), linear.bias.numpy()])


def test_forgotten_rows_were_never_seen(place, tmp_path):
    rows = [0, 5, 17, 40]
    ids = read_ids(place / "first")
    (tmp_path / "rows.txt").write_text("\n".join(ids[row] for row in rows) + "\n\n")
    receipt = forget(place / "run", out=tmp_path / "forgot", rows=tmp_path / "rows.txt")
    assert receipt["count"] == 4
    assert receipt["before"] != receipt["after"]
    assert json.loads((tmp_path / "forgot" / "receipt.json").read_text()) == receipt
    assert ids[0] not in (tmp_path / "forgot" / "receipt.json").read_text().split('"')
    never = run(
        label_settings(without(tmp_path, "never", place / "first", rows), "exact", **SETTINGS),
        out=tmp_path / "never-run",
    ).folder
    assert np.allclose(weights(tmp_path / "forgot"), weights(never), rtol=1e-4, atol=1e-5)
    assert not np.allclose(weights(tmp_path / "forgot"), weights(place / "run"), rtol=1e-3)
    found, expected = (
        json.loads((path / "result.json").read_text()) for path in (tmp_path / "forgot", never)
    )
    assert found["positive"] == expected["positive"]
    assert np.allclose(found["matrix"][-1], expected["matrix"][-1])
    with pytest.raises(InputError, match="was forgotten before"):
        forget(tmp_path / "forgot", out=tmp_path / "again", rows=tmp_path / "rows.txt")


def test_a_forgotten_row_leaves_the_held_out_rows(place, tmp_path):
    whole = run(
        label_settings(place / "first", "exact", **SETTINGS, held_out=0.3), out=tmp_path / "held"
    ).folder
    before = load_trained(whole).decisions.held_out
    ids = read_ids(place / "first")
    (tmp_path / "rows.txt").write_text(ids[before.rows[3]])
    receipt = forget(whole, out=tmp_path / "forgot", rows=tmp_path / "rows.txt")
    assert receipt["count"] == 1
    after = load_trained(tmp_path / "forgot").decisions.held_out
    assert np.array_equal(after.inputs, np.delete(before.inputs, 3, axis=0))
    assert np.allclose(weights(tmp_path / "forgot"), weights(whole))
    forget(whole, out=tmp_path / "label", label="bee")
    left = load_trained(tmp_path / "label").decisions.held_out
    assert np.array_equal(left.labels, np.delete(before.labels, 1, axis=1))
    assert np.array_equal(left.inputs, before.inputs)


def test_a_forgotten_label_is_gone_and_the_others_stay(place, tmp_path, capsys):
    root = shutil.copytree(place / "updated", tmp_path / "tagger")
    before = weights(root)
    assert main(["forget", str(root), "--label", "bee"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[-1] == str(root / "versions" / "2")
    assert json.loads(shown[-2])["label"] == "bee"
    assert current_folder(root).name == "2"
    assert versions(root)[-1].kind == "forget"
    assert np.allclose(weights(root), np.delete(before, 1, axis=0), rtol=1e-5, atol=1e-6)
    names = predict(root, place / "first").classes
    assert names == ("ant", "cat", "dog", "eel")
    # The run goes on from there: the label comes back as a new one, another one goes with its whole task.
    update(root, place / "second", out=tmp_path / "back")
    assert load_trained(tmp_path / "back").classes == (*names, "bee")
    forget(root, out=tmp_path / "fewer", label="eel")
    result = json.loads((tmp_path / "fewer" / "result.json").read_text())
    assert result["classes"] == ["ant", "cat", "dog"]
    assert len(result["tasks"]) == 2
    assert set(LABELS[[0, 2, 3]]) == set(result["classes"])


@pytest.mark.slow
def test_rows_of_an_update_are_forgotten_too_and_ids_of_two_stores_are_asked_about(place, tmp_path):
    (tmp_path / "rows.txt").write_text("\n".join(read_ids(place / "second")[:3]))
    with pytest.raises(InputError, match=r"say which one: --data STORE"):
        forget(place / "updated", out=tmp_path / "x", rows=tmp_path / "rows.txt")
    forget(place / "updated", out=tmp_path / "y", rows=tmp_path / "rows.txt", data=place / "second")
    never = without(tmp_path, "never", place / "second", [0, 1, 2])
    update(place / "run", never, out=tmp_path / "z")
    assert np.allclose(weights(tmp_path / "y"), weights(tmp_path / "z"), rtol=1e-4, atol=1e-5)
    # After a label went, with its column of the update, rows of both stores can still go.
    forget(place / "updated", out=tmp_path / "w", label="eel")
    for name in ("first", "second"):
        forget(tmp_path / "w", out=tmp_path / name, rows=tmp_path / "rows.txt", data=place / name)
    with pytest.raises(InputError, match="is no store that"):
        forget(tmp_path / "w", out=tmp_path / "x", rows=tmp_path / "rows.txt", data=never)


def test_what_cannot_be_forgotten_is_one_sentence(place, tmp_path, capsys):
    settings = label_settings(place / "first", "er", train={"epochs": 1, "batch_size": 32, "lr": 0.1})
    trained = str(run(settings, out=tmp_path / "trained").folder)
    exact = str(place / "run")
    (tmp_path / "rows.txt").write_text("nobody.jpg\n")
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe")
    for arguments, words in (
        ([trained, "--label", "ant"], "from which no row can be taken out again"),
        ([exact], "either --rows FILE or --label NAME"),
        ([exact, "--label", "ants"], "is no label of"),
        ([exact, "--rows", str(tmp_path / "rows.txt")], "is in no store"),
        ([exact, "--rows", str(tmp_path / "empty.txt")], "has no id"),
        ([exact, "--rows", str(tmp_path / "bytes.txt")], "is no text"),
        ([exact, "--rows", str(tmp_path / "absent.txt")], "cannot be read"),
    ):
        assert main(["forget", *arguments]) == 2
        error = capsys.readouterr().err
        assert words in error
        assert error.count("\n") == 1
    assert not (place / "run" / "versions").exists()
    stopped = shutil.copytree(place / "run", tmp_path / "stopped")
    (stopped / "result.json").unlink()
    (stopped / "receipt.json").write_text("{}")
    with pytest.raises(InputError, match="do that again"):
        resume(stopped)


@pytest.mark.parametrize("normalise", [True, False])
def test_a_nodata_value_ends_a_run_in_a_sentence(normalise, tmp_path, capsys):
    store = label_store(tmp_path, "store", [0, 1, 2])
    data = load_dataset(str(store))
    inputs = np.array(data.train.inputs)
    inputs[13, 1] = np.finfo(np.float32).min
    np.savez(
        tmp_path / "bad.npz",
        x_train=inputs,
        y_train=data.train.labels,
        x_test=data.test.inputs,
        y_test=data.test.labels,
        classes=np.array(data.classes),
    )
    prepare_source("arrays", tmp_path / "bad.npz", out=tmp_path / "bad", jobs=1)
    options = ["--method", "exact", "--stream.tasks", "2", "--train.normalise", str(normalise).lower()]
    assert main(["run", "--benchmark", str(tmp_path / "bad"), *options, "--out", str(tmp_path / "run")]) == 2
    assert re.search(r"-3\.4\S* at row 13, column 1, .* looks like a NoData value", capsys.readouterr().err)


def test_forgetting_of_which_too_few_digits_are_left_changes_nothing(place, tmp_path):
    """A run of version 0.1 that has learnt a huge row: its sums are those of the row alone."""
    base, huge = load_base(current_folder(place / "run")), 1e12
    learner = ExactLearner.from_arrays({name: value.numpy() for name, value in base.kept.exact.items()})
    d, classes = learner.features.dimension, learner.classes
    learner = replace(
        learner, sums=learner.sums + Sums.of(np.full((1, d), huge), np.zeros((1, classes), np.bool_))
    )
    with pytest.raises(InputError, match=r"too few digits are left.*learnt anew"):
        learner.forget(np.full((1, d), huge) + learner.features.centre, np.zeros((1, classes), np.uint8))


def test_decisions_are_measured_at_the_threshold_of_the_run(place, tmp_path):
    settings = label_settings(place / "first", "exact", **SETTINGS, threshold=0.05)
    run(settings, out=tmp_path / "run")
    (tmp_path / "rows.txt").write_text(read_ids(place / "first")[0])
    forget(tmp_path / "run", out=tmp_path / "forgot", rows=tmp_path / "rows.txt")
    before, after = (json.loads((tmp_path / name / "result.json").read_text()) for name in ("run", "forgot"))
    assert after["pooled"]["or"] == pytest.approx(before["pooled"]["or"], abs=2)  # at 0.5 it is far lower
