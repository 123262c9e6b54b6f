"""From sums to a linear layer: weights and intercepts on the rows as they came, probabilities and thresholds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mlcl.errors import InputError, check_choice, check_number
from mlcl.exact.features import blocks, dense
from mlcl.exact.learner import Learner
from mlcl.exact.moments import Floats, Moments
from mlcl.exact.probabilities import STRENGTH, Calibration, ScoreMoments, calibrate
from mlcl.exact.ridge import EXPONENTS, RIDGES, UNLABELLED, Choice, choose
from mlcl.exact.solution import direction, feature_scale, quadratic
from mlcl.exact.sums import Sums

MEASURED = {"in-task": 0.0, "pooled": 1.0}


@dataclass(frozen=True)
class Options:
    """How to solve.

    Attributes:
        unlabelled: the weight, from 0 to 1, of rows that were not annotated for a class, as its negatives; ``auto``:
            the best for ``goal``, by the held-out sums.
        goal: what ``auto`` wants: the AUC within the rows annotated for a class, or over all rows.
        ridge: r; ``auto``: the best by the held-out sums.
        exponent: a, of the features' variances in the ridge: 0, as the features are; 1, as if they were
            standardised; ``auto``: the best of 0, 0.5 and 1 by the held-out sums.
    """

    unlabelled: float | Literal["auto"] = 1.0
    goal: Literal["in-task", "pooled"] = "pooled"
    ridge: float | Literal["auto"] = "auto"
    exponent: float | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        for name, least, most in (("unlabelled", 0.0, 1.0), ("ridge", 0.0, np.inf), ("exponent", 0.0, 2.0)):
            value = getattr(self, name)
            if isinstance(value, str):
                check_choice(name, value, ("auto",))
            else:
                check_number(name, value, low=least, high=most)
        check_choice("goal", self.goal, tuple(MEASURED))


@dataclass(frozen=True, eq=False)
class Solution:
    """A linear layer on the rows as they came, and what it was solved with.

    Attributes:
        weights: ``[K, D]``; zeros for a class without positives or without negatives.
        intercepts: ``[K]``.
        calibration: from scores to probabilities and thresholds.
        prior: the share of positives among the rows annotated for each class (with one half of a row more on both
            sides, so that it is never 0 or 1).
        defined: whether a class has both positives and negatives.
        choice: ridge, exponent, and weight of unlabelled rows.
    """

    weights: Floats
    intercepts: Floats
    calibration: Calibration
    prior: Floats
    defined: NDArray[np.bool_]
    choice: Choice

    def scores(self, rows: Any) -> Floats:
        """Return the scores of rows ``[n, D]``, an array or a sparse matrix, as ``[n, K]``."""
        found = np.empty((rows.shape[0], len(self.weights)))
        for piece in blocks(*rows.shape):
            block = rows[piece] if hasattr(rows, "toarray") else dense(rows[piece])
            found[piece] = np.asarray(block @ self.weights.T) + self.intercepts
        return found

    def probabilities(self, rows: Any) -> Floats:
        """Return the probability of each class for rows ``[n, D]``, as ``[n, K]``."""
        return self.calibration.probabilities(self.scores(rows))

    def predictions(self, rows: Any) -> NDArray[np.bool_]:
        """Return which classes score above their threshold, ``[n, K]``."""
        return self.scores(rows) > self.calibration.thresholds


def solve(learner: Learner, options: Options | None = None) -> Solution:
    """Return the weights of all classes.

    A score is 0 at the mean of all rows, and its variance, averaged over positives and negatives, is 1 within a class.

    >>> rng = np.random.default_rng(0)
    >>> labels = rng.random((400, 2)) < 0.3
    >>> rows = labels + rng.normal(0, 0.3, (400, 2))
    >>> solution = solve(Learner.begin(rows).learn(rows, labels, range(2)))
    >>> (solution.probabilities(np.array([[0.0, 1.0]])) > 0.5).tolist()
    [[False, True]]
    """
    if not learner.classes:
        raise InputError("the learner knows no class yet")
    options = options or Options()
    train, held, sums = learner.train, learner.held, learner.sums
    choice = _chosen(train, held, options)
    final, defined = _weights(sums, choice)
    judged, _ = _weights(train, choice)
    centre = sums.total.mean
    for weights in (final, judged):
        weights /= _spread(weights, sums, choice.unlabelled)[:, None]
    moments = _score_moments(judged, learner, choice.unlabelled, centre)
    prior = _prior(sums)
    folded = learner.features.fold(final)
    intercepts = -(folded @ learner.features.centre) - final @ centre
    return Solution(folded, intercepts, calibrate(moments, prior), prior, defined, choice)


def _chosen(train: Sums, held: Sums, options: Options) -> Choice:
    given = options.unlabelled
    return choose(
        train,
        held,
        unlabelled=UNLABELLED if isinstance(given, str) else (float(given),),
        measured=MEASURED[options.goal] if isinstance(given, str) else None,
        ridges=RIDGES if isinstance(options.ridge, str) else np.array([float(options.ridge)]),
        exponents=EXPONENTS if isinstance(options.exponent, str) else (float(options.exponent),),
    )


def _weights(sums: Sums, choice: Choice) -> tuple[Floats, NDArray[np.bool_]]:
    scale = feature_scale(sums.total.variances, choice.exponent)
    found = np.zeros((sums.classes, sums.dimension))
    defined = np.zeros(sums.classes, np.bool_)
    for k in range(sums.classes):
        positive, negative = sums.sides(k, choice.unlabelled)
        defined[k] = positive.count > 0 and negative.count > 0
        found[k] = direction(positive, negative, ridge=choice.ridge, scale=scale)
    return found, defined


def _spread(weights: Floats, sums: Sums, unlabelled: float) -> Floats:
    """Return the standard deviation of the scores within a class; 1 where there is none."""
    variances = np.array(
        [sum(quadratic(row[None], side)[0] for side in sums.sides(k, unlabelled)) / 2 for k, row in enumerate(weights)]
    )
    return np.sqrt(np.where(variances > 0, variances, 1.0))


def _prior(sums: Sums) -> Floats:
    positive = np.array([one.count for one in sums.positive])
    annotated = np.array([sums.annotated_for(k).count for k in range(sums.classes)])
    return (positive + 0.5) / (annotated + 1.0)


def _score_moments(weights: Floats, learner: Learner, unlabelled: float, centre: Floats) -> ScoreMoments:
    """Return the moments of scores of rows that the weights have not seen."""
    seen, unseen = (
        [_of_class(row, sums.sides(k, unlabelled), centre) for k, row in enumerate(weights)]
        for sums in (learner.train, learner.held)
    )
    counts, found = [], []
    for side in (0, 1):
        own = np.array([[one[side][i] for one in unseen] for i in range(3)])
        known = np.array([[one[side][i] for one in seen] for i in range(3)])
        counts.append(own[0])
        found.append((own[1:], known[1:]))
    (pos_own, pos_seen), (neg_own, neg_seen) = found
    shares = [count / (count + STRENGTH) for count in counts]
    both = counts[0] * (counts[1] > 0)
    gap_ratio = _ratio(both * (pos_own[0] - neg_own[0]), both * (pos_seen[0] - neg_seen[0]))
    ratios = [_ratio(counts[i] * found[i][0][1], counts[i] * found[i][1][1]) for i in (0, 1)]
    negative_mean = shares[1] * neg_own[0] + (1 - shares[1]) * neg_seen[0]
    expected = negative_mean + gap_ratio * (pos_seen[0] - neg_seen[0])
    return ScoreMoments(
        shares[0] * pos_own[0] + (1 - shares[0]) * expected,
        negative_mean,
        shares[0] * pos_own[1] + (1 - shares[0]) * ratios[0] * pos_seen[1],
        shares[1] * neg_own[1] + (1 - shares[1]) * ratios[1] * neg_seen[1],
    )


def _of_class(
    weights: Floats, sides: tuple[Moments, Moments], centre: Floats
) -> list[tuple[float, float, float]]:
    """Return count, mean and variance of the scores of positives, then of negatives."""
    return [
        (side.count, float(weights @ (side.mean - centre)) if side.count else 0.0, float(quadratic(weights[None], side)[0]))
        for side in sides
    ]


def _ratio(found: Floats, expected: Floats) -> float:
    """Return the ratio of two sums over classes; 1 where it is not defined or not positive."""
    ratio = float(found.sum() / expected.sum()) if expected.sum() > 0 else 1.0
    return ratio if ratio > 0 else 1.0
