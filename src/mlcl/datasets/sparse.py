"""Sparse matrices from untrusted files, made dense: a store is dense, so they must fit into memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets.npy import read_npz
from mlcl.errors import InputError, one_line

MAX_DENSE_BYTES = 8 * 2**30
"""The largest matrix that is made dense."""
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
    import scipy.sparse as sp

    values, first, second = (found[name] for name in _PARTS[kind])
    try:
        rows, columns = (int(side) for side in found["shape"])
        # Before anything is built: a few bytes may promise a matrix of any size.
        check_dense(rows, columns, values.dtype.itemsize, name=str(path))
        given = (values, (first, second)) if kind == "coo" else (values, first, second)
        matrix = {"csr": sp.csr_matrix, "csc": sp.csc_matrix, "coo": sp.coo_matrix}[kind](
            given, shape=(rows, columns)
        )
    except InputError:
        raise
    except (
        Exception
    ) as error:  # the parts come from an untrusted file: whatever does not fit, the file is bad
        raise InputError(f"{path} is no sparse matrix: {one_line(error)}") from None
    return to_dense(matrix, name=str(path))


def to_dense(matrix: Any, *, name: str) -> NDArray[Any]:
    """Return a sparse matrix of scipy as an array; its indices are checked first, since scipy would trust them."""
    rows, columns = matrix.shape
    check_dense(rows, columns, matrix.dtype.itemsize, name=name)
    try:
        if hasattr(matrix, "indptr"):
            matrix.check_format(full_check=True)
        return np.asarray(matrix.toarray())
    except Exception as error:  # indices outside the matrix, parts of different lengths
        raise InputError(f"{name} is no sparse matrix: {one_line(error)}") from None


def check_dense(rows: int, columns: int, itemsize: int, *, name: str) -> None:
    """Refuse a matrix that is too large to be dense."""
    if min(rows, columns) < 0 or rows * columns * itemsize > MAX_DENSE_BYTES:
        raise InputError(
            f"{name} has {rows} x {columns} values, but at most {MAX_DENSE_BYTES} bytes can be made dense; "
            f"reduce its columns, for example with scikit-learn's TruncatedSVD"
        )


def _text(value: NDArray[Any] | None) -> str:
    """Return a single text of numpy, or an empty one."""
    if value is None or value.ndim != 0 or value.dtype.kind not in "SU":
        return ""
    item = value.item()
    return item.decode("ascii", "replace") if isinstance(item, bytes) else str(item)
