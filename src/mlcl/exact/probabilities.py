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
from scipy.special import ndtr

from mlcl.exact.moments import Floats
from mlcl.metrics.decisions import Goal
from mlcl.metrics.scaling import log_odds, logistic_lines

NODES = 41
"""Points of the quadrature over a Gaussian."""
LEAST_SLOPE = 0.01
"""The least slope of the log-odds in a standardised score, where the score says nothing of unseen rows."""
STEPS = 30
"""Newton steps; the problem is convex and has two unknowns."""
CUTS, REACH = 2001, 5.0
"""Thresholds that are compared, and how many standard deviations of both Gaussians they cover."""
MOST_GIVEN = 1.5
"""Times as often as it occurs a label is given at most, where thresholds are for F1."""


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

    def line(self, slope: Floats, offset: Floats) -> ScoreMoments:
        """Return the moments of ``slope * score + offset``."""
        return ScoreMoments(
            slope * self.positive_mean + offset,
            slope * self.negative_mean + offset,
            slope**2 * self.positive_variance,
            slope**2 * self.negative_variance,
        )


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
    prior_odds = log_odds(prior)
    sp, sn = _deviations(scores)
    # Standardised scores: the middle of the means is 0, the mean of the standard deviations 1.
    middle, unit = (scores.positive_mean + scores.negative_mean) / 2, (sp + sn) / 2
    gap = (scores.positive_mean - scores.negative_mean) / unit
    points = np.concatenate([gap / 2 + np.outer(nodes, sp / unit), -gap / 2 + np.outer(nodes, sn / unit)])
    masses = np.concatenate([shares[:, None] * prior, shares[:, None] * (1 - prior)])  # [2 nodes, K]
    target = np.repeat([1.0, 0.0], NODES)[:, None]
    slope, offset = logistic_lines(
        points, masses, target, gap, prior_odds, damping=1e-12, steps=STEPS, tolerance=0.0
    )
    useless = slope < LEAST_SLOPE
    slope = np.where(scores.varies, np.maximum(slope, LEAST_SLOPE), 0.0) / unit
    offset = np.where(useless, prior_odds, offset) - slope * middle
    return slope, offset


def best_thresholds(scores: ScoreMoments, prior: Floats, goal: Goal | None = None) -> Floats:
    """Return the scores above which a label is given that are best for a goal, where scores are two Gaussians.

    F1 of a label that cannot be told apart is best where every row gets it (Lipton et al., 2014), which nobody wants:
    for ``f1`` a label is given at most half as often again as it occurs. A precision that no score reaches gives
    infinity.

    Args:
        scores: moments of the scores.
        prior: the share of positives, ``[K]``.
        goal: the best F1 per class by default.

    >>> one = np.ones(1)
    >>> scores = ScoreMoments(2 * one, 0 * one, one, one)
    >>> best_thresholds(scores, one / 2).round(1), best_thresholds(scores, one / 2, Goal("precision", 0.95)).round(1)
    (array([0.8]), array([1.9]))
    """
    goal = goal or Goal()
    sp, sn = _deviations(scores)
    low = np.minimum(scores.positive_mean - REACH * sp, scores.negative_mean - REACH * sn)
    high = np.maximum(scores.positive_mean + REACH * sp, scores.negative_mean + REACH * sn)
    cuts = low + np.linspace(0, 1, CUTS)[:, None] * (high - low)
    hits = prior * ndtr((scores.positive_mean - cuts) / sp)
    given = hits + (1 - prior) * ndtr((scores.negative_mean - cuts) / sn)
    worth = _worth(hits, given, prior, goal)
    best = np.argmax(worth, axis=0)[None]
    found = np.take_along_axis(cuts, best, axis=0)[0]
    return np.where(np.isfinite(np.take_along_axis(worth, best, axis=0)[0]), found, np.inf)


def _worth(hits: Floats, given: Floats, prior: Floats, goal: Goal) -> Floats:
    """Return what each cut of each class is worth for a goal, ``[cuts, K]``; minus infinity where it is no choice."""
    if goal.kind == "f1":
        return np.where(given <= MOST_GIVEN * prior, 2 * hits / (given + prior), -np.inf)
    if goal.kind == "f1-overall":
        return 2 * hits - _overall_f1(hits, given, prior) * given
    wanted = float(goal.value or 0.0)
    if goal.kind == "cost":
        return np.asarray(wanted * hits - (given - hits))
    # Beyond one row in a billion nothing is known, and precision would be a ratio of two roundings.
    precision, recall = hits / np.maximum(given, 1e-9), hits / prior
    kept, gained = (precision, recall) if goal.kind == "precision" else (recall, precision)
    return np.where((kept >= wanted) & (given > 1e-9), gained, -np.inf)


def _overall_f1(hits: Floats, given: Floats, prior: Floats) -> float:
    """Return the best F1 over all labels together, by Dinkelbach's method (see `mlcl.metrics.decisions`)."""
    f1 = 0.0
    while True:
        best = np.argmax(2 * hits - f1 * given, axis=0)[None]
        chosen, right = (float(np.take_along_axis(side, best, axis=0).sum()) for side in (given, hits))
        better = 2 * right / (chosen + float(prior.sum()))
        if better <= f1 + 1e-12:
            return f1
        f1 = better


def _deviations(scores: ScoreMoments) -> tuple[Floats, Floats]:
    """Return the standard deviations of positives and negatives; where one is 0, a small part of the other, or 1."""
    sp, sn = np.sqrt(scores.positive_variance), np.sqrt(scores.negative_variance)
    least = np.where(scores.varies, 0.01 * np.maximum(sp, sn), 1.0)
    return np.maximum(sp, least), np.maximum(sn, least)
