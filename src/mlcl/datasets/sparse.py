"""Sparse matrices from untrusted files, made dense with numpy: scipy would trust their indices and write anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets.npy import read_npz
from mlcl.errors import InputError

MAX_DENSE_BYTES = 8 * 2**30
"""The largest matrix that is made dense: a store is dense, and this one is made in memory."""
_PARTS = {
    "csr": ("data", "indices", "indptr"),
    "csc": ("data", "indices", "indptr"),
    "coo": ("data", "row", "col"),
}


def read_sparse(path: Path) -> NDArray[Any]:
    """Return the matrix in an .npz file that ``scipy.sparse.save_npz`` wrote, dense."""
    found = read_npz(
        path, keys=("format", "shape", "data", "indices", "indptr", "row", "col"), where=str(path)
    )
    kind = _text(found.get("format"))
    if kind not in _PARTS or any(name not in found for name in (*_PARTS[kind], "shape")):
        raise InputError(
            f"{path} is no sparse matrix in the format {', '.join(_PARTS)}; "
            f"a file of scipy.sparse.save_npz was expected"
        )
    values, first, second = (found[name] for name in _PARTS[kind])
    sides = found["shape"]
    if sides.shape != (2,) or sides.dtype.kind not in "iu":
        raise _broken(str(path), "its shape is not two whole numbers")
    shape = (int(sides[0]), int(sides[1]))
    if kind == "coo":
        return from_places(values, first, second, shape, name=str(path))
    return from_compressed(values, first, second, shape, by_column=kind == "csc", name=str(path))


def from_compressed(
    values: NDArray[Any],
    indices: NDArray[Any],
    starts: NDArray[Any],
    shape: tuple[int, int],
    *,
    by_column: bool,
    name: str,
) -> NDArray[Any]:
    """Return a matrix in compressed rows (CSR) or, ``by_column``, compressed columns (CSC) as a dense array.

    >>> from_compressed(np.array([5, 7]), np.array([1, 0]), np.array([0, 1, 2]), (2, 3), by_column=False, name="x")
    array([[0, 5, 0],
           [7, 0, 0]])
    """
    _check_vectors(values, indices, starts, name=name)
    starts = starts.astype(np.int64)
    counts = np.diff(starts)
    lines = shape[1] if by_column else shape[0]
    if len(starts) != lines + 1 or starts[0] != 0 or (counts < 0).any() or starts[-1] > len(values):
        raise _broken(name, f"the starts of its {'columns' if by_column else 'rows'} do not fit")
    held = int(starts[-1])  # room may have been kept for more values than there are
    along = np.repeat(np.arange(lines), counts)
    rows, columns = (indices[:held], along) if by_column else (along, indices[:held])
    return from_places(values[:held], rows, columns, shape, name=name)


def from_places(
    values: NDArray[Any], rows: NDArray[Any], columns: NDArray[Any], shape: tuple[int, int], *, name: str
) -> NDArray[Any]:
    """Return values at places (COO) as a dense array; values at the same place are added."""
    _check_vectors(values, rows, columns, name=name)
    if min(shape) < 0 or shape[0] * shape[1] * values.dtype.itemsize > MAX_DENSE_BYTES:
        raise InputError(
            f"{name} has {shape[0]} x {shape[1]} values, but at most {MAX_DENSE_BYTES} bytes can be made dense; "
            f"reduce its columns, for example with scikit-learn's TruncatedSVD"
        )
    if not len(values) == len(rows) == len(columns):
        raise _broken(name, f"it has {len(values)} values at {len(rows)} rows and {len(columns)} columns")
    for places, side in ((rows, shape[0]), (columns, shape[1])):
        if len(places) and not 0 <= int(places.min()) <= int(places.max()) < side:
            raise _broken(name, f"a place is not in 0 to {side - 1}")
    dense = np.zeros(shape, values.dtype.newbyteorder("="))
    np.add.at(dense, (rows.astype(np.int64), columns.astype(np.int64)), values)
    return dense


def _check_vectors(values: NDArray[Any], *places: NDArray[Any], name: str) -> None:
    if values.ndim != 1 or values.dtype.kind not in "buif":
        raise _broken(name, f"its values have shape {values.shape} of {values.dtype}")
    if any(index.ndim != 1 or index.dtype.kind not in "iu" for index in places):
        raise _broken(name, "its indices are not whole numbers in a row")


def _broken(name: str, why: str) -> InputError:
    return InputError(f"{name} is no sparse matrix: {why}")


def _text(value: NDArray[Any] | None) -> str:
    """Return a single text of numpy, or an empty one."""
    if value is None or value.ndim != 0 or value.dtype.kind not in "SU":
        return ""
    item = value.item()
    return item.decode("ascii", "replace") if isinstance(item, bytes) else str(item)
