"""Work on the columns (classes) of a score matrix: positives and negatives sorted separately, ties counted, on threads.

The loop over classes is a Python loop: each iteration is a few numpy calls on a whole column, O(n log n), and the
classes are distributed over threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlcl.engines.cores import cores
from mlcl.metrics.inputs import Bools, Floats, Scores

Column = NDArray[Any]
Kernel = Callable[[Column, Bools], float]
G = TypeVar("G", bound=np.generic)
T = TypeVar("T")
R = TypeVar("R")

# Below this many numbers a thread pool costs more than it saves.
_WORTH_THREADS = 1 << 17
_THREADS = 8  # at most
# Bytes copied at a time when a matrix is turned: what fits the inner caches.
_SLAB = 1 << 16


def by_class(kernel: Kernel, values: Scores, truth: Bools, known: Bools | None = None) -> Floats:
    """Return ``kernel(column, positive)`` of each class, float64 ``[K]``.

    The kernel may overwrite the scores of the class that it gets, ``[n]``; of a class only the known rows are passed.

    >>> scores, labels = np.array([[3.0], [1.0], [2.5]]), np.array([[True], [False], [False]])
    >>> by_class(lambda column, positive: column[positive].mean(), scores, labels)
    array([3.])
    """
    return np.array(each_class(kernel, values, truth, known), dtype=np.float64)


def each_class(
    work: Callable[[Column, Bools], R], values: Scores, truth: Bools, known: Bools | None = None
) -> list[R]:
    """Return ``work(column, positive)`` of each class, whatever that is; arguments as in `by_class`."""
    # One share of the classes per thread, and never a copy of more than 64 columns at a time.
    width = min(64, max(1, -(-values.shape[1] // min(cores(), _THREADS))))

    def share(start: int) -> list[R]:
        part = slice(start, start + width)
        columns, positives = transposed(values[:, part]), transposed(truth[:, part])
        if known is None:
            return [work(column, positive) for column, positive in zip(columns, positives, strict=True)]
        triples = zip(columns, positives, transposed(known[:, part]), strict=True)
        return [work(column[keep], positive[keep]) for column, positive, keep in triples]

    shares = in_threads(share, range(0, values.shape[1], width), size=values.size)
    return [value for part in shares for value in part]


def ordered_pairs(column: Column, positive: Bools) -> tuple[int, int]:
    """Count the (positive, negative) pairs with ``f+ > f-``, and those with ``f+ >= f-``; overwrites column.

    >>> ordered_pairs(np.array([3.0, 1.0, 3.0]), np.array([True, False, False]))
    (1, 2)
    """
    n, positives = positive.size, int(np.count_nonzero(positive))
    # Measured: with few positives or few negatives it is faster to search for those, otherwise to sort all together.
    if 6 * min(positives, n - positives) > n:
        counted = _pairs_by_packing(column, positive, positives)
        if counted is not None:
            return counted
    above, below = split(column, positive)
    pairs = above.size * below.size
    if not pairs:
        return 0, 0
    if above.size <= below.size:
        lower, upper = insertion_points(below, above)
        return int(lower.sum()), int(upper.sum())
    lower, upper = insertion_points(above, below)
    return pairs - int(upper.sum()), pairs - int(lower.sum())


def _pairs_by_packing(column: Column, positive: Bools, positives: int) -> tuple[int, int] | None:
    """Count as `ordered_pairs`, by one sort of whole numbers: the score, with the label as its last bit.

    The bits of a double, read as a whole number, order like its magnitude. Magnitudes are counted from the
    smallest in use, which leaves a bit to spare; None if it does not (0 and 2 together, or 1e-300 and 1e300).
    """
    key = np.add(column, 0.0, dtype=np.float64).view(np.int64)  # + 0.0 makes -0.0 the same as 0.0
    negative = key >> 63  # -1 or 0
    key &= np.int64(2**63 - 1)
    smallest = key.min()
    if int(key.max()) - int(smallest) >= 2**62:
        return None
    key -= smallest
    key ^= negative  # below zero the order turns round
    key <<= 1
    key |= positive
    key.sort()

    # Among equal scores the positives are last, so their places count ties as pairs in order. The j-th
    # positive, at place i, has i - j negatives before it.
    places = np.arange(key.size)
    lenient = int((places * (key & 1)).sum()) - positives * (positives - 1) // 2
    # Where only the last bit changes, a run of equal scores has positives and negatives.
    last = np.flatnonzero((key[1:] ^ key[:-1]) == 1)
    first, end = key.searchsorted(key[last], side="left"), key.searchsorted(key[last + 1], side="right")
    ties = int(((last + 1 - first) * (end - last - 1)).sum())
    return lenient - ties, lenient


def split(column: Column, positive: Bools) -> tuple[Column, Column]:
    """Return the sorted scores of the positives and of the negatives; ``column`` is overwritten.

    The fewer ones (positives or negatives) are copied out and replaced by infinity, so that sorting the column in place
    leaves the others in front: cheaper than copying the many.

    >>> split(np.array([3.0, 1.0, 2.5]), np.array([True, False, False]))
    (array([3.]), array([1. , 2.5]))
    """
    positives_rare = 2 * np.count_nonzero(positive) <= positive.size
    rare = np.flatnonzero(positive if positives_rare else ~positive)
    few = column[rare]
    few.sort()
    column[rare] = np.inf
    column.sort()
    many = column[: column.size - rare.size]
    return (few, many) if positives_rare else (many, few)


def insertion_points(hay: Column, needles: Column) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return for each needle how many of ``hay`` are below it, and how many are not above it.

    Both are sorted and not empty. The two results differ exactly where a needle ties with something in
    ``hay``.

    >>> insertion_points(np.array([1.0, 2.0, 2.0]), np.array([0.0, 2.0]))
    (array([0, 1]), array([0, 3]))
    """
    if needles.size * 8 < hay.size:
        upper = hay.searchsorted(needles, side="right")
    else:
        # Two sorted runs: a stable sort (timsort) merges them in linear time, hay first among equals.
        order = np.concatenate([hay, needles]).argsort(kind="stable")
        upper = np.flatnonzero(order >= hay.size) - np.arange(needles.size)
    lower = upper.copy()
    # Usually few needles tie, so only those are searched again. Where upper is 0 the clipped index is
    # hay[0], which is greater than the needle and so never equal to it.
    tied = np.flatnonzero(hay.take(upper - 1, mode="clip") == needles)
    lower[tied] = hay.searchsorted(needles[tied], side="left")
    return lower, upper


