"""Probabilities and thresholds from the moments of the scores: two Gaussians and the class's own prior.

Weights from nine tenths of the rows give scores of the held-out tenth that they have not seen. The mean and variance of
these scores, among positives and among negatives, come from the held-out sums; where a class has few held-out
positives, they are drawn towards what the other classes show.

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

STRENGTH = 10.0
"""A class's own held-out rows count as much as the other classes' when there are so many of them."""
LEAST_SLOPE = 0.1
"""The least slope of the log-odds, as a share of their slope between the two means."""


@dataclass(frozen=True, eq=False)
class ScoreMoments:
    """Mean and variance of the scores of each class, among its positives and its negatives, ``[K]`` each."""

    positive_mean: Floats
    negative_mean: Floats
    positive_variance: Floats
    negative_variance: Floats


@dataclass(frozen=True, eq=False)
class Calibration:
    """How a score becomes log-odds, per class: a parabola, continued by its tangents where it would turn back.

    Attributes:
        curvature: coefficient of the square of the score, ``[K]``.
        slope: coefficient of the score.
        offset: log-odds of the score 0.
        low: below this score the tangent continues; minus infinity for nowhere.
        high: above this score the tangent continues; infinity for nowhere.
        thresholds: the score above which a label is predicted.
    """

    curvature: Floats
    slope: Floats
    offset: Floats
    low: Floats
    high: Floats
    thresholds: Floats

    def log_odds(self, scores: Floats) -> Floats:
        """Return the log-odds of scores ``[n, K]``, strictly increasing in each score that is not constant."""
        at = np.clip(scores, self.low, self.high)
        inside = (self.curvature * at + self.slope) * at + self.offset
        return inside + (2 * self.curvature * at + self.slope) * (scores - at)

    def probabilities(self, scores: Floats) -> Floats:
        """Return the probabilities of scores ``[n, K]``."""
        return np.asarray(expit(self.log_odds(scores)))


def calibrate(scores: ScoreMoments, prior: Floats) -> Calibration:
    """Return log-odds by two Gaussians with the class's prior, and the thresholds of the best expected F1.

    Args:
        scores: moments of the scores; a class whose variances are 0 has constant scores and gets its prior.
        prior: the share of positives, strictly between 0 and 1.
    """
    prior_odds = np.log(prior) - np.log1p(-prior)
    up, un = scores.positive_mean, scores.negative_mean
    gap = up - un
    usable = (scores.positive_variance > 0) & (scores.negative_variance > 0) & (gap > 0)
    vp = np.where(usable, scores.positive_variance, 1.0)
    vn = np.where(usable, scores.negative_variance, 1.0)
    # log N(s; up, vp) - log N(s; un, vn), as a parabola in s.
    curvature = np.where(usable, (1 / vn - 1 / vp) / 2, 0.0)
    slope = np.where(usable, up / vp - un / vn, 0.0)
    offset = np.where(usable, (un**2 / vn - up**2 / vp + np.log(vn / vp)) / 2, 0.0) + prior_odds
    between = np.where(usable, gap * (1 / vn + 1 / vp) / 2, 0.0)  # the mean slope from un to up
    with np.errstate(divide="ignore", invalid="ignore"):
        turn = (LEAST_SLOPE * between - slope) / (2 * curvature)
    low = np.where(curvature > 0, turn, -np.inf)
    high = np.where(curvature < 0, turn, np.inf)
    return Calibration(curvature, slope, offset, low, high, _thresholds(scores, prior, usable))


def _thresholds(scores: ScoreMoments, prior: Floats, usable: NDArray[np.bool_]) -> Floats:
    """Return the scores with the best expected F1 of two Gaussians; infinite where scores say nothing."""
    sp, sn = np.sqrt(scores.positive_variance), np.sqrt(scores.negative_variance)
    start, stop = scores.negative_mean - 2 * sn, scores.positive_mean + 3 * sp
    steps = np.linspace(0, 1, 401)[:, None]
    cuts = start + steps * (stop - start)
    with np.errstate(divide="ignore", invalid="ignore"):
        hit = prior * ndtr((scores.positive_mean - cuts) / sp)
        false = (1 - prior) * ndtr((scores.negative_mean - cuts) / sn)
        f1 = 2 * hit / (hit + false + prior)
    best = cuts[np.argmax(np.nan_to_num(f1), axis=0), np.arange(cuts.shape[1])]
    return np.where(usable, best, np.where(prior > 0.5, -np.inf, np.inf))
