"""A linear tagger solved: Eq. 4 with its margins over the rows of a call and of the memory, at its minimum.

Without a shared layer the loss of a class is convex in its own weights, so there is one best answer, and neither a
learning rate nor a seed decides how near one comes to it. Stored rows stand for all rows of their label set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from mlcl.memories import TaskSamples

Floats = NDArray[np.float64]
BLOCK = 4096
"""Rows at a time, so that double precision needs little memory."""
MOST_CELLS = 2**25
"""Up to so many numbers are standardised once and kept, and otherwise in every step anew."""
STEPS, TOLERANCE = 500, 1e-5
"""At most so many steps of L-BFGS, until no partial derivative is larger; the loss is about 1 at the start."""


@dataclass(frozen=True, eq=False)
class Cells:
    """Rows with the weights of their labels.

    Attributes:
        inputs: the rows, float32 ``[n, D]``.
        labels: 0 or 1, ``[n, K]``.
        group: which label set each row is of, ``[n]``.
        positive: the weight of a positive of each label set and class, 0 where none is known, ``[G, K]``.
        negative: the weight of a negative, ``[G, K]``.
    """

    inputs: NDArray[np.float32]
    labels: NDArray[np.uint8]
    group: NDArray[np.int64]
    positive: Floats
    negative: Floats


def weigh(inputs: NDArray[np.float32], parts: Sequence[TaskSamples], classes: NDArray[np.int64]) -> Cells:
    """Return the rows of some label sets, weighted such that the positives of each class sum to 1, and the negatives.

    A stored row counts for as many rows of its label set as there were for each one that is stored, so that the loss
    estimates that over all rows ever annotated for the class.

    Args:
        inputs: the rows of the first label set, then those of the second, and so on, ``[n, D]``.
        parts: the labels of these rows, and the counts over all rows of each label set.
        classes: the numbers of the classes to learn.
    """
    labels = np.zeros((len(inputs), len(classes)), np.uint8)
    group = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    mass = np.zeros((2, len(parts), len(classes)))
    kept = np.zeros_like(mass)
    for number, part in enumerate(parts):
        _, here, there = np.intersect1d(classes, part.classes, return_indices=True)
        labels[np.ix_(group == number, here)] = part.labels[:, there]
        mass[:, number, here] = part.counts.positive[there], part.counts.negative[there]
        positives = part.labels[:, there].sum(axis=0)
        kept[:, number, here] = positives, len(part) - positives
    mass[kept == 0] = 0
    share = mass / np.maximum(mass.sum(axis=1, keepdims=True), 1)
    positive, negative = share / np.maximum(kept, 1)
    return Cells(inputs, labels, group, positive, negative)


def solve_linear(cells: Cells, *, margins: Floats, penalty: Floats) -> tuple[Floats, Floats]:
    """Return weights ``[K, D]`` and biases ``[K]`` with the least loss; zeros for a class without either sign.

    The loss of a class is ``sum_{y=1} W l(f - D) + sum_{y=0} W l(-f - D) + penalty / 2 |w|^2`` with
    ``l(z) = log(1 + exp(-z))``, where ``w`` are the weights of features that are standardised over these rows.

    Args:
        cells: rows, labels and their weights ``W``.
        margins: D of each class, ``[K]``.
        penalty: of each class, above 0, ``[K]``.

    >>> rows = np.array([[0.0], [1.0], [1.0], [2.0]], np.float32)
    >>> labels, one = np.array([[0], [0], [1], [1]], np.uint8), np.full((1, 1), 0.5)
    >>> cells = Cells(rows, labels, np.zeros(4, np.int64), one, one)
    >>> weights, biases = solve_linear(cells, margins=np.zeros(1), penalty=np.ones(1))
    >>> weights.round(3), (weights @ [1.0] + biases).round(6)  # by symmetry the middle is 0
    (array([[0.675]]), array([0.]))
    """
    rows, features = cells.inputs.shape
    classes = cells.labels.shape[1]
    mean = cells.inputs.mean(axis=0, dtype=np.float64)
    spread = cells.inputs.std(axis=0, dtype=np.float64)
    spread = np.where(spread > 1e-6, spread, np.inf)  # a constant feature says nothing, and gets no weight
    defined = (cells.positive.sum(axis=0) > 0) & (cells.negative.sum(axis=0) > 0)

    def standardised() -> Iterator[tuple[slice, Floats]]:
        for start in range(0, rows, BLOCK):
            piece = slice(start, start + BLOCK)
            yield piece, (cells.inputs[piece] - mean) / spread

    kept = list(standardised()) if rows * features <= MOST_CELLS else None

    def loss(flat: Floats) -> tuple[float, Floats]:
        point = flat.reshape(classes, features + 1)
        weights, biases = point[:, :-1], point[:, -1]
        value = float((penalty * (weights**2).sum(axis=1)).sum() / 2)
        slope = np.concatenate([penalty[:, None] * weights, np.zeros((classes, 1))], axis=1)
        for piece, z in standardised() if kept is None else kept:
            truth, group = cells.labels[piece] > 0, cells.group[piece]
            share = np.where(truth, cells.positive[group], cells.negative[group]) * defined
            sign = np.where(truth, 1.0, -1.0)
            inside = sign * (z @ weights.T + biases) - margins
            value += float((share * np.logaddexp(0, -inside)).sum())
            pull = -share * sign * expit(-inside)
            slope[:, :-1] += pull.T @ z
            slope[:, -1] += pull.sum(axis=0)
        return value, slope.ravel()

    found = minimize(
        loss,
        np.zeros(classes * (features + 1)),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": STEPS, "maxfun": 2 * STEPS, "gtol": TOLERANCE, "ftol": 1e-10},
    )
    point = found.x.reshape(classes, features + 1)
    weights = point[:, :-1] / spread
    return weights, point[:, -1] - weights @ mean
