"""Checks of datasets: what is refused, what is converted, and what a fingerprint sees."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcl.datasets import base
from mlcl.datasets.base import Dataset, as_array, as_inputs
from mlcl.errors import InputError
from mlcl.files import cache_dir

X, Y = np.arange(12, dtype=np.float64).reshape(4, 3), np.array([[1, 0], [0, 1], [1, 1], [0, 0]])
IMAGES = np.arange(4 * 3 * 2 * 5, dtype=np.uint8).reshape(4, 3, 2, 5)


def make(x_train=X, y_train=Y, x_test=X, y_test=Y, classes=("cat", "dog"), name="tiny"):
    return Dataset.of(name, classes, x_train, y_train, x_test, y_test)


def test_features_become_float32_and_images_stay():
    data = make()
    assert data.kind == "features"
    assert data.train.inputs.dtype == np.float32
    np.testing.assert_array_equal(data.train.inputs, X)
    assert data.train.labels.dtype == np.uint8
    images = make(IMAGES, Y, IMAGES[:2], Y[:2])
    assert images.kind == "images"
    assert images.train.inputs is IMAGES
    assert (len(images.train), len(images.test)) == (4, 2)


def test_classes_are_named_when_no_names_are_given():
    assert make(classes=None).classes == ("class-0", "class-1")


def test_torch_tensors_are_taken():
    torch = pytest.importorskip("torch")
    data = make(torch.tensor(X, requires_grad=True), torch.tensor(Y).bool(), torch.tensor(X), torch.tensor(Y))
    assert data.fingerprint == make().fingerprint
    half = as_array(torch.tensor([[1.5, 2.0]], dtype=torch.bfloat16))
    assert half.dtype == np.float32
    assert half.tolist() == [[1.5, 2.0]]


def test_memory_maps_stay_maps(tmp_path):
    np.save(tmp_path / "x.npy", X.astype(np.float32))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    data = make(mapped)
    assert isinstance(data.train.inputs, np.memmap)
    assert data.fingerprint == make().fingerprint


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x_train": X[:3]}, "y_train has 4 rows, but 3"),
        ({"y_train": Y * 2}, "y_train has the value 2 at row 0, column 0"),
        ({"y_test": Y[:, :1]}, "y_test has 1 columns and y_train has 2"),
        ({"x_test": X[:, :2]}, r"x_test has rows of shape \(2,\) and x_train of \(3,\)"),
        ({"x_test": IMAGES}, r"x_test has rows of shape \(3, 2, 5\)"),
        ({"x_train": X[:0], "y_train": Y[:0]}, r"x_train has shape \(0, 3\)"),
        ({"x_train": X[:, :0]}, r"x_train has shape \(4, 0\)"),
        ({"x_train": X[:, 0]}, r"x_train has shape \(4,\)"),
        ({"x_train": IMAGES[:, 0]}, r"x_train has shape \(4, 2, 5\)"),
        ({"x_train": IMAGES / 255}, "x_train has images of dtype float64, but uint8 pixels"),
        ({"x_train": IMAGES[:, :2]}, r"C = 1 or 3 were expected$"),
        ({"x_train": IMAGES.transpose(0, 2, 3, 1)}, "move the channels from the last axis to the second"),
        ({"x_train": np.array([["a"]] * 4)}, "x_train has dtype <U1"),
        ({"x_train": X * 1j}, "x_train has dtype complex128"),
        ({"x_train": [[1, 2], [3]]}, "x_train is not an array"),
        ({"y_train": [[1, 0], [1]]}, "y_train is not an array"),
        ({"y_train": np.ones((4, 0)), "y_test": np.ones((4, 0)), "classes": ()}, "at least one class"),
        ({"classes": ("cat",)}, "classes has 1 names, but the labels have 2 columns"),
        ({"classes": ("cat", "cat")}, "classes has the name 'cat' twice"),
        ({"classes": ("cat", " ")}, "classes has the name ' '"),
        ({"classes": ("cat", 3)}, "classes has the name 3"),
    ],
)
def test_bad_input_is_named(change, message):
    with pytest.raises(InputError, match=message):
        make(**change)


@given(
    row=st.integers(0, 99), column=st.integers(0, 6), bad=st.sampled_from([np.nan, np.inf, -np.inf, 1e300])
)
@settings(deadline=None, max_examples=30)
def test_numbers_that_are_not_finite_are_found_in_any_chunk(row, column, bad):
    x = np.zeros((100, 7))
    x[row, column] = bad
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "_CHUNK_BYTES", 7 * 4 * 9)  # nine rows a chunk
        with pytest.raises(InputError, match=f"at row {row}, column {column}, but finite"):
            as_inputs(x)


def test_fingerprint_sees_every_part_but_the_name():
    assert make().fingerprint == make(name="other").fingerprint
    changed = [
        make(),
        make(classes=("cat", "cow")),
        make(y_train=1 - Y),
        make(y_test=1 - Y),
        make(x_train=X + 1),
        make(x_test=X + 1),
        make(x_train=X.reshape(4, 3)[:, ::-1]),
        make(x_train=X[:, :2], x_test=X[:, :2]),
        make(X[:3], Y[:3]),
        make(IMAGES, Y, IMAGES, Y),
    ]
    prints = {data.fingerprint for data in changed}
    assert len(prints) == len(changed)
    assert all(len(text) == 16 and int(text, 16) >= 0 for text in prints)


def test_fingerprint_does_not_depend_on_layout_or_chunks(monkeypatch):
    expected = make().fingerprint
    assert make(x_train=np.asfortranarray(X), y_train=np.asfortranarray(Y)).fingerprint == expected
    monkeypatch.setattr(base, "_CHUNK_BYTES", 1)
    assert make().fingerprint == expected


def test_large_inputs_are_sampled_at_even_steps(monkeypatch):
    monkeypatch.setattr(base, "WHOLE_BYTES", X.astype(np.float32).nbytes // 2)  # every second row
    expected = make().fingerprint
    for row, seen in enumerate([True, False, True, False]):
        x = X.copy()
        x[row, 1] += 1
        assert (make(x_train=x).fingerprint != expected) == seen


def test_cache_dir_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("MLCL_HOME", str(tmp_path))
    assert cache_dir() == tmp_path
    monkeypatch.delenv("MLCL_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "mlcl"


def test_sparse_matrices_are_taken():
    sparse = pytest.importorskip("scipy.sparse")
    data = make(sparse.csr_matrix(X), sparse.csc_matrix(Y), sparse.csr_array(X), Y)
    assert data.fingerprint == make().fingerprint
