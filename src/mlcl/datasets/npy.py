"""Untrusted numpy files: never pickle, and never more memory than the file really holds."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets.archives import reason
from mlcl.errors import InputError
from mlcl.files import check_regular

MAGIC = np.lib.format.MAGIC_PREFIX
MAX_ARRAY_BYTES = 32 * 2**30
"""The largest array that is read into memory; larger ones can come as .npy files, which are mapped."""


def map_npy(path: Path) -> NDArray[Any]:
    """Return an .npy file as a read-only memory map."""
    try:
        check_regular(path)
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{path} was looked for and does not exist") from None
    except Exception as error:  # the parser of an untrusted file: whatever it trips over, the file is bad
        raise InputError(f"{path} is not a readable .npy file: {_why(path, error)}") from None
    return array


def _why(path: Path, error: Exception) -> str:
    """Return what is wrong with a file. Numpy takes any unknown file for a pickle, and says how to run its code."""
    if path.is_dir():
        return "it is a folder"
    if isinstance(error, ValueError):
        with path.open("rb") as file:
            head = file.read(len(MAGIC))
        if head != MAGIC:
            return "it does not begin as such a file does"
    return reason(error)


def read_npz(source: Path | bytes, *, keys: Collection[str], where: str) -> dict[str, NDArray[Any]]:
    """Return those of ``keys`` that an .npz file holds; other arrays in it are not looked at.

    >>> buffer = io.BytesIO()
    >>> np.savez(buffer, a=np.arange(3), b=np.zeros(2))
    >>> read_npz(buffer.getvalue(), keys={"a", "c"}, where="x.npz")
    {'a': array([0, 1, 2])}
    """
    found: dict[str, NDArray[Any]] = {}
    try:
        if not isinstance(source, bytes):
            check_regular(source)
        with zipfile.ZipFile(io.BytesIO(source) if isinstance(source, bytes) else source) as archive:
            for info in archive.infolist():
                key = info.filename.removesuffix(".npy")
                if key in keys and info.filename != key:
                    with archive.open(info) as file:
                        found[key] = _read(file, info.file_size, f"{key} in {where}")
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{where} was looked for and does not exist") from None
    except Exception as error:  # the parser of an untrusted file: whatever it trips over, the file is bad
        raise InputError(f"{where} is not a readable .npz file: {reason(error)}") from None
    return found


def _read(file: IO[bytes], size: int, name: str) -> NDArray[Any]:
    """Read one array whose header agrees with the ``size`` in bytes of its file."""
    if size > MAX_ARRAY_BYTES:
        raise InputError(f"{name} has {size} bytes, but at most {MAX_ARRAY_BYTES} are allowed")
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
    else:
        raise InputError(f"{name} has the .npy version {version}, but 1.0 or 2.0 was expected")
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
