"""The weights of one class from the moments of its positives and negatives, for one ridge or for many.

For positives with mean ``mu+`` and covariance ``S+`` and negatives with ``mu-`` and ``S-``::

    w = (S+ + S- + r t diag(v)^a)^-1 (mu+ - mu-)

where ``v`` are the variances of the features, and t makes the ridge r free of their scale: the mean of the diagonal of
``diag(v)^(-a/2) (S+ + S-) diag(v)^(-a/2)``. Up to its length, w minimises the mean of ``(1 - w.(z+ - z-))^2`` over all
pairs of a positive and a negative, plus the ridge: the squared surrogate of the class's AUC.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, eigh, lapack

from mlcl.exact.moments import Floats, Moments, unpack_upper

TINY = 1e-10
"""Below this share of the mean square, a spread is taken for the rounding of zero."""


def feature_scale(variances: Floats, exponent: float) -> Floats:
    """Return ``v^(-a/2)``, the scale of each feature in which the ridge is the same for all; 0 for a constant feature.

    >>> feature_scale(np.array([4.0, 1.0, 0.0]), 1.0)
    array([0.5, 1. , 0. ])
    """
    found = np.zeros_like(variances)
    np.power(variances, -exponent / 2, out=found, where=variances > 0)
    return found


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
    matrix, gap, (level, floor) = _problem(positive, negative, scale)
    added = max(ridge * level, floor)
    if not added > 0:  # all rows are the same
        return np.zeros_like(gap)
    matrix[np.diag_indices_from(matrix)] += added
    factor, failed = lapack.dpotrf(matrix, lower=0, overwrite_a=1)
    if failed:  # a ridge of 0, or close to it, on dependent features
        return directions(positive, negative, ridges=np.array([ridge]), scale=scale)[0]
    return np.asarray(lapack.dpotrs(factor, gap, lower=0)[0]) * scale


def directions(positive: Moments, negative: Moments, *, ridges: Floats, scale: Floats) -> Floats:
    """Return w for many ridges, ``[len(ridges), d]``, by one eigendecomposition; as `direction` otherwise."""
    d = positive.dimension
    if not (positive.count > 0 and negative.count > 0):
        return np.zeros((len(ridges), d))
    matrix, gap, (level, floor) = _problem(positive, negative, scale)
    values, vectors = eigh(matrix, lower=False, overwrite_a=True, check_finite=False)
    added = np.maximum(ridges * level, floor)[:, None]
    below = np.maximum(values, 0.0) + added
    parts = np.divide(vectors.T @ gap, below, out=np.zeros_like(below), where=below > TINY * level)
    return np.asarray(parts @ vectors.T) * scale


def separation(weights: Floats, positive: Moments, negative: Moments) -> Floats:
    """Return ``w.(mu+ - mu-) / sqrt(w'(S+ + S-)w)`` for each w; Phi of it is the AUC if scores are Gaussian.

    Args:
        weights: ``[R, d]``.
        positive: moments of positives, usually of other rows than the weights were made from.
        negative: moments of negatives.

    >>> positive, negative = Moments.of(np.array([[1.0], [3.0]])), Moments.of(np.array([[-1.0], [1.0]]))
    >>> separation(np.array([[1.0], [-2.0]]), positive, negative)  # a gap of 2, variances of 1 and 1
    array([ 1.41421356, -1.41421356])
    """
    gap = weights @ (positive.mean - negative.mean)
    variance = quadratic(weights, positive) + quadratic(weights, negative)
    return np.divide(gap, np.sqrt(variance), out=np.zeros_like(gap), where=variance > 0)


def quadratic(weights: Floats, moments: Moments) -> Floats:
    """Return the variance of the scores ``w.z`` of the rows, ``[R]``."""
    upper = unpack_upper(moments.packed_covariance())
    products = np.asarray(blas.dsymm(1.0, upper, weights.T, lower=0))
    return np.maximum(np.einsum("rd,dr->r", weights, products), 0.0)


def _problem(
    positive: Moments, negative: Moments, scale: Floats
) -> tuple[Floats, NDArray[np.float64], tuple[float, float]]:
    """Return the upper triangle of the scaled ``S+ + S-``, the scaled gap of the means, t, and the least ridge."""
    upper = unpack_upper(positive.packed_covariance() + negative.packed_covariance())
    upper *= scale[:, None]
    upper *= scale[None, :]
    gap = (positive.mean - negative.mean) * scale
    level = float(np.trace(upper)) / max(len(gap), 1)
    # Where there is one positive and one negative, S is zero up to rounding: then only the gap counts.
    floor = TINY * float((scale**2 * (positive.mean_squares + negative.mean_squares)).mean())
    return upper, gap, (level, floor)
