"""The ridge, its exponent and the weight of unlabelled rows, by how unseen rows would score: from sums alone.

One eigendecomposition per group of classes and exponent serves all ridges (`mlcl.exact.unseen`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from mlcl.exact.moments import NOISE, Floats, Moments
from mlcl.exact.solution import LabelGroup, Solved, all_rows, groups, quadratic
from mlcl.exact.sums import Sums
from mlcl.exact.unseen import LEAST_COUNT, unseen

Wanted = Literal["auc", "ap", "both"]
RIDGES: Floats = np.logspace(-4, 3, 15)
"""The ridges to choose from."""
EXPONENTS = (0.5, 0.0, 1.0)
"""The exponents a of the features' variances to choose from; the first is best on most datasets tried."""
UNLABELLED = (0.0, 0.03, 0.1, 0.3, 1.0)
"""The weights of unlabelled rows to choose from."""
RIDGE = 1.0
"""Taken where no class has two positives and two negatives."""
ROWS, WIDE = 8.0, 512
"""In the shared form, ridges below d / n times `ROWS`, or `RIDGE` if that is less, are not tried: how positives vary in
directions in which rows vary little is not known well enough there. Above `WIDE` dimensions only the first exponent
is."""
SCARCE = 2.0
"""Where fewer rows than so many times the dimensions count for a class, ridges above `RIDGE` are not tried, either: the
gain that is predicted for them is not there."""
DOUBT, POINT = 0.5, 0.03
"""Predictions for classes with P positives may be wrong by `DOUBT` / P relative to each other, by `POINT` at most."""
UNUSUAL = 64.0
"""A feature whose variance is more than so many times the median counts no more than that in `usual_ridge`."""
BETTER = 0.005
"""Another exponent than the first must be predicted to be better by so much."""
RARE = 10.0
"""The prediction for a class with so many positives counts half: with few of them it is mostly noise."""
MANY, SPREADS = 200.0, {"auc": 1.0, "both": 0.3, "ap": 0.1}
"""The spread for each goal; it is 1 only for classes with more than so many positives."""
MOST, FEW = {False: 48, True: 512}, {False: 12, True: 128}
"""The ridge is judged by no more classes than this, in the full and in the shared form, spread evenly from the rarest
to the most frequent; exponent and weight of unlabelled rows, before it, by fewer."""


@dataclass(frozen=True)
class Choice:
    """What was chosen.

    Attributes:
        ridge: r; the ridge of a class is `mlcl.exact.solution.class_ridge` of it.
        exponent: a, of the features' variances in the ridge.
        unlabelled: the weight of rows that were not annotated for a class, as its negatives.
        expected: the mean AUC that the sums predict for unseen rows; nan where they cannot.
        precision: the same for the average precision.
        goal: what was wanted.
        spread: s, the weight of the positives' spread; None: by the goal and the positives of each class.
    """

    ridge: float
    exponent: float
    unlabelled: float
    expected: float
    precision: float = float("nan")
    goal: Wanted = "both"
    spread: float | None = None

    @property
    def worth(self) -> float:
        """Return what is predicted of the goal; 0 where nothing is."""
        found = {"auc": self.expected, "ap": self.precision, "both": (self.expected + self.precision) / 2}
        return found[self.goal] if np.isfinite(self.expected) else 0.0

    def spreads(self, positives: Floats) -> Floats:
        """Return s for classes with so many positives.

        >>> Choice(1.0, 0.0, 1.0, 0.9, goal="auc").spreads(np.array([10, 500]))
        array([0.3, 1. ])
        """
        usual = SPREADS[self.goal] if self.spread is None else self.spread
        few = min(usual, SPREADS["both"]) if self.spread is None else usual
        return np.where(positives > MANY, usual, few)


