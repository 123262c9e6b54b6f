"""Ready arrays: .npz and folders of .npy, images in three layouts, features."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from mlcl.datasets import npy, open_store, plan_source, prepare_source
from mlcl.datasets.arrays import read_mat
from mlcl.datasets.npy import map_npy, read_npz
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


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("texts", ["cells", "characters"])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_mat_file(tmp_path, compress, texts, sparse):
    names = ["a", "long name", "c"]
    classes = np.array(names, dtype=object) if texts == "cells" else np.array(names)
    wrap = scipy.sparse.csc_matrix if sparse else np.asarray
    given = {k: wrap(v) for k, v in arrays(FEATURES, Y.astype(float)).items()} | {"classes": classes}
    scipy.io.savemat(tmp_path / "mine.mat", given, do_compression=compress)
    info = prepare_source("arrays", tmp_path / "mine.mat", out=tmp_path / "out")
    data = open_store(tmp_path / "out", check=True)
    assert (info.name, data.classes) == ("mine", ("a", "long name", "c"))
    assert np.array_equal(data.train.inputs, FEATURES[:6].astype(np.float32))
    assert np.array_equal(data.test.labels, Y[6:])


@pytest.mark.parametrize("compress", [False, True])
def test_a_mat_file_is_read_as_scipy_reads_it(tmp_path, compress):
    values = {
        f"v{i}": value
        for i, value in enumerate(
            [
                *(RNG.integers(0, 2, (3, 4)).astype(kind) for kind in "bBhHiIqQfd?"),
                RNG.integers(-(2**40), 2**40, (2, 3, 4, 5)),
                np.zeros((0, 3)),
                np.zeros((2, 0)),
                np.array([[1.5]]),
                scipy.sparse.random(7, 4, 0.3, random_state=0, format="csc"),
                scipy.sparse.csc_matrix((3, 4)),
            ]
        )
    }
    texts = {"one": "a", "many": np.array(["a", "bc", "Bär"])}
    scipy.io.savemat(tmp_path / "a.mat", values | texts, do_compression=compress)
    oracle = scipy.io.loadmat(tmp_path / "a.mat")
    found = read_mat(tmp_path / "a.mat", keys=(*values, *texts), where="a.mat")
    for name, value in values.items():
        expected = oracle[name].toarray() if scipy.sparse.issparse(value) else oracle[name]
        assert np.array_equal(found[name], expected), name
        assert found[name].shape == expected.shape
    assert found["one"].tolist() == ["a"]
    assert found["many"].tolist() == ["a", "bc", "Bär"]
    assert read_mat(tmp_path / "a.mat", keys=("v1",), where="a.mat").keys() == {"v1"}


def test_mat_files_that_do_not_fit(tmp_path):
    file = tmp_path / "a.mat"
    scipy.io.savemat(file, {"x_train": FEATURES})
    with pytest.raises(InputError, match=r"a\.mat has no array 'y_train'"):
        plan_source("arrays", file)
    scipy.io.savemat(file, arrays(FEATURES) | {"x_train": {"field": 1}})
    with pytest.raises(InputError, match=r"x_train in .* is of another kind, but numbers, texts or"):
        plan_source("arrays", file)
    scipy.io.savemat(file, arrays(FEATURES) | {"x_train": np.array([{"a": 1}, "b"], dtype=object)})
    with pytest.raises(InputError, match=r"x_train in .* is a cell array of other things than texts"):
        plan_source("arrays", file)
    file.write_bytes(b"hello")
    with pytest.raises(InputError, match=r"not a readable \.mat"):
        plan_source("arrays", file)
    file.write_bytes(b"MATLAB 7.3 MAT-file".ljust(512) + b"\x89HDF\r\n\x1a\n" + bytes(99))
    with pytest.raises(InputError, match=r"version 7\.3, but version 5 to 7 was expected; save it with -v7"):
        plan_source("arrays", file)


def test_a_mat_whose_sparse_indices_lie_outside_is_refused(tmp_path):
    matrix = scipy.sparse.csc_matrix(FEATURES[:6])
    matrix.indices = matrix.indices + 10**6
    scipy.io.savemat(tmp_path / "a.mat", arrays(FEATURES) | {"x_train": matrix})
    with pytest.raises(InputError, match=r"x_train in .* is no sparse matrix"):
        plan_source("arrays", tmp_path / "a.mat")


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_sparse_matrices_in_a_folder(tmp_path, form):
    (tmp_path / "mine").mkdir()
    for key, value in arrays(FEATURES).items():
        if key == "y_test":
            np.save(tmp_path / "mine" / f"{key}.npy", value)
        else:
            scipy.sparse.save_npz(
                tmp_path / "mine" / f"{key}.npz", scipy.sparse.coo_matrix(value).asformat(form)
            )
    prepare_source("arrays", tmp_path / "mine", out=tmp_path / "out")
    data = open_store(tmp_path / "out", check=True)
    assert np.array_equal(data.train.inputs, FEATURES[:6].astype(np.float32))
    assert np.array_equal(data.train.labels, Y[:6])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"shape": np.array([6, 10**12])}, "6 x 1000000000000 values, but at most"),
        ({"shape": np.array([6, 2 * 10**7])}, "30 values in 120000000 cells; at least one in 65536"),
        ({"shape": np.array([-1, 5])}, "is no sparse matrix"),
        ({"shape": np.array([6])}, "is no sparse matrix"),
        ({"shape": np.array([3, 5])}, "is no sparse matrix"),
        ({"indices": np.full(30, 10**6)}, "is no sparse matrix"),
        ({"indices": np.full(30, -1)}, "is no sparse matrix"),
        ({"indptr": np.arange(7) * 10**6}, "is no sparse matrix"),
        ({"indptr": np.array([0, 30, 0, 30, 0, 30, 30])}, "is no sparse matrix"),
        ({"data": np.zeros(3)}, "is no sparse matrix"),
        ({"format": np.array("dia")}, "format csr, csc, coo"),
        ({"format": None}, "format csr, csc, coo"),
    ],
)
def test_bad_sparse_matrices_are_named(tmp_path, changes, words):
    for key, value in arrays(FEATURES).items():
        np.save(tmp_path / f"{key}.npy", value)
    (tmp_path / "x_train.npy").unlink()
    matrix = scipy.sparse.csr_matrix(FEATURES[:6])
    parts = {"format": np.array(b"csr"), "shape": np.array(matrix.shape), "data": matrix.data}
    parts |= {"indices": matrix.indices, "indptr": matrix.indptr} | changes
    np.savez(tmp_path / "x_train.npz", **{k: v for k, v in parts.items() if v is not None})
    with pytest.raises(InputError, match=words):
        plan_source("arrays", tmp_path)


def test_an_array_that_is_packed_far_more_than_numbers_are_is_refused_before_it_is_read(
    tmp_path, monkeypatch
):
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros((10**5, 8)))
    assert read_npz(tmp_path / "x.npz", keys={"x"}, where="x.npz")["x"].shape == (10**5, 8)
    monkeypatch.setattr(npy, "unpacked_limit", lambda packed: 256 * packed)
    with pytest.raises(InputError, match=r"x in x.npz has 6400128 bytes in \d{4}; at most \d+ were expected"):
        read_npz(tmp_path / "x.npz", keys={"x"}, where="x.npz")


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"hello world" * 20, "it does not begin as such a file does"), (None, "it is a folder")],
)
def test_a_file_that_is_not_npy_is_refused_without_advice_to_run_its_code(content, words, tmp_path):
    path = tmp_path / "x.npy"
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(InputError, match=f"x.npy is not a readable .npy file: {words}$"):
        map_npy(path)


@pytest.mark.parametrize("suffix", ["npz", "mat"])
def test_one_array_with_all_rows_is_split_by_a_seed(tmp_path, suffix):
    root = tmp_path / f"mine.{suffix}"
    (np.savez if suffix == "npz" else lambda path, **them: scipy.io.savemat(path, them))(
        root, data=FEATURES, target=Y
    )
    given = {"x": "data", "y": "target", "test_fraction": 0.4}
    plan = plan_source("arrays", root, **given, split_seed=1)
    assert (plan.train, len(plan.ids)) == (5, 9)
    rows = [int(name.removeprefix("row-")) for name in plan.ids]
    assert sorted(rows) == list(range(9))
    assert np.array_equal(plan.inputs, FEATURES[rows].astype(np.float32))
    assert np.array_equal(plan.labels, Y[rows])
    assert plan.options == {"test_fraction": 0.4, "split_seed": 1}
    assert plan.ids != plan_source("arrays", root, **given, split_seed=2).ids


def test_classes_with_too_few_positives_are_left_out(tmp_path):
    y = np.zeros((9, 3), int)
    y[:4, 0], y[:3, 1], y[:5, 2] = 1, 1, 1
    np.savez(tmp_path / "mine.npz", **arrays(FEATURES, y, classes=np.asarray(["a", "b", "c"])))
    plan = plan_source("arrays", tmp_path / "mine.npz", min_positives=4)
    assert plan.classes == ("a", "c")
    assert np.array_equal(plan.labels, y[:, [0, 2]])
    assert plan.options == {"min_positives": 4}
    with pytest.raises(InputError, match="has 0 classes"):
        plan_source("arrays", tmp_path / "mine.npz", min_positives=6)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"x": "x_train"}, "x is 'x_train' and y is None; expected the names of two arrays"),
        ({"x": "data", "y": "y_train"}, "no array 'data', but data, y_train were expected"),
        ({"x": "x_train", "y": "y_test"}, "y_test of .* has 3 rows, but 6 were expected"),
        ({"min_positives": -1}, "min_positives"),
    ],
)
def test_wrong_names_of_arrays(tmp_path, options, words):
    np.savez(tmp_path / "a.npz", **arrays(FEATURES))
    with pytest.raises(InputError, match=words):
        plan_source("arrays", tmp_path / "a.npz", **options)
