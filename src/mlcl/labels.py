"""Label matrices: counts of positives and negatives, distinct label vectors, imbalance. Numpy only, no torch.

A label matrix has one row per sample and one column per class, 1 where the class is present. The constants of
the paper are computed here: ``P_k`` (positives of class k), ``N_k`` (negatives), ``n`` (samples) of one task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlcl.errors import InputError

Labels = NDArray[np.uint8]


def as_labels(labels: ArrayLike, *, name: str = "labels", rows: int | None = None) -> Labels:
    """Return ``labels`` as a matrix of 0 and 1; anything else is an `InputError`.

    Args:
        labels: ``[n, K]``; booleans, integers or floats that are exactly 0 or 1, also as a sparse matrix of scipy. A
            uint8 array is not copied.
        name: what to call it in an error.
        rows: the number of rows it must have, if that is known.

    >>> as_labels([[True, False], [False, True]])
    array([[1, 0],
           [0, 1]], dtype=uint8)
    >>> as_labels([[0, 1], [2, 0]], name="y_train")
    Traceback (most recent call last):
    ...
    mlcl.errors.InputError: y_train has the value 2 at row 1, column 0, but only 0 and 1 are allowed
    """
    try:
        array = np.asarray(
            labels.toarray() if hasattr(labels, "toarray") else labels
        )  # scipy's sparse matrices
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} is not a matrix of 0 and 1: {error}") from None
    if array.ndim != 2:
        raise InputError(f"{name} has shape {array.shape}, but a matrix [samples, classes] was expected")
    if array.dtype.kind not in "buif":
        raise InputError(f"{name} has dtype {array.dtype}, but booleans or numbers 0 and 1 were expected")
    if rows is not None and len(array) != rows:
        raise InputError(f"{name} has {len(array)} rows, but {rows} were expected")
    # A maximum is one fast pass; only if it is not enough, every value is compared.
    if array.dtype.kind != "b" and not (array.dtype.kind == "u" and array.max(initial=0) <= 1):
        bad = (array != 0) & (array != 1)  # NaN and infinities differ from both
        if bad.any():
            row, column = np.unravel_index(int(bad.argmax()), bad.shape)
            raise InputError(
                f"{name} has the value {array[row, column]} at row {row}, column {column}, "
                f"but only 0 and 1 are allowed"
            )
    return array.astype(np.uint8, copy=False)


def numbers_without(numbers: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """Return class numbers after class ``k`` is gone: later ones decrease.

    >>> numbers_without(np.array([4, 0, 1, 2]), 1)
    array([3, 0, 1])
    """
    left: NDArray[np.int64] = numbers[numbers != k]
    left -= left > k  # a copy: the mask made one
    return left


@dataclass(frozen=True, eq=False)
class LabelCounts:
    """Positives and negatives of each class: the constants ``P_k``, ``N_k`` and ``n`` (specification.md#notation).

    Counts of two parts of a dataset merge with ``+``. The arrays are read-only.

    Attributes:
        positive: ``P_k``, int64 ``[K]``.
        negative: ``N_k``, int64 ``[K]``.
        total: ``n``, the number of samples. A class may be counted on fewer (``P_k + N_k <= n``), as in the
            counts of several tasks side by side; see `place`.

    >>> a = LabelCounts.of([[1, 0], [1, 1], [0, 0]])
    >>> a
    LabelCounts(positive=array([2, 1]), negative=array([1, 2]), total=3)
    >>> (a + a).positive
    array([4, 2])
    """

    positive: NDArray[np.int64]
    negative: NDArray[np.int64]
    total: int

    def __post_init__(self) -> None:
        positive, negative = (_frozen_counts(getattr(self, name), name) for name in ("positive", "negative"))
        if positive.shape != negative.shape:
            raise InputError(
                f"LabelCounts has {len(positive)} positive and {len(negative)} negative counts, "
                f"but one of each was expected for every class"
            )
        most = int((positive + negative).max(initial=0))
        if int(self.total) != self.total or self.total < most:
            raise InputError(
                f"LabelCounts has total {self.total}, but a whole number of at least {most} (the largest "
                f"positive + negative) was expected"
            )
        object.__setattr__(self, "positive", positive)
        object.__setattr__(self, "negative", negative)
        object.__setattr__(self, "total", int(self.total))

    @classmethod
    def of(cls, labels: ArrayLike, known: NDArray[np.bool_] | None = None) -> LabelCounts:
        """Count a label matrix ``[n, K]``, or the cells of it that are known.

        >>> LabelCounts.of([[1, 0], [0, 0]], np.array([[True, True], [False, True]])).negative
        array([0, 2])
        """
        matrix = as_labels(labels)
        positive = (matrix if known is None else matrix * known).sum(axis=0, dtype=np.int64)
        counted = len(matrix) if known is None else known.sum(axis=0, dtype=np.int64)
        return cls(positive, counted - positive, len(matrix))

    def __add__(self, other: LabelCounts) -> LabelCounts:
        if not isinstance(other, LabelCounts):
            return NotImplemented
        if len(self) != len(other):
            raise InputError(
                f"counts of {len(self)} classes and of {len(other)} classes cannot be added; "
                f"the same classes were expected"
            )
        return LabelCounts(
            self.positive + other.positive, self.negative + other.negative, self.total + other.total
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LabelCounts):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[int, bytes, bytes]:
        return self.total, self.positive.tobytes(), self.negative.tobytes()

    def __len__(self) -> int:
        return len(self.positive)

    @property
    def defined(self) -> NDArray[np.bool_]:
        """Return which classes have both a positive and a negative, bool ``[K]``: the others have no AUC."""
        return (self.positive > 0) & (self.negative > 0)

    @property
    def tau(self) -> NDArray[np.float64]:
        """Return the imbalance ``tau_k = min(P_k, N_k) / n`` (specification.md#imbalance-terms), float64 ``[K]``.

        ``n`` is the class's own ``P_k + N_k``, which is `total` where the counts are those of one dataset. A
        class without counts has 0.

        >>> LabelCounts.of([[1, 0], [1, 1], [1, 0], [0, 0]]).tau
        array([0.25, 0.25])
        """
        counted = self.positive + self.negative
        tau: NDArray[np.float64] = np.minimum(self.positive, self.negative) / np.maximum(counted, 1)
        return tau

    def select(self, columns: ArrayLike) -> LabelCounts:
        """Return the counts of some classes: ``columns`` are class numbers, in the wanted order, or a mask.

        >>> LabelCounts.of([[1, 0, 0], [1, 1, 0]]).select([2, 0]).positive
        array([0, 2])
        """
        index = np.asarray(columns)
        if index.dtype != np.bool_:
            index = _column_numbers(index, len(self))
        elif index.shape != (len(self),):
            raise InputError(f"columns is a mask of shape {index.shape}, but ({len(self)},) was expected")
        return LabelCounts(self.positive[index], self.negative[index], self.total)

    def place(self, columns: ArrayLike, width: int) -> LabelCounts:
        """Return these counts as the columns ``columns`` of ``width`` classes; the others have counts of 0.

        In this way the counts of tasks with different classes add up to one set of counts for all classes.

        >>> old, new = LabelCounts.of([[1, 0], [1, 1]]), LabelCounts.of([[1], [0], [0]])
        >>> old.place([0, 2], 3) + new.place([1], 3)
        LabelCounts(positive=array([2, 1, 1]), negative=array([0, 2, 1]), total=5)
        """
        index = _column_numbers(np.asarray(columns), width)
        if index.shape != (len(self),) or len(np.unique(index)) != len(index):
            raise InputError(
                f"columns is {index.tolist()}, but {len(self)} distinct class numbers were expected"
            )
        positive, negative = np.zeros((2, width), dtype=np.int64)
        positive[index], negative[index] = self.positive, self.negative
        return LabelCounts(positive, negative, self.total)


@dataclass(frozen=True, eq=False)
class Patterns:
    """The distinct label vectors of a matrix, for selection criteria that depend on labels alone.

    Attributes:
        vectors: the distinct label vectors in lexicographic order, uint8 ``[U, K]``.
        inverse: for each sample the number of its vector, int64 ``[n]``, so ``vectors[inverse]`` is the matrix.
        counts: how many samples share each vector, int64 ``[U]``.

    >>> p = Patterns.of([[1, 0], [0, 1], [1, 0]])
    >>> p.vectors.tolist(), p.inverse.tolist(), p.counts.tolist()
    ([[0, 1], [1, 0]], [1, 0, 1], [1, 2])
    """

    vectors: Labels
    inverse: NDArray[np.int64]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, labels: ArrayLike) -> Patterns:
        """Group the rows of a label matrix ``[n, K]``; O(n log n), whatever the number of patterns."""
        matrix = as_labels(labels)
        n = len(matrix)
        words = _words(matrix)
        order = np.lexsort(words[::-1]) if len(words) > 1 else words[0].argsort(kind="stable")
        ordered = words[:, order]
        first = np.ones(n, dtype=np.bool_)
        first[1:] = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
        inverse = np.empty(n, dtype=np.int64)
        inverse[order] = np.cumsum(first) - 1
        counts = np.bincount(inverse, minlength=int(first.sum())).astype(np.int64)
        return cls(matrix[order[first]], inverse, counts)

    def __len__(self) -> int:
        return len(self.vectors)

    def label_counts(self) -> LabelCounts:
        """Return the counts of the whole matrix, computed from its patterns.

        >>> Patterns.of([[1, 0], [0, 1], [1, 0]]).label_counts().positive
        array([2, 1])
        """
        # Whole numbers of at most n: exact as doubles, whose product is fast.
        positive = (self.counts.astype(np.float64) @ self.vectors).astype(np.int64)
        return LabelCounts(positive, self.counts.sum() - positive, int(self.counts.sum()))


@dataclass(frozen=True, eq=False)
class ImbalanceStats:
    """How imbalanced a label matrix is.

    Attributes:
        positive: positives per class, int64 ``[K]``.
        tau: ``min(P_k, N_k) / n`` per class, float64 ``[K]``.
        labels_per_sample: the mean number of labels per sample; nan without samples.
        imbalance_ratio: the largest ``P_k`` over the smallest, among classes with positives; nan without any.
    """

    positive: NDArray[np.int64]
    tau: NDArray[np.float64]
    labels_per_sample: float
    imbalance_ratio: float


def describe(labels: ArrayLike) -> ImbalanceStats:
    """Return the imbalance statistics of a label matrix ``[n, K]``.

    >>> stats = describe([[1, 0, 0], [1, 1, 0], [1, 0, 0], [0, 0, 0]])
    >>> stats.labels_per_sample, stats.imbalance_ratio
    (1.0, 3.0)
    """
    counts = LabelCounts.of(labels)
    present = counts.positive[counts.positive > 0]
    return ImbalanceStats(
        positive=counts.positive,
        tau=counts.tau,
        labels_per_sample=float(counts.positive.sum() / counts.total) if counts.total else float("nan"),
        imbalance_ratio=float(present.max() / present.min()) if present.size else float("nan"),
    )


def _words(matrix: Labels) -> NDArray[np.unsignedinteger[Any]]:
    """Return the label vectors as whole numbers in the same order, ``[words, n]``."""
    n, width = matrix.shape
    if width <= 16:  # sorted in linear time, and faster to multiply than to pack; exact in float32
        places = (2.0 ** np.arange(width - 1, -1, -1)).astype(np.float32)
        return (matrix.astype(np.float32) @ places).astype(np.uint16)[None]
    packed = np.zeros((n, -(-width // 64) * 8), dtype=np.uint8)  # 64 labels to a big-endian word
    packed[:, : -(-width // 8)] = np.packbits(matrix, axis=1)
    return packed.view(">u8").astype(np.uint64).T


def _frozen_counts(values: ArrayLike, name: str) -> NDArray[np.int64]:
    """Return a read-only int64 copy of a vector of counts."""
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and (array.dtype.kind not in "uif" or not np.isfinite(array).all())):
        raise InputError(
            f"{name} of LabelCounts has shape {array.shape}, but a vector of counts was expected"
        )
    counts = array.astype(np.int64)
    if (counts != array).any() or (counts < 0).any():
        raise InputError(f"{name} of LabelCounts is {array.tolist()}, but whole numbers >= 0 were expected")
    counts.setflags(write=False)
    return counts


def _column_numbers(columns: NDArray[Any], width: int) -> NDArray[np.int64]:
    """Check class numbers 0..width-1."""
    if columns.ndim != 1 or (columns.size and columns.dtype.kind not in "ui"):
        raise InputError(f"columns is {columns.tolist()}, but a vector of class numbers was expected")
    index = columns.astype(np.int64)
    if index.size and (index.min() < 0 or index.max() >= width):
        raise InputError(
            f"columns is {index.tolist()}, but class numbers from 0 to {width - 1} were expected"
        )
    return index
