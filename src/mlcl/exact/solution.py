"""The weights of one class from the moments of its positives and negatives, for one ridge or for many.

For positives with mean ``mu+`` and covariance ``S+`` and negatives with ``mu-`` and ``S-``::

    w = (S+ + S- + r t diag(v)^a)^-1 (mu+ - mu-)

where ``v`` are the variances of the features, and t makes the ridge r free of their scale: the mean of the diagonal of
``diag(v)^(-a/2) (S+ + S-) diag(v)^(-a/2)``. Up to its length, w minimises the mean of ``(1 - w.(z+ - z-))^2`` over all
pairs of a positive and a negative, plus the ridge: the squared surrogate of the class's AUC.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas, eigh, lapack

from mlcl.errors import InputError
from mlcl.exact.moments import ROUNDING, Floats, Moments, mirrored, unpack_upper

NOTHING = 1e-26
"""Below this share of the largest variance, a variance is the rounding of sums over features: 1e-16 squared, and more
for many terms. Features in units that differ by a factor of 1e12 are above it."""


def feature_scale(variances: Floats, exponent: float) -> Floats:
    """Return ``v^(-a/2)``, the scale of each feature in which the ridge is the same for all; 0 for a constant feature.

    A direction of the feature map that no row has left yet, as where the first rows were few, has the variance of its
    rounding. It is constant, too: scaled up it would decide alone as soon as a row leaves it.

    >>> feature_scale(np.array([4.0, 1.0, 0.0, 1e-31]), 1.0)
    array([0.5, 1. , 0. , 0. ])
    """
    found = np.zeros_like(variances)
    np.power(variances, -exponent / 2, out=found, where=variances > NOTHING * variances.max(initial=0.0))
    return found


def class_ridge(ridge: float, positives: float, dimensions: int) -> float:
    """Return the ridge of a class: more where its positives are few for the number of features, ``r (1 + d / P)``.

    The noise in the mean and the covariance of P rows falls as d / P, and one ridge must do for rare and for frequent
    classes.

    >>> class_ridge(0.1, positives=1000, dimensions=100), class_ridge(0.1, positives=10, dimensions=90)
    (0.11000000000000001, 1.0)
    """
    return ridge * (1.0 + dimensions / positives)


def direction(positive: Moments, negative: Moments, *, ridge: float, scale: Floats) -> Floats:
    """Return w for one ridge, ``[d]``; zeros without positives or without negatives.

    Args:
        positive: moments of the positives.
        negative: moments of the negatives.
        ridge: r.
        scale: of `feature_scale`.

    >>> positive, negative = Moments.of(np.array([[1.0], [3.0]])), Moments.of(np.array([[0.0], [0.0]]))
    >>> direction(positive, negative, ridge=1.0, scale=np.ones(1))  # (1 + 0 + 1)^-1 (2 - 0)
    array([1.])
    """
    if not (positive.count > 0 and negative.count > 0):
        return np.zeros(positive.dimension)
    matrix, gap, level, floor = _problem(positive, negative, scale)
    added = max(ridge * level, floor)
    matrix[np.diag_indices_from(matrix)] += added
    factor, failed = lapack.dpotrf(matrix, lower=0, overwrite_a=1)
    if failed:  # a ridge of 0, or close to it, on dependent features
        return np.asarray(directions(positive, negative, ridges=np.array([ridge]), scale=scale)[0])
    return scale * np.asarray(lapack.dpotrs(factor, gap, lower=0)[0], np.float64)


def inverted(
    positive: Moments, negative: Moments, *, ridge: float, scale: Floats
) -> tuple[Floats | None, Floats, float]:
    """Return the inverse of the scaled ``S+ + S- + r t``, the scaled gap of the means, and what was added to S.

    The inverse is None if the matrix has none in floating point: then `Spectrum` must do.
    """
    matrix, gap, level, floor = _problem(positive, negative, scale)
    added = max(ridge * level, floor)
    matrix[np.diag_indices_from(matrix)] += added
    factor, failed = lapack.dpotrf(matrix, lower=0, overwrite_a=1)
    if failed:
        return None, gap, added
    inverse, _ = lapack.dpotri(factor, lower=0, overwrite_c=1)
    return mirrored(inverse), gap, added


def directions(positive: Moments, negative: Moments, *, ridges: Floats, scale: Floats) -> Floats:
    """Return w for many ridges, ``[len(ridges), d]``, by one eigendecomposition; as `direction` otherwise."""
    if not (positive.count > 0 and negative.count > 0):
        return np.zeros((len(ridges), positive.dimension))
    spectrum = Spectrum.of(positive, negative, scale)
    return np.asarray((spectrum.gap / spectrum.shifted(ridges)) @ spectrum.vectors.T * scale)


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The eigendecomposition of the scaled ``S+ + S-``, which serves all ridges.

    Attributes:
        values: its eigenvalues, ascending, ``[d]``.
        vectors: its eigenvectors as columns, ``[d, d]``.
        gap: the scaled ``mu+ - mu-`` in these vectors, ``[d]``.
        level: t, the mean of the eigenvalues.
        floor: the least that is added to them, so that rounding is not divided by rounding.
    """

    values: Floats
    vectors: Floats
    gap: Floats
    level: float
    floor: float

    @classmethod
    def of(cls, positive: Moments, negative: Moments, scale: Floats) -> Spectrum:
        """Return it for the positives and negatives of a class, at least one of each."""
        matrix, gap, level, floor = _problem(positive, negative, scale)
        values, vectors = eigh(matrix, lower=False, overwrite_a=True, check_finite=False)
        return cls(np.maximum(values, 0.0), vectors, vectors.T @ gap, level, floor)

    def shifted(self, ridges: Floats) -> Floats:
        """Return the eigenvalues of ``S+ + S- + r t``, ``[R, d]``."""
        return np.asarray(self.values + np.maximum(ridges * self.level, self.floor)[:, None])


def quadratic(weights: Floats, moments: Moments) -> Floats:
    """Return the variance of the scores ``w.z`` of the rows, for each w of ``[R, d]``.

    >>> quadratic(np.array([[1.0], [-2.0]]), Moments.of(np.array([[1.0], [3.0]])))
    array([1., 4.])
    """
    upper = unpack_upper(moments.packed_covariance())
    products = np.asarray(blas.dsymm(1.0, upper, weights.T, lower=0))
    return np.asarray(np.maximum(np.einsum("rd,dr->r", weights, products), 0.0))


def _problem(positive: Moments, negative: Moments, scale: Floats) -> tuple[Floats, Floats, float, float]:
    """Return the upper triangle of the scaled ``S+ + S-``, the scaled gap of the means, t, and the least ridge."""
    upper = unpack_upper(positive.packed_covariance() + negative.packed_covariance())
    upper *= scale[:, None]
    upper *= scale[None, :]
    gap = (positive.mean - negative.mean) * scale
    level = float(np.trace(upper)) / max(len(gap), 1)
    if not np.isfinite(level):  # LAPACK may never return from such a matrix
        raise InputError(
            "the variances of the features are too large, or differ too much, to be solved in floating point; expected "
            "features in units that differ less, or a smaller exponent"
        )
    floor = ROUNDING * float((scale**2 * (positive.mean_squares + negative.mean_squares)).mean())
    if (
        level <= floor
    ):  # one positive and one negative, as it were: S is zero up to rounding, and only the gap counts
        return np.zeros_like(upper), gap, 0.0, 1.0
    return upper, gap, level, floor