def mean_defined(values: Floats) -> float:
    """Return the mean of the values that are not nan, nan if there is none (and no warning).

    >>> mean_defined(np.array([0.5, np.nan, 1.0]))
    0.75
    """
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")


def ratio(part: ArrayLike, whole: ArrayLike) -> Floats:
    """Return part / whole, nan where the whole is 0.

    >>> ratio([1, 2], [2, 0])
    array([0.5, nan])
    """
    parts, wholes = np.asarray(part, np.float64), np.asarray(whole, np.float64)
    return np.asarray(np.divide(parts, wholes, out=np.full(parts.shape, np.nan), where=wholes > 0))


def column_means(values: NDArray[Any], known: Bools) -> Floats:
    """Return the mean of each column over the cells that are known; nan without any."""
    return ratio(np.where(known, values, 0.0).sum(axis=0, dtype=np.float64), known.sum(axis=0))


def transposed(matrix: NDArray[G]) -> NDArray[G]:
    """Return a C-contiguous copy of ``matrix.T``, made in slabs of rows.

    A plain copy walks a whole column of the source for each row of the result and misses the cache at every
    step; in slabs it is about six times as fast on 40,504 x 80.

    >>> transposed(np.array([[1, 2], [3, 4]]))
    array([[1, 3],
           [2, 4]])
    """
    result = np.empty(matrix.shape[::-1], dtype=matrix.dtype)
    rows = max(16, _SLAB // max(1, matrix.shape[1] * matrix.itemsize))
    for start in range(0, len(matrix), rows):
        result[:, start : start + rows] = matrix[start : start + rows].T
    return result


def in_threads(work: Callable[[T], R], items: Iterable[T], *, size: int) -> list[R]:
    """Return ``[work(item) for item in items]``, on all cores if ``size`` numbers are worth it.

    Numpy lets other threads run while it sorts, gathers and sums.

    >>> in_threads(abs, [-1, 2], size=2)
    [1, 2]
    """
    threads = min(cores(), _THREADS)
    if threads == 1 or size < _WORTH_THREADS:
        return [work(item) for item in items]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, items))
