"""Rows of a tagger that were not trained on: its logits become probabilities and tags by them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mlcl.errors import InputError
from mlcl.labels import LabelCounts, Labels
from mlcl.metrics import Goal, LogOddsLines, Thresholds, choose_thresholds, fit_lines, prior_shift
from mlcl.metrics.scaling import share_of_positives

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Rows that were held out of training, over all calls.

    Attributes:
        inputs: raw rows, float32 ``[n, D]``.
        labels: 0 or 1, ``[n, K]``; 0 where nothing is known.
        known: which labels are known, bool ``[n, K]``.
        keys: a random number per row; where there are too many rows, those with the least are kept, so that every row
            ever held out has the same chance, ``[n]``.
        logits: what the network says of the rows now, ``[n, K]``.
    """

    inputs: NDArray[np.float32]
    labels: Labels
    known: Bools
    keys: Floats
    logits: Floats

    def __post_init__(self) -> None:
        shapes = {part.shape for part in (self.labels, self.known, self.logits)}
        rows = {len(part) for part in (self.inputs, self.labels, self.keys)}
        if len(shapes) != 1 or len(rows) != 1 or self.labels.ndim != 2 or self.keys.ndim != 1:
            raise InputError("the arrays of the held-out rows do not fit together")

    @classmethod
    def empty(cls, features: int) -> HeldOut:
        """Return no rows and no classes."""
        none = np.zeros((0, 0))
        inputs = np.zeros((0, features), np.float32)
        return cls(inputs, none.astype(np.uint8), none.astype(np.bool_), np.zeros(0), none)

    def __len__(self) -> int:
        return len(self.inputs)

    def add(
        self,
        inputs: NDArray[np.float32],
        labels: Labels,
        ids: NDArray[np.int64],
        *,
        classes: int,
        most: int,
        rng: np.random.Generator,
    ) -> HeldOut:
        """Return the rows with more rows, of which the classes ``ids`` are known, and at most ``most`` in all."""
        total, before = len(self) + len(inputs), self.labels.shape[1]
        wide, known = np.zeros((total, classes), np.uint8), np.zeros((total, classes), np.bool_)
        wide[: len(self), :before], known[: len(self), :before] = self.labels, self.known
        wide[len(self) :, ids], known[len(self) :, ids] = labels, True
        keys = np.concatenate([self.keys, rng.random(len(inputs))])
        kept = np.sort(np.argsort(keys, kind="stable")[:most])
        rows = np.concatenate([self.inputs, inputs])[kept]
        return HeldOut(rows, wide[kept], known[kept], keys[kept], np.zeros((len(kept), classes)))

    def scored(self, logits: Floats) -> HeldOut:
        """Return the rows with what the network says of them now."""
        return replace(self, logits=logits)

    def lines(self, counts: LabelCounts) -> LogOddsLines:
        """Return the lines from logits to log-odds.

        RLDAM gives the positives and the negatives of a class the same total weight, so a logit estimates the log-odds
        where half of all rows are positive (Eq. 4): without held-out rows the log-odds of the class's own share,
        counted over the rows that were annotated for it, are added.
        """
        prior = share_of_positives(counts.positive, counts.positive + counts.negative)
        start = LogOddsLines(np.ones(len(counts)), prior_shift(np.full(len(counts), 0.5), prior))
        return fit_lines(self.logits, self.labels, start=start, prior=prior, mask=self.known)[0]

    def thresholds(self, lines: LogOddsLines, goal: Goal) -> Thresholds:
        """Return the thresholds for a goal; 0.5 for all classes without rows."""
        if not len(self):
            return Thresholds.half(len(lines))
        return choose_thresholds(lines.probabilities(self.logits), self.labels, goal=goal, mask=self.known)


def choose_held_out(labels: Labels, share: float, rng: np.random.Generator) -> Bools:
    """Return which rows of a call are not trained on: a share of them, but no class loses its last positive.

    Args:
        labels: of the call, ``[n, k]``.
        share: from 0 to below 1.
        rng: random numbers of this call.

    >>> choose_held_out(np.array([[1], [0], [0], [0]]), 0.5, np.random.default_rng(0)).astype(int)
    array([0, 0, 1, 0])
    """
    held = np.zeros(len(labels), np.bool_)
    held[rng.permutation(len(labels))[: int(share * len(labels))]] = True
    lost = labels.any(axis=0) & ~labels[~held].any(axis=0)
    held[labels[:, lost].any(axis=1)] = False
    return held
