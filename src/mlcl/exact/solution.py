"""The matrix of each class, its eigenvalues, and its weights for any ridge.

For positives with mean ``mu+`` and covariance ``S+`` and negatives with ``mu-`` and ``S-``::

    w = (C + r t diag(v)^a)^-1 (mu+ - mu-)

where ``v`` are the variances of the features, and t makes the ridge r free of their scale: the mean of the diagonal of
``diag(v)^(-a/2) C diag(v)^(-a/2)``. The spread s is the weight of the positives' covariance:

* in the full form ``C = S- + s S+``. With s = 1, w minimises, up to its length, the mean of ``(1 - w.(z+ - z-))^2``
  over all pairs of a positive and a negative, plus the ridge: the squared surrogate of the class's AUC;
* in the shared form ``C = T + s V``, where T is the covariance of all rows that count for the class, and V that of the
  positives if they are correlated as those rows are: T, with each eigenvalue times the ratio of the variances in its
  direction. With s = 0, w is ridge regression on the label. One eigendecomposition serves all classes of a block.
  Along the leading directions L the positives' covariance B is known. Then V becomes ``V + V L N L'V`` with
  ``N = H^-1 (B - H) H^-1`` and ``H = L'V L``: of all Gaussians with the covariance B there, the nearest one to V.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, eigh

from mlcl.errors import InputError
from mlcl.exact.moments import ROUNDING, Floats, Moments, unpack, unpack_upper
from mlcl.exact.sums import Sums, products

NOTHING = 1e-26
"""Below this share of the largest variance, a variance is the rounding of sums over features: 1e-16 squared, and more
for many terms. Features in units that differ by a factor of 1e12 are above it."""
FEWER = {False: 1.0, True: 0.3}
"""How much more ridge a class needs that has few positives, in the full and in the shared form (`class_ridge`)."""
Decomposed: TypeAlias = tuple[Floats, Floats, float, float]
"""Eigenvalues and scaled eigenvectors of a covariance in scaled features, t, and the least ridge."""
Solved: TypeAlias = dict[tuple[int, float, float], Decomposed]
"""The same of the blocks of the shared form, by block (-1: all), weight of unlabelled rows and exponent."""
CHUNK = 2048
"""So many classes are solved at once."""
DOUBT = 32.0
"""The covariance of so many positives along leading directions counts half."""


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


def class_ridge(ridge: Floats, positives: Floats, dimensions: int, *, shared: bool) -> Floats:
    """Return the ridge of classes: more where positives are few for the number of features, ``r (1 + f d / P)``.

    The noise in the mean of P rows, and in their covariance, falls as d / P, and one ridge must do for rare and for
    frequent classes; f is `FEWER`.

    >>> class_ridge(np.array([0.1]), np.array([1000, 10]), 90, shared=False)
    array([0.109, 1.   ])
    """
    return np.asarray(ridge * (1.0 + FEWER[shared] * dimensions / np.maximum(positives, 1e-12)))


@dataclass(frozen=True, eq=False)
class LabelGroup:
    """Classes that are solved with one eigendecomposition, of the scaled matrix C without what differs by class.

    Attributes:
        classes: their numbers, ``[k]``.
        positives: their counts, ``[k]``.
        negatives: the same.
        gap: the scaled ``mu+ - mu-`` in the eigenvectors, ``[k, d]``.
        negative_mean: ``mu-``, ``[k, d]``.
        values: eigenvalues, ascending, ``[d]``.
        vectors: eigenvectors as columns, times the scale of the features, ``[d, d]``.
        level: t.
        floor: the least that is added to eigenvalues, so that rounding is not divided by rounding.
        spread: the variances of the positives along the eigenvectors, ``[k, d]``.
        own: in the full form the whole covariance of the positives there, ``[d, d]``.
        lead: leading directions there, ``[d, q]``, in the shared form; none: ``[d, 0]``.
        inner: N, ``[k, q, q]``.
        weight: s, ``[k, 1]``.
        scale: of the features, ``[d]``; 0 for those that do not vary.
    """

    classes: NDArray[np.int64]
    positives: Floats
    negatives: Floats
    gap: Floats
    negative_mean: Floats
    values: Floats
    vectors: Floats
    level: float
    floor: float
    spread: Floats
    own: Floats | None
    weight: Floats
    scale: Floats
    lead: Floats
    inner: Floats

    @property
    def back(self) -> Floats:
        """Return the matrix that brings weights ``[k, d]`` back to the eigenvectors."""
        inverse = np.divide(1.0, self.scale**2, out=np.zeros_like(self.scale), where=self.scale > 0)
        return self.vectors * inverse[:, None]

    def shifted(self, ridge: Floats | float) -> Floats:
        """Return the eigenvalues of C and the ridge, ``[k, d]``; in the full form for many ridges ``[R]``."""
        own = class_ridge(
            np.asarray(ridge), self.positives, int(np.count_nonzero(self.scale)), shared=self.own is None
        )
        added = np.maximum(own * self.level, self.floor)[:, None]
        return self.values + (self.weight * self.spread if self.own is None else 0.0) + added

    def weights(self, ridge: float) -> Floats:
        """Return w of each class, ``[k, d]``."""
        return np.asarray(Inverse.of(self, ridge).times(self.gap) @ self.vectors.T)

    def variance(self, scores: Floats) -> Floats:
        """Return the variance among positives for weights ``[k, d]`` in the eigenvectors, in the shared form."""
        along = (scores * self.spread) @ self.lead
        more = np.einsum("kq,kqp,kp->k", along, self.inner, along, optimize=True)
        return np.asarray((scores**2 * self.spread).sum(axis=1) + more)


@dataclass(frozen=True, eq=False)
class Inverse:
    """``M^-1`` of each class in the eigenvectors, where M is C with the ridge, in the shared form.

    By the formula of Woodbury: ``D - D U X U'D``, where ``1 / D`` is diagonal and U is V L.

    Attributes:
        group: the classes.
        diagonal: D, ``[k, d]``.
        middle: X, ``[k, q, q]``.
        inside: ``U'D U``, ``[k, q, q]``.
    """

    group: LabelGroup
    diagonal: Floats
    middle: Floats
    inside: Floats

    @classmethod
    def of(cls, group: LabelGroup, ridge: float) -> Inverse:
        """Return it for a ridge."""
        diagonal = 1.0 / group.shifted(ridge)
        inside = between(group.lead, group.spread**2 * diagonal)
        own = group.weight[:, :, None] * group.inner
        middle = np.linalg.solve(np.eye(own.shape[1]) + own @ inside, own)
        return cls(group, diagonal, np.asarray(middle), inside)

    def times(self, vectors: Floats) -> Floats:
        """Return the product with a vector of each class, ``[k, d]``."""
        found, lead = self.diagonal * vectors, self.group.lead
        along = np.einsum("kqp,kp->kq", self.middle, (found * self.group.spread) @ lead)
        return np.asarray(found - self.diagonal * self.group.spread * (along @ lead.T))

    def traces(self) -> tuple[Floats, Floats]:
        """Return ``tr(M^-1 V)`` and ``tr(M^-1 T)`` of each class."""
        group, diagonal = self.group, self.diagonal
        squares = (group.spread * diagonal) ** 2
        own, every = (
            (diagonal * one).sum(axis=1)
            - np.einsum("kqp,kqp->k", self.middle, between(group.lead, squares * one))
            for one in (group.spread, np.broadcast_to(group.values, squares.shape))
        )
        rest = self.inside - self.inside @ self.middle @ self.inside
        return np.asarray(own + np.einsum("kqp,kqp->k", group.inner, rest)), np.asarray(every)


def groups(
    sums: Sums,
    classes: Sequence[int],
    *,
    unlabelled: float,
    spread: Floats | float,
    exponent: float,
    solved: Solved | None = None,
) -> Iterator[LabelGroup]:
    """Yield classes that have positives and negatives, in groups.

    Args:
        sums: the sums.
        classes: numbers of classes.
        unlabelled: the weight of rows that were not annotated for a class, as its negatives.
        spread: s, one for all or ``[K]``.
        exponent: a, of the features' variances in the ridge.
        solved: what was decomposed before of the same sums; more is added.
    """
    positive, negative = sums.counts(unlabelled)
    scale, solved = feature_scale(sums.total.variances, exponent), {} if solved is None else solved
    weight = np.broadcast_to(np.asarray(spread, np.float64), positive.shape)
    used = np.array([k for k in classes if positive[k] > 0 and negative[k] > 0], np.int64)
    blocks = np.array(sums.block_of, np.int64)[used]
    for block in dict.fromkeys(blocks.tolist()):
        chosen = used[blocks == block]
        if sums.shared:
            every = all_rows(sums, block, unlabelled)
            # With all others as negatives, every row counts for every block: one decomposition serves them all.
            key = (-1 if unlabelled == 1.0 else block, unlabelled, exponent)
            if key not in solved:
                solved[key] = _decomposed(every.packed_covariance(), every.mean_squares, scale)
            yield from _shared(sums, every, chosen, weight, scale, solved[key])
        else:
            for k in chosen.tolist():
                yield _full(sums, k, unlabelled, weight[k], scale)


def _full(sums: Sums, k: int, unlabelled: float, weight: float, scale: Floats) -> LabelGroup:
    positive, negative = sums.sides(k, unlabelled)
    values, vectors, level, floor = _decomposed(
        negative.packed_covariance() + weight * positive.packed_covariance(),
        weight * positive.mean_squares + negative.mean_squares,
        scale,
    )
    own = vectors.T @ unpack(positive.packed_covariance()) @ vectors
    return LabelGroup(
        np.array([k]),
        np.array([positive.count]),
        np.array([negative.count]),
        ((positive.mean - negative.mean) @ vectors)[None],
        negative.mean[None],
        values,
        vectors,
        level,
        floor,
        np.maximum(np.diag(own), 0.0)[None],
        own,
        np.array([[weight]]),
        scale,
        np.zeros((len(values), 0)),
        np.zeros((1, 0, 0)),
    )


def _shared(
    sums: Sums, every: Moments, classes: NDArray[np.int64], weight: Floats, scale: Floats, found: Decomposed
) -> Iterator[LabelGroup]:
    values, vectors, level, floor = found
    usual = every.variances
    inverse = np.divide(1.0, usual, out=np.zeros_like(usual), where=usual > 0)
    # Squares of the entries of eigenvectors, as if the scale were 1: shares of a direction that sum to 1.
    unscaled = np.divide(vectors, scale[:, None], out=np.zeros_like(vectors), where=scale[:, None] > 0)
    shares = unscaled**2
    lead = np.zeros((len(values), 0))
    if sums.lead is not None:
        lead = unscaled.T @ np.divide(
            sums.lead, scale[:, None], out=np.zeros_like(sums.lead), where=scale[:, None] > 0
        )
    # So that the variance of all rows is 1 along each.
    deviation = np.sqrt(values @ lead**2)
    unit = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 0)
    lead = lead * unit
    for start in range(0, len(classes), CHUNK):
        chosen = classes[start : start + CHUNK]
        own = [sums.positive[k] for k in chosen.tolist()]
        count = np.array([one.count for one in own])[:, None]
        total = np.stack([one.sum for one in own])
        rest = every.count - count
        negative = (every.sum - total) / rest
        ratio = np.stack([one.variances for one in own]) * inverse
        spread = values * (ratio @ shares)
        yield LabelGroup(
            chosen,
            count[:, 0],
            rest[:, 0],
            (total / count - negative) @ vectors,
            negative,
            values,
            vectors,
            level,
            floor,
            spread,
            None,
            weight[chosen, None],
            scale,
            lead,
            _inner(sums, own, lead, unit, spread),
        )


def _inner(sums: Sums, own: Sequence[Moments], lead: Floats, unit: Floats, spread: Floats) -> Floats:
    """Return N of each class: what the positives' covariance along leading directions adds to V."""
    if sums.lead is None:
        return np.zeros((len(own), 0, 0))
    count = np.array([one.count for one in own])[:, None, None]
    mean = np.stack([one.mean for one in own]) @ (sums.lead * unit)
    known = square(np.stack([one.second[sums.dimension :] for one in own])) * np.outer(unit, unit) / count
    known -= mean[:, :, None] * mean[:, None, :]
    usual = between(lead, spread)
    inverse = np.linalg.pinv(usual, rcond=ROUNDING, hermitian=True)
    return np.asarray(inverse @ (known - usual) @ inverse * count / (count + DOUBT))


