"""Named arrays in one file: what comes back, what is refused, and that nothing is half written."""

import json
import os

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from safetensors.numpy import load_file, save, save_file

from mlcl.arrays import Format, Like, check_arrays, read_foreign, section, to_arrays, to_tensors
from mlcl.errors import InputError

THINGS = Format("things", 3, what="a file of things", limit=1 << 20)
PLAIN = Format("things", 3, what="a file of things", plain=True)
ARRAYS = {"weights": np.arange(6.0).reshape(2, 3), "known": np.array([True, False]), "step": np.array(7)}
HEADER = {"classes": ["ant", "bee"], "share": 0.1, "inner": {"a": [1, None]}}


def same(one, other):
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and np.array_equal(one[name], other[name], equal_nan=True)
        for name in one
    )


@pytest.fixture
def file(tmp_path):
    THINGS.write(tmp_path / "a", ARRAYS, HEADER)
    return tmp_path / "a"


def test_what_is_written_comes_back(file):
    header, arrays = THINGS.read(file)
    assert header == {"format": "things", "version": 3, **HEADER}
    assert same(arrays, ARRAYS)
    assert THINGS.read_header(file).items() >= header.items()
    assert same(load_file(file), ARRAYS)  # another program reads it too


NUMBERS = st.sampled_from(["float32", "float64", "float16", "int64", "int32", "uint8", "bool"])
SOME = NUMBERS.flatmap(lambda dtype: arrays_of.arrays(dtype, arrays_of.array_shapes(min_dims=0, min_side=0)))


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), SOME, max_size=4))
def test_arrays_of_any_type_and_shape_and_order_come_back(arrays):
    turned = {name: np.asarray(value, order="F") for name, value in arrays.items()}
    content = THINGS.pack(turned)
    assert content == THINGS.pack(dict(reversed(arrays.items())))
    assert same(THINGS.unpack(content, source="a")[1], arrays)


@given(st.data())
def test_a_changed_byte_is_noticed(data):
    content = bytearray(THINGS.pack(ARRAYS, HEADER))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    try:
        header, arrays = THINGS.unpack(bytes(content), source="a")
    except InputError:
        return
    # Between its two parts a safetensors file has spaces; what they mean is the same then.
    assert header == {"format": "things", "version": 3, **HEADER}
    assert same(arrays, ARRAYS)


@pytest.mark.parametrize("length", [0, 5, 8, 40, -1])
def test_a_file_that_is_cut_short_is_refused(file, length):
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(InputError, match=str(file)):
        THINGS.read(file)


def metadata(**fields):
    return save(ARRAYS, {"mlcl": json.dumps(fields)})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (save(ARRAYS), "is a safetensors file, but not one of a file of things"),
        (save(ARRAYS, {"mlcl": "[1]"}), "is not a file of things, or corrupt: its header is no object"),
        (metadata(format="others", version=3), "not one of a file of things"),
        (metadata(format="things", version=9), "has the format version 9, but this mlcl reads 3"),
        (metadata(format="things", version=3), "its checksum does not match its content"),
        (metadata(format="things", version=3, sha256="0"), "its checksum does not match its content"),
        (b"\xff" * 100, "its header is too large"),
        (b"\x02" + bytes(7) + b"[]", "is not a file of things, or corrupt"),
        (bytes(2 << 20), "larger than 1048576 bytes; expected a file of things"),
    ],
)
def test_what_does_not_belong_is_refused(tmp_path, content, said):
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(InputError, match=said):
        THINGS.read(tmp_path / "a")


def test_files_of_version_0_1_have_no_header(tmp_path):
    save_file(ARRAYS, tmp_path / "a")
    header, arrays = PLAIN.read(tmp_path / "a")
    assert header == {}
    assert same(arrays, ARRAYS)


def test_pipes_folders_and_files_that_are_not_there_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "absent", "."):
        for read in (THINGS.read, THINGS.read_header):
            with pytest.raises(InputError):
                read(tmp_path / name)


def test_a_failed_write_leaves_the_old_file(file, monkeypatch):
    before = file.read_bytes()
    monkeypatch.setattr(
        os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    with pytest.raises(OSError, match="No space left"):
        THINGS.write(file, {})
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == ["a"]


LIKE = {"x": Like("float32", ("rows", 3)), "y": Like("uint8", (None,))}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"x": None}, "the array 'x' is missing"),
        ({"z": np.zeros(1)}, "the array 'z' does not belong"),
        ({"x": np.zeros((2, 3))}, r"'x' is float64 of shape \(2, 3\); expected float32 \[rows, 3\]"),
        (
            {"x": np.zeros((2, 4), np.float32)},
            r"of shape \(2, 4\); expected float32 \[rows, 3\] with rows = 2",
        ),
        (
            {"x": np.zeros((1, 3), np.float32)},
            r"of shape \(1, 3\); expected float32 \[rows, 3\] with rows = 2",
        ),
        ({"y": np.zeros((2, 1), np.uint8)}, r"expected uint8 \[any\]"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(changed, said):
    good = {"x": np.zeros((2, 3), np.float32), "y": np.zeros(5, np.uint8)}
    assert check_arrays(good, LIKE, rows=2) == {"rows": 2}
    with pytest.raises(InputError, match=said):
        check_arrays(
            {name: value for name, value in (good | changed).items() if value is not None}, LIKE, rows=2
        )


def test_tensors_become_arrays_and_back(tmp_path):
    tensors = {"a.w": torch.ones(2, 3).T, "a.step": torch.tensor(3), "b": torch.zeros(1, dtype=torch.uint8)}
    THINGS.write(tmp_path / "a", to_arrays(tensors))
    found = to_tensors(THINGS.read(tmp_path / "a")[1])
    assert all(torch.equal(found[name], value) for name, value in tensors.items())
    assert section(found, "a").keys() == {"w", "step"}
    found["b"] += 1  # it is memory of its own


def test_files_of_other_programs_may_hold_types_that_numpy_has_not(tmp_path):
    from safetensors.torch import save_file as save_tensors

    save_tensors({"w": torch.ones(2, dtype=torch.bfloat16)}, tmp_path / "w.safetensors")
    assert read_foreign(tmp_path / "w.safetensors")["w"].dtype == torch.bfloat16
