"""From sums to a linear layer: weights and intercepts on the rows as they came, and thresholds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from threadpoolctl import ThreadpoolController

from mlcl.errors import InputError, check_choice, check_number
from mlcl.exact.features import blocks, dense
from mlcl.exact.learner import ExactLearner
from mlcl.exact.moments import Floats
from mlcl.exact.probabilities import ScoreMoments, best_thresholds, log_odds_line
from mlcl.exact.ridge import EXPONENTS, RIDGES, UNLABELLED, Choice, Wanted, choose
from mlcl.exact.solution import Solved, groups, quadratic
from mlcl.exact.sums import Sums
from mlcl.exact.unseen import unseen
from mlcl.metrics.decisions import Goal
from mlcl.metrics.scaling import log_odds, share_of_positives

MEASURED = {"in-task": 0.0, "pooled": 1.0}
TRUSTED, LEAST_TRUST = 10.0, 0.02
"""Log-odds are those of the scores where a class has so many rows on both sides, beyond the first; with fewer they are
drawn towards those of the prior, because the mean and variance of a few scores say little of others."""


@dataclass(frozen=True)
class Options:
    """How to solve.

    Attributes:
        unlabelled: the weight, from 0 to 1, of rows that were not annotated for a class, as its negatives; or the one
            that is best, as far as the sums can predict, over the rows annotated for a class (``in-task``), or over
            all rows (``pooled``).
        goal: what ridge, exponent, spread and weight are chosen for: the AUC (``auc``), the average precision (``ap``),
            or the mean of both.
        ridge: r; ``auto``: the best for unseen rows, as far as the sums can predict.
        exponent: a, of the features' variances in the ridge: 0, as the features are; 1, as if they were
            standardised; ``auto``: the best of 0, 0.5 and 1 for unseen rows.
        spread: s, the weight of the spread of the positives; ``auto``: by the goal (`mlcl.exact.ridge.SPREADS`).
    """

    unlabelled: float | Literal["in-task", "pooled"] = 1.0
    goal: Wanted = "both"
    ridge: float | Literal["auto"] = "auto"
    exponent: float | Literal["auto"] = "auto"
    spread: float | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        for name, most in (("unlabelled", 1.0), ("ridge", np.inf), ("exponent", 1.0), ("spread", 1.0)):
            value = getattr(self, name)
            if isinstance(value, str):
                check_choice(name, value, tuple(MEASURED) if name == "unlabelled" else ("auto",))
            else:
                check_number(name, value, high=most)
        check_choice("goal", self.goal, ("auc", "ap", "both"))


@dataclass(frozen=True, eq=False)
class Solution:
    """A linear layer on the rows as they came, and what it was solved with.

    Attributes:
        weights: ``[K, D]``; zeros for a class without positives or without negatives.
        intercepts: ``[K]``.
        moments: mean and variance of the log-odds of unseen rows.
        prior: the share of positives among the rows annotated for each class (with one half of a row more on both
            sides, so that it is never 0 or 1), ``[K]``.
        defined: whether a class has both positives and negatives, ``[K]``.
        means: of the scores of all rows seen, ``[K]``.
        deviations: standard deviations of the same, ``[K]``.
        choice: ridge, exponent, and weight of unlabelled rows.
    """

    weights: Floats
    intercepts: Floats
    moments: ScoreMoments
    prior: Floats
    defined: NDArray[np.bool_]
    means: Floats
    deviations: Floats
    choice: Choice

    def on_lines(self, slope: Floats, offset: Floats) -> Solution:
        """Return the layer whose scores are ``slope * score + offset``."""
        return replace(
            self,
            weights=self.weights * slope[:, None],
            intercepts=self.intercepts * slope + offset,
            moments=self.moments.line(slope, offset),
            means=self.means * slope + offset,
            deviations=self.deviations * slope,
        )

    def scores(self, rows: Any) -> Floats:
        """Return the log-odds of each class for rows ``[n, D]``, an array or a sparse matrix, as ``[n, K]``."""
        found = np.empty((rows.shape[0], len(self.weights)))
        for piece in blocks(*rows.shape):
            block = rows[piece] if hasattr(rows, "toarray") else dense(rows[piece])
            found[piece] = np.asarray(block @ self.weights.T) + self.intercepts
        return found

    def top(self, rows: Any, count: int) -> tuple[NDArray[np.int64], Floats]:
        """Return the classes with the highest log-odds for each row, best first, and these, ``[n, count]``.

        The scores of all classes are held for a few rows at a time.
        """
        n, count = rows.shape[0], min(count, len(self.weights))
        best, found = np.zeros((n, count), np.int64), np.zeros((n, count))
        for piece in blocks(n, max(len(self.weights), rows.shape[1])):
            scores = self.scores(rows[piece])
            some = np.argpartition(-scores, count - 1, axis=1)[:, :count]
            order = np.argsort(-np.take_along_axis(scores, some, axis=1), axis=1, kind="stable")
            best[piece] = np.take_along_axis(some, order, axis=1)
            found[piece] = np.take_along_axis(scores, best[piece], axis=1)
        return best, found

    def probabilities(self, rows: Any) -> Floats:
        """Return the probability of each class for rows ``[n, D]``, as ``[n, K]``."""
        return np.asarray(expit(self.scores(rows)))

    def thresholds(self, goal: Goal | None = None) -> Floats:
        """Return the log-odds above which a label is predicted, ``[K]``; a class whose scores never vary has 0.

        Args:
            goal: what they are chosen for, as far as the moments can predict; the best F1 per class by default.
        """
        return np.where(self.moments.varies, best_thresholds(self.moments, self.prior, goal), 0.0)


def solve(learner: ExactLearner, options: Options | None = None) -> Solution:
    """Return the weights of all classes, scaled so that scores are log-odds.

    >>> rng = np.random.default_rng(0)
    >>> labels = rng.random((400, 2)) < 0.3
    >>> rows = labels + rng.normal(0, 0.3, (400, 2))
    >>> solution = solve(ExactLearner.begin(rows).learn(rows, labels, range(2)))
    >>> solution.probabilities(np.array([[0.0, 1.0]])).round(2)
    array([[0.  , 0.99]])
    """
    if not learner.classes:
        raise InputError("the learner knows no class yet")
    sums, centre = learner.sums, learner.sums.total.mean
    # One class after another, each too small for two threads: on two cores they made d 256 three times slower.
    with _blas().limit(limits=1, user_api="blas"):
        solved: Solved = {}
        choice = _chosen(sums, options or Options(), solved)
        fewest = np.minimum(*sums.counts(choice.unlabelled))
        weights, moments = _scored(sums, choice, centre, fewest, solved)
    prior = _prior(sums)
    slope, offset = log_odds_line(moments, prior)
    # And nothing is surer than the number of rows allows.
    gap = slope * (moments.positive_mean - moments.negative_mean)
    surest = 2 * np.log1p(1.0 + sum(sums.counts(choice.unlabelled)))
    trust = np.clip((fewest - 1.0) / TRUSTED, LEAST_TRUST, 1.0) * surest / np.maximum(surest, gap)
    slope, offset = trust * slope, trust * offset + (1 - trust) * log_odds(prior)
    weights *= slope[:, None]
    folded = learner.features.fold(weights)
    return Solution(
        weights=folded,
        intercepts=offset - folded @ learner.features.centre - weights @ centre,
        moments=moments.line(slope, offset),
        prior=prior,
        defined=fewest > 0,
        means=offset,  # scores are centred on the mean of all rows
        deviations=np.sqrt(quadratic(weights, sums.total)),
        choice=choice,
    )


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


def _chosen(sums: Sums, options: Options, solved: Solved) -> Choice:
    u, ridge, exponent = options.unlabelled, options.ridge, options.exponent
    spread = None if isinstance(options.spread, str) else float(options.spread)
    if not any(isinstance(value, str) for value in (u, ridge, exponent)):
        chosen = Choice(float(ridge), float(exponent), float(u), float("nan"))
        return replace(chosen, goal=options.goal, spread=spread)
    return choose(
        sums,
        unlabelled=UNLABELLED if isinstance(u, str) else (float(u),),
        measured=MEASURED[u] if isinstance(u, str) else None,
        ridges=RIDGES if isinstance(ridge, str) else np.array([float(ridge)]),
        exponents=EXPONENTS if isinstance(exponent, str) else (float(exponent),),
        goal=options.goal,
        spread=spread,
        solved=solved,
    )


def _scored(
    sums: Sums, choice: Choice, centre: Floats, fewest: Floats, solved: Solved
) -> tuple[Floats, ScoreMoments]:
    """Return the weights of all classes, and the moments of the scores ``w.(z - centre)`` of unseen rows."""
    weights, found = np.zeros((sums.classes, sums.dimension)), np.zeros((4, sums.classes))
    spread = choice.spreads(sums.counts(choice.unlabelled)[0])
    classes = np.flatnonzero(fewest > 0).tolist()
    u, exponent = choice.unlabelled, choice.exponent
    for group in groups(sums, classes, unlabelled=u, spread=spread, exponent=exponent, solved=solved):
        scored, k = unseen(group, choice.ridge), group.classes
        weights[k] = scored.weights
        mean = ((group.negative_mean - centre) * scored.weights).sum(axis=1)
        # With a single positive or negative nothing is known of unseen ones.
        alone = np.isnan(scored.gap)
        spreads = [scored.positive_variance, scored.negative_variance]
        if alone.any():
            usual = quadratic(scored.weights, sums.total)
            spreads = [np.where(alone, usual, one) for one in spreads]
        found[:, k] = np.nan_to_num(scored.gap) + mean, mean, *spreads
    return weights, ScoreMoments(*found)


def _prior(sums: Sums) -> Floats:
    positive, negative = sums.counts(0.0)
    # Where all annotated rows are positives, the others are taken for negatives: their share is a lower bound.
    rest = np.where(negative > 0, negative, sums.total.count - positive)
    return share_of_positives(positive, positive + rest)
