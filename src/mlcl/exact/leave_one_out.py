"""How weights would score rows that they have not seen, from the sums alone.

Leaving one positive out of a class with P positives changes its mean by ``e / (P - 1)``, where ``e`` is the row minus
the mean, and its covariance along ``e`` by ``e e' / (P - 1)``. How the weights without the row score it follows by
the formula of Sherman and Morrison. On average over the rows this needs only ``tr(M^-1 S+)``, ``w'S+w`` and the like,
where ``M = S+ + S- + ridge``; so sums suffice, no row has to be held out, and every row counts. The one approximation:
the leverage ``e'M^-1 e`` of a row is replaced by its mean. The same holds for the negatives.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from mlcl.exact.moments import Floats, Moments, unpack
from mlcl.exact.solution import Spectrum, inverted, quadratic

LEAST_COUNT = 1.5
"""With fewer positives or negatives none can be left out."""
LEAST_REST = 1e-6
"""The least value of one minus a leverage, against rounding alone. It is small wherever rows are fewer than dimensions
and the ridge is small: a larger bound would make the scores of unseen rows look like those of seen ones there."""

ALIKE = 1e-2
"""Scores whose variance is below this share of their squared gap are alike: real data are never so far apart."""


@dataclass(frozen=True, eq=False)
class Unseen:
    """Scores of unseen rows of one class, for each ridge.

    Attributes:
        weights: ``[R, d]``, from all rows.
        gap: mean score of unseen positives minus mean score of unseen negatives, ``[R]``.
        positive_variance: of the scores of unseen positives, ``[R]``.
        negative_variance: of the scores of unseen negatives, ``[R]``.
    """

    weights: Floats
    gap: Floats
    positive_variance: Floats
    negative_variance: Floats

    @property
    def constant(self) -> NDArray[np.bool_]:
        """Return whether all rows of a side score alike, next to the gap between the sides, ``[R]``."""
        return np.asarray(self.positive_variance + self.negative_variance <= ALIKE * self.gap**2)

    @property
    def auc(self) -> Floats:
        """Return the AUC of two Gaussians with these moments, ``[R]``."""
        variance = self.positive_variance + self.negative_variance
        ratio = np.divide(self.gap, np.sqrt(variance), out=np.zeros_like(self.gap), where=variance > 0)
        return np.asarray(ndtr(ratio))


def unseen(
    positive: Moments,
    negative: Moments,
    *,
    ridges: Floats,
    scale: Floats,
    judged: Moments | None = None,
) -> Unseen | None:
    """Return how the weights of each ridge would score rows that they have not seen.

    Args:
        positive: moments of the positives.
        negative: moments of the negatives.
        ridges: ``[R]``.
        scale: of `mlcl.exact.solution.feature_scale`.
        judged: the negatives to compare positives with, if not all those that the weights were made from.

    Returns:
        None where nothing can be left out: fewer than two positives or two negatives.
    """
    if min(positive.count, negative.count) < LEAST_COUNT:
        return None
    spectrum = Spectrum.of(positive, negative, scale)
    shrunk = 1.0 / spectrum.shifted(ridges)  # the eigenvalues of M^-1, [R, d]
    scores = shrunk * spectrum.gap
    vectors = spectrum.vectors * scale[:, None]
    weights = scores @ vectors.T
    own = vectors.T @ unpack(positive.packed_covariance()) @ vectors  # S+ in the eigenvectors of S+ + S-
    diagonal = np.diag(own)
    spread = np.einsum("rd,rd->r", scores @ own, scores)
    trace = shrunk @ diagonal
    parts = _Parts(
        gap=scores @ spectrum.gap,
        spreads=(spread, scores**2 @ spectrum.values - spread),
        traces=(trace, shrunk @ spectrum.values - trace),
        # S- is diag(values) - S+ here.
        mixed=shrunk**2 @ (spectrum.values * diagonal) - np.einsum("rd,rd->r", shrunk @ own**2, shrunk),
    )
    return _left_out(weights, parts, positive, negative, judged)


def unseen_at(positive: Moments, negative: Moments, *, ridge: float, scale: Floats) -> Unseen | None:
    """Return the same for one ridge, by a Cholesky decomposition: several times faster than all eigenvectors."""
    if min(positive.count, negative.count) < LEAST_COUNT:
        return None
    inverse, gap, added = inverted(positive, negative, ridge=ridge, scale=scale)
    if inverse is None:
        return unseen(positive, negative, ridges=np.array([ridge]), scale=scale)
    scores = inverse @ gap
    own = unpack(positive.packed_covariance()) * scale[:, None] * scale
    product = inverse @ own
    trace, spread = float(np.trace(product)), float(scores @ own @ scores)
    # M^-1 (S+ + S-) is I - added M^-1, which gives everything about S- without another product.
    total = len(gap) - added * float(np.trace(inverse))
    mixed = trace - added * float((product * inverse).sum()) - float((product * product.T).sum())
    parts = _Parts(
        gap=np.array([scores @ gap]),
        spreads=(np.array([spread]), np.array([scores @ gap - added * (scores @ scores) - spread])),
        traces=(np.array([trace]), np.array([total - trace])),
        mixed=np.array([mixed]),
    )
    return _left_out((scores * scale)[None], parts, positive, negative, None)


@dataclass(frozen=True, eq=False)
class _Parts:
    """What the formula needs, for each ridge; pairs are for positives and negatives."""

    gap: Floats  # w'(mu+ - mu-)
    spreads: tuple[Floats, Floats]  # w'S w
    traces: tuple[Floats, Floats]  # tr(M^-1 S)
    mixed: Floats  # tr(M^-1 S+ M^-1 S-)


def _left_out(
    weights: Floats, parts: _Parts, positive: Moments, negative: Moments, judged: Moments | None
) -> Unseen:
    gap, mixed = parts.gap, np.maximum(parts.mixed, 0.0)
    spreads, traces = ([np.maximum(one, 0.0) for one in pair] for pair in (parts.spreads, parts.traces))
    variances = list(spreads)
    if judged is not None:
        gap = gap + weights @ (negative.mean - judged.mean)
        variances[1] = quadratic(weights, judged)
    for side, count in enumerate((positive.count, negative.count)):
        share = 1.0 / (count - 1.0)
        rest = np.maximum(1.0 - share * traces[side], LEAST_REST)
        gap = gap + share * (spreads[side] - traces[side]) / rest
        variances[side] = variances[side] / rest**2
        # The weights without the row differ, and so does the variance of the other side under them.
        variances[1 - side] = variances[1 - side] + mixed * share**2 * (1.0 + spreads[side]) / rest**2
    return Unseen(weights, gap, variances[0], variances[1])
