"""MATLAB's .mat files up to version 7, read with scipy: numbers, texts and sparse matrices, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets.archives import reason
from mlcl.datasets.sparse import to_dense
from mlcl.errors import InputError

MAX_BYTES = 2**31
"""The largest file and the largest array: version 7 itself allows no larger variable."""
_HDF5 = b"\x89HDF\r\n\x1a\n"


def read_mat(source: Path, *, keys: Collection[str], where: str) -> dict[str, NDArray[Any]]:
    """Return those of ``keys`` that a .mat file holds, as dense arrays; other variables are not read.

    Args:
        source: the file.
        keys: names of variables.
        where: the file's name in errors.
    """
    import scipy.io

    try:
        with source.open("rb") as file:
            head = file.read(520)  # version 7.3 is HDF5, after a header of 512 bytes or without one
        if head.startswith(_HDF5) or head[512:] == _HDF5:
            raise InputError(
                f"{where} is a .mat of version 7.3, but version 7 was expected; save it with -v7, or as .npz"
            )
        if source.stat().st_size > MAX_BYTES:
            raise InputError(f"{where} has more than {MAX_BYTES} bytes, but a .mat of version 7 was expected")
        for name, shape, kind in scipy.io.whosmat(str(source)):
            if name in keys and kind != "sparse" and 8 * math.prod(shape) > MAX_BYTES:
                raise InputError(f"{name} in {where} has shape {shape}, which is more than {MAX_BYTES} bytes")
        found = scipy.io.loadmat(str(source), variable_names=list(keys))
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{where} was looked for and does not exist") from None
    except Exception as error:  # the parser of an untrusted file: whatever it trips over, the file is bad
        raise InputError(f"{where} is not a readable .mat file: {reason(error)}") from None
    return {key: _plain(found[key], f"{key} in {where}") for key in keys if key in found}


def _plain(value: Any, name: str) -> NDArray[Any]:
    """Return a variable as numbers, or as a vector of texts."""
    if hasattr(value, "toarray"):
        return to_dense(value, name=name)
    array = np.asarray(value)
    if array.dtype.kind in "buif":
        return array
    if array.dtype.kind == "O":  # a cell array: MATLAB's usual list of texts
        cells = [np.asarray(cell) for cell in array.ravel()]
        if all(cell.dtype.kind == "U" and cell.size == 1 for cell in cells):
            return np.array([str(cell.item()) for cell in cells], dtype=np.str_)
    elif array.dtype.kind == "U":  # a matrix of characters: its rows are padded to one length
        return np.array([str(text).rstrip() for text in array.ravel()], dtype=np.str_)
    raise InputError(f"{name} is a {array.dtype.name} of MATLAB, but numbers or texts were expected")
