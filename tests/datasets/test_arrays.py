"""Ready arrays: .npz and folders of .npy, images in three layouts, features."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

from mlcl.datasets import open_store, plan_source, prepare_source
from mlcl.errors import InputError

RNG = np.random.default_rng(0)
Y = RNG.integers(0, 2, (9, 3))
FEATURES = RNG.standard_normal((9, 5))
IMAGES = RNG.integers(0, 256, (9, 3, 6, 7), dtype=np.uint8)


def arrays(x, y=Y, **more):
    return {"x_train": x[:6], "y_train": y[:6], "x_test": x[6:], "y_test": y[6:]} | more


@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (IMAGES, IMAGES),
        (IMAGES.transpose(0, 2, 3, 1), IMAGES),
        (IMAGES[:, 0], IMAGES[:, :1]),
        (np.asfortranarray(FEATURES), FEATURES.astype(np.float32)),
        (IMAGES[:, 0, 0], IMAGES[:, 0, 0].astype(np.float32)),
    ],
    ids=["nchw", "nhwc", "grey", "features", "bytes as features"],
)
def test_arrays_go_in_as_they_are(tmp_path, x, expected, folder):
    root = tmp_path / ("mine" if folder else "mine.npz")
    if folder:
        root.mkdir()
        for key, value in arrays(x, classes=np.asarray(["a", "b", "c"])).items():
            np.save(root / f"{key}.npy", value)
    else:
        np.savez_compressed(root, **arrays(x, classes=np.asarray([b"a", b"b", b"c"])))
    info = prepare_source("arrays", root, out=tmp_path / "out")
    data = open_store(tmp_path / "out", check=True)
    assert (info.name, data.classes) == ("mine", ("a", "b", "c"))
    assert data.train.inputs.dtype == expected.dtype
    assert np.array_equal(data.train.inputs, expected[:6])
    assert np.array_equal(data.test.inputs, expected[6:])
    assert np.array_equal(data.test.labels, Y[6:])


def test_the_same_arrays_are_not_stored_twice(tmp_path):
    np.savez(tmp_path / "a.npz", **arrays(FEATURES))
    assert not prepare_source("arrays", tmp_path / "a.npz", out=tmp_path / "out").already_there
    assert prepare_source("arrays", tmp_path / "a.npz", out=tmp_path / "out").already_there
    np.savez(tmp_path / "a.npz", **arrays(FEATURES + 1))
    with pytest.raises(InputError, match="other content"):
        prepare_source("arrays", tmp_path / "a.npz", out=tmp_path / "out")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"x_test": None}, "no array 'x_test'"),
        ({"x_train": FEATURES[:5]}, "y_train of .* has 6 rows, but 5 were expected"),
        ({"x_test": FEATURES[6:, :4]}, r"\(5,\) in x_train and \(4,\) in x_test"),
        ({"y_test": Y[6:, :2]}, r"\(3,\) in y_train and \(2,\) in y_test"),
        ({"x_train": FEATURES[:6] * np.nan}, "finite"),
        ({"x_train": FEATURES[:6].astype(str)}, "numbers were expected"),
        ({"y_train": Y[:6] + 1}, "only 0 and 1"),
        ({"x_train": np.zeros((6, 5, 4, 4), np.uint8)}, "C = 1 or 3"),
        ({"x_train": np.zeros((6, 3, 4, 4))}, "uint8"),
        ({"classes": np.asarray(["a", "b"])}, "2 class names, but 3 columns"),
        ({"classes": np.arange(3)}, "texts were expected"),
        ({"classes": np.asarray([b"\xff", b"b", b"c"])}, "not UTF-8"),
        ({"x_train": np.asarray([{}] * 6, dtype=object)}, "dtype object"),
    ],
)
def test_bad_arrays_are_named(tmp_path, changes, words):
    given = {k: v for k, v in (arrays(FEATURES) | changes).items() if v is not None}
    np.savez(tmp_path / "a.npz", **given)
    with pytest.raises(InputError, match=words):
        prepare_source("arrays", tmp_path / "a.npz", out=tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npz"]


def test_files_that_are_no_arrays(tmp_path):
    with pytest.raises(InputError, match="was looked for"):
        plan_source("arrays", tmp_path / "a.npz")
    (tmp_path / "a.npz").write_bytes(b"hello")
    with pytest.raises(InputError, match=r"not a readable \.npz"):
        plan_source("arrays", tmp_path / "a.npz")
    with pytest.raises(InputError, match=r"x_train\.npy was looked for"):
        plan_source("arrays", tmp_path)
    (tmp_path / "x_train.npy").write_bytes(b"hello")
    with pytest.raises(InputError, match=r"x_train\.npy is not a readable"):
        plan_source("arrays", tmp_path)
    np.save(tmp_path / "x_train.npy", np.asarray([{}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match=r"x_train\.npy is not a readable"):
        plan_source("arrays", tmp_path)


def test_ready_arrays_are_not_resized(tmp_path):
    np.savez(tmp_path / "a.npz", **arrays(IMAGES))
    with pytest.raises(InputError, match=r"size is 32, but .* are not resized"):
        prepare_source("arrays", tmp_path / "a.npz", size=32, out=tmp_path / "out")


def test_a_header_that_promises_too_much_is_refused_before_memory_is_taken(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": (10**12, 5)}
    )
    buffer = io.BytesIO()
    np.savez(buffer, **arrays(FEATURES))
    with zipfile.ZipFile(buffer) as source, zipfile.ZipFile(tmp_path / "a.npz", "w") as target:
        for name in source.namelist():
            target.writestr(name, header.getvalue() if name == "x_train.npy" else source.read(name))
    with pytest.raises(InputError, match=r"x_train in .* promises shape \(1000000000000, 5\)"):
        plan_source("arrays", tmp_path / "a.npz")
