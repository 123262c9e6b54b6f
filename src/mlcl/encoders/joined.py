"""Several encoders side by side, each with a weight, and encoders as a text describes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack, issparse

from mlcl.arrays import Arrays
from mlcl.encoders.base import ENCODERS, Encoder, Vectors, check_texts, from_bytes, to_bytes
from mlcl.encoders.sources import kind_of_source
from mlcl.errors import InputError, check_number, nearest
from mlcl.registry import read_options

MOST = 8
"""So many encoders at most."""


@ENCODERS.register("join", summary="Several encoders side by side; written with a plus: words+minilm.")
@dataclass(frozen=True, eq=False)
class Join:
    """Encoders side by side; `join` makes it.

    Attributes:
        parts: the encoders.
        weights: what the rows of each are multiplied by.
    """

    parts: tuple[Encoder, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.parts) <= MOST or len(self.weights) != len(self.parts):
            raise InputError(
                f"there are {len(self.parts)} encoders and {len(self.weights)} weights; expected 1 to {MOST}"
            )
        for weight in self.weights:
            check_number("weights", weight, high=1e6)

    @classmethod
    def fit(cls, texts: Sequence[str]) -> Self:  # noqa: ARG003
        """Refuse: encoders are joined, see `join`."""
        raise InputError("encoder 'join' is written with a plus between others: words+minilm")

    @property
    def width(self) -> int:
        """Return how many numbers a row has."""
        return sum(part.width for part in self.parts)

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return the rows of all encoders side by side: sparse if one of them is."""
        whole = check_texts(texts)
        found = [
            np.float32(weight) * part.encode(whole)
            for part, weight in zip(self.parts, self.weights, strict=True)
        ]
        if not any(issparse(rows) for rows in found):
            return np.concatenate([np.asarray(rows, np.float32) for rows in found], axis=1)
        return csr_matrix(hstack([csr_matrix(rows) for rows in found], format="csr", dtype=np.float32))

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return plain values and named arrays: each encoder is an array of bytes."""
        arrays = {f"part{k}": np.frombuffer(to_bytes(part), np.uint8) for k, part in enumerate(self.parts)}
        return {"weights": list(self.weights)}, arrays

    @classmethod
    def restored(cls, header: Mapping[str, Any], arrays: Arrays) -> Self:
        """Return the encoder that `state` was called on."""
        if not 1 <= len(arrays) <= MOST:
            raise InputError(f"it has {len(arrays)} parts; expected 1 to {MOST}")
        parts = [from_bytes(arrays[f"part{k}"].tobytes()) for k in range(len(arrays))]
        if any(isinstance(part, Join) for part in parts):
            raise InputError("one of its parts is of several parts, too; expected none")
        return cls(tuple(parts), tuple(header["weights"]))


def join(*parts: Encoder, weights: Sequence[float] | None = None) -> Join:
    """Return an encoder whose rows are those of several side by side.

    Args:
        parts: the encoders.
        weights: what the rows of each are multiplied by; 1 each by default.

    >>> from mlcl.encoders.words import Words
    >>> both = join(Words.fit(["a red fox"]), Words.fit([], words=0, hashed=2), weights=[1.0, 0.5])
    >>> both.encode(["red fox"])[:, :2].toarray().round(2)
    array([[0.71, 0.71]], dtype=float32)
    """
    flat = [one for part in parts for one in (part.parts if isinstance(part, Join) else (part,))]
    inner = [w for part in parts for w in (part.weights if isinstance(part, Join) else (1.0,))]
    if weights is None:
        return Join(tuple(flat), tuple(inner))
    if len(weights) != len(flat):
        raise InputError(f"there are {len(weights)} weights for {len(flat)} encoders; expected as many")
    return Join(tuple(flat), tuple(float(w) for w in weights))


def chosen_encoder(spec: str, texts: Sequence[str]) -> Encoder:
    """Return the encoder that a text describes, fitted to texts.

    Args:
        spec: ``words``, ``words,pairs=true``, ``sentence,source=minilm``, or several with a plus between them.
        texts: the first texts.

    >>> chosen_encoder("words,words=2,hashed=4", ["red green", "green blue", "blue"]).width
    6
    """
    parts = [_fitted(part.strip(), texts) for part in spec.split("+")]
    if len(parts) == 1:
        return parts[0]
    return join(*parts)


def _fitted(spec: str, texts: Sequence[str]) -> Encoder:
    name, *pairs = (piece.strip() for piece in spec.split(","))
    if name not in ENCODERS.names():
        return _pretrained(name, pairs)
    found: Encoder = ENCODERS.get(name).fit(texts, **_options(name, pairs))
    return found


def _options(name: str, pairs: Sequence[str]) -> dict[str, Any]:
    """Return the options of an encoder, by the types of its ``fit``."""
    known = {option.name: option for option in read_options(ENCODERS.get(name).fit)}
    found = {}
    for pair in pairs:
        key, _, value = (piece.strip() for piece in pair.partition("="))
        if key not in known:
            raise InputError(
                f"encoder {name!r} takes no option {key!r}; its options are: {', '.join(known) or 'none'}."
                f"{nearest(key, known)}"
            )
        found[key] = value if known[key].type is str else _value(value or "true", f"{name},{key}")
    return found


def _value(text: str, where: str) -> bool | int | float:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, bool | int | float):
        raise InputError(f"{where} is {text!r}; expected true, false or a number")
    return value


def _pretrained(name: str, pairs: Sequence[str]) -> Encoder:
    """Return what a folder or the name of an installed package holds: a table, or a network."""
    kind = kind_of_source(name, known=ENCODERS.names())
    return _fitted(",".join([kind, f"source={name}", *pairs]), [])
