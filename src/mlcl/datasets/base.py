"""A dataset: inputs and one label matrix for each split, checked once, with a fingerprint of its content."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlcl.datasets.tags import is_tags, label_matrix, warn_of_alike
from mlcl.errors import InputError
from mlcl.labels import LabelCounts, Labels, as_labels

Kind = Literal["images", "features"]

WHOLE_BYTES = 256 * 2**20
"""Inputs up to this size enter the fingerprint whole; of larger ones, evenly spaced rows of this size."""

_CHUNK_BYTES = 16 * 2**20  # inputs may be a memory map larger than memory, so they are read in pieces


def as_array(value: Any, *, name: str = "inputs") -> NDArray[Any]:
    """Return a numpy array from an array, nested lists, a sparse matrix of scipy, or a torch tensor on any device.

    Memory maps stay maps. Tensors are known by their ``detach`` method, so torch need not be imported. A
    bfloat16 tensor, which numpy has no type for, becomes float32.
    """
    if hasattr(value, "detach"):
        tensor = value.detach().cpu()
        try:
            value = tensor.numpy()
        except TypeError:
            value = tensor.float().numpy()
    elif hasattr(value, "toarray"):  # a sparse matrix of scipy; stores and batches are dense
        value = value.toarray()
    try:
        return np.asanyarray(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} is not an array: {error}") from None


@dataclass(frozen=True, eq=False)
class Split:
    """The training or the test part of a dataset.

    Attributes:
        inputs: uint8 images ``[N, C, H, W]``, or float32 features ``[N, D]``; may be a memory map.
        labels: uint8 ``[N, K]``, 1 where the class is present.
        known: which labels are known, bool ``[N, K]``; None: all. One that is not known is 0 in ``labels``, and means
            nothing: no loss, sum or metric has it.
    """

    inputs: NDArray[Any]
    labels: Labels
    known: NDArray[np.bool_] | None = None

    def __repr__(self) -> str:
        """Show sizes, not the arrays: a notebook prints what a cell returns.

        >>> Split(np.zeros((3, 2), np.float32), np.zeros((3, 5), np.uint8))
        Split(inputs=float32 [3, 2], labels=[3, 5])
        """
        return (
            f"Split(inputs={self.inputs.dtype} {list(self.inputs.shape)}, labels={list(self.labels.shape)})"
        )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def kind(self) -> Kind:
        """Return whether the inputs are images or feature vectors."""
        return "images" if self.inputs.ndim == 4 else "features"

    @classmethod
    def of(
        cls, inputs: ArrayLike, labels: ArrayLike, known: ArrayLike | None = None, *, name: str = "train"
    ) -> Split:
        """Check inputs and labels (numpy, torch or lists) and bring them to their types; see `Dataset.of`."""
        x = as_inputs(inputs, name=f"x_{name}")
        y = as_labels(as_array(labels, name=f"y_{name}"), name=f"y_{name}", rows=len(x))
        return cls(x, *known_labels(y, known, name=f"known_{name}"))

    def select(self, classes: NDArray[np.int64]) -> Split:
        """Return the split with some of the classes."""
        known = None if self.known is None else self.known[:, classes]
        return Split(self.inputs, self.labels[:, classes], known)

    def without(self, k: int) -> Split:
        """Return the split without a class."""
        return self.select(np.delete(np.arange(self.labels.shape[1]), k))

    def cells(self, rows: NDArray[np.int64], classes: NDArray[np.int64] | None = None) -> dict[str, Any]:
        """Return ``labels`` and ``mask`` of some rows and classes, as metrics take them; of all classes by default."""
        own = rows if classes is None else np.ix_(rows, classes)
        return {"labels": self.labels[own], "mask": None if self.known is None else self.known[own]}

    def counts(self, rows: NDArray[np.int64], classes: NDArray[np.int64] | None = None) -> LabelCounts:
        """Return the positives and negatives among the known labels of some rows and classes."""
        return LabelCounts.of(*self.cells(rows, classes).values())


@dataclass(frozen=True, eq=False)
class Dataset:
    """Two splits over the same classes, and a fingerprint. Made by `Dataset.of`, which checks everything.

    ``origin`` states how features were computed, where a model computed them (``mlcl data features``).

    >>> y = [[1, 0], [1, 1], [0, 1]]
    >>> data = Dataset.of("tiny", ["cat", "dog"], np.eye(3), y, np.eye(3)[:2], y[:2])
    >>> data.kind, data.train.inputs.dtype.name, len(data.train), len(data.test)
    ('features', 'float32', 3, 2)
    """

    name: str
    classes: tuple[str, ...]
    train: Split
    test: Split
    fingerprint: str
    augmentation: str = "flip-crop"
    """The augmentation that leaves labels true, which ``--augment auto`` uses: a mirrored photograph shows what
    it showed, a mirrored digit does not."""
    origin: Mapping[str, Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """The options that its store, or the source of its features, was prepared with, such as ``difficult`` of VOC."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """How many images its store leaves out by the rules of the source, by reason."""
    encoder: bytes | None = None
    """The file of the encoder that made these vectors of other inputs, if one did; every tagger on them gets a copy."""

    def __repr__(self) -> str:
        """Show sizes, not the arrays."""
        return (
            f"Dataset({self.name!r}, {len(self.classes)} classes, train={self.train}, test={self.test}, "
            f"fingerprint={self.fingerprint!r})"
        )

    @property
    def kind(self) -> Kind:
        """Return whether the inputs are images or feature vectors."""
        return self.train.kind

    @classmethod
    def of(
        cls,
        name: str,
        classes: Sequence[str] | None,
        x_train: ArrayLike,
        y_train: ArrayLike,
        x_test: ArrayLike,
        y_test: ArrayLike,
        known_train: ArrayLike | None = None,
        known_test: ArrayLike | None = None,
    ) -> Dataset:
        """Check the parts of a dataset and put them together.

        Args:
            name: the name of the dataset.
            classes: one name for each column of the labels; None names them ``class-0``, ``class-1``, ...
            x_train: uint8 images ``[N, C, H, W]`` with 1 or 3 channels, or finite numbers ``[N, D]``, which
                become float32.
            y_train: 0 or 1, ``[N, K]``; or a list or set of tags per row. Then ``classes`` are by default all tags of
                both splits, sorted.
            x_test: like ``x_train``, and of the same shape except for the number of rows.
            y_test: like ``y_train``, for the same classes.
            known_train: which labels are known, ``[N, K]``; all by default.
            known_test: like ``known_train``.

        >>> Dataset.of("tiny", None, np.eye(2), [["dog"], ["cat", "dog"]], np.eye(2), [{"cat"}, set()]).classes
        ('cat', 'dog')
        """
        if is_tags(y_train) or is_tags(y_test):
            classes, y_train, y_test = _from_tags(classes, y_train, y_test)
        train = Split.of(x_train, y_train, known_train, name="train")
        test = Split.of(x_test, y_test, known_test, name="test")
        width = train.labels.shape[1]
        if test.labels.shape[1] != width:
            raise InputError(
                f"y_test has {test.labels.shape[1]} columns and y_train has {width}, "
                f"but the same classes were expected"
            )
        if test.inputs.shape[1:] != train.inputs.shape[1:]:
            raise InputError(
                f"x_test has rows of shape {test.inputs.shape[1:]} and x_train of {train.inputs.shape[1:]}, "
                f"but one shape was expected"
            )
        names = _class_names(classes, width)
        return cls(name, names, train, test, content_fingerprint(names, train, test))


def known_labels(
    labels: Labels, known: ArrayLike | None, *, name: str
) -> tuple[Labels, NDArray[np.bool_] | None]:
    """Return labels that are 0 where they are not known, and which are known; None where all are."""
    if known is None:
        return labels, None
    found = as_labels(as_array(known, name=name), name=name, rows=len(labels)).view(np.bool_)
    if found.shape != labels.shape:
        raise InputError(f"{name} has shape {found.shape}; expected {labels.shape}, as the labels have")
    return (labels, None) if found.all() else (labels * found, found)


def _from_tags(
    classes: Sequence[str] | None, y_train: Any, y_test: Any
) -> tuple[Sequence[str], Labels, Labels]:
    """Return class names and label matrices of tags per row."""
    for name, y in (("y_train", y_train), ("y_test", y_test)):
        if not is_tags(y):
            raise InputError(
                f"{name} is no list of tags per row, but the other split is; expected both alike"
            )
        for tag in (tag for row in y for tag in row):
            if not isinstance(tag, str | int) or isinstance(tag, bool):
                raise InputError(f"{name} has the tag {tag!r}, but a text or a whole number was expected")
    rows = [[str(tag) for tag in row] for y in (y_train, y_test) for row in y]
    names, matrix = label_matrix(rows, classes=classes, where="y_train and y_test")
    warn_of_alike(names, matrix.sum(axis=0, dtype=np.int64), where="y_train and y_test")
    return names, matrix[: len(y_train)], matrix[len(y_train) :]


def as_inputs(inputs: ArrayLike, *, name: str = "inputs") -> NDArray[Any]:
    """Return uint8 images ``[N, C, H, W]`` or float32 features ``[N, D]``; anything else is an `InputError`."""
    x = as_array(inputs, name=name)
    if x.dtype.kind not in "buif":
        raise InputError(f"{name} has dtype {x.dtype}, but numbers were expected")
    if x.ndim not in (2, 4) or x.size == 0:
        expected = "images [N, C, H, W] or features [N, D], and at least one row, were expected"
        raise InputError(f"{name} has shape {x.shape}, but {expected}")
    if x.ndim == 4:
        if x.dtype != np.uint8:
            expected = "uint8 pixels, 0 to 255, were expected"
            raise InputError(f"{name} has images of dtype {x.dtype}, but {expected}")
        if x.shape[1] not in (1, 3):
            hint = "; move the channels from the last axis to the second" if x.shape[3] in (1, 3) else ""
            raise InputError(
                f"{name} has shape {x.shape}, but images [N, C, H, W] with C = 1 or 3 were expected{hint}"
            )
        return x
    with np.errstate(over="ignore"):  # a number too large for float32 is found as an infinity just below
        x = x.astype(np.float32, copy=False)
    start = 0
    for chunk in _chunks(x):
        finite = np.isfinite(chunk)
        if not finite.all():
            row, column = np.unravel_index(int(finite.argmin()), finite.shape)
            raise InputError(
                f"{name} has the value {chunk[row, column]} at row {start + row}, column {column}, "
                f"but finite numbers (in float32) were expected"
            )
        start += len(chunk)
    return x


def content_fingerprint(classes: Sequence[str], train: Split, test: Split) -> str:
    """Return 16 hexadecimal digits of a SHA-256 over class names, labels and inputs; the name does not count.

    Inputs over `WHOLE_BYTES` are sampled: evenly spaced rows that together are about that size. Labels,
    shapes and types count in full, so all that can go unseen is a change to inputs between the sampled rows.
    """
    digest = hashlib.sha256(json.dumps(list(classes)).encode())
    for split in (train, test):
        x = split.inputs
        digest.update(json.dumps([list(x.shape), x.dtype.name, list(split.labels.shape)]).encode())
        digest.update(np.ascontiguousarray(split.labels).tobytes())
        if split.known is not None:
            digest.update(np.packbits(split.known).tobytes())
        step = max(1, -(-x.nbytes // WHOLE_BYTES))
        for chunk in _chunks(x[::step]):
            # One byte order, so that one dataset has one fingerprint on every machine.
            digest.update(np.ascontiguousarray(chunk, dtype=x.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()[:16]


def _chunks(x: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield consecutive rows of ``x``, some 16 MB at a time."""
    rows = max(1, _CHUNK_BYTES * len(x) // max(1, x.nbytes))
    for start in range(0, len(x), rows):
        yield x[start : start + rows]


def _class_names(classes: Sequence[str] | None, width: int) -> tuple[str, ...]:
    """Check that there is one distinct name for each class."""
    if width == 0:
        raise InputError("y_train has 0 columns, but at least one class was expected")
    names = tuple(f"class-{k}" for k in range(width)) if classes is None else tuple(classes)
    if len(names) != width:
        raise InputError(f"classes has {len(names)} names, but the labels have {width} columns")
    check_distinct(names, "name", "classes")
    return names


def check_distinct(names: Sequence[Any], noun: str, where: str) -> None:
    """Refuse blank, unprintable or repeated names."""
    seen: set[str] = set()
    for name in names:
        # Half a surrogate pair cannot be written down.
        if not isinstance(name, str) or not name.strip() or re.search("[\ud800-\udfff]", name):
            raise InputError(f"{where} has the {noun} {name!r}, but a name that is not blank was expected")
        if name in seen:
            raise InputError(f"{where} has the {noun} {name!r} twice, but distinct ones were expected")
        seen.add(name)


def joined_known(*splits: Split) -> NDArray[np.bool_] | None:
    """Return which labels of the rows of several splits are known; None: all."""
    known = [split.known for split in splits]
    if all(one is None for one in known):
        return None
    pairs = zip(known, splits, strict=True)
    return np.concatenate([np.ones(s.labels.shape, np.bool_) if one is None else one for one, s in pairs])


class ConcatRows:
    """Rows of two arrays, one after the other, without a copy of either."""

    def __init__(self, first: NDArray[Any], second: NDArray[Any]) -> None:
        self.parts = (first, second)
        self.shape = (len(first) + len(second), *second.shape[1:])
        self.dtype, self.ndim = second.dtype, second.ndim
        self.nbytes = first.nbytes + second.nbytes

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, index: Any) -> NDArray[Any]:
        """Return the rows of a slice or of row numbers, as a new array."""
        rows = np.arange(len(self))[index]
        out = np.empty((len(rows), *self.shape[1:]), self.dtype)
        late = rows >= len(self.parts[0])
        out[~late] = self.parts[0][rows[~late]]
        out[late] = self.parts[1][rows[late] - len(self.parts[0])]
        return out


def shared_rows(train: NDArray[Any], test: NDArray[Any]) -> NDArray[np.int64]:
    """Return ``[m, 2]``: each test row that equals a training row, after the first such training row.

    Images that differ in one pixel, such as the same photograph compressed twice, are not found.
    """
    first: dict[bytes, int] = {}
    for row, digest in enumerate(map(_digest, train)):
        first.setdefault(digest, row)
    found = [(first[digest], row) for row, digest in enumerate(map(_digest, test)) if digest in first]
    return np.array(found, np.int64).reshape(-1, 2)


def _digest(row: NDArray[Any]) -> bytes:
    return hashlib.blake2b(row.tobytes(), digest_size=16).digest()
