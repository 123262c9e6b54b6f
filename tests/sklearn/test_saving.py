"""Saved taggers: equal after loading, and corrupt or foreign files refused with one sentence."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from mlcl.errors import InputError
from mlcl.sklearn import ContinualTagger, ExactTagger
from taggers import fitted, problem


def test_a_loaded_tagger_is_equal_and_continues_as_the_original(tmp_path):
    x, y = problem()
    tagger = fitted(random_state=np.random.RandomState(1))
    tagger.save(tmp_path / "tagger.safetensors")
    loaded = ContinualTagger.load(str(tmp_path / "tagger.safetensors"))
    assert np.array_equal(loaded.decision_function(x), tagger.decision_function(x))
    assert loaded.get_params() == tagger.get_params() | {"random_state": None}
    for one in (tagger, loaded):
        one.partial_fit(x, y[:, [1, 0]], classes=["c1", "c0"]).partial_fit(x, y[:, 3:], classes=["new"])
    assert loaded.classes_.tolist() == tagger.classes_.tolist() == ["c0", "c1", "c2", "c3", "new"]
    assert np.array_equal(loaded.decision_function(x), tagger.decision_function(x))
    assert np.array_equal(loaded.memory_inputs_, tagger.memory_inputs_)


def test_saving_overwrites_only_on_request(tmp_path):
    path = tmp_path / "mine"
    path.write_text("precious")
    with pytest.raises(InputError, match="exists already"):
        fitted().save(path)
    assert path.read_text() == "precious"
    fitted().save(path, overwrite=True)
    assert ContinualTagger.load(path).classes_.tolist() == ["c0", "c1", "c2", "c3"]


def test_files_of_another_kind_raise_one_sentence(tmp_path):
    path = tmp_path / "file"
    with pytest.raises(InputError, match="No such file"):
        ContinualTagger.load(path)
    path.write_bytes(b"\x80\x04pickle")
    with pytest.raises(InputError, match="or corrupt: "):
        ContinualTagger.load(path)
    save_file({"a": torch.zeros(2)}, path)
    with pytest.raises(InputError, match="but not one of a ContinualTagger"):
        ContinualTagger.load(path)


@pytest.mark.parametrize("kind", [ContinualTagger])
def test_a_folder_is_neither_read_nor_replaced(kind, tmp_path):
    x, y = problem()
    with pytest.raises(InputError, match=r"cannot be read: Is a directory"):
        kind.load(tmp_path)
    for overwrite in (False, True):
        with pytest.raises(InputError, match=r"is a folder; expected the name of a file to write"):
            kind().fit(x, y).save(tmp_path, overwrite=overwrite)


def test_a_changed_byte_is_noticed(tmp_path):
    path = tmp_path / "tagger"
    fitted().save(path)
    good = bytearray(path.read_bytes())
    good[-1] ^= 1
    path.write_bytes(good)
    with pytest.raises(InputError, match="its checksum does not match its content"):
        ContinualTagger.load(path)


def header_of(path):
    with safe_open(path, framework="pt") as file:
        return json.loads(file.metadata()["mlcl"])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("version", 1),
        ("params", {"model": "linear", "hidden": 3}),
        ("params", {"unknown": 3}),
        ("params", None),
        ("classes", ["a"]),
        ("classes", ["c0", "c1", "c2", "c2"]),
        ("classes", [{}, 1, 2, 3]),
        ("label_sets", [[0, 1], [2, 9]]),
        ("label_sets", [[0, 1]]),
        ("model", {"kind": "mlp", "hidden": 17, "depth": 1}),
        ("model", {"kind": "resnet8"}),
        ("model", {"kind": "mlp", "hidden": 10**12, "depth": 1}),
        ("seed", -1),
        ("seed", "x"),
        ("calls", 0),
        ("total", 0),
        ("feature_names", ["a"]),
        ("sha256", "0" * 64),
    ],
)
def test_a_header_that_contradicts_its_tensors_is_refused(tmp_path, field, value):
    path = tmp_path / "tagger"
    fitted().save(path)
    header, tensors = header_of(path), load_file(path)
    save_file(tensors, path, {"mlcl": json.dumps(header)})
    ContinualTagger.load(path)  # unchanged, it loads
    save_file(tensors, path, {"mlcl": json.dumps(header | {field: value})})
    with pytest.raises(InputError) as caught:
        ContinualTagger.load(path)
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("tagger") / "good"
    trained_by = dict.fromkeys(("hidden", "depth", "epochs", "batch_size", "lr"))
    fitted(calls=1, model="linear", memory_size=4, **trained_by).save(path)
    return path


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_any_bytes_load_or_are_refused(written, data):
    raw = bytearray(written.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    bad = written.with_name("bad")
    bad.write_bytes(raw[: data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw)
    try:
        ContinualTagger.load(bad).predict(problem()[0])
    except InputError as error:
        assert "\n" not in str(error)


def test_saving_into_a_folder_that_does_not_exist_names_it(tmp_path):
    with pytest.raises(
        InputError, match=f"cannot be written: the folder {tmp_path / 'absent'} does not exist"
    ):
        fitted().save(tmp_path / "absent" / "tagger.safetensors")
    with pytest.raises(InputError, match="does not exist"):
        ExactTagger().fit(*problem()).save(tmp_path / "absent" / "tagger.safetensors")


def test_a_folder_that_is_no_tagger_is_neither_read_nor_replaced(tmp_path):
    x, y = problem()
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(InputError, match=r"holds no run"):
        ExactTagger.load(tmp_path)
    for overwrite in (False, True):
        with pytest.raises(InputError, match=r"exists; choose|no run of mlcl"):
            ExactTagger().fit(x, y).save(tmp_path, overwrite=overwrite)
    assert (tmp_path / "thesis.txt").read_text() == "precious"
