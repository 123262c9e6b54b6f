"""How weights would score rows that they have not seen, from the sums alone.

In the full form, leaving one positive out of a class with P positives changes its mean by ``e / (P - 1)``, where ``e``
is the row minus the mean, and its covariance along ``e``. In the shared form weights are those of ridge regression, but
for the positives' spread. How the weights without the row score it follows by the formula of Sherman and Morrison. On
average over the rows this needs only ``tr(M^-1 S+)``, ``w'S+w`` and the like, where M is C with the ridge; so sums
suffice, no row has to be held out, and every row counts. The same holds for the negatives. Two approximations: the
leverage ``x'M^-1 x`` of a row is replaced by its mean; and in the shared form the covariance of the positives is
diagonal along the eigenvectors, and its predictions are cautious where rows are few.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy.special import ndtr

from mlcl.exact.moments import Floats
from mlcl.exact.solution import Inverse, LabelGroup

LEAST_COUNT = 1.5
"""With fewer positives or negatives none can be left out."""
LEAST_REST = 1e-6
"""The least value of one minus a leverage, against rounding alone. It is small wherever rows are fewer than dimensions
and the ridge is small: a larger bound would make the scores of unseen rows look like those of seen ones there."""
MOST_FITTED = 0.9
"""With a larger mean leverage, as of fewer rows than dimensions and a small ridge, rows are fitted one by one, and
nothing is known of others."""
LEAST_SPREAD = 0.05
"""The least variance of negatives beside that of all rows: the gap between the sides may explain the rest."""
TIGHT = 1e-6
"""The least spread of scores beside the gap of the sides: that of equal rows is rounding."""
NODES, SHARES = np.polynomial.hermite_e.hermegauss(21)
SHARES = SHARES / SHARES.sum()


@dataclass(frozen=True, eq=False)
class Unseen:
    """Scores of unseen rows of some classes.

    Attributes:
        weights: ``[k, d]``, from all rows.
        gap: mean score of unseen positives minus mean score of unseen negatives, ``[k]``; nan if
            nothing is known of them.
        positive_variance: of the scores of unseen positives, ``[k]``.
        negative_variance: of the scores of unseen negatives, ``[k]``.
    """

    weights: Floats
    gap: Floats
    positive_variance: Floats
    negative_variance: Floats

    @property
    def auc(self) -> Floats:
        """Return the AUC of two Gaussians with these moments, ``[k]``."""
        spread = np.sqrt(self.positive_variance + self.negative_variance)
        return np.asarray(ndtr(_ratio(self.gap, np.maximum(spread, TIGHT * np.abs(self.gap)))))

    def average_precision(self, prior: Floats) -> Floats:
        """Return the average precision of the same, where ``prior`` is the share of positives, ``[k]``."""
        above = NODES * np.sqrt(self.positive_variance)[:, None] + self.gap[:, None]
        spread = np.maximum(np.sqrt(self.negative_variance), TIGHT * np.abs(self.gap))
        false = (1 - prior)[:, None] * ndtr(-_ratio(above, spread[:, None]))
        true = prior[:, None] * ndtr(-NODES)
        return np.asarray((true / (true + false)) @ SHARES)


def unseen(
    group: LabelGroup, ridge: Floats | float, judged: Callable[[Floats], tuple[Floats, Floats]] | None = None
) -> Unseen:
    """Return how the weights of each class would score rows that they have not seen.

    Args:
        group: the classes.
        ridge: r; in the full form there may be several.
        judged: returns, for weights, by how much the mean score of the negatives to compare with is below that of
            those the weights were made from, and the variance of their scores; by default they are the same.
    """
    scored = _ridge_regression(group, ridge) if group.own is None else _pairs(group, ridge)
    weights, gap, variances, rests, added, fit = scored
    if judged is not None:
        lower, other = judged(weights)
        gap, variances = gap + lower, (variances[0], other)
    positive, negative = (
        one / rest**2 + more for one, rest, more in zip(variances, rests, added, strict=True)
    )
    known = (np.minimum(group.positives, group.negatives) >= LEAST_COUNT) & (fit <= MOST_FITTED)
    return Unseen(weights, np.where(known, gap, np.nan), positive, negative)


_Pair: TypeAlias = tuple[Floats, Floats]
_Scored: TypeAlias = tuple[Floats, Floats, _Pair, _Pair, _Pair, Floats]


def _ridge_regression(group: LabelGroup, ridge: Floats | float) -> _Scored:
    """Return weights, gap, variances of seen rows, one minus their leverages, further variances, and the leverage.

    Of a row x with the label y, without their means, the score without the row is ``(f - h y) / (1 - h)`` in ridge
    regression, where ``h = x'M^-1 x / n`` is its leverage.
    """
    values, spread, n = group.values, group.spread, group.positives + group.negatives
    # The positives' spread is that of all rows, times a number as it were: regression on rows that are so much wider.
    wide = 1.0 + group.weight * spread.sum(axis=1, keepdims=True) / max(values.sum(), np.finfo(float).tiny)
    inverse = Inverse.of(group, float(ridge))
    scores = wide * inverse.times(group.gap)
    trace, fitted = (wide[:, 0] * one for one in inverse.traces())
    gap = (scores * group.gap).sum(axis=1)
    p = group.positives / n
    # The covariance of all rows is p S+ + (1 - p) S- + p (1 - p) d d', with d the gap of the means.
    every = (scores**2 * values).sum(axis=1)
    other = (fitted - p * trace - p * (1 - p) * gap) / (1 - p)
    # Each side's own share of the fit; 1 is that of the mean of all rows.
    parts = ((trace, (1 - p) ** 2), (other, p**2))
    mean = (1.0 + fitted) / n
    # The mean leverage is exact, and 1 where as many dimensions as rows fit everything; that of a side is an estimate.
    rest = np.maximum(1.0 - mean, LEAST_REST)
    high, low = (rest ** ((1.0 + np.maximum(one, 0.0) + share * gap) / (n * mean)) for one, share in parts)
    unseen_gap = ((1 - p) * gap - (1 - high) / p) / high + (p * gap - (1 - low) / (1 - p)) / low
    # The mean that is left without a row moves its score, but not the ranking.
    unseen_gap += 1 / (p * (1 - p) * np.maximum(n - 1, 1.0))
    # What the gap between unseen rows, not that between seen ones, leaves of the variance of all is inside the sides.
    beside = np.maximum(every - p * (1 - p) * unseen_gap**2, LEAST_SPREAD * every)
    among = beside * _ratio(group.variance(scores), every)
    weights = np.asarray(scores @ group.vectors.T)
    nothing = np.zeros_like(gap)
    return weights, unseen_gap, (among, beside), (high, low), (nothing, nothing), mean


def _pairs(group: LabelGroup, ridge: Floats | float) -> _Scored:
    """Return the same in the full form: leaving one row out changes the mean and the covariance of its side."""
    shrunk = 1.0 / group.shifted(ridge)
    scores = shrunk * group.gap
    gap, own, s = (scores * group.gap).sum(axis=1), np.asarray(group.own), group.weight[:, 0]
    among, trace = ((scores @ own) * scores).sum(axis=1), (shrunk * group.spread).sum(axis=1)
    beside = (scores**2 * group.values).sum(axis=1) - s * among
    other = (shrunk * group.values).sum(axis=1) - s * trace
    mixed = (shrunk**2 * group.values * group.spread).sum(axis=1) - s * ((shrunk @ own**2) * shrunk).sum(
        axis=1
    )
    rests, added = [], []
    spreads = (np.maximum(among, 0.0), np.maximum(beside, 0.0))
    for spread, moved, count, weight in zip(
        spreads, (trace, other), (group.positives, group.negatives), (s, np.ones(1)), strict=True
    ):
        share = 1.0 / np.maximum(count - 1.0, LEAST_COUNT - 1.0)
        rest = np.maximum(1.0 - share * weight * moved, LEAST_REST)
        gap = gap + share * (weight * spread - moved) / rest
        rests.append(rest)
        # The weights without the row differ, and so does the variance of the other side under them.
        added.append(np.maximum(mixed, 0.0) * share**2 * (1.0 + weight**2 * spread) / rest**2)
    # Rows that were not seen are no further apart than those that were.
    gap = np.minimum(gap, (scores * group.gap).sum(axis=1))
    return (
        np.asarray(scores @ group.vectors.T),
        gap,
        spreads,
        (rests[0], rests[1]),
        (added[1], added[0]),
        1.0 - np.minimum(rests[0], rests[1]),
    )


def _ratio(value: Floats, scale: Floats) -> Floats:
    return np.divide(value, scale, out=np.zeros(np.broadcast(value, scale).shape), where=scale > 0)
