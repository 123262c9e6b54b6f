"""The ridge, and the weight of unlabelled rows, chosen by how unseen rows would score: from sums, without a search.

One eigendecomposition per class and exponent serves all ridges (`mlcl.exact.leave_one_out`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlcl.exact.leave_one_out import LEAST_COUNT, unseen
from mlcl.exact.moments import Floats
from mlcl.exact.solution import class_ridge, feature_scale
from mlcl.exact.sums import Sums

RIDGES: Floats = np.logspace(-4, 3, 15)
"""The ridges to choose from."""
EXPONENTS = (0.0, 0.5, 1.0)
"""The exponents a of the features' variances to choose from."""
UNLABELLED = (0.0, 0.03, 0.1, 0.3, 1.0)
"""The weights of unlabelled rows to choose from."""
RIDGE, EXPONENT = 1.0, 0.0
"""Taken where no class has two positives and two negatives."""
EQUAL = 0.002
"""Predicted AUCs that differ by less are taken for equal; then the largest ridge is chosen, as the safer one."""
RARE = 10.0
"""The prediction for a class with so many positives counts half: with few of them it is mostly noise."""
DOUBT, ENOUGH, POINT = 0.6, 50.0, 0.01
"""Predicted AUCs of classes with P positives may be wrong by `DOUBT` / P beyond what they may be at `ENOUGH`, and by
`POINT` at most. Within that a ridge of up to `RIDGE` is preferred: it is close to the best on every dataset tried."""
MOST, FEW = 48, 12
"""The ridge is judged by no more classes than this, spread evenly from the rarest to the most frequent; exponent and
weight of unlabelled rows, before it, by fewer."""


@dataclass(frozen=True)
class Choice:
    """What was chosen.

    Attributes:
        ridge: r; the ridge of a class is `mlcl.exact.solution.class_ridge` of it.
        exponent: a, of the features' variances in the ridge.
        unlabelled: the weight of rows that were not annotated for a class, as its negatives.
        expected: the mean AUC that the sums predict for unseen rows; nan where they cannot.
    """

    ridge: float
    exponent: float
    unlabelled: float
    expected: float


def choose(
    sums: Sums,
    *,
    unlabelled: Sequence[float] = (1.0,),
    measured: float | None = None,
    ridges: Floats = RIDGES,
    exponents: Sequence[float] = EXPONENTS,
) -> Choice:
    """Return the exponent, the weight of unlabelled rows and the ridge with the best mean of predicted AUCs, in turn.

    Args:
        sums: of all rows.
        unlabelled: the weights of unlabelled rows to choose from.
        measured: their weight among the negatives that scores are judged by: 0 for the AUC within a class's own
            annotated rows (in-task), 1 for the AUC over all rows (pooled). By default the same as in learning.
        ridges: the ridges to choose from.
        exponents: the exponents to choose from.
    """
    exponent, u = exponents[0], unlabelled[-1]
    few, many = judging(sums, FEW), judging(sums, MOST)
    if len(exponents) > 1:
        tried = [_judged(sums, few, (u, measured), ridges, one).max() for one in exponents]
        exponent = exponents[_best(tried)[0]]
    if len(unlabelled) > 1:
        tried = [_judged(sums, few, (one, measured), ridges, exponent).max() for one in unlabelled]
        u = unlabelled[_best(tried)[0]]
    mean = _judged(sums, many, (u, measured), ridges, exponent)
    if np.isnan(mean).any():
        return Choice(_nearest(ridges, RIDGE), _nearest(exponents, EXPONENT), u, float("nan"))
    tolerated = _best(mean, doubt([sums.positive[k].count for k in many]))
    best = max([_best(mean, EQUAL)[-1], *(i for i in tolerated if ridges[i] <= RIDGE)])
    return Choice(float(ridges[best]), float(exponent), float(u), float(mean[best]))


