"""Decisions: from probabilities to tags, by one threshold per class that is chosen for a goal on rows with labels.

A class is predicted where its probability is *above* its threshold, as in `f1_scores`. All thresholds that differ on
the rows given are compared.

How much a row counts as a positive is said by its label and by its probability: a class with ``P`` labelled positives
trusts labels by ``P / (P + doubt)``. A few labels choose at random, while calibrated probabilities say of every row how
likely it is; the exact learner, which has no such rows, chooses in the same way by the moments of its scores.

A wanted precision or recall is a promise about rows that nobody has seen, so it is *certified*, per class, by labels
alone: the chance that a class with a threshold is below its goal is at most ``1 - confidence``. Precision: the rows
above a cut are a sample of all rows above it, so the hits among them are binomial; cuts are tested in a fixed order,
from few rows given to many, each at the full level, up to the first that fails (learn then test, Angelopoulos et al.,
2021). Recall: an order statistic of the positives. A class for which no cut passes is never given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincinv

from mlcl.errors import InputError, check_choice, check_number
from mlcl.metrics.calibration import check_probabilities
from mlcl.metrics.inputs import Bools, Floats

GoalKind: TypeAlias = Literal["f1", "f1-overall", "precision", "recall", "cost"]
KINDS: tuple[GoalKind, ...] = get_args(GoalKind)
LEAST = 5
"""Positives and negatives with which a class is said to have enough rows for its threshold."""
DOUBT = 20.0
"""Positives of a class with which its labels count as much as its probabilities (lab/decisions.md#thresholds)."""
MOST_GIVEN = 1.5
"""Times as often as it occurs a label is given at most, where thresholds are for F1 and labels are doubted."""
NEVER, ALWAYS = 1.0, -1.0
"""Thresholds that no probability, and every probability, is above."""
UNSURE = 0.5
"""A class that is no tag for want of a certificate is called unsure above this probability."""
CONFIDENCE = 0.9
GROWTH = 1.05
"""From one cut that is tested for a precision to the next, the rows given grow by this factor."""
FACTORS = 2.0 ** (np.arange(13) / 4)
"""How many times as many rows are tried to say how many a class needs to be certified."""


@dataclass(frozen=True)
class Goal:
    """What thresholds are chosen for.

    Args:
        kind: ``f1``: the best F1 of each class; ``f1-overall``: the best F1 over all decisions together (OF1);
            ``precision``: the threshold of most recall whose precision is certified to be at least ``value``;
            ``recall``: that of most precision whose recall is; ``cost``: the least cost, where a miss costs ``value``
            times as much as a false alarm.
        value: the wanted precision or recall, above 0 and at most 1, or the cost ratio, above 0; None for F1.
        confidence: with which a precision or recall of each class is certified.

    >>> Goal("precision", 90)
    Traceback (most recent call last):
    ...
    mlcl.errors.InputError: precision is 90; expected a number above 0, up to 1
    """

    kind: GoalKind = "f1"
    value: float | None = None
    confidence: float = CONFIDENCE

    def __post_init__(self) -> None:
        check_choice("goal", self.kind, KINDS)
        check_number("confidence", self.confidence, low=0.5, high=1 - 1e-9)
        if self.kind.startswith("f1"):
            if self.value is not None:
                raise InputError(f"the goal {self.kind!r} has the value {self.value}; expected none")
        elif self.kind == "cost":
            check_number("cost", self.value, open_low=True)
        else:
            check_number(self.kind, self.value, high=1.0, open_low=True)

    @property
    def certified(self) -> bool:
        """Return whether a class has a threshold only where its goal is certified."""
        return self.kind in ("precision", "recall")

    def __str__(self) -> str:
        sure = f" with confidence {self.confidence:g}" if self.certified else ""
        return self.kind if self.value is None else f"{self.kind} {self.value:g}{sure}"


@dataclass(frozen=True, eq=False)
class Thresholds:
    """One threshold per class, and how it was found.

    Attributes:
        values: a class is predicted where its probability is above its value, ``[K]``.
        own: whether the class had enough rows to rely on its labels, ``[K]``.
        reached: whether a wanted precision or recall is certified; a class for which it is not is never predicted.
        goal: what they were chosen for; None: nothing was chosen, every value is 0.5.
        rows: the number of rows they were chosen on.
        bound: the precision or recall that is certified, ``[K]``, nan where none is; None for other goals.
        needed: about how many more annotated positives a class needs to be certified, ``[K]``: infinite where more of
            the same would not help, 0 where it is; None for other goals.
    """

    values: Floats
    own: Bools
    reached: Bools
    goal: Goal | None
    rows: int
    bound: Floats | None = None
    needed: Floats | None = None

    @classmethod
    def half(cls, classes: int) -> Thresholds:
        """Return 0.5 for all classes: the fewest wrong decisions, if probabilities are right."""
        none = np.zeros(classes, np.bool_)
        return cls(np.full(classes, 0.5), none, ~none, None, 0)

    def tags(self, probabilities: ArrayLike) -> Bools:
        """Return which classes are predicted, bool ``[n, K]``."""
        return np.asarray(np.asarray(probabilities) > self.values)

    def unsure(self, probabilities: ArrayLike) -> Bools:
        """Return which classes are more likely than not and no tags, for want of a certificate, bool ``[n, K]``."""
        found = np.asarray(probabilities)
        withheld = self.goal is not None and self.goal.certified
        return np.asarray((found > UNSURE) & ~self.tags(found) & withheld)


class _Cuts(NamedTuple):
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

    def best(self, goal: Goal) -> float:
        """Return the threshold for F1 or a cost; of equally good ones that with fewest predictions."""
        hits, chosen = self.hits, self.chosen.astype(np.float64)
        if goal.kind == "cost":
            return float(
                self.values[np.argmin(float(goal.value or 0.0) * (self.positives - hits) + chosen - hits)]
            )
        f1 = 2 * hits / np.maximum(chosen + self.positives, 1)
        return float(self.values[np.argmax(np.where(chosen <= self.most_given, f1, -1.0))])

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
    >>> choose_thresholds(p, y).values.round(2)
    array([0.4])
    >>> sure = choose_thresholds(p, y, goal=Goal("precision", 0.5))  # four rows, all right: 0.56 at least
    >>> sure.values.round(2), sure.bound.round(2), choose_thresholds(p, y, goal=Goal("precision", 0.9)).needed
    (array([0.55]), array([0.56]), array([17.]))
    """
    goal = goal or Goal()
    values, truth, known = check_probabilities(probabilities, labels, mask)
    check_number("doubt", doubt)
    positive, negative = (truth & known).sum(axis=0), (~truth & known).sum(axis=0)
    own = np.minimum(positive, negative) >= LEAST
    if goal.certified:
        columns = [(values[known[:, k], k], truth[known[:, k], k]) for k in range(len(own))]
        found, bound, needed = np.array([_certified(p, y, goal) for p, y in columns]).reshape(-1, 3).T
        return Thresholds(found, own, needed == 0, goal, len(values), bound, needed)
    trust = positive / np.maximum(positive + doubt, 1)
    hits = values + trust * (truth - values)
    found = np.full(len(own), 0.5)
    some = np.flatnonzero((hits * known).any(axis=0))  # of the others nothing is known
    most = MOST_GIVEN if doubt else np.inf
    cuts = [_Cuts.of(values[known[:, k], k], hits[known[:, k], k], most_given=most) for k in some]
    found[some] = _overall(cuts) if goal.kind == "f1-overall" else [column.best(goal) for column in cuts]
    return Thresholds(found, own, np.ones(len(own), np.bool_), goal, len(values))


def _certified(values: Floats, truth: Bools, goal: Goal) -> tuple[float, float, float]:
    """Return the threshold of one class, what is certified of it, and how many more positives it needs."""
    wanted, doubt = float(goal.value or 0.0), 1 - goal.confidence
    least = np.inf if wanted == 1 else float(np.ceil(np.log(doubt) / np.log(wanted)))  # hits, without a miss
    certify = _certified_precision if goal.kind == "precision" else _certified_recall
    return certify(values, truth, wanted, doubt, least)


def _certified_precision(
    values: Floats, truth: Bools, wanted: float, doubt: float, least: float
) -> tuple[float, float, float]:
    order = np.argsort(-values, kind="stable")
    values, hits = values[order], np.cumsum(truth[order])
    rows = len(values)
    steps = int(np.ceil(np.log(max(rows, 1)) / np.log(GROWTH))) + 1
    given = (
        np.unique(np.minimum(np.ceil(GROWTH ** np.arange(steps)), rows).astype(np.int64)) if rows else order
    )
    cuts = np.append(values, ALWAYS)[given]  # the highest row that is not given
    given = np.searchsorted(-values, -cuts, side="left")  # ties are not given either
    cuts, given = cuts[given > 0], given[given > 0]
    right = hits[given - 1]
    bound = betaincinv(np.maximum(right, 1e-300), given - right + 1.0, doubt)
    tested = np.flatnonzero(given >= least)
    passed = np.logical_and.accumulate(bound[tested] >= wanted)
    if passed.any():
        last = tested[passed][-1]
        return float(cuts[last]), float(bound[last]), 0.0
    # The same shares among more rows.
    more = FACTORS[:, None]
    would = (betaincinv(np.maximum(more * right, 1e-300), more * (given - right) + 1, doubt) >= wanted).any(
        axis=1
    )
    positives = float(hits[-1]) if rows else 0.0
    wanting = float(np.ceil((FACTORS[would][0] - 1) * positives)) if would.any() else np.inf
    return NEVER, np.nan, max(wanting, 1.0) if positives >= least else least - positives


def _certified_recall(
    values: Floats, truth: Bools, wanted: float, doubt: float, least: float
) -> tuple[float, float, float]:
    positives = np.sort(values[truth])
    count = len(positives)
    ranks = np.arange(1, count + 1)
    safe = (
        np.flatnonzero(betainc(ranks, count - ranks + 1.0, 1 - wanted) >= 1 - doubt)
        if wanted < 1
        else ranks[:0]
    )
    if not len(safe):
        return NEVER, np.nan, max(least - count, 1.0)
    lost = int(safe[-1])
    below = values[values < positives[lost]]
    cut = float(below.max()) if len(below) else ALWAYS
    return cut, float(betaincinv(count - lost, lost + 1.0, doubt)), 0.0


def _overall(columns: list[_Cuts]) -> Floats:
    """Return the thresholds of the best F1 over all decisions, by Dinkelbach's method.

    ``2 H / (C + P)`` is at least f where ``2 H - f C >= f P``, and the left side is a sum over classes: for a given f
    each class is solved alone, and f rises to the F1 of that solution until it stays.
    """
    total, f1 = float(sum(column.positives for column in columns)), 0.0
    while True:
        chosen = [(column, column.most(f1)) for column in columns]
        hits = sum(float(column.hits[cut]) for column, cut in chosen)
        given = sum(int(column.chosen[cut]) for column, cut in chosen)
        better = 2 * hits / max(given + total, 1.0)
        if better <= f1:
            return np.array([column.values[cut] for column, cut in chosen])
        f1 = better
