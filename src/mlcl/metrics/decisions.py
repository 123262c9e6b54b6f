"""Decisions: from probabilities to tags, by one threshold per class that is chosen for a goal on rows with labels.

A class is predicted where its probability is *above* its threshold, as in `f1_scores`. All thresholds that differ on
the rows given are compared.

How much a row counts as a positive is said by its label and by its probability: a class with ``P`` labelled positives
trusts labels by ``P / (P + doubt)``. A few labels choose at random, while calibrated probabilities say of every row how
likely it is; the exact learner, which has no such rows, chooses in the same way by the moments of its scores. A wanted
precision or recall is one of labels, where a class has enough of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlcl.errors import InputError, check_choice, check_number
from mlcl.metrics.calibration import check_probabilities
from mlcl.metrics.inputs import Bools, Floats

GoalKind: TypeAlias = Literal["f1", "f1-overall", "precision", "recall", "cost"]
KINDS: tuple[GoalKind, ...] = ("f1", "f1-overall", "precision", "recall", "cost")
LEAST = 5
"""Positives and negatives with which a class is said to have enough rows for its threshold."""
DOUBT = 20.0
"""Positives of a class with which its labels count as much as its probabilities (docs/decisions.md#thresholds)."""
MOST_GIVEN = 1.5
"""Times as often as it occurs a label is given at most, where thresholds are for F1 and labels are doubted."""
NEVER, ALWAYS = 1.0, -1.0
"""Thresholds that no probability, and every probability, is above."""


@dataclass(frozen=True)
class Goal:
    """What thresholds are chosen for.

    Args:
        kind: ``f1``: the best F1 of each class; ``f1-overall``: the best F1 over all decisions together (OF1);
            ``precision``: of those with at least the precision ``value`` the threshold of most recall; ``recall``: of
            those with at least the recall ``value`` the threshold of most precision; ``cost``: the least cost, where a
            miss costs ``value`` times as much as a false alarm.
        value: the wanted precision or recall, above 0 and at most 1, or the cost ratio, above 0; None for F1.

    >>> Goal("precision", 90)
    Traceback (most recent call last):
    ...
    mlcl.errors.InputError: precision is 90; expected a number above 0, up to 1
    """

    kind: GoalKind = "f1"
    value: float | None = None

    def __post_init__(self) -> None:
        check_choice("goal", self.kind, KINDS)
        if self.kind.startswith("f1"):
            if self.value is not None:
                raise InputError(f"the goal {self.kind!r} has the value {self.value}; expected none")
        elif self.kind == "cost":
            check_number("cost", self.value, open_low=True)
        else:
            check_number(self.kind, self.value, high=1.0, open_low=True)

    def __str__(self) -> str:
        return self.kind if self.value is None else f"{self.kind} {self.value:g}"


@dataclass(frozen=True, eq=False)
class Thresholds:
    """One threshold per class, and how it was found.

    Attributes:
        values: a class is predicted where its probability is above its value, ``[K]``.
        own: whether the class had enough rows to rely on its labels, ``[K]``.
        reached: whether a wanted precision or recall is reached on the rows; a class that cannot is never predicted.
        goal: what they were chosen for; None: nothing was chosen, every value is 0.5.
        rows: the number of rows they were chosen on.
    """

    values: Floats
    own: Bools
    reached: Bools
    goal: Goal | None
    rows: int

    @classmethod
    def half(cls, classes: int) -> Thresholds:
        """Return 0.5 for all classes: the fewest wrong decisions, if probabilities are right."""
        none = np.zeros(classes, np.bool_)
        return cls(np.full(classes, 0.5), none, ~none, None, 0)

    def tags(self, probabilities: ArrayLike) -> Bools:
        """Return which classes are predicted, bool ``[n, K]``."""
        return np.asarray(np.asarray(probabilities) > self.values)


@dataclass(frozen=True, eq=False)
class _Cuts:
    """All thresholds of one column that differ on its rows, from none predicted to all; arrays ``[cuts]``."""

    values: Floats
    hits: Floats
    chosen: NDArray[np.int64]
    positives: float
    most_given: float

    @classmethod
    def of(cls, values: Floats, truth: Floats, *, most_given: float) -> _Cuts:
        order = np.argsort(-values, kind="stable")
        values, truth = values[order], truth[order]
        last = np.flatnonzero(np.append(values[1:] != values[:-1], len(values) > 0))  # of equal values
        levels = values[last]
        below = np.append(levels[1:], ALWAYS)
        middle = below + (levels - below) / 2
        cuts = np.where(middle < levels, middle, below)  # neighbours among the floats have no middle
        if len(cuts):
            cuts[-1] = levels[-1] / 2 if levels[-1] > 0 else ALWAYS
        hits = np.cumsum(truth)[last]
        positives = float(truth.sum())
        # Some rows may be given always: the surest one.
        most = max(most_given * positives, 1.0)
        return cls(np.append(NEVER, cuts), np.append(0.0, hits), np.append(0, last + 1), positives, most)

    def best(self, goal: Goal) -> tuple[float, bool]:
        """Return the threshold for the goal, of equally good ones that with fewest predictions; and if it is met."""
        hits, chosen = self.hits, self.chosen.astype(np.float64)
        if goal.kind.startswith("f1"):
            f1 = 2 * hits / np.maximum(chosen + self.positives, 1)
            return float(self.values[np.argmax(np.where(chosen <= self.most_given, f1, -1.0))]), True
        wanted = float(goal.value or 0.0)
        if goal.kind == "cost":
            return float(self.values[np.argmin(wanted * (self.positives - hits) + chosen - hits)]), True
        precision, recall = hits / np.maximum(chosen, 1), hits / (self.positives or 1.0)
        kept, gained = (precision, recall) if goal.kind == "precision" else (recall, precision)
        meets = (kept >= wanted - 1e-12) & (chosen > 0)
        if not meets.any():
            return NEVER, False
        return float(self.values[np.argmax(np.where(meets, gained, -1.0))]), True

    def most(self, f1: float) -> int:
        """Return the cut with the most ``2 hits - f1 * chosen``."""
        return int(np.argmax(2.0 * self.hits - f1 * self.chosen))


def choose_thresholds(
    probabilities: ArrayLike,
    labels: ArrayLike,
    *,
    goal: Goal | None = None,
    mask: ArrayLike | None = None,
    doubt: float = DOUBT,
) -> Thresholds:
    """Return the thresholds that are best for a goal on these rows; they should be rows that nothing was trained on.

    Args:
        probabilities: ``[n, K]``, from 0 to 1, calibrated.
        labels: 0 or 1, ``[n, K]``.
        goal: the best F1 per class by default.
        mask: which labels are known, ``[n, K]``; all by default.
        doubt: the number of positives with which labels count as much as probabilities; 0: labels alone.

    >>> p = np.linspace(0.05, 0.95, 10)[:, None]
    >>> y = np.array([0, 0, 0, 0, 1, 0, 1, 1, 1, 1])[:, None]
    >>> choose_thresholds(p, y).values.round(2), choose_thresholds(p, y, goal=Goal("precision", 0.9)).values.round(2)
    (array([0.4]), array([0.6]))
    """
    goal = goal or Goal()
    values, truth, known = check_probabilities(probabilities, labels, mask)
    check_number("doubt", doubt)
    positive, negative = (truth & known).sum(axis=0), (~truth & known).sum(axis=0)
    own = np.minimum(positive, negative) >= LEAST
    trust = positive / np.maximum(positive + doubt, 1)
    if goal.kind in ("precision", "recall"):
        trust = np.where(own, 1.0, trust)
    hits = values + trust * (truth - values)
    found, reached = np.full(len(own), 0.5), np.ones(len(own), np.bool_)
    some = np.flatnonzero((hits * known).any(axis=0))  # of the others nothing is known
    most = MOST_GIVEN if doubt else np.inf
    columns = [_Cuts.of(values[known[:, k], k], hits[known[:, k], k], most_given=most) for k in some]
    if goal.kind == "f1-overall":
        found[some] = _overall(columns)
    else:
        for k, column in zip(some, columns, strict=True):
            found[k], reached[k] = column.best(goal)
    return Thresholds(found, own, reached, goal, len(values))


def _overall(columns: list[_Cuts]) -> Floats:
    """Return the thresholds of the best F1 over all decisions, by Dinkelbach's method.

    ``2 H / (C + P)`` is at least f where ``2 H - f C >= f P``, and the left side is a sum over classes: for a given f
    each class is solved alone, and f rises to the F1 of that solution until it stays.
    """
    total, f1 = float(sum(column.positives for column in columns)), 0.0
    while True:
        cuts = [column.most(f1) for column in columns]
        hits = sum(float(column.hits[cut]) for column, cut in zip(columns, cuts, strict=True))
        chosen = sum(int(column.chosen[cut]) for column, cut in zip(columns, cuts, strict=True))
        better = 2 * hits / max(chosen + total, 1.0)
        if better <= f1:
            return np.array([column.values[cut] for column, cut in zip(columns, cuts, strict=True)])
        f1 = better