def doubt(positives: Sequence[float]) -> float:
    """Return by how much predicted AUCs may be wrong relative to each other where positives are few.

    Predictions come from means and variances, which of a few rows, some of them long, say little of how most rows
    score. The error favours small ridges.

    Args:
        positives: the number of positives of each class that judges.

    >>> doubt([200, 1000]), round(doubt([30, 40]), 4), doubt([5, 20])
    (0.0, 0.0054, 0.01)
    """
    counts = np.asarray(positives, np.float64)
    if not len(counts):
        return 0.0
    weights = counts / (counts + RARE)  # as in the mean of predictions
    typical = weights.sum() / (weights / counts).sum()
    return float(min(DOUBT * max(0.0, 1.0 / typical - 1.0 / ENOUGH), POINT))


def _judged(
    sums: Sums, classes: Sequence[int], weights: tuple[float, float | None], ridges: Floats, exponent: float
) -> Floats:
    """Return the mean of predicted AUCs over classes, ``[ridges]``; nan without one."""
    unlabelled, measured = weights
    found = predicted_auc(
        sums,
        classes,
        unlabelled=unlabelled,
        measured=unlabelled if measured is None else measured,
        ridges=ridges,
        exponents=[exponent],
    )[:, 0]
    positives = np.array([sums.positive[k].count for k in classes])
    shares = np.where(np.isfinite(found[:, 0]), positives / (positives + RARE), 0.0)
    if not shares.any():
        return np.full(len(ridges), np.nan)
    return np.asarray(shares @ np.nan_to_num(found) / shares.sum())


def _best(values: Sequence[float] | Floats, tolerance: float = 0.0) -> list[int]:
    """Return the places of the values within a tolerance of the largest; rounding is always tolerated.

    >>> _best([0.7, 0.9, 0.9 + 1e-15]), _best([0.7, 0.9, 0.8], 0.15), _best([np.nan, np.nan])
    ([1, 2], [1, 2], [0, 1])
    """
    if not np.isfinite(values).all():
        return list(range(len(values)))
    return [int(i) for i in np.flatnonzero(np.asarray(values) >= max(values) - max(tolerance, 1e-9))]


def judging(sums: Sums, most: int) -> list[int]:
    """Return the classes with at least two positives; if they are more than ``most``, some of every frequency."""
    counts = np.array([one.count for one in sums.positive])
    order = [int(k) for k in np.argsort(-counts, kind="stable") if counts[k] >= LEAST_COUNT]
    if len(order) <= most:
        return order
    return [order[i] for i in np.linspace(0, len(order) - 1, most).round().astype(int)]


def predicted_auc(
    sums: Sums,
    classes: Sequence[int],
    *,
    unlabelled: float,
    measured: float,
    ridges: Floats = RIDGES,
    exponents: Sequence[float] = EXPONENTS,
) -> NDArray[np.float64]:
    """Return the AUC that the sums predict for unseen rows, ``[classes, exponents, ridges]``; nan where they cannot."""
    found = np.full((len(classes), len(exponents), len(ridges)), np.nan)
    variances = sums.total.variances
    for row, k in zip(found, classes, strict=True):
        positive, negative = sums.sides(k, unlabelled)
        judged = None if measured == unlabelled else sums.sides(k, measured)[1]
        if judged is not None and not judged.count > 0:
            continue
        for values, exponent in zip(row, exponents, strict=True):
            scale = feature_scale(variances, exponent)
            features = int(np.count_nonzero(scale))
            own = ridges * class_ridge(1.0, positive.count, features)
            scored = unseen(positive, negative, ridges=own, scale=scale, judged=judged)
            if scored is not None:
                # Standardised components of a few rows, their own: each is as far from all others, whatever its labels.
                fitted = scored.constant & (positive.count + negative.count <= 2 * features)
                values[:] = np.where(fitted, 0.5, scored.auc)
    return found


def _nearest(values: Sequence[float] | Floats, wanted: float) -> float:
    return float(min(values, key=lambda value: abs(value - wanted)))
