"""Every file of a finished run is checked when it is read: a missing or changed one is never used without a word."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from helpers import EXACT, label_settings, label_store
from mlcl.cli.main import main
from mlcl.errors import InputError
from mlcl.metrics import Goal
from mlcl.runs import folder as files
from mlcl.runs.continuing import load_base, update
from mlcl.runs.run import run
from mlcl.runs.trained import load_trained
from mlcl.runs.versions import versions
from mlcl.taggers.forget import forget
from mlcl.taggers.gate import check_gate, release
from mlcl.taggers.predict import predict
from mlcl.taggers.thresholds import set_thresholds


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A run with held-out rows, a version behind a gate, and one that forgot a label."""
    base = tmp_path_factory.mktemp("checksums")
    label_store(base, "old", [0, 1, 2, 3])
    label_store(base, "more", [3, 0], seed=20)
    root = run(label_settings(base / "old", "exact", **EXACT, held_out=0.3), out=base / "tagger").folder
    gate = check_gate(root, base / "old", allow=100)
    update(root, base / "more", out=root / "versions" / "2", gate=gate)
    release(root / "versions" / "2")
    forget(root, out=root / "versions" / "3", label="bee")
    release(root / "versions" / "3")
    return base


@pytest.fixture
def root(place, tmp_path):
    return shutil.copytree(place / "tagger", tmp_path / "tagger")


def readers(folder):
    """How each file of a run is read."""
    result = files.read_result(folder)
    return {
        "weights.safetensors": lambda: load_trained(folder, current=False),
        "memory.safetensors": lambda: load_base(folder),
        "calibration.json": lambda: load_trained(folder, current=False),
        "thresholds.json": lambda: load_trained(folder, current=False),
        "held-out.safetensors": lambda: files.read_held_out(folder, result),
        "receipt.json": lambda: files.read_receipt(folder),
        "gate.json": lambda: files.read_gate(folder),
    }


WHERE = {"receipt.json": "versions/3", "gate.json": "versions/2"}
NAMES = [
    *("weights.safetensors", "memory.safetensors", "calibration.json", "thresholds.json"),
    *("held-out.safetensors", "receipt.json", "gate.json"),
]


@pytest.mark.parametrize("name", NAMES)
def test_a_changed_file_is_refused(name, root):
    folder = root / WHERE.get(name, ".")
    readers(folder)[name]()
    content = bytearray((folder / name).read_bytes())
    digit = max(place for place, byte in enumerate(content) if byte in b"12345678")
    content[digit] += 1  # JSON stays JSON
    (folder / name).write_bytes(content)
    with pytest.raises(InputError, match=rf"{name}: is damaged: its checksum is not"):
        readers(folder)[name]()


@pytest.mark.parametrize("name", NAMES[:-1])  # a version without a gate has no gate.json
def test_a_missing_file_is_refused(name, root):
    folder = root / WHERE.get(name, ".")
    (folder / name).unlink()
    with pytest.raises(InputError, match=rf"{name}: cannot be read: No such file"):
        readers(folder)[name]()


@pytest.mark.parametrize("name", ["thresholds.json", "gate.json"])
def test_a_checksum_cannot_just_be_left_out(name, root):
    folder = root / WHERE.get(name, ".")
    content = json.loads((folder / name).read_text())
    del content["sha256"]
    (folder / name).write_text(json.dumps(content))
    with pytest.raises(InputError, match=rf"{name}: is damaged"):
        readers(folder)[name]()


def test_the_command_line_says_it_in_one_sentence(root, place, tmp_path, capsys):
    (root / "versions" / "3" / "calibration.json").unlink()
    arguments = ["predict", str(root), str(place / "old"), "--out", str(tmp_path / "p.csv")]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert "calibration.json: cannot be read" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "p.csv").exists()


def test_other_settings_of_what_scores_are_refused_and_found(root, place, capsys):
    text = (root / "config.yaml").read_text()
    (root / "config.yaml").write_text(
        text.replace("kind: fixed", "kind: mlp").replace("data: ", "data: /moved")
    )
    words = r"config.yaml: model.kind is 'mlp', but result.json says that the run was made with 'fixed'"
    with pytest.raises(InputError, match=words):
        load_trained(root, current=False)
    assert main(["check", str(root)]) == 2
    assert "model.kind is 'mlp'" in capsys.readouterr().out
    (root / "config.yaml").write_text(text.replace("data: ", "data: /moved"))  # a store may move
    load_trained(root, current=False)


def test_thresholds_that_are_chosen_anew_have_a_new_checksum_and_need_not_the_old(root):
    base = root / "versions" / "1"
    for spoil in (lambda path: path.unlink(), lambda path: path.write_text("{"), lambda path: None):
        spoil(root / "thresholds.json")
        (root / "current.json").unlink(missing_ok=True)
        chosen = set_thresholds(root, Goal("recall", 0.9)).thresholds
        assert np.array_equal(load_trained(root).thresholds.values, chosen.values)
    assert not base.exists()


def test_a_run_of_an_mlcl_without_these_checksums_is_read_as_then(root, place):
    (root / "current.json").unlink()
    expected = predict(root, place / "old").values
    result = json.loads((root / "result.json").read_text())
    del result["sha256"]["calibration.json"]
    (root / "result.json").write_text(json.dumps(result))
    thresholds = json.loads((root / "thresholds.json").read_text())
    del thresholds["sha256"]
    (root / "thresholds.json").write_text(json.dumps(thresholds))
    assert np.array_equal(predict(root, place / "old").values, expected)
    assert load_trained(root).thresholds.values.tolist() == thresholds["thresholds"]
    (root / "calibration.json").unlink()
    (root / "thresholds.json").unlink()
    assert np.array_equal(load_trained(root).calibration.lines.slope, np.ones(4))
    assert np.array_equal(load_trained(root).thresholds.values, np.full(4, 0.5))
    gate = root / "versions" / "2"
    record = json.loads((gate / "extends.json").read_text())
    del record["gate"]
    (gate / "extends.json").write_text(json.dumps(record))
    verdict = json.loads((gate / "gate.json").read_text())
    del verdict["sha256"]
    (gate / "gate.json").write_text(json.dumps(verdict))
    assert [version.gate for version in versions(root)] == [None, True, None]


def test_a_receipt_is_whole_when_the_result_is_there(root):
    folder = root / "versions" / "3"
    receipt = files.read_receipt(folder)
    assert receipt["after"] == files.fingerprint(folder)
    assert json.loads((folder / "result.json").read_text())["sha256"].keys() == {
        *("weights.safetensors", "memory.safetensors", "calibration.json", "receipt.json"),
        "held-out.safetensors",
    }