def between(lead: Floats, weights: Floats) -> Floats:
    """Return ``L' diag(v) L`` for each row v of ``[k, d]``, as ``[k, q, q]``."""
    return square(weights @ products(lead))


def square(packed: Floats) -> Floats:
    """Return symmetric matrices ``[k, q, q]`` of packed ones, ``[k, q (q + 1) / 2]``.

    >>> square(np.array([[1.0, 2.0, 3.0]]))
    array([[[1., 2.],
            [2., 3.]]])
    """
    places = np.arange((int(np.sqrt(8 * packed.shape[1] + 1)) - 1) // 2)
    low, high = np.minimum.outer(places, places), np.maximum.outer(places, places)
    return np.asarray(packed[:, high * (high + 1) // 2 + low])


def all_rows(sums: Sums, block: int, unlabelled: float) -> Moments:
    """Return the moments of the rows that count for a block: the annotated ones, and u times the others."""
    if unlabelled == 1.0:
        return sums.total
    annotated = sums.annotated[block]
    return annotated + sums.total.remainder(annotated).scaled(unlabelled) if unlabelled else annotated


def quadratic(weights: Floats, moments: Moments) -> Floats:
    """Return the variance of the scores ``w.z`` of the rows, for each w of ``[R, d]``.

    >>> quadratic(np.array([[1.0], [-2.0]]), Moments.of(np.array([[1.0], [3.0]])))
    array([1., 4.])
    """
    upper = unpack_upper(moments.packed_covariance())
    products = np.asarray(blas.dsymm(1.0, upper, weights.T, lower=0))
    return np.asarray(np.maximum(np.einsum("rd,dr->r", weights, products), 0.0))


def _decomposed(packed: Floats, mean_squares: Floats, scale: Floats) -> tuple[Floats, Floats, float, float]:
    """Return eigenvalues and scaled eigenvectors of a covariance in scaled features, t, and the least ridge.

    Args:
        packed: the covariance.
        mean_squares: of the features, which rounding follows.
        scale: of `feature_scale`.
    """
    upper = unpack_upper(packed)
    upper *= scale[:, None]
    upper *= scale
    level = float(np.trace(upper)) / max(len(scale), 1)
    if not np.isfinite(level):  # LAPACK may never return from such a matrix
        raise InputError(
            "the variances of the features are too large, or differ too much, to be solved in floating point; expected "
            "features in units that differ less, or a smaller exponent"
        )
    floor = ROUNDING * float((scale**2 * mean_squares).mean()) if len(scale) else 0.0
    if level <= floor:  # one positive and one negative, as it were: only the gap of the means counts
        return np.zeros(len(scale)), np.diag(scale), 0.0, 1.0
    values, vectors = eigh(upper, lower=False, overwrite_a=True, check_finite=False)
    return np.maximum(values, 0.0), vectors * scale[:, None], level, floor
