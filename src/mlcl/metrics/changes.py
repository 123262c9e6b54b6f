"""Two models on the same rows: how AUC, average precision, Brier score and F1 changed, per class and pooled.

Influences of rows (`mlcl.metrics.influence`) under two models are subtracted row by row, so that what makes a row hard
for both cancels, and those of many classes are added row by row, so that classes that share rows are not taken for
independent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr, stdtrit

from mlcl.errors import InputError
from mlcl.metrics.influence import ap_influence, auc_influence, brier_influence, f1_influence
from mlcl.metrics.inputs import Bools, Floats, Scores, check_level, check_scores, group_numbers

LEAST = 5
"""Positives and negatives below which the noise of a class cannot be told."""
POWER = 0.8
"""How often a loss of the smallest size that a test can see is seen."""


@dataclass(frozen=True, eq=False)
class AucChanges:
    """The AUC of each class before and after, ``[K]``; nan for a class without positives or without negatives.

    Attributes:
        before: AUC under the first scores.
        after: AUC under the second scores.
        error: the standard error of the change.
        fewer: positives or negatives, whichever are fewer.
        level: the confidence level of all lower ends together, and of all upper ends together.
    """

    before: Floats
    after: Floats
    error: Floats
    fewer: NDArray[np.int64]
    level: float

    @property
    def change(self) -> Floats:
        """Return after minus before."""
        return self.after - self.before

    @property
    def low(self) -> Floats:
        """Return the lower ends of the changes: all K hold together with probability ``level``."""
        return self.change - self._width

    @property
    def high(self) -> Floats:
        """Return the upper ends, likewise; infinite for a class with a single positive or a single negative."""
        return self.change + self._width

    @property
    def gated(self) -> Bools:
        """Return which classes have enough positives and negatives for their noise to be known."""
        return self.fewer >= LEAST

    def smallest(self, allow: float) -> Floats:
        """Return the loss of each class that is seen to be above ``allow`` in four of five cases."""
        return np.where(self.gated, allow + self._width + stdtrit(self._freedom, POWER) * self.error, np.inf)

    def together(self, allow: float) -> float:
        """Return the p-value of "no class lost more than ``allow``", where small signs add up.

        Cauchy's combination of the p-values of the classes, which holds however they depend on one another (Liu and
        Xie, 2020).
        """
        some = self.gated & (self.error > 0)
        if not some.any():
            return 1.0
        values = stdtr(self._freedom[some], (self.change[some] + allow) / self.error[some])
        with np.errstate(divide="ignore", over="ignore"):
            mean = np.mean(np.tan((0.5 - np.clip(values, 1e-15, 1 - 1e-15)) * np.pi))
        return float(0.5 - np.arctan(mean) / np.pi)

    @property
    def _freedom(self) -> Floats:
        return np.maximum(self.fewer - 1, 1).astype(np.float64)

    @property
    def _width(self) -> Floats:
        tested = max(int(np.count_nonzero(self.fewer > 1)), 1)
        quantile = stdtrit(self._freedom, 1 - (1 - self.level) / tested)
        width = np.where(self.fewer > 1, quantile * self.error, np.inf)
        return np.where(np.isnan(self.before), np.nan, width)


def auc_changes(
    before: ArrayLike,
    after: ArrayLike,
    labels: ArrayLike,
    *,
    level: float = 0.95,
    mask: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> AucChanges:
    """Return how the AUC of each class changed from one model to another, with simultaneous intervals.

    An end is ``change ± t * s``: ``s`` is DeLong's standard error of the change, and ``t`` the quantile of Student's
    distribution at ``1 - (1 - level) / m``, with one degree of freedom less than the class has positives (or
    negatives, if those are fewer). Dividing by ``m``, the number of classes that have an AUC, keeps the chance that any
    class at all lies outside below ``1 - level`` (Bonferroni).

    Args:
        before: scores ``[n, K]``, finite.
        after: scores of the other model for the same rows and classes.
        labels: ``[n, K]``, 0 or 1.
        level: confidence level.
        mask: which labels are known, ``[n, K]``; all by default.
        groups: a group per row, ``[n]``: rows of one group depend on one another, and count as one; by default each
            row is its own group.

    >>> rng = np.random.default_rng(0)
    >>> labels = rng.random((300, 2)) < 0.3
    >>> good = labels + rng.normal(0, 0.5, (300, 2))
    >>> found = auc_changes(good, np.stack([good[:, 0], rng.normal(size=300)], axis=1), labels)
    >>> found.change.round(2), found.high.round(2)
    (array([ 0.  , -0.45]), array([ 0.  , -0.37]))
    """
    check_level(level)
    first, truth, known = check_scores(before, labels, mask)
    second, _, _ = check_scores(after, labels, mask)
    if not len(first):
        raise InputError("before has no rows, but at least one was expected")
    cells = np.ones_like(truth) if known is None else known
    place = _places(groups, len(first))
    fewer = np.minimum(*(_in_groups(side & cells, place) for side in (truth, ~truth)))
    old, new, error = np.full((3, len(fewer)), np.nan)
    for k in np.flatnonzero(fewer):
        rows, y = cells[:, k], truth[cells[:, k], k]
        (old[k], a), (new[k], b) = (auc_influence(scores[rows, k], y) for scores in (first, second))
        error[k] = _norm(b - a, None if place is None else place[rows])
    return AucChanges(old, new, error, fewer, level)


@dataclass(frozen=True, eq=False)
class ModelAnswers:
    """What one model says of rows, each ``[n, K]``."""

    scores: Scores
    probabilities: Floats
    tags: Bools


@dataclass(frozen=True)
class PooledChange:
    """A change of a measure over many classes, from 0 to 1.

    Attributes:
        measure: ``AUC`` and ``AP``: their means; ``Brier skill``: how far the Brier score is below that of the shares
            of the classes, as a part of it; ``F1``: over all tags.
        part: which classes: ``all``, or ``head``, ``medium``, ``tail``, thirds by positives.
        before: its value under the first model.
        after: its value under the second model.
        error: the standard error of the change.
        rows: how many rows have a positive: what the error is known from.
    """

    measure: str
    part: str
    before: float
    after: float
    error: float
    rows: int

    @property
    def change(self) -> float:
        """Return after minus before."""
        return self.after - self.before

    def p_value(self, allow: float) -> float:
        """Return the p-value of "no more than ``allow`` was lost"."""
        if self.error <= 0:
            return float(self.change >= -allow)
        return float(stdtr(max(self.rows - 1, 1), (self.change + allow) / self.error))


def pooled_changes(
    before: ModelAnswers,
    after: ModelAnswers,
    labels: ArrayLike,
    *,
    mask: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> list[PooledChange]:
    """Return how measures over many classes changed; classes without positives or negatives are left out.

    Args:
        before: what the first model says.
        after: what the second model says of the same rows and classes.
        labels: ``[n, K]``, 0 or 1.
        mask: which labels are known, ``[n, K]``; all by default.
        groups: a group per row, as in `auc_changes`.
    """
    _, truth, known = check_scores(before.scores, labels, mask)
    place = _places(groups, len(truth))
    cells = np.ones_like(truth) if known is None else known
    positive, negative = (truth & cells).sum(axis=0), (~truth & cells).sum(axis=0)
    some = np.flatnonzero(np.minimum(positive, negative))
    if not len(some):
        return []
    parts = {"all": some}
    if len(some) >= 6:
        by_size = some[np.argsort(-positive[some], kind="stable")]
        parts |= dict(zip(("head", "medium", "tail"), np.array_split(by_size, 3), strict=True))
    names = [(measure, part) for measure in ("AUC", "AP", "Brier skill") for part in parts]
    moved = {name: np.zeros(len(truth)) for name in names}
    ends = {name: np.full(2, float(name[0] == "Brier skill")) for name in names}
    prior = positive * negative / np.maximum(positive + negative, 1) ** 2  # the Brier score of the share
    for k in some.tolist():
        rows, y = cells[:, k], truth[cells[:, k], k]
        found = _of_class(before, after, rows, y, k)
        for measure, part in names:
            if k in parts[part]:
                size = prior[parts[part]].sum() if measure == "Brier skill" else len(parts[part])
                old, new, influence = found[measure]
                moved[measure, part][rows] += influence / size
                ends[measure, part] += np.array([old, new]) / size
    rows_of = {
        part: int(_in_groups(np.atleast_2d((truth & cells)[:, columns].any(axis=1)).T, place)[0])
        for part, columns in parts.items()
    }
    changes = [
        PooledChange(
            *name, float(ends[name][0]), float(ends[name][1]), _norm(moved[name], place), rows_of[name[1]]
        )
        for name in names
    ]
    (old, a), (new, b) = (f1_influence(each.tags & cells, truth & cells) for each in (before, after))
    return [*changes, PooledChange("F1", "all", old, new, _norm(b - a, place), rows_of["all"])]


def _of_class(
    before: ModelAnswers, after: ModelAnswers, rows: Bools, y: Bools, k: int
) -> Mapping[str, tuple[float, float, Floats]]:
    """Return the values of one class before and after, and how much each row moves the change."""
    found = {}
    for measure, value in (("AUC", auc_influence), ("AP", ap_influence), ("Brier skill", brier_influence)):
        columns = (s.probabilities if measure == "Brier skill" else s.scores for s in (before, after))
        (old, a), (new, b) = (value(column[rows, k], y) for column in columns)
        found[measure] = old, new, b - a
    return found


def _norm(influence: Floats, place: NDArray[np.int64] | None) -> float:
    """Return the standard error: influences of rows of one group add up before they are squared."""
    if place is not None:
        groups = int(np.count_nonzero(np.bincount(place)))
        influence = np.bincount(place, influence) * np.sqrt(groups / max(groups - 1, 1))
    return float(np.sqrt(np.square(influence).sum()))


def _places(groups: ArrayLike | None, rows: int) -> NDArray[np.int64] | None:
    return None if groups is None else group_numbers(groups, rows)[0]


def _in_groups(marks: Bools, place: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Return in how many groups of rows a column is marked, ``[K]``."""
    if place is None:
        return np.asarray(marks.sum(axis=0))
    order = np.argsort(place, kind="stable")
    starts = np.unique(place[order], return_index=True)[1]
    return np.asarray(np.logical_or.reduceat(marks[order], starts, axis=0).sum(axis=0))
