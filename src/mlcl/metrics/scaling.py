"""From scores to log-odds: one line per class, with a positive slope, fitted on rows that nothing was trained on.

A line with a positive slope keeps the order of rows and their ties, so every AUC stays what it was (Platt scaling).
Three things are known of a class, from rough to fine, and each is used as far as its rows reach:

1. the log-odds that its scores would be in theory (``start``), with no held-out row at all;
2. its share of positives in training (``prior``), which is well known even if the class is rare: the offset is such
   that the mean probability of the held-out rows is this share, and the slope is the median of the other classes';
3. the labels of its held-out rows: slope and offset by penalised maximum likelihood, drawn towards 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mlcl.errors import InputError
from mlcl.metrics.inputs import Bools, Floats, check_scores, to_array

LEAST = 5
"""Held-out positives and negatives that a class needs for a line of its own."""
SLOPE_SPREAD, OFFSET_SPREAD = 0.5, 0.5
"""How far, as a share of it and in log-odds, slope and offset of a class are expected to be from those of step 2."""
USUAL_SLOPE = 1.5
"""Log-odds per standard deviation of a class's scores where the first fit begins; it may be off by twice as much."""
FLATTEST = 0.05
"""The least slope, as a share of the slope of step 2."""
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


def expit(log_odds: Floats) -> Floats:
    """Return ``1 / (1 + exp(-x))``.

    >>> expit(np.array([-1000.0, 0.0, 1000.0]))
    array([0. , 0.5, 1. ])
    """
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-log_odds)))


def prior_shift(trained: ArrayLike, wanted: ArrayLike) -> Floats:
    """Return what is added to log-odds learnt at one share of positives to be right at another.

    A loss that gives the positives and the negatives of a class the same total weight learns at the share 1/2.

    Args:
        trained: the share of positives in the loss, above 0 and below 1, ``[K]``.
        wanted: the share where the probabilities are used, ``[K]``.

    >>> prior_shift([0.5, 0.1], [0.1, 0.1]).round(3)
    array([-2.197,  0.   ])
    """
    return _logit(np.asarray(to_array(wanted), np.float64)) - _logit(
        np.asarray(to_array(trained), np.float64)
    )


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
    slope, level = spread.copy(), centre.copy()  # of z: the theory, and the log-odds of the mean score
    if own.any():
        usual = np.full(len(own), USUAL_SLOPE)
        first, _ = _newton(
            z,
            truth,
            cells,
            usual,
            _matched(z, cells, share, usual),
            slope_spread=2 * usual,
            offset_spread=10.0,
        )
        slope = spread * np.median((first / spread)[own])
    level = np.where(some, _matched(z, cells, share, slope), level)
    if own.any():
        fitted = _newton(
            *(z[:, own], truth[:, own], cells[:, own], slope[own], level[own]),
            slope_spread=SLOPE_SPREAD * slope[own],
            offset_spread=OFFSET_SPREAD,
        )
        slope[own], level[own] = fitted
    slope = np.where(some, slope / spread, 1.0)  # of the log-odds in theory
    offset = np.where(some, level - slope * centre, 0.0)
    return LogOddsLines(slope * start.slope, slope * start.offset + offset), own


def _logit(share: Floats) -> Floats:
    return np.asarray(np.log(share) - np.log1p(-share))


def _matched(z: Floats, cells: Bools, share: Floats, slope: Floats) -> Floats:
    """Return the offset at which the mean probability over the rows known is ``share``: Newton, kept in a bracket."""
    reach = 40.0 + np.abs(slope * z).max(axis=0, initial=0.0)
    low, high, offset = -reach, reach, _logit(share)
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


def _newton(
    z: Floats,
    truth: Bools,
    cells: Bools,
    slope0: Floats,
    offset0: Floats,
    *,
    slope_spread: Floats,
    offset_spread: float,
) -> tuple[Floats, Floats]:
    """Return slope and offset of the penalised likelihood of each class; the slope is at least a part of ``slope0``."""
    floor = FLATTEST * slope0
    slope, offset = slope0.copy(), offset0.copy()
    for _ in range(STEPS):
        chance = expit(slope * z + offset)
        error, curve = (chance - truth) * cells, chance * (1 - chance) * cells
        g1 = (error * z).sum(0) + (slope - slope0) / slope_spread**2
        g0 = error.sum(0) + (offset - offset0) / offset_spread**2
        h11 = (curve * z**2).sum(0) + 1 / slope_spread**2
        h10, h00 = (curve * z).sum(0), curve.sum(0) + 1 / offset_spread**2
        pinned = (slope <= floor) & (g1 > 0)  # it would fall further, so only the offset moves
        determinant = h11 * h00 - h10**2
        step1 = np.where(pinned, 0.0, (h00 * g1 - h10 * g0) / determinant)
        step0 = np.where(pinned, g0 / h00, (h11 * g0 - h10 * g1) / determinant)
        shrink = np.maximum(np.maximum(np.abs(step1) / (2 * slope0), np.abs(step0) / 2), 1.0)
        slope, offset = np.maximum(slope - step1 / shrink, floor), offset - step0 / shrink
        if max(np.abs(step1 / slope0).max(initial=0.0), np.abs(step0).max(initial=0.0)) < TOLERANCE:
            break
    return slope, offset