def choose(
    sums: Sums,
    *,
    unlabelled: Sequence[float] = (1.0,),
    measured: float | None = None,
    ridges: Floats = RIDGES,
    exponents: Sequence[float] = EXPONENTS,
    goal: Wanted = "both",
    spread: float | None = None,
    solved: Solved | None = None,
) -> Choice:
    """Return the exponent, the weight of unlabelled rows and the ridge with the best mean of predictions, in turn.

    Args:
        sums: of all rows.
        unlabelled: the weights of unlabelled rows to choose from.
        measured: their weight among the negatives that scores are judged by: 0 for the AUC within a class's own
            annotated rows (in-task), 1 for the AUC over all rows (pooled). By default the same as in learning.
        ridges: the ridges to choose from.
        exponents: the exponents to choose from.
        goal: what is predicted: AUC, average precision, or the mean of both.
        spread: s; None: by the goal.
        solved: what was decomposed before; what the choice needs again is left there.
    """
    solved = {} if solved is None else solved
    if sums.shared:
        exponents = exponents[:1] if sums.dimension > WIDE else exponents
        least = min(RIDGE, ROWS * sums.dimension / max(sums.total.count, 1.0))
        ridges = ridges[ridges >= min(least, ridges.max())]
    first = Choice(float(ridges[0]), exponents[0], unlabelled[-1], float("nan"), goal=goal, spread=spread)
    few, many = (judging(sums, most[sums.shared]) for most in (FEW, MOST))
    tried = [first]
    if len(exponents) > 1:
        tried = [_best(sums, few, first, ridges, measured, solved, exponent=one) for one in exponents]
    best = max(tried, key=lambda one: one.worth - (BETTER if one.exponent != exponents[0] else 0.0))
    if len(unlabelled) > 1:
        tried = [_best(sums, few, best, ridges, measured, solved, unlabelled=one) for one in unlabelled]
        best = max(tried, key=lambda one: one.worth)
    for key in [key for key in solved if key[1:] != (best.unlabelled, best.exponent)]:
        del solved[key]
    return _best(sums, many, best, ridges, measured, solved)


def predicted(
    sums: Sums,
    classes: Sequence[int],
    choice: Choice,
    ridges: Floats,
    measured: float,
    solved: Solved | None = None,
) -> Floats:
    """Return predicted AUC and average precision of unseen rows, ``[2, ridges, classes]``; nan without a prediction.

    Args:
        sums: the sums.
        classes: numbers of classes.
        choice: exponent, weight of unlabelled rows, and spread.
        ridges: ``[R]``.
        measured: the weight of unlabelled rows among the negatives to compare with.
        solved: what was decomposed before.
    """
    found = np.full((2, len(ridges), sums.classes), np.nan)
    positive, negative = sums.counts(measured)
    prior = positive / np.maximum(positive + negative, 1.0)
    spread = choice.spreads(positive)
    u, exponent = choice.unlabelled, choice.exponent
    for group in groups(sums, classes, unlabelled=u, spread=spread, exponent=exponent, solved=solved):
        if not negative[group.classes].all():
            continue
        judged = None
        if measured != choice.unlabelled:
            judged = _judged(sums, group, choice.unlabelled, measured)
        # In the full form a group is one class, and its ridges are solved at once.
        for number, ridge in enumerate(ridges if sums.shared else [ridges]):
            scored = unseen(group, ridge, judged)
            place = (number, group.classes) if sums.shared else (slice(None), group.classes[0])
            found[(0, *place)] = scored.auc
            found[(1, *place)] = scored.average_precision(
                np.broadcast_to(prior[group.classes], scored.gap.shape)
            )
    chosen: Floats = found[:, :, list(classes)]
    return chosen


