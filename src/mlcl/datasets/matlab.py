"""MATLAB's .mat files of versions 5 to 7: numbers, texts and sparse matrices, and nothing else.

The format is read here, and not by ``scipy.io.loadmat``: that one ends the process on some damaged files, and files are
untrusted. An element is a type, a length and so many bytes; a variable is an element of elements.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets.npy import dense_matrix
from mlcl.errors import InputError, reason
from mlcl.files import read_bounded

MAX_BYTES = 2**31
"""The largest file, and the largest variable that the format itself allows."""

_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_TEXTS = {1: "latin-1", 2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
_MATRIX, _COMPRESSED = 14, 15
_CELL, _CHAR, _SPARSE = 1, 4, 5
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
_COMPLEX = 0x08
_HDF5 = b"\x89HDF\r\n\x1a\n"


def read_mat(source: Path, *, keys: Collection[str], where: str) -> dict[str, NDArray[Any]]:
    """Return those of ``keys`` that a .mat file holds, as dense arrays; the values of other variables are not read."""
    data = read_bounded(source, limit=MAX_BYTES, expected="a .mat of version 5 to 7")
    if data.startswith(_HDF5) or data[512:520] == _HDF5:
        raise InputError(
            f"{where} is a .mat of version 7.3, but version 5 to 7 was expected; save it with -v7, or as .npz"
        )
    order = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}.get(data[124:128])
    if order is None:
        raise InputError(f"{where} is not a readable .mat file: its header is not that of version 5 to 7")
    found: dict[str, NDArray[Any]] = {}
    try:
        for kind, body in _elements(memoryview(data)[128:], order):
            if kind == _COMPRESSED:
                kind, body = next(_elements(_inflated(body), order))
            if kind == _MATRIX:
                variable = _Variable(body, order)
                if variable.name in keys:
                    found[variable.name] = variable.read(f"{variable.name} in {where}")
    except InputError:
        raise
    except Exception as error:  # an untrusted file: whatever does not fit, the file is bad
        raise InputError(f"{where} is not a readable .mat file: {reason(error)}") from None
    return found


def _elements(data: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Yield type and content of consecutive elements; each begins at a multiple of eight bytes."""
    place = 0
    while place + 8 <= len(data):
        kind, size = struct.unpack(f"{order}II", data[place : place + 8])
        start = place + 8
        if kind >> 16:  # a small element: length and type share a word, and the content follows in the next
            kind, size, start = kind & 0xFFFF, kind >> 16, place + 4
        if start + size > len(data):
            raise ValueError(f"an element of {size} bytes is cut off")
        yield kind, data[start : start + size]
        end = start + size
        place = end if kind == _COMPRESSED else end + -end % 8


def _inflated(body: memoryview) -> memoryview:
    inflater = zlib.decompressobj()
    data = inflater.decompress(body, MAX_BYTES)
    if inflater.unconsumed_tail:
        raise ValueError(f"a variable has more than {MAX_BYTES} bytes")
    return memoryview(data)


class _Variable:
    """One variable: its class, shape and name at once, and its values when they are asked for."""

    def __init__(self, body: memoryview, order: str) -> None:
        self.order = order
        self.parts = list(_elements(body, order))
        flags, sides, name = (content for _, content in self.parts[:3])
        word = struct.unpack(f"{order}I", flags[:4])[0]
        self.kind, self.complex = word & 0xFF, bool(word >> 8 & _COMPLEX)
        self.shape = tuple(int(side) for side in np.frombuffer(sides, f"{order}i4"))
        self.name = bytes(name).decode("ascii", "replace")
        if min(self.shape, default=-1) < 0:
            raise ValueError(f"a variable has shape {self.shape}")

    def read(self, label: str) -> NDArray[Any]:
        """Return numbers of any shape, or a vector of texts; ``label`` names the variable in errors."""
        if self.kind == _CELL:
            return np.array([self._cell(*part, label) for part in self.parts[3:]], dtype=np.str_)
        if self.kind == _CHAR:
            return np.array(self._texts(), dtype=np.str_)
        if self.kind not in (*_CLASSES, _SPARSE) or self.complex:
            raise InputError(
                f"{label} is of another kind, but numbers, texts or a sparse matrix were expected"
            )
        if self.kind == _SPARSE:
            return self._sparse(label)
        values = self._numbers(3)
        return values.astype(_CLASSES[self.kind], copy=False).reshape(self.shape, order="F")

    def _numbers(self, place: int) -> NDArray[Any]:
        """Return a part as a vector; it may be of a smaller type than the variable."""
        kind, content = self.parts[place]
        return np.frombuffer(content, self.order + _NUMBERS[kind])

    def _texts(self) -> list[str]:
        """Return the rows of a matrix of characters, which are padded to one length."""
        kind, content = self.parts[3]
        wide = {"<": "-le", ">": "-be"}[self.order] if _TEXTS[kind] in ("utf-16", "utf-32") else ""
        text = bytes(content).decode(_TEXTS[kind] + wide)
        rows = self.shape[0]
        if rows <= 1:
            return [text.rstrip()] * rows
        if len(text) != math.prod(self.shape):
            raise ValueError(f"{len(text)} characters do not fill the shape {self.shape}")
        return [text[row::rows].rstrip() for row in range(rows)]

    def _cell(self, kind: int, content: memoryview, label: str) -> str:
        inner = _Variable(content, self.order) if kind == _MATRIX else None
        if inner is None or inner.kind != _CHAR or inner.shape[0] > 1:
            raise InputError(f"{label} is a cell array of other things than texts, but texts were expected")
        return "".join(inner._texts())

    def _sparse(self, label: str) -> NDArray[Any]:
        rows, starts, values = (self._numbers(place) for place in (3, 4, 5))
        if len(self.shape) != 2:
            raise ValueError(f"a sparse matrix has shape {self.shape}")
        shape = (self.shape[0], self.shape[1])
        return dense_matrix("csc", (values, rows, starts), shape, name=label)
