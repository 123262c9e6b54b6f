"""From scores to log-odds: one line per class, with a positive slope, fitted on rows that nothing was trained on.

A line with a positive slope keeps the order of rows and their ties, so every AUC stays what it was (Platt scaling).
Three things are known of a class, from rough to fine, and each is used as far as its rows reach:

1. the log-odds that its scores would be in theory (``start``), and one line of all classes together from there, by
   penalised maximum likelihood over all held-out labels;
2. its share of positives in training (``prior``), which is well known even if the class is rare: the offset is such
   that the mean probability of the held-out rows is this share, as far as their number says it;
3. the labels of its held-out rows: slope and offset by penalised maximum likelihood, drawn towards 1 and 2.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from mlcl.errors import InputError
from mlcl.labels import Labels
from mlcl.metrics.decisions import Goal, Thresholds, choose_thresholds
from mlcl.metrics.inputs import Bools, Floats, check_scores, to_array

LEAST = 5
"""Held-out positives and negatives with which a class is said to have a line of its own."""
SLOPE_SPREAD, OFFSET_SPREAD = 0.25, 0.25
"""How far, as a share of it and in log-odds, slope and offset of a class are expected to be from those of all."""
LEAST_GROUPED = 12
"""Classes of which each third by frequency has a line of its own."""
POOLED = 0.25
"""How far those of all classes are expected to be from the line in theory."""
FLATTEST = 0.05
"""The least slope, as a share of what it is drawn towards."""
STEPS, TOLERANCE = 60, 1e-9
"""At most so many Newton steps, until none is longer; the problem is convex and has two unknowns per class."""


@dataclass(frozen=True, eq=False)
class LogOddsLines:
    """Log-odds ``slope * score + offset`` of each class.

    Attributes:
        slope: positive, ``[K]``.
        offset: ``[K]``.

    >>> LogOddsLines(np.array([2.0]), np.array([-1.0])).probabilities([[0.5], [3.0]]).round(3)
    array([[0.5  ],
           [0.993]])
    """

    slope: Floats
    offset: Floats

    def __post_init__(self) -> None:
        slope, offset = (np.asarray(to_array(part), np.float64) for part in (self.slope, self.offset))
        if slope.ndim != 1 or slope.shape != offset.shape:
            raise InputError(
                f"slope has shape {slope.shape} and offset {offset.shape}; expected one per class"
            )
        if not (np.isfinite(slope).all() and np.isfinite(offset).all() and (slope > 0).all()):
            raise InputError("slope or offset is not finite, or a slope is not positive")
        object.__setattr__(self, "slope", slope)
        object.__setattr__(self, "offset", offset)

    @classmethod
    def identity(cls, classes: int) -> LogOddsLines:
        """Return the lines of scores that are log-odds already."""
        return cls(np.ones(classes), np.zeros(classes))

    def __len__(self) -> int:
        return len(self.slope)

    def log_odds(self, scores: ArrayLike) -> Floats:
        """Return the log-odds of scores ``[n, K]``."""
        return np.asarray(np.asarray(to_array(scores), np.float64) * self.slope + self.offset)

    def probabilities(self, scores: ArrayLike) -> Floats:
        """Return the probabilities of scores ``[n, K]``."""
        return np.asarray(expit(self.log_odds(scores)))


def share_of_positives(positive: ArrayLike, annotated: ArrayLike) -> Floats:
    """Return the share of positives among annotated rows, with half a row more on either side: never 0 or 1.

    >>> share_of_positives([0, 3], [9, 3])
    array([0.05 , 0.875])
    """
    return np.asarray((np.asarray(positive) + 0.5) / (np.asarray(annotated) + 1.0))


def log_odds(share: ArrayLike) -> Floats:
    """Return ``log(p / (1 - p))``.

    >>> log_odds([0.5, 0.1]).round(3)
    array([ 0.   , -2.197])
    """
    share = np.asarray(to_array(share), np.float64)
    return np.asarray(np.log(share) - np.log1p(-share))


def prior_shift(trained: ArrayLike, wanted: ArrayLike) -> Floats:
    """Return what is added to log-odds learnt at one share of positives to be right at another.

    A loss that gives the positives and the negatives of a class the same total weight learns at the share 1/2.

    Args:
        trained: the share of positives in the loss, above 0 and below 1, ``[K]``.
        wanted: the share where the probabilities are used, ``[K]``.

    >>> prior_shift([0.5, 0.1], [0.1, 0.1]).round(3)
    array([-2.197,  0.   ])
    """
    return log_odds(wanted) - log_odds(trained)


def fit_lines(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    start: LogOddsLines,
    prior: ArrayLike,
    mask: ArrayLike | None = None,
) -> tuple[LogOddsLines, Bools]:
    """Return the lines of all classes, and which of them were fitted to labels of their own class, bool ``[K]``.

    Args:
        scores: of held-out rows, ``[n, K]``.
        labels: 0 or 1, ``[n, K]``.
        start: the lines in theory, which a class without held-out rows keeps.
        prior: the share of positives of each class, above 0 and below 1, ``[K]``.
        mask: which labels are known, ``[n, K]``; all by default.

    >>> rng = np.random.default_rng(0)
    >>> log_odds = rng.normal(-2, 2, (4000, 1))
    >>> y = rng.random((4000, 1)) < expit(log_odds)
    >>> lines, own = fit_lines(3 * log_odds + 1, y, start=LogOddsLines.identity(1), prior=y.mean(0))
    >>> lines.slope.round(2), lines.offset.round(2), own  # 1/3 and -1/3
    (array([0.32]), array([-0.31]), array([ True]))
    """
    values, truth, known = check_scores(scores, labels, mask)
    cells = np.ones_like(truth) if known is None else known
    share = np.clip(np.asarray(to_array(prior), np.float64), 1e-9, 1 - 1e-9)
    count = cells.sum(axis=0)
    own = np.minimum((truth & cells).sum(axis=0), (~truth & cells).sum(axis=0)) >= LEAST
    some = count > 0
    odds = np.where(cells, start.log_odds(np.where(cells, values, 0)), 0.0)
    # Standardised over the rows that are known, so that one step length suits every class.
    centre = odds.sum(axis=0) / np.maximum(count, 1)
    spread = np.sqrt(((odds - centre) ** 2 * cells).sum(axis=0) / np.maximum(count, 1))
    spread = np.where(spread > 0, spread, 1.0)
    z = np.where(cells, (odds - centre) / spread, 0.0)
    usual, shift = _of_groups(odds, truth, cells, share)
    slope = usual * spread  # of z
    level = _matched(z, cells, share, slope)
    # The share, and what all classes have in common, each as far as it is known.
    error = _matching_error(z, cells, slope, level)
    trust = np.minimum(1 / (1 + (error / OFFSET_SPREAD) ** 2), 1 - 1e-6)
    level = trust * level + (1 - trust) * (usual * centre + shift)
    around = SLOPE_SPREAD * slope, OFFSET_SPREAD * np.sqrt(1 - trust)
    slope, level = logistic_lines(
        z, cells, truth, slope, level, spread=around, floor=FLATTEST * slope, reach=slope
    )
    slope = np.where(some, slope / spread, 1.0)  # of the log-odds in theory
    offset = np.where(some, level - slope * centre, 0.0)
    return LogOddsLines(slope * start.slope, slope * start.offset + offset), own


def _of_groups(odds: Floats, truth: Bools, cells: Bools, share: Floats) -> tuple[Floats, Floats]:
    """Return the line of all classes together, and from there of thirds of them by frequency, for each class."""
    usual, shift = np.ones(len(share)), np.zeros(len(share))
    order = np.argsort(share, kind="stable")
    for groups in (1, *([3] if len(share) >= LEAST_GROUPED else [])):
        for own in np.array_split(order, groups):
            part = odds[:, own], truth[:, own], cells[:, own]
            usual[own], shift[own] = _of_all(*part, float(usual[own[0]]), float(shift[own[0]]))
    return usual, shift


def _of_all(odds: Floats, truth: Bools, cells: Bools, slope: float, offset: float) -> tuple[float, float]:
    """Return the line of classes together, near another one."""
    # The labels of one row are not independent: they count as fewer, as far as their errors go together.
    errors = (expit(slope * odds + offset) - truth) * cells
    together, apart = (errors.sum(axis=1) ** 2).sum(), (errors**2).sum()
    mass = cells / (max(together / apart, 1.0) if apart > 0 else 1.0)
    points, mass, target = odds.reshape(-1, 1), mass.reshape(-1, 1), truth.reshape(-1, 1)
    size = max(float(np.abs(odds).max(initial=0.0)), 1.0)
    found = logistic_lines(
        points,
        mass,
        target,
        np.array([slope]),
        np.array([offset]),
        spread=(POOLED * slope, POOLED),
        floor=FLATTEST * slope,
        reach=1 / np.sqrt(size),
    )
    return float(found[0][0]), float(found[1][0])


def _matching_error(z: Floats, cells: Bools, slope: Floats, level: Floats) -> Floats:
    """Return the standard error of `_matched` offsets: other rows would have another mean probability."""
    count = np.maximum(cells.sum(axis=0), 1)
    chance = expit(slope * z + level) * cells
    mean = chance.sum(axis=0) / count
    curve = (chance * (1 - chance)).sum(axis=0)
    away = ((chance - mean) ** 2 * cells).sum(axis=0)
    return np.asarray(np.sqrt(away) / np.maximum(curve, 1e-300))


def _matched(z: Floats, cells: Bools, share: Floats, slope: Floats) -> Floats:
    """Return the offset at which the mean probability over the rows known is ``share``: Newton, kept in a bracket."""
    reach = 40.0 + np.abs(slope * z).max(axis=0, initial=0.0)
    low, high, offset = -reach, reach, log_odds(share)
    count = np.maximum(cells.sum(axis=0), 1)
    for _ in range(STEPS):
        chance = expit(slope * z + offset) * cells
        excess = chance.sum(axis=0) / count - share
        low, high = np.where(excess < 0, offset, low), np.where(excess < 0, high, offset)
        rise = np.maximum((chance * (1 - chance)).sum(axis=0) / count, 1e-300)
        after = offset - excess / rise
        after = np.where((after > low) & (after < high), after, (low + high) / 2)
        moved, offset = np.abs(after - offset).max(initial=0.0), after
        if moved < TOLERANCE:
            break
    return np.asarray(offset)


def logistic_lines(
    points: Floats,
    mass: Floats | Bools,
    target: Floats | Bools,
    slope: Floats,
    offset: Floats,
    *,
    spread: tuple[Floats | float, float] = (np.inf, np.inf),
    floor: Floats | float = -np.inf,
    reach: Floats | float = 1.0,
    damping: float = 0.0,
    steps: int = STEPS,
    tolerance: float = TOLERANCE,
) -> tuple[Floats, Floats]:
    """Return slope and offset of the logistic regression of each class on its one score, by Newton's method.

    Args:
        points: scores, ``[n, K]``.
        mass: the weight of each of them, ``[n, K]``.
        target: 1 for positives, 0 for negatives; anything that broadcasts to ``[n, K]``.
        slope: where it begins, ``[K]``.
        offset: where it begins.
        spread: how far slope and offset are expected to be from there; by default nothing draws them back.
        floor: the least slope.
        reach: the slope moves at most twice this in one step, the offset by 2.
        damping: is added to the curvature.
        steps: at most so many.
        tolerance: until no step is longer; slopes are measured in ``reach``.

    >>> x = np.array([[-1.0], [0.0], [1.0], [2.0]])
    >>> y = np.array([[0], [1], [0], [1]])
    >>> slope, offset = logistic_lines(x, np.ones_like(x), y, np.zeros(1), np.zeros(1))
    >>> (y - expit(slope * x + offset)).sum().round(9) + 0, ((y - expit(slope * x + offset)) * x).sum().round(9) + 0
    (np.float64(0.0), np.float64(0.0))
    """
    slope0, offset0, pull = slope, offset, [1 / np.square(one) for one in spread]
    for _ in range(steps):
        chance = expit(slope * points + offset)
        error, curve = mass * (chance - target), mass * chance * (1 - chance)
        g1 = (error * points).sum(0) + (slope - slope0) * pull[0]
        g0 = error.sum(0) + (offset - offset0) * pull[1]
        h11 = (curve * points**2).sum(0) + pull[0] + damping
        h10, h00 = (curve * points).sum(0), curve.sum(0) + pull[1] + damping
        pinned = (slope <= floor) & (g1 > 0)  # it would fall further, so only the offset moves
        determinant = np.maximum(h11 * h00 - h10**2, 1e-30)
        step1 = np.where(pinned, 0.0, (h00 * g1 - h10 * g0) / determinant)
        step0 = np.where(pinned, g0 / h00, (h11 * g0 - h10 * g1) / determinant)
        # Far from the solution, not the whole way.
        shrink = np.maximum(np.maximum(np.abs(step1 / reach), np.abs(step0)) / 2, 1.0)
        slope, offset = np.maximum(slope - step1 / shrink, floor), offset - step0 / shrink
        if max(np.abs(step1 / reach).max(initial=0.0), np.abs(step0).max(initial=0.0)) < tolerance:
            break
    return slope, offset


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What a tagger says of the held-out rows: all that is needed to choose other thresholds.

    Attributes:
        logits: ``[n, K]``.
        labels: 0 or 1, ``[n, K]``.
        known: which labels are known, bool ``[n, K]``.
        rows: rows of the training split of the run's dataset, ``[n]``; -1 for those of a version before.
        inputs: what is scored, of the first rows, ``[m, ...]``: other weights give other scores.
        keys: of the same rows: those with the lowest keys stay where there are too many, ``[m]``.
    """

    logits: NDArray[np.float32]
    labels: Labels
    known: Bools
    rows: NDArray[np.int64]
    inputs: NDArray[Any] = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    keys: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))

    def __post_init__(self) -> None:
        if self.inputs.dtype.kind not in "fu" or not np.isfinite(self.inputs).all():
            raise InputError("the inputs of the held-out rows are not finite numbers")
        if len(self.inputs) > len(self.logits) or self.keys.shape != self.inputs.shape[:1]:
            raise InputError(
                f"there are {len(self.inputs)} inputs, and keys of shape {self.keys.shape}, of {len(self.logits)} rows"
            )
        shapes = {part.shape for part in (self.logits, self.labels, self.known)}
        if len(shapes) != 1 or self.logits.ndim != 2 or self.rows.shape != self.logits.shape[:1]:
            raise InputError("logits, labels, known and rows of the held-out rows do not fit together")
        if self.logits.dtype != np.float32 or not np.isfinite(self.logits[self.known]).all():
            raise InputError("the logits of the held-out rows are not finite float32")

    def take(self, chosen: Any) -> HeldOut:
        """Return some of the rows, with their inputs if all rows have them."""
        own = (self.inputs[chosen], self.keys[chosen]) if len(self.inputs) == len(self.rows) else ()
        return HeldOut(self.logits[chosen], self.labels[chosen], self.known[chosen], self.rows[chosen], *own)

    @property
    def with_inputs(self) -> HeldOut:
        """Return the rows whose inputs are kept."""
        some = slice(0, len(self.inputs))
        own = (self.logits[some], self.labels[some], self.known[some], self.rows[some])
        return HeldOut(*own, self.inputs, self.keys)

    def of_classes(self, columns: NDArray[np.int64]) -> HeldOut:
        """Return the same rows for classes by number; of -1 nothing is known."""
        known, some = self.known[:, columns] & (columns >= 0), columns >= 0
        logits, labels = (
            np.where(some, self.logits[:, columns], 0),
            np.where(known, self.labels[:, columns], 0),
        )
        return replace(self, logits=logits.astype(np.float32), labels=labels.astype(np.uint8), known=known)


