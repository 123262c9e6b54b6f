"""The ridge, and the weight of unlabelled rows, chosen by the sums of the held-out rows: no search over data.

For weights from nine tenths of the rows, the held-out sums give the separation of positives and negatives, and Phi of
it is the AUC of two Gaussians. One eigendecomposition per class and exponent serves all ridges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from mlcl.exact.moments import Floats
from mlcl.exact.solution import directions, feature_scale, separation
from mlcl.exact.sums import Sums

RIDGES: Floats = np.logspace(-4, 3, 15)
"""The ridges to choose from."""
EXPONENTS = (0.0, 0.5, 1.0)
"""The exponents a of the features' variances to choose from."""
UNLABELLED = (0.0, 0.03, 0.1, 0.3, 1.0)
"""The weights of unlabelled rows to choose from."""
RIDGE, EXPONENT = 0.1, 0.0
"""Taken where no class has held-out positives and negatives."""
MOST = 48
"""The choice looks at no more classes than this: those with the most held-out positives."""


@dataclass(frozen=True)
class Choice:
    """What was chosen.

    Attributes:
        ridge: r.
        exponent: a, of the features' variances in the ridge.
        unlabelled: the weight of rows that were not annotated for a class, as its negatives.
        expected: the mean AUC that the held-out sums predict; nan where they could not.
    """

    ridge: float
    exponent: float
    unlabelled: float
    expected: float


def choose(
    train: Sums,
    held: Sums,
    *,
    unlabelled: Sequence[float],
    measured: float | None = None,
    ridges: Floats = RIDGES,
    exponents: Sequence[float] = EXPONENTS,
) -> Choice:
    """Return the ridge, the exponent and the weight of unlabelled rows with the best mean of predicted AUCs.

    Args:
        train: sums that weights are made from.
        held: sums of other rows that judge them.
        unlabelled: the weights of unlabelled rows to choose from.
        measured: their weight among the held-out negatives that the weights are judged by: 0 for the AUC within
            a class's own annotated rows (in-task), 1 for the AUC over all rows (pooled). By default the same weight
            as in learning.
        ridges: the ridges to choose from.
        exponents: the exponents to choose from.
    """
    classes = judging(held)
    best = Choice(float(ridges[0]), exponents[0], unlabelled[0], float("nan"))
    if len(ridges) > 1 or len(exponents) > 1:
        best = Choice(_nearest(ridges, RIDGE), _nearest(exponents, EXPONENT), unlabelled[-1], float("nan"))
    top = -np.inf
    for u in unlabelled:
        judged_by = u if measured is None else measured
        found = predicted_auc(
            train, held, classes, unlabelled=u, measured=judged_by, ridges=ridges, exponents=exponents
        )
        if not np.isfinite(found).any():
            continue
        mean = np.nanmean(found, axis=0)
        # Differences of rounding must not decide, or the order of the rows would.
        a, r = np.argwhere(mean >= mean.max() - 1e-9)[-1]
        if mean[a, r] > top + 1e-9:
            top = float(mean[a, r])
            best = Choice(float(ridges[r]), exponents[a], u, top)
    return best


def judging(held: Sums) -> list[int]:
    """Return the classes with at least two held-out positives, at most `MOST` of them, those with most first."""
    counts = np.array([one.count for one in held.positive])
    order = np.argsort(-counts, kind="stable")[:MOST]
    return [int(k) for k in order if counts[k] >= 2]


def predicted_auc(
    train: Sums,
    held: Sums,
    classes: Sequence[int],
    *,
    unlabelled: float,
    measured: float,
    ridges: Floats = RIDGES,
    exponents: Sequence[float] = EXPONENTS,
) -> NDArray[np.float64]:
    """Return the AUC that the held-out sums predict, ``[classes, exponents, ridges]``; nan where they cannot."""
    found = np.full((len(classes), len(exponents), len(ridges)), np.nan)
    variances = train.total.variances
    for row, k in zip(found, classes, strict=True):
        learnt, judge = train.sides(k, unlabelled), held.sides(k, measured)
        if min(learnt[0].count, learnt[1].count, judge[0].count, judge[1].count) <= 0:
            continue
        for values, exponent in zip(row, exponents, strict=True):
            weights = directions(*learnt, ridges=ridges, scale=feature_scale(variances, exponent))
            values[:] = ndtr(separation(weights, *judge))
    return found


def _nearest(values: Sequence[float] | Floats, wanted: float) -> float:
    return float(min(values, key=lambda value: abs(np.log10(value + 1e-12) - np.log10(wanted + 1e-12))))
