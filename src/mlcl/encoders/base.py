"""The rules that every encoder of texts keeps, and their registry.

An encoder turns texts into vectors. It is a frozen object in one file, its class decorated with ``ENCODERS.register``:

- ``fit(texts, *, options...)``, a class method: the encoder that texts determine; one that was trained elsewhere looks
  at none of them. The options are keyword-only, with types, defaults and lines in the docstring.
- ``encode(texts)``: a row for each text, float32 ``[n, width]``, an array or a CSR matrix. A row depends on its own
  text alone. A text that says nothing to the encoder is a row of zeros; no value is ever nan or infinite.
- ``width``: how many numbers a row has.
- ``state()``: plain values and named arrays; ``restored(header, arrays)``, a class method, makes the encoder again from
  them, and refuses with an `InputError` whatever it could not have written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from mlcl.arrays import Arrays, Format
from mlcl.errors import InputError, one_line
from mlcl.registry import Registry

Vectors: TypeAlias = "NDArray[np.float32] | csr_matrix"
LONGEST = 32 << 20
"""A text has at most so many characters."""
ENCODER_FILE = Format("mlcl-encoder", 1, what="an encoder")


class Encoder(Protocol):
    """What an encoder has; see this module."""

    @property
    def width(self) -> int:
        """Return how many numbers a row has."""

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return a row for each text."""

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return plain values and named arrays."""

    @classmethod
    def restored(cls, header: Mapping[str, Any], arrays: Arrays) -> Self:
        """Return the encoder that `state` was called on."""


ENCODERS: Registry[Any] = Registry("encoder")


def kind_of(encoder: Encoder) -> str:
    """Return the name under which an encoder is registered."""
    return next(name for name in ENCODERS.names() if ENCODERS.get(name) is type(encoder))


def check_texts(texts: Sequence[str]) -> list[str]:
    """Return texts in which every character is Unicode; anything else than texts is an `InputError`.

    >>> check_texts(["a", "b\\ud800"])
    ['a', 'b?']
    >>> check_texts(["a", None])
    Traceback (most recent call last):
    ...
    mlcl.errors.InputError: text 2 is a NoneType; expected a text
    """
    if isinstance(texts, str | bytes):
        raise InputError("texts is one text; expected a list of texts")
    found = list(texts)
    for place, text in enumerate(found, 1):
        if not isinstance(text, str):
            raise InputError(f"text {place} is a {type(text).__name__}; expected a text")
        if len(text) > LONGEST:
            raise InputError(f"text {place} has {len(text):,} characters; expected at most {LONGEST:,}")
    return [text if text.isascii() else text.encode(errors="replace").decode() for text in found]


def unit_rows(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return rows of length 1; rows of zeros stay as they are."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1), np.float32)


def to_bytes(encoder: Encoder) -> bytes:
    """Return an encoder as one file; `from_bytes` reads it."""
    header, arrays = encoder.state()
    return ENCODER_FILE.pack(arrays, {"kind": kind_of(encoder), **header})


def from_bytes(content: bytes, *, where: str = "the encoder") -> Encoder:
    """Return the encoder in a file, which is untrusted: nothing of it is run."""
    try:
        header, arrays = ENCODER_FILE.unpack(content, source=where)
        found: Encoder = ENCODERS.get(header["kind"]).restored(header, arrays)
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InputError(f"{where} cannot be used: {one_line(error)}") from None
    return found


def texts_array(texts: Sequence[str]) -> NDArray[np.uint8]:
    """Return texts as an array of bytes: JSON."""
    return np.frombuffer(json.dumps(list(texts)).encode(), np.uint8)


def array_texts(array: NDArray[Any]) -> tuple[str, ...]:
    """Return the texts of `texts_array`."""
    found = json.loads(np.asarray(array, np.uint8).tobytes())
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise InputError("its texts are no list of texts")
    return tuple(found)