@dataclass(frozen=True, eq=False)
class Calibration:
    """How the logits of a run become probabilities.

    Attributes:
        lines: from logits to log-odds, per class.
        prior: the share of positives of each class that they were made for, ``[K]``.
        own: whether a class's line was fitted to its own held-out labels, bool ``[K]``; see `mlcl.metrics.fit_lines`.
        rows: the number of held-out rows; 0: the lines follow from counts alone.
    """

    lines: LogOddsLines
    prior: Floats
    own: Bools
    rows: int

    @classmethod
    def from_counts(cls, lines: LogOddsLines, prior: Floats) -> Calibration:
        """Return the calibration in theory, where no rows are held out."""
        return cls(lines, prior, np.zeros(len(lines), np.bool_), 0)

    @classmethod
    def fit(cls, held_out: HeldOut, *, start: LogOddsLines, prior: Floats) -> Calibration:
        """Fit the lines on held-out rows; see `fit_lines`."""
        lines, own = fit_lines(
            held_out.logits, held_out.labels, start=start, prior=prior, mask=held_out.known
        )
        return cls(lines, prior, own, len(held_out.labels))

    def probabilities(self, logits: ArrayLike) -> Floats:
        """Return the probabilities of logits ``[n, K]``."""
        return self.lines.probabilities(logits)

    def thresholds(self, held_out: HeldOut, goal: Goal | None = None) -> Thresholds:
        """Return the thresholds that are best for a goal on the held-out rows."""
        found = self.probabilities(held_out.logits)
        return choose_thresholds(found, held_out.labels, goal=goal, mask=held_out.known)


def cross_fitted(held_out: HeldOut, *, start: LogOddsLines, prior: Floats) -> Floats:
    """Return the probabilities of each half of held-out rows by the lines that were fitted on the other half."""
    found, halves = np.empty(held_out.logits.shape), np.arange(len(held_out.labels)) % 2
    for half in (0, 1):
        fitted = Calibration.fit(held_out.take(halves != half), start=start, prior=prior)
        found[halves == half] = fitted.probabilities(held_out.logits[halves == half])
    return found