def _judged(
    sums: Sums, group: LabelGroup, unlabelled: float, measured: float
) -> Callable[[Floats], tuple[Floats, Floats]]:
    """Return what `unseen` takes for other negatives than those of learning."""
    block = sums.block_of[int(group.classes[0])]
    before, every = all_rows(sums, block, unlabelled), all_rows(sums, block, measured)
    own = [sums.positive[k] for k in group.classes.tolist()]
    count = np.array([one.count for one in own])
    total, positive = np.stack([one.sum for one in own]), np.stack([one.mean for one in own])

    def negative_mean(rows: Moments) -> Floats:
        return np.asarray((rows.sum - total) / np.maximum(rows.count - count, NOISE)[:, None])

    shift, gap = negative_mean(before) - negative_mean(every), positive - negative_mean(every)
    share = count / every.count

    def judge(weights: Floats) -> tuple[Floats, Floats]:
        if group.own is None:
            spread = group.variance(weights @ group.back)
        else:
            spread = quadratic(weights, own[0])
        between = share * (1 - share) * (weights * gap).sum(axis=1) ** 2
        rest = (quadratic(weights, every) - share * spread - between) / (1 - share)
        return np.asarray((weights * shift).sum(axis=1)), np.asarray(np.maximum(rest, 0.0))

    return judge


def _best(
    sums: Sums,
    classes: Sequence[int],
    choice: Choice,
    ridges: Floats,
    measured: float | None,
    solved: Solved,
    **changes: Any,
) -> Choice:
    """Return the choice with changes and the ridge that is predicted to be the best."""
    choice = replace(choice, **changes)
    found = predicted(
        sums, classes, choice, ridges, choice.unlabelled if measured is None else measured, solved
    )
    positive = np.array([sums.positive[k].count for k in classes])
    shares = np.where(np.isfinite(found[0]).any(axis=0), positive / (positive + RARE), 0.0)
    if not shares.any():
        nearest = float(min(ridges, key=lambda ridge: abs(ridge - RIDGE)))
        return replace(choice, ridge=nearest, expected=float("nan"), precision=float("nan"))
    auc, precision = np.nan_to_num(found, nan=0.0) @ shares / shares.sum()
    worth = {"auc": auc, "ap": precision, "both": (auc + precision) / 2}[choice.goal]
    rows = float(np.median(np.sum(sums.counts(choice.unlabelled), axis=0)[classes]))
    if sums.shared and rows < SCARCE * sums.dimension:
        worth = np.where(ridges > max(RIDGE, ridges.min()), -np.inf, worth)
    # The larger ridge is the safer one: within rounding, and up to `RIDGE` within what few positives leave in doubt.
    largest = usual_ridge(sums.total.variances, choice.exponent)
    doubt = min(DOUBT * float(shares @ (1.0 / np.maximum(positive, 1.0)) / shares.sum()), POINT)
    safe = (worth >= worth.max() - 1e-9) | ((worth >= worth.max() - doubt) & (ridges <= largest))
    best = int(np.flatnonzero(safe)[-1])
    return replace(
        choice, ridge=float(ridges[best]), expected=float(auc[best]), precision=float(precision[best])
    )


def usual_ridge(variances: Floats, exponent: float) -> float:
    """Return `RIDGE`; less where a few features in other units have most of the variance that ridges are relative to.

    >>> usual_ridge(np.array([1.0, 2.0, 3.0]), 0.0), usual_ridge(np.array([1.0] * 99 + [1e6]), 0.0) < 0.001
    (1.0, True)
    """
    own = variances[variances > 0] ** (1 - exponent)
    if not len(own):
        return RIDGE
    return RIDGE * min(1.0, 2 * float(np.minimum(own, UNUSUAL * np.median(own)).mean() / own.mean()))


def judging(sums: Sums, most: int) -> list[int]:
    """Return the classes with at least two positives; if they are more than ``most``, some of every frequency."""
    counts = np.array([one.count for one in sums.positive])
    order = [int(k) for k in np.argsort(-counts, kind="stable") if counts[k] >= LEAST_COUNT]
    if len(order) <= most:
        return order
    return [order[i] for i in np.linspace(0, len(order) - 1, most).round().astype(int)]
