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
from scipy.special import ndtr

from mlcl.exact.moments import Floats, Moments, unpack
from mlcl.exact.solution import Spectrum, quadratic

LEAST = 1e-6
"""The least value of one minus a leverage."""


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
    if min(positive.effective, negative.effective) < 1.5:
        return None
    spectrum = Spectrum.of(positive, negative, scale)
    shrunk = 1.0 / spectrum.shifted(ridges)  # the eigenvalues of M^-1, [R, d]
    scores = shrunk * spectrum.gap
    vectors = spectrum.vectors * scale[:, None]
    weights = scores @ vectors.T
    own = vectors.T @ unpack(positive.packed_covariance()) @ vectors  # S+ in the eigenvectors of S+ + S-
    gap = scores @ spectrum.gap
    spread_all, spread_own = scores**2 @ spectrum.values, np.einsum("rd,de,re->r", scores, own, scores)
    spreads = (spread_own, np.maximum(spread_all - spread_own, 0.0))
    trace_all, trace_own = shrunk @ spectrum.values, shrunk @ np.diag(own)
    traces = (trace_own, np.maximum(trace_all - trace_own, 0.0))
    # tr(M^-1 S+ M^-1 S-), where S- is diag(values) - S+ here.
    mixed = shrunk**2 @ (spectrum.values * np.diag(own)) - np.einsum("rd,de,re->r", shrunk, own**2, shrunk)
    mixed = np.maximum(mixed, 0.0)
    variances = [spreads[0], spreads[1]]
    if judged is not None:
        gap = gap + weights @ (negative.mean - judged.mean)
        variances[1] = quadratic(weights, judged)
    for side, count in enumerate((positive.effective, negative.effective)):
        share = 1.0 / (count - 1.0)
        rest = np.maximum(1.0 - share * traces[side], LEAST)
        gap = gap + share * (spreads[side] - traces[side]) / rest
        variances[side] = variances[side] / rest**2
        # The weights without the row differ, and so does the variance of the other side under them.
        variances[1 - side] = variances[1 - side] + mixed * share**2 * (1.0 + spreads[side]) / rest**2
    return Unseen(weights, gap, variances[0], variances[1])
