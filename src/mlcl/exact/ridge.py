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
MOST = 48
"""The choice looks at no more classes than this, spread evenly from the rarest to the most frequent."""


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
    """Return the ridge, the exponent and the weight of unlabelled rows with the best mean of predicted AUCs.

    Args:
        sums: of all rows.
        unlabelled: the weights of unlabelled rows to choose from.
        measured: their weight among the negatives that scores are judged by: 0 for the AUC within a class's own
            annotated rows (in-task), 1 for the AUC over all rows (pooled). By default the same as in learning.
        ridges: the ridges to choose from.
        exponents: the exponents to choose from.
    """
    classes = judging(sums)
    best = Choice(_nearest(ridges, RIDGE), _nearest(exponents, EXPONENT), unlabelled[-1], float("nan"))
    top = -np.inf
    for u in unlabelled:
        found = predicted_auc(
            sums,
            classes,
            unlabelled=u,
            measured=u if measured is None else measured,
            ridges=ridges,
            exponents=exponents,
        )
        if not np.isfinite(found).any():
            continue
        mean = _mean(found, np.array([sums.positive[k].count for k in classes]))
        # Rounding must not decide, or the order of the rows would: hence the small differences.
        a = int(np.flatnonzero(mean.max(1) >= mean.max() - 1e-9)[0])
        r = int(np.flatnonzero(mean[a] >= mean[a].max() - EQUAL)[-1])
        if mean[a].max() > top + 1e-9:
            top = float(mean[a].max())
            best = Choice(float(ridges[r]), float(exponents[a]), float(u), float(mean[a, r]))
    return best


def _mean(found: Floats, positives: Floats) -> Floats:
    """Return the mean over classes where it is defined, ``[exponents, ridges]``."""
    weights = np.where(np.isfinite(found[:, 0, 0]), positives / (positives + RARE), 0.0)
    return np.asarray(np.tensordot(weights, np.nan_to_num(found), axes=1) / weights.sum())


def judging(sums: Sums) -> list[int]:
    """Return the classes with at least two positives; of more than `MOST`, evenly many of every frequency."""
    counts = np.array([one.count for one in sums.positive])
    order = [int(k) for k in np.argsort(-counts, kind="stable") if counts[k] >= LEAST_COUNT]
    if len(order) <= MOST:
        return order
    return [order[i] for i in np.linspace(0, len(order) - 1, MOST).round().astype(int)]


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
            own = ridges * class_ridge(1.0, positive.count, int(np.count_nonzero(scale)))
            scored = unseen(positive, negative, ridges=own, scale=scale, judged=judged)
            if scored is not None:
                values[:] = scored.auc
    return found


def _nearest(values: Sequence[float] | Floats, wanted: float) -> float:
    return float(min(values, key=lambda value: abs(np.log10(value + 1e-12) - np.log10(wanted + 1e-12))))
