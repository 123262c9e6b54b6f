"""Named arrays in one file: a header of JSON, arrays of numbers, and a checksum of both.

A file is written whole or not at all, and read within bounds. It may come from anywhere: nothing in it runs, and what
is not as its `Format` and `check_arrays` say is an `InputError`. Inside it is a safetensors file, so other programs
can read the arrays. This is the only module that knows that.

    >>> import tempfile
    >>> taggers = Format("example-tagger", 1, what="a tagger")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     taggers.write(Path(folder) / "a", {"weights": np.ones((2, 3))}, {"classes": ["ant", "bee"]})
    ...     header, arrays = taggers.read(Path(folder) / "a")
    >>> header["classes"], arrays["weights"].shape
    (['ant', 'bee'], (2, 3))
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from mlcl.errors import InputError, one_line
from mlcl.files import open_regular, read_bounded, write_bytes

if TYPE_CHECKING:
    from torch import Tensor

ENDING = ".safetensors"
MAX_BYTES = 64 << 30
_KEY = "mlcl"
_MAX_HEADER_BYTES = 100_000_000  # what safetensors allows
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Format:
    """A kind of file: what it is called, and what of it is read.

    Attributes:
        name: stands in the header.
        version: stands in the header; another one is refused.
        what: the file is, in words.
        limit: the largest size in bytes.
        plain: whether a file without header and checksum is read too, as version 0.1 wrote it; whoever reads it has a
            checksum of its own.
    """

    name: str
    version: int
    what: str
    limit: int = MAX_BYTES
    plain: bool = False

    def pack(self, arrays: Arrays, header: Mapping[str, Any] | None = None) -> bytes:
        """Return the content of a file; ``header`` has plain values besides format, version and checksum."""
        whole = {name: np.asarray(value, order="C") for name, value in arrays.items()}
        fields = {"format": self.name, "version": self.version, **(header or {})}
        return save(whole, {_KEY: json.dumps({**fields, "sha256": digest(fields, whole)})})

    def write(self, path: Path, arrays: Arrays, header: Mapping[str, Any] | None = None) -> None:
        """Write a file, whole or not at all; one that was there is replaced."""
        write_bytes(path, self.pack(arrays, header))

    def unpack(self, content: bytes, *, source: Path | str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return header and arrays of the content of a file."""
        header = self._header(io.BytesIO(content), source)
        try:
            arrays = load(content)
        except Exception as error:  # the parser of an untrusted file may raise anything
            raise InputError(f"{source}: is damaged: {one_line(error)}.") from None
        if header.pop("sha256", None) != digest(header, arrays) and (header or not self.plain):
            raise InputError(f"{source} is corrupt: its checksum does not match its content.")
        return header, arrays

    def read(self, path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return header and arrays of a file."""
        return self.unpack(read_bounded(path, limit=self.limit, expected=self.what), source=path)

    def read_header(self, path: Path) -> dict[str, Any]:
        """Return the header of a file, without reading its arrays."""
        try:
            with open_regular(path) as file:
                return self._header(file, path)
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}; expected {self.what}.") from None

    def _header(self, file: io.BufferedIOBase, source: Path | str) -> dict[str, Any]:
        header = _metadata(file, source, self.what)
        if header is None and self.plain:
            return {}
        if header is None or header.get("format") != self.name:
            raise InputError(f"{source} is a safetensors file, but not one of {self.what}.")
        if header.get("version") != self.version:
            raise InputError(
                f"{source} has the format version {header.get('version')!r}, but this mlcl reads {self.version}."
            )
        return header


FOREIGN = Format("", 0, what="a safetensors file of numbers", plain=True)
"""What other programs write."""


def _metadata(file: io.BufferedIOBase, source: Path | str, what: str) -> dict[str, Any] | None:
    """Return what mlcl wrote at the head of a safetensors file; None if another program wrote it."""
    size = int.from_bytes(file.read(8), "little")
    try:
        if size > _MAX_HEADER_BYTES:
            raise ValueError("its header is too large")
        text = json.loads(file.read(size)).get("__metadata__", {}).get(_KEY)
        header = None if text is None else json.loads(text)
        if not isinstance(header, dict | None):
            raise TypeError("its header is no object")
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{source} is not {what}, or corrupt: {one_line(error)}.") from None
    return header


def digest(header: Mapping[str, Any], arrays: Arrays) -> str:
    """Return a SHA-256 over the header, and over names, types, shapes and bytes of the arrays."""
    found = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name, value in sorted(arrays.items()):
        found.update(f"{name} {value.dtype} {list(value.shape)} ".encode())
        found.update(np.asarray(value, order="C").data)
    return found.hexdigest()


@dataclass(frozen=True)
class Like:
    """What an array should be.

    Attributes:
        dtype: the name of its type.
        shape: the size of each axis; a name stands for a size that all arrays share, None for any.
    """

    dtype: str
    shape: tuple[int | str | None, ...]

    def __str__(self) -> str:
        return f"{self.dtype} [{', '.join('any' if size is None else str(size) for size in self.shape)}]"


def check_arrays(arrays: Arrays, expected: Mapping[str, Like], **sizes: int) -> dict[str, int]:
    """Refuse arrays that are missing, that do not belong, and those of another type or shape; return the sizes.

    >>> like = {"x": Like("float64", ("rows", "features")), "y": Like("uint8", ("rows",))}
    >>> check_arrays({"x": np.ones((2, 3)), "y": np.ones(2, np.uint8)}, like, features=3)
    {'features': 3, 'rows': 2}
    >>> check_arrays({"x": np.ones((2, 3)), "y": np.ones(3, np.uint8)}, like)
    Traceback (most recent call last):
    ...
    mlcl.errors.InputError: the array 'y' is uint8 of shape (3,); expected uint8 [rows] with rows = 2
    """
    for name in sorted({*arrays} ^ {*expected}):
        raise InputError(f"the array {name!r} {'is missing' if name in expected else 'does not belong'}")
    for name, like in expected.items():
        value = arrays[name]
        fits = value.dtype == like.dtype and value.ndim == len(like.shape)
        if fits:
            wanted = [
                sizes.setdefault(s, n) if isinstance(s, str) else s
                for s, n in zip(like.shape, value.shape, strict=True)
            ]
            fits = all(want in (size, None) for want, size in zip(wanted, value.shape, strict=True))
        if not fits:
            known = ", ".join(f"{key} = {size}" for key, size in sizes.items() if key in like.shape)
            where = f" with {known}" if known else ""
            raise InputError(
                f"the array {name!r} is {value.dtype} of shape {value.shape}; expected {like}{where}"
            )
    return sizes


def section(arrays: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the arrays whose names begin with a prefix and a dot, without it.

    >>> section({"network.w": 1, "memory.rows": 2}, "network")
    {'w': 1}
    """
    start = f"{prefix}."
    return {name.removeprefix(start): value for name, value in arrays.items() if name.startswith(start)}


def to_arrays(tensors: Mapping[str, Tensor]) -> dict[str, NDArray[Any]]:
    """Return tensors as arrays, which share their memory where they can."""
    return {name: value.detach().cpu().numpy() for name, value in tensors.items()}


def to_tensors(arrays: Arrays) -> dict[str, Tensor]:
    """Return arrays as tensors, which share their memory."""
    from torch import from_numpy

    return {name: from_numpy(value) for name, value in arrays.items()}


def read_foreign(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file of another program, of any type; whatever is wrong with it raises an error."""
    from safetensors.torch import load_file

    with open_regular(path):  # a pipe or device would be waited for
        return load_file(path)
