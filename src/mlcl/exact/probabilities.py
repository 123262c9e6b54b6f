"""Probabilities and thresholds from the moments of the scores: two Gaussians and the class's own prior.

Scores become log-odds by one slope and one offset per class: those of the logistic regression on two Gaussians, one
for positives and one for negatives, mixed by the prior. So log-odds stay linear in the features, and a linear layer
with a sigmoid gives the probabilities. (The exact log-odds of two Gaussians are a parabola that turns back; on
real data it was no better.)

The probability is that of the label in a row *of the kind that was annotated for the class*: the prior is the share of
positives among the rows annotated for it. Rows that were not annotated serve as negatives of the weights, but hidden
positives among them would count into the prior, so they do not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr

from mlcl.exact.moments import Floats

NODES = 41
"""Points of the quadrature over a Gaussian."""
LEAST_SLOPE = 0.01
"""The least slope of the log-odds in a standardised score, where the score says nothing of unseen rows."""
STEPS = 30
"""Newton steps; the problem is convex and has two unknowns."""


@dataclass(frozen=True, eq=False)
class ScoreMoments:
    """Mean and variance of the scores of each class, among its positives and its negatives.

    Attributes:
        positive_mean: ``[K]``.
        negative_mean: ``[K]``.
        positive_variance: ``[K]``.
        negative_variance: ``[K]``.
    """

    positive_mean: Floats
    negative_mean: Floats
    positive_variance: Floats
    negative_variance: Floats

    @property
    def varies(self) -> NDArray[np.bool_]:
        """Return for which classes the scores vary at all."""
        return self.positive_variance + self.negative_variance > 0


def log_odds_line(scores: ScoreMoments, prior: Floats) -> tuple[Floats, Floats]:
    """Return slope and offset per class, such that ``slope * score + offset`` are the log-odds.

    The slope is positive, though it may be small, wherever scores vary: the order of rows is kept. Where they do not,
    it is 0, and the log-odds are those of the prior.

    Args:
        scores: moments of the scores.
        prior: the share of positives, strictly between 0 and 1, ``[K]``.

    >>> one = np.ones(1)
    >>> slope, offset = log_odds_line(ScoreMoments(2 * one, 0 * one, one, one), one / 2)
    >>> (slope.round(6), offset.round(6))  # equal variances: the line is exact
    (array([2.]), array([-2.]))
    """
    nodes, shares = np.polynomial.hermite_e.hermegauss(NODES)
    shares = shares / shares.sum()
    prior_odds = np.log(prior) - np.log1p(-prior)
    sp, sn = _deviations(scores)
    # Standardised scores: the middle of the means is 0, the mean of the standard deviations 1.
    middle, unit = (scores.positive_mean + scores.negative_mean) / 2, (sp + sn) / 2
    gap = (scores.positive_mean - scores.negative_mean) / unit
    points = np.stack(
        [gap / 2 + np.outer(nodes, sp / unit), -gap / 2 + np.outer(nodes, sn / unit)]
    )  # [2, nodes, K]
    masses = shares[:, None] * np.stack([prior, 1 - prior])[:, None, :]
    target = np.array([1.0, 0.0])[:, None, None]
    slope, offset = gap.copy(), prior_odds.copy()
    for _ in range(STEPS):
        chance = expit(slope * points + offset)
        error, curve = masses * (chance - target), masses * chance * (1 - chance)
        g1, g0 = (error * points).sum((0, 1)), error.sum((0, 1))
        h11, h10, h00 = (curve * points**2).sum((0, 1)), (curve * points).sum((0, 1)), curve.sum((0, 1))
        h11, h00 = h11 + 1e-12, h00 + 1e-12
        determinant = h11 * h00 - h10**2
        step = np.stack([h00 * g1 - h10 * g0, h11 * g0 - h10 * g1]) / np.maximum(determinant, 1e-30)
        step /= np.maximum(np.abs(step).max(0) / 2, 1.0)  # far from the solution, no further than 2 at a time
        slope, offset = slope - step[0], offset - step[1]
    useless = slope < LEAST_SLOPE
    slope = np.where(scores.varies, np.maximum(slope, LEAST_SLOPE), 0.0)
    offset = np.where(useless, prior_odds, offset)
    return slope / unit, offset - slope / unit * middle


def best_thresholds(scores: ScoreMoments, prior: Floats) -> Floats:
    """Return the scores with the best expected F1 of two Gaussians.

    Args:
        scores: moments of the scores.
        prior: the share of positives, ``[K]``.

    >>> one = np.ones(1)
    >>> bool(0 < best_thresholds(ScoreMoments(2 * one, 0 * one, one, one), one / 2)[0] < 1)
    True
    """
    sp, sn = _deviations(scores)
    start, stop = scores.negative_mean - 2 * sn, scores.positive_mean + 3 * sp
    cuts = start + np.linspace(0, 1, 401)[:, None] * (stop - start)
    hits = prior * ndtr((scores.positive_mean - cuts) / sp)
    false = (1 - prior) * ndtr((scores.negative_mean - cuts) / sn)
    f1 = 2 * hits / (hits + false + prior)
    return np.asarray(cuts[np.argmax(f1, axis=0), np.arange(cuts.shape[1])])


def _deviations(scores: ScoreMoments) -> tuple[Floats, Floats]:
    """Return the standard deviations of positives and negatives; where one is 0, a small part of the other, or 1."""
    sp, sn = np.sqrt(scores.positive_variance), np.sqrt(scores.negative_variance)
    least = np.where(scores.varies, 0.01 * np.maximum(sp, sn), 1.0)
    return np.maximum(sp, least), np.maximum(sn, least)
