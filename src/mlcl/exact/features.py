"""The feature map: fixed by the first rows, linear, so that it can be folded into the weights.

Rows are centred for numerical safety only: covariances, and so the solution, do not depend on the centre. Where rows
have more numbers than ``dimensions``, they are projected to principal components of the first rows, half standardised:
each column divided by the square root of its standard deviation. Columns that are principal components already stay as
they are: their variances say how much they matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.errors import InputError
from mlcl.exact.digits import (
    WIDEST,
    WIDEST_PROJECTED,
    Large,
    Seen,
    first_over,
    limits,
    narrow,
    sample_step,
    too_wide,
    usual,
    usual_length,
)
from mlcl.seeds import numpy_generator

Floats = NDArray[np.float64]

BLOCK, LARGEST, ROWS = 2**18, 2**22, 256
"""How many numbers are turned into float64 at once: 2 MB, which stay in a cache and in memory that is used again (with
32 MB counting was three times slower); but not fewer rows than make a product worth its result, within a limit."""
DENSE = 2048
"""Up to so many features the principal components are those of the whole covariance."""
SOME, PASSES = 2000, 6
"""Rows that leading directions are found in; subspace iterations for the components of more features than `DENSE`."""
ALONE, SORTED = 0.5, -0.9
"""Columns are principal components if the squares of a column's correlations with all others sum to less than `ALONE`
beyond chance, on average, and the rank correlation of their variances with their numbers is below `SORTED`."""


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """``z = (x - centre) projection``.

    Attributes:
        centre: mean of the first rows, ``[D]``.
        projection: ``[D, d]``, or None: the rows as they are, centred.
        random: how many of the d directions are random, because the first rows did not determine so many.
        lost: the share of the variance of the first rows that the projection left out; not saved.
    """

    centre: Floats
    projection: Floats | None
    random: int = 0
    lost: float = 0.0

    @property
    def features(self) -> int:
        """Return D, the number of features of a row."""
        return len(self.centre)

    @property
    def dimension(self) -> int:
        """Return d, the number of features after the map."""
        return len(self.centre) if self.projection is None else self.projection.shape[1]

    def __call__(self, rows: Any) -> Floats:
        """Map rows ``[n, D]``, an array or a sparse matrix, to float64 ``[n, d]``."""
        if self.projection is None:
            return dense(rows) - self.centre
        if hasattr(rows, "toarray"):
            return np.asarray(rows @ self.projection) - self.centre @ self.projection
        return (dense(rows) - self.centre) @ self.projection

    def column(self, row: Floats, k: int) -> int:
        """Return the feature of a row ``[D]`` that gives its number k after the map most of its size."""
        return (
            k
            if self.projection is None
            else int(np.abs((row - self.centre) * self.projection[:, k]).argmax())
        )

    def fold(self, weights: Floats) -> Floats:
        """Return weights ``[K, d]`` on mapped rows as weights ``[K, D]`` on rows."""
        return weights if self.projection is None else weights @ self.projection.T

    def same(self, other: FeatureMap) -> bool:
        """Return whether both maps are the same, up to the centre where there is no projection."""
        if self.projection is None or other.projection is None:
            return self.projection is other.projection and self.features == other.features
        return np.array_equal(self.centre, other.centre) and np.array_equal(self.projection, other.projection)


def fit_map(rows: Any, *, dimensions: int | None = 256, seed: int = 0) -> FeatureMap:
    """Return the feature map that the first rows determine; rows that would ruin it are an `InputError`.

    Args:
        rows: ``[n, D]``, n at least 1: an array or a CSR matrix.
        dimensions: the largest d; None for no projection.
        seed: of the directions that are random where the rows have no more principal components, as when there are
            fewer rows than dimensions.

    >>> rows = np.random.default_rng(0).random((50, 6))
    >>> fit_map(rows)(rows).shape, fit_map(rows, dimensions=2)(rows).shape
    ((50, 6), (50, 2))
    >>> fit_map(rows[:2], dimensions=3).random
    2
    """
    centre, deviation = _statistics(rows)
    whole = dimensions is None or rows.shape[1] <= dimensions
    if (large := _first_large(rows, centre, deviation)) is not None:
        raise InputError(f"the data {large.sentence()}; nothing was learnt")
    if far := narrow(deviation**2, centre, widest=WIDEST if whole else WIDEST_PROJECTED):
        raise too_wide(deviation**2, far)
    if dimensions is None or whole:
        return FeatureMap(centre, None)
    inverse = _half_standard(deviation)
    generator = numpy_generator(seed, "feature map")
    if rows.shape[1] > DENSE:
        values, vectors = _leading(rows, centre, inverse, min(dimensions + 16, rows.shape[1]), generator)
    else:
        covariance = _covariance(rows, centre, inverse)
        if are_components(covariance, rows.shape[0]):
            covariance /= inverse[:, None] * inverse
            inverse = np.ones_like(inverse)
        values, vectors = np.linalg.eigh(covariance)
    every, kept = float(((deviation * inverse) ** 2).sum()), float(np.sort(values)[-dimensions:].sum())
    vectors, random = _completed(values, vectors, dimensions, generator)
    return FeatureMap(
        centre, inverse[:, None] * vectors, random, max(0.0, 1 - kept / every) if every else 0.0
    )


def leading(features: FeatureMap, rows: Any, count: int, seed: int = 0) -> Floats | None:
    """Return directions in which mapped rows vary most, half standardised, ``[d, q]``; None if they do not vary.

    Args:
        features: the map.
        rows: the rows that it was fitted to.
        count: how many directions, at most.
        seed: of the first guess.
    """
    if features.projection is not None:
        found = np.eye(features.dimension, min(count, features.dimension - features.random))
    else:
        some = rows[:: -(-rows.shape[0] // SOME)]
        centre, deviation = _statistics(some)
        inverse, width = _half_standard(deviation), min(count + 16, features.features)
        generator = numpy_generator(seed, "leading directions")
        values, vectors = _leading(some, centre, np.where(deviation > 0, inverse, 0.0), width, generator)
        useful = np.flatnonzero(values > 1e-9 * max(values.max(), 0.0))[-count:]
        found = inverse[:, None] * vectors[:, useful]
    return np.ascontiguousarray(found) if found.shape[1] else None


def _half_standard(deviation: Floats) -> Floats:
    """Return the factor of each column that makes its standard deviation the square root of what it was.

    A column in other units than the rest must not fill the projection alone, yet rows that are principal components
    already must keep the leading ones.
    """
    varies = deviation > 0
    inverse = np.power(deviation, -0.5, out=np.ones_like(deviation), where=varies)
    # A column without variance in the first rows has no part in their components, but in random directions.
    inverse[~varies] = np.median(inverse[varies]) if varies.any() else 1.0
    return inverse


def are_components(covariance: Floats, n: int) -> bool:
    """Return whether columns with this covariance over n rows, in any units, are principal components already.

    These are uncorrelated, and those of large variance come first. Neither is likely of other features.

    >>> are_components(np.diag([9.0, 4.0, 1.0, 0.5]), 100), are_components(np.diag([1.0, 9.0, 0.5, 4.0]), 100)
    (True, False)
    """
    variances = np.diag(covariance)
    order = np.flatnonzero(variances > 0)
    if len(order) < 3 or n < 2:
        return False
    ranks = np.argsort(np.argsort(variances[order], kind="stable"))
    if np.corrcoef(ranks, np.arange(len(order)))[0, 1] > SORTED:
        return False
    deviations = np.sqrt(variances[order])
    squares = (covariance[np.ix_(order, order)] / np.outer(deviations, deviations)) ** 2
    others = (squares.sum() - np.trace(squares)) / len(order)
    return bool(others - (len(order) - 1) / n < ALONE)


def dense(rows: Any) -> Floats:
    """Return rows as a float64 array."""
    return np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows, np.float64)


def blocks(rows: int, features: int) -> Iterator[slice]:
    """Yield slices of rows of about `BLOCK` numbers, at least `ROWS` rows, and at most `LARGEST` numbers.

    >>> [next(blocks(10**6, features)).stop for features in (16, 1280, 100_000)]
    [16384, 256, 41]
    """
    width = max(features, 1)
    step = max(1, min(max(ROWS, BLOCK // width), LARGEST // width))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def _statistics(rows: Any) -> tuple[Floats, Floats]:
    """Return mean and standard deviation of each column; exactly 0 where all values are equal."""
    n, features = rows.shape
    if hasattr(rows, "toarray"):
        precise = rows.astype(np.float64)
        centre = np.asarray(precise.sum(0)).ravel() / n
        mean_squares = np.asarray(precise.multiply(precise).sum(0)).ravel() / n
        variances = mean_squares - centre**2
        return centre, np.sqrt(np.where(variances > 1e-13 * mean_squares, variances, 0.0))
    # Relative to the first row: the mean of equal values is then that value.
    first = dense(rows[:1])[0]
    shift, squares = np.zeros(features), np.zeros(features)
    for piece in blocks(n, features):
        shift += (dense(rows[piece]) - first).sum(0)
    centre = first + shift / n
    for piece in blocks(n, features):
        squares += ((dense(rows[piece]) - centre) ** 2).sum(0)
    return centre, np.sqrt(squares / n)


def unusual(rows: Any) -> Large | None:
    """Return the first value of rows that is far from what the others of its column are; None without one.

    >>> unusual(np.array([[1.0], [2.0], [-3.4e38], [1.5]])).row
    2
    """
    return _first_large(rows, *_statistics(rows)) if rows.shape[0] else None


def _first_large(rows: Any, centre: Floats, deviation: Floats) -> Large | None:
    """Return the first value that is far from what the others of its column are, seen from 0 or from their median.

    From 0, because values that mark missing cells may be more than half of a column; from the median, because a column
    may be far from 0.

    Args:
        rows: ``[n, D]``.
        centre: their mean.
        deviation: their standard deviation.
    """
    n, features = rows.shape
    sample = dense(rows[:: sample_step(n, features)])
    for anchor in (np.zeros(features), np.median(sample, axis=0)):
        centred = sample - anchor
        ordinary = usual_length(centred)
        totals = n * (deviation**2 + (centre - anchor) ** 2)
        for k in np.flatnonzero(totals > limits(usual(centred), ordinary, len(sample))).tolist():
            column = dense(rows[:, [k]]) - anchor[k]
            own = usual(column)
            over = np.flatnonzero(column[:, 0] ** 2 > limits(own, ordinary, n))
            if len(over):
                row, rest = int(over[0]), n - len(over)
                return Large(
                    row, k, float(column[row, 0] + anchor[k]), _size(float(own[0]), rest, float(anchor[k]))
                )
    return None


def first_large(
    features: FeatureMap, rows: Any, squares: Floats, before: Seen, weights: Floats | None = None
) -> Large | None:
    """Return the first value of rows that would cost their sums too many digits.

    Args:
        features: the feature map.
        rows: ``[n, D]``.
        squares: of the mapped rows, summed.
        before: of the rows before.
        weights: of the rows; None for 1 each.
    """
    n, width = rows.shape[0], max(features.features, features.dimension)

    def take(piece: slice, columns: Any) -> Floats:
        chosen, roots = rows[piece], None if weights is None else np.sqrt(weights[piece])[:, None]
        found = [features(chosen[one])[:, columns] for one in blocks(chosen.shape[0], width)]
        return np.concatenate(found) if roots is None else np.concatenate(found) * roots

    found = first_over(take, n, squares, before, width=width)
    if found is None:
        return None
    row, k, others = found
    given = dense(rows[[row]])[0]
    column = features.column(given, k)
    return Large(row, column, float(given[column]), others)


def squares_of(features: FeatureMap, rows: Any) -> Floats:
    """Return the sum of squares of each column of the mapped rows, ``[d]``."""
    found = np.zeros(features.dimension)
    for piece in blocks(rows.shape[0], max(features.features, features.dimension)):
        z = features(rows[piece])
        found += np.einsum("nd,nd->d", z, z)
    return found


def _size(squares: float, rows: int, anchor: float) -> float:
    return abs(anchor) + float(np.sqrt(squares / max(rows, 1)))


def _completed(values: Floats, vectors: Floats, d: int, generator: np.random.Generator) -> tuple[Floats, int]:
    """Return d orthonormal directions, principal components first, and how many of them are random.

    Args:
        values: eigenvalues of the covariance, ascending.
        vectors: its eigenvectors as columns.
        d: how many directions.
        generator: of the random ones.
    """
    values, vectors = values[::-1], vectors[:, ::-1]
    useful = min(d, int((values > 1e-12 * max(values[0], 0.0)).sum()))
    vectors = vectors[:, :useful]
    if useful < d:
        extra = generator.standard_normal((len(vectors), d - useful))
        vectors = np.linalg.qr(np.hstack([vectors, extra]))[0]
    return vectors, d - useful


def _covariance(rows: Any, centre: Floats, inverse: Floats) -> Floats:
    """Return the covariance matrix of the rows, half standardised."""
    n, features = rows.shape
    found = np.zeros((features, features))
    for piece in blocks(n, features):
        z = (dense(rows[piece]) - centre) * inverse
        found += z.T @ z
    return np.asarray(found / n)


def _leading(
    rows: Any, centre: Floats, inverse: Floats, d: int, generator: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return the d largest eigenvalues of the same covariance matrix and their vectors, by subspace iteration.

    The matrix itself, and the rows so scaled, are never made: sparse rows stay sparse.
    """
    n = rows.shape[0]

    def times_covariance(vectors: Floats) -> Floats:
        scaled = inverse[:, None] * vectors
        found = np.zeros_like(vectors)
        for piece in blocks(n, vectors.shape[1] if hasattr(rows, "toarray") else rows.shape[1]):
            block = rows[piece] if hasattr(rows, "toarray") else dense(rows[piece])
            products = np.asarray(block @ scaled) - centre @ scaled
            found += inverse[:, None] * (block.T @ products - np.outer(centre, products.sum(0)))
        return np.asarray(found / n)

    basis = np.linalg.qr(generator.standard_normal((rows.shape[1], d)))[0]
    for _ in range(PASSES):
        basis = np.linalg.qr(times_covariance(basis))[0]
    values, turned = np.linalg.eigh(basis.T @ times_covariance(basis))
    return values, basis @ turned
