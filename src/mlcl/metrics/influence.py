"""The influence of each row on a measure of one class: how much it moves the value.

Every measure here is a mean over rows, or close to one, so the squares of the influences add up to its variance. For
the AUC this is DeLong's estimate.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from mlcl.metrics.columns import Column, insertion_points
from mlcl.metrics.inputs import Bools, Floats, check_level, check_scores

TRUSTED = 20
"""Positives (or negatives) with which DeLong's variance counts as much as that of a model of the scores."""


def auc_intervals(
    scores: ArrayLike, labels: ArrayLike, *, level: float = 0.95, mask: ArrayLike | None = None
) -> tuple[Floats, Floats]:
    """Return the lower and upper ends of the interval of each class's AUC, ``[K]``; nan where it has no AUC.

    The ends are the values from which the AUC seen would be just as far off as chance allows, where the variance is
    that *at the end*: an AUC of 1 from five positives is no certainty. The variance is Newcombe's (2006, his method
    5), times how much larger or smaller DeLong's is than it at the AUC seen, as far as there are rows to know.

    Args:
        scores: ``[n, K]``, finite.
        labels: ``[n, K]``, 0 or 1.
        level: confidence level of each interval alone.
        mask: which labels are known, ``[n, K]``; all by default.

    >>> low, high = auc_intervals(np.arange(20.0)[:, None], (np.arange(20) >= 15)[:, None])
    >>> low.round(2), high
    (array([0.75]), array([1.]))
    """
    check_level(level)
    values, truth, known = check_scores(scores, labels, mask)
    cells = np.ones_like(truth) if known is None else known
    positive, negative = ((side & cells).sum(axis=0).astype(np.float64) for side in (truth, ~truth))
    auc, delong = np.full((2, values.shape[1]), np.nan)
    for k in np.flatnonzero(np.minimum(positive, negative)):
        auc[k], influence = auc_influence(values[cells[:, k], k], truth[cells[:, k], k])
        delong[k] = np.square(influence).sum()
    there, fewer = _variance(auc, positive, negative), np.minimum(positive, negative)
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.where(there > 0, (fewer * delong / there + TRUSTED) / (fewer + TRUSTED), 1.0)
    reach = ndtri((1 + level) / 2) ** 2 * factor
    ends = []
    for far in (0.0, 1.0):
        inside, outside = auc.copy(), np.full_like(auc, far)
        for _ in range(60):
            middle = (inside + outside) / 2
            reached = (auc - middle) ** 2 <= reach * _variance(middle, positive, negative)
            inside, outside = np.where(reached, middle, inside), np.where(reached, outside, middle)
        ends.append(inside)
    return ends[0], ends[1]


def _variance(auc: Floats, positive: Floats, negative: Floats) -> Floats:
    """Return Newcombe's variance of an AUC: exponential scores, sides of the same middling size."""
    more, pairs = (positive + negative) / 2 - 1, np.maximum(positive * negative, 1)
    return auc * (1 - auc) * (1 + more * (1 - auc) / (2 - auc) + more * auc / (1 + auc)) / pairs


def auc_influence(column: Column, y: Bools) -> tuple[float, Floats]:
    """Return the AUC of a class with positives and negatives, and the influence of each row."""
    influence, value = np.empty(len(y)), 0.0
    for side, sign in ((y, 1.0), (~y, -1.0)):
        own, other = np.flatnonzero(side), np.sort(column[~side])
        order = np.argsort(column[own])
        lower, upper = insertion_points(other, column[own[order]])
        above = (lower + upper) / 2 / len(other)
        value = above.mean() if sign > 0 else 1 - above.mean()
        spread = np.sqrt(len(own) / max(len(own) - 1, 1))  # an estimate of the variance without bias
        influence[own[order]] = sign * spread * (above - above.mean()) / len(own)
    return float(value), influence


def ap_influence(column: Column, y: Bools) -> tuple[float, Floats]:
    """Return the average precision of a class, and the influence of each row."""
    order = np.argsort(-column, kind="stable")
    ranked, hit = -column[order], y[order].astype(np.float64)
    first, given = (
        np.searchsorted(ranked, ranked, side=side) for side in ("left", "right")
    )  # ties are one cut
    precision = np.cumsum(hit)[given - 1] / given
    positives = hit.sum()
    value = float(precision @ hit / positives)
    # A row counts in the precision of every positive at or below it.
    among, right = (np.cumsum((hit * part / given)[::-1])[::-1][first] for part in (1.0, precision))
    influence = np.empty(len(y))
    influence[order] = (hit * (precision - value + among) - right) / positives
    return value, influence


def brier_influence(column: Column, y: Bools) -> tuple[float, Floats]:
    """Return minus the Brier score of a class, and the influence of each row."""
    loss = -np.square(column - y)
    return float(loss.mean()), (loss - loss.mean()) / len(y)


def f1_influence(tags: Bools, truth: Bools) -> tuple[float, Floats]:
    """Return the F1 over all decisions, and the influence of each row."""
    hits, ends = (tags & truth).sum(axis=1), (tags.astype(np.int64) + truth).sum(axis=1)
    value = 2 * hits.sum() / max(ends.sum(), 1)
    return float(value), (2 * hits - value * ends) / max(ends.sum(), 1)
