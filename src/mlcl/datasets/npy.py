"""Untrusted arrays of numpy and scipy: never pickle, and never more memory than the file really holds."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from mlcl.errors import InputError, parsing
from mlcl.files import check_regular, unpacked_limit

MAX_ARRAY_BYTES = 32 * 2**30
"""The largest array that is read into memory; larger ones can come as .npy files, which are mapped."""
MAX_DENSE_BYTES = 8 * 2**30
"""The largest matrix that is made dense: a store is dense, and this one is made in memory."""
MANY_CELLS, SPARSEST = 2**26, 2**16
"""Cells of a sparse matrix from which on they are compared with its values, and how many there may be of each."""
_PARTS = {
    "csr": ("data", "indices", "indptr"),
    "csc": ("data", "indices", "indptr"),
    "coo": ("data", "row", "col"),
}


def map_npy(path: Path) -> NDArray[Any]:
    """Return an .npy file as a read-only memory map."""
    with parsing(f"{path} is not a readable .npy file"):
        _check_file(path, str(path))
        with path.open("rb") as file:
            # Numpy takes any unknown file for a pickle, and says how to run its code.
            if file.read(len(np.lib.format.MAGIC_PREFIX)) != np.lib.format.MAGIC_PREFIX:
                raise ValueError("it does not begin as such a file does")
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return array


def _check_file(path: Path, where: str) -> None:
    try:
        check_regular(path)
    except FileNotFoundError:
        raise InputError(f"{where} was looked for and does not exist") from None
    except IsADirectoryError:
        raise ValueError("it is a folder") from None


def read_npz(source: Path | bytes, *, keys: Collection[str], where: str) -> dict[str, NDArray[Any]]:
    """Return those of ``keys`` that an .npz file holds; other arrays in it are not looked at."""
    found: dict[str, NDArray[Any]] = {}
    with parsing(f"{where} is not a readable .npz file"):
        if not isinstance(source, bytes):
            _check_file(source, where)
        with zipfile.ZipFile(io.BytesIO(source) if isinstance(source, bytes) else source) as archive:
            for info in archive.infolist():
                key = info.filename.removesuffix(".npy")
                if key in keys and info.filename != key:
                    name, size, packed = f"{key} in {where}", info.file_size, info.compress_size
                    if size > unpacked_limit(packed):
                        raise InputError(
                            f"{name} has {size} bytes in {packed}; at most {unpacked_limit(packed)} were expected: if "
                            "it shall be read, save it as .npy, or unpacked"
                        )
                    with archive.open(info) as file:
                        found[key] = _read(file, size, name)
    return found


def _read(file: IO[bytes], size: int, name: str) -> NDArray[Any]:
    """Read one array whose header agrees with the ``size`` in bytes of its file."""
    if size > MAX_ARRAY_BYTES:
        raise InputError(f"{name} has {size} bytes, but at most {MAX_ARRAY_BYTES} are allowed")
    version = np.lib.format.read_magic(file)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise InputError(f"{name} has the .npy version {version}, but 1.0 or 2.0 was expected")
    shape, fortran, dtype = readers[version](file)
    if dtype.kind not in "buifSU":
        raise InputError(f"{name} has dtype {dtype}, but numbers or texts were expected")
    length = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or length > size:
        raise InputError(f"{name} promises shape {shape} of {dtype}, but its file has only {size} bytes")
    data = file.read(length)
    if len(data) != length:
        raise InputError(f"{name} is cut off: {len(data)} bytes were found and {length} expected")
    flat = np.frombuffer(data, dtype=dtype)
    return flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)


def texts_of(array: NDArray[Any], name: str) -> list[str]:
    """Return an array of texts, stored as bytes or as unicode, as a list."""
    if array.ndim != 1 or array.dtype.kind not in "SU":
        raise InputError(f"{name} has shape {array.shape} of {array.dtype}, but texts were expected")
    try:
        return [str(text) for text in (np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array)]
    except UnicodeError:
        raise InputError(f"{name} has a text that is not UTF-8") from None


def read_sparse(path: Path) -> NDArray[Any]:
    """Return the matrix in an .npz file that ``scipy.sparse.save_npz`` wrote, dense."""
    names = {"format", "shape", *(name for parts in _PARTS.values() for name in parts)}
    found = read_npz(path, keys=names, where=str(path))
    given = found.get("format")
    kind = "" if given is None or given.ndim else texts_of(given.reshape(1), f"format of {path}")[0]
    if kind not in _PARTS or any(name not in found for name in (*_PARTS[kind], "shape")):
        raise InputError(
            f"{path} is no sparse matrix in the format {', '.join(_PARTS)}; "
            f"a file of scipy.sparse.save_npz was expected"
        )
    sides = found["shape"]
    if sides.shape != (2,) or sides.dtype.kind not in "iu":
        raise InputError(f"{path} is no sparse matrix: its shape is not two whole numbers")
    shape = (int(sides[0]), int(sides[1]))
    return dense_matrix(kind, [found[name] for name in _PARTS[kind]], shape, name=str(path))


def dense_matrix(
    kind: str, parts: Sequence[NDArray[Any]], shape: tuple[int, int], *, name: str
) -> NDArray[Any]:
    """Return the sparse matrix in some arrays, dense; values at the same place are added.

    Args:
        kind: ``csr`` or ``csc``, of which the arrays are values, indices and starts; or ``coo``: values, rows, columns.
        parts: the arrays.
        shape: of the matrix.
        name: of the matrix in errors.
    """
    from scipy import sparse

    values, *places = parts
    if values.ndim != 1 or values.dtype.kind not in "buif":
        raise InputError(
            f"{name} is no sparse matrix: its values have shape {values.shape} of {values.dtype}"
        )
    if any(index.ndim != 1 or index.dtype.kind not in "iu" for index in places):
        raise InputError(f"{name} is no sparse matrix: its indices are not whole numbers in a row")
    if min(shape) >= 0 and shape[0] * shape[1] * values.dtype.itemsize > MAX_DENSE_BYTES:
        raise InputError(
            f"{name} has {shape[0]} x {shape[1]} values, but at most {MAX_DENSE_BYTES} bytes can be made dense; "
            f"reduce its columns, for example with scikit-learn's TruncatedSVD"
        )
    if (cells := shape[0] * shape[1]) > MANY_CELLS and cells > SPARSEST * len(values):
        raise InputError(
            f"{name} has {len(values)} values in {cells} cells; at least one in {SPARSEST} was expected"
        )
    values = values.astype(values.dtype.newbyteorder("="), copy=False)
    first, second = (index.astype(np.int64) for index in places)
    with parsing(f"{name} is no sparse matrix"):
        if kind == "coo":
            return np.asarray(sparse.coo_array((values, (first, second)), shape).toarray())
        matrix = sparse.csr_array if kind == "csr" else sparse.csc_array
        found = matrix((values, first, second), shape)
        found.check_format(full_check=True)  # without it indices of an untrusted file could be anywhere
    return np.asarray(found.toarray())
