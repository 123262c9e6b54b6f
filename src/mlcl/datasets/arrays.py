"""Arrays of your own: one .npz or .mat, or a folder of .npy files and sparse .npz files.

The .mat format, of versions 5 to 7, is read here, and not by ``scipy.io.loadmat``: that one ends the process on some
damaged files, and files are untrusted. An element is a type, a length and so many bytes; a variable is an element of
elements; numbers, texts and sparse matrices are read, and nothing else.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets.base import as_inputs, known_labels
from mlcl.datasets.npy import dense_matrix, map_npy, read_npz, read_sparse, texts_of
from mlcl.datasets.plan import SOURCES, DatasetPlan, choose_split, make_plan
from mlcl.errors import InputError, check_int, reason
from mlcl.files import read_bounded, slug
from mlcl.labels import Labels, as_labels

SPLITS = ("train", "test")
MORE = ("classes", "known", "known_train", "known_test", "ids", "ids_train", "ids_test")
"""Arrays that need not be there."""


@SOURCES.register(
    "arrays", summary="Arrays x_train, y_train, x_test, y_test [, classes]: .npz, .mat, or a folder of .npy."
)
def read_arrays(
    root: Path,
    *,
    x: str | None = None,
    y: str | None = None,
    test_fraction: float = 1 / 3,
    split_seed: int = 0,
    min_positives: int = 0,
) -> DatasetPlan:
    """Plan a store of ready arrays; they are not resized.

    Args:
        root: an .npz or a .mat (MATLAB's versions 5 to 7) with ``x_train``, ``y_train``, ``x_test``, ``y_test`` and
            optionally ``classes``, or a folder with such .npy files, or .npz files that
            ``scipy.sparse.save_npz`` wrote. Inputs are uint8 images ``[N, C, H, W]``, ``[N, H, W, C]`` or
            ``[N, H, W]``, with 1 or 3 channels, or numbers ``[N, D]``, which become float32 features. Labels
            are 0/1 ``[N, K]``. Arrays ``known_train`` and ``known_test`` of the same shape, or ``known``, say which
            labels are known; ``ids_train`` and ``ids_test``, or ``ids``, name the rows.
        x: name of the array that holds all inputs, where one array has the rows of both splits; ``y`` goes with it.
        y: name of the array that holds all labels.
        test_fraction: fraction of the rows that is held out for testing, with ``x`` and ``y``.
        split_seed: seed of that choice.
        min_positives: leave out classes with fewer positives, counted over all rows.
    """
    if not root.exists():
        raise InputError(
            f"{root} was looked for and does not exist; an .npz, a .mat or a folder of .npy was expected"
        )
    check_int("min_positives", min_positives, 0)
    if (x is None) != (y is None):
        raise InputError(f"x is {x!r} and y is {y!r}; expected the names of two arrays of {root}, or neither")
    parts = [(f"x_{split}", f"y_{split}") for split in SPLITS] if x is None or y is None else [(x, y)]
    found = _arrays(root, [name for pair in parts for name in pair])
    inputs, labels, sizes = _rows(found, parts, root)
    splits = (
        None if len(parts) == 1 else [s for s, size in zip(SPLITS, sizes, strict=True) for _ in range(size)]
    )
    train, _, options = choose_split(
        splits, len(labels), fraction=test_fraction, seed=split_seed, where=str(root)
    )
    width = labels.shape[1]
    names = found.get("classes")
    classes = [f"class-{k}" for k in range(width)] if names is None else texts_of(names, f"classes of {root}")
    known = _beside(found, "known", len(parts), root)
    labels, known = known_labels(labels, known, name=f"known of {root}")
    if min_positives:
        options |= {"min_positives": min_positives}
        often = np.flatnonzero(labels.sum(axis=0, dtype=np.int64) >= min_positives)
        classes, labels = [classes[k] for k in often], labels[:, often]
        known = None if known is None else known[:, often]
    ids = _beside(found, "ids", len(parts), root)
    prefixes = ("row",) if splits is None else SPLITS
    usual = [f"{name}-{i}" for name, size in zip(prefixes, sizes, strict=True) for i in range(size)]
    return make_plan(
        source="arrays",
        root=root,
        name=slug(root.absolute().name.removesuffix(".npz").removesuffix(".mat")),
        classes=classes,
        ids=usual if ids is None else [str(one) for one in ids.ravel().tolist()],
        train=train,
        labels=labels,
        inputs=inputs,
        options=options,
        known=known,
    )


def _beside(found: dict[str, NDArray[Any]], name: str, parts: int, root: Path) -> NDArray[Any] | None:
    """Return an array that goes with the rows, if it is there: whole, or of both splits."""
    names = [name] if parts == 1 else [f"{name}_{split}" for split in SPLITS]
    there = [found[one] for one in names if one in found]
    if there and len(there) < len(names):
        raise InputError(f"{root} has {name} for one split; expected {' and '.join(names)}, or neither")
    return np.concatenate(there) if there else None


def _rows(
    found: dict[str, NDArray[Any]], parts: Sequence[tuple[str, str]], root: Path
) -> tuple[NDArray[Any], Labels, list[int]]:
    """Return the rows of all parts, one after the other, and how many each has."""
    inputs = [_inputs(found[x], f"{x} of {root}") for x, _ in parts]
    pairs = list(zip(inputs, parts, strict=True))
    labels = [as_labels(found[y], name=f"{y} of {root}", rows=len(own)) for own, (_, y) in pairs]
    for k, arrays in enumerate((inputs, labels)):
        if arrays[0].shape[1:] != arrays[-1].shape[1:]:
            raise InputError(
                f"{root} has rows of shape {arrays[0].shape[1:]} in {parts[0][k]} and {arrays[-1].shape[1:]} in "
                f"{parts[-1][k]}, but one shape was expected"
            )
    return np.concatenate(inputs), np.concatenate(labels), [len(own) for own in inputs]


def _arrays(root: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return the arrays by name: all of ``names``, and those of `MORE` that are there."""
    if root.is_dir():
        more = [name for name in MORE if (root / f"{name}.npy").exists()]
        return {key: _array(root, key) for key in (*names, *more)}
    read = read_mat if root.suffix.lower() == ".mat" else read_npz
    found = read(root, keys=(*names, *MORE), where=str(root))
    for key in names:
        if key not in found:
            raise InputError(f"{root} has no array {key!r}, but {', '.join(names)} were expected")
    return found


def _array(folder: Path, key: str) -> NDArray[Any]:
    """Return ``KEY.npy``, or else the sparse matrix ``KEY.npz``."""
    dense, sparse = folder / f"{key}.npy", folder / f"{key}.npz"
    return read_sparse(sparse) if sparse.exists() and not dense.exists() else map_npy(dense)


def _inputs(x: NDArray[Any], name: str) -> NDArray[Any]:
    """Bring images to ``[N, C, H, W]``, and check the inputs."""
    if x.dtype == np.uint8 and x.ndim == 3:
        x = x[:, None]
    elif x.ndim == 4 and x.shape[1] not in (1, 3) and x.shape[3] in (1, 3):
        x = x.transpose(0, 3, 1, 2)
    return as_inputs(x, name=name)


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
