"""L3A: weighted ridge regression with pseudo-labels, task by task from two sums (specification.md#l3a).

Beside `mlcl.exact.learner` it is the field's own closed form: one Gram matrix for all classes, in which a row of one
task is a negative of every class of a later one. Numpy and scipy only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from mlcl.errors import InputError, check_number
from mlcl.exact.digits import Seen
from mlcl.exact.features import FeatureMap, first_large
from mlcl.exact.moments import Floats
from mlcl.labels import Labels


def class_weights(count: NDArray[np.int64]) -> Floats:
    """Return ``v_k = K n_k^(-1/2) / sum_j n_j^(-1/2)`` over the K classes with positives; 0 for the others.

    Args:
        count: ``n_k``, positives of each class.

    >>> class_weights(np.array([4, 1, 0]))
    array([0.66666667, 1.33333333, 0.        ])
    """
    scale = np.where(count > 0, 1 / np.sqrt(np.maximum(count, 1)), 0.0)
    total = scale.sum()
    return scale * int((count > 0).sum()) / total if total > 0 else scale


def row_weights(labels: Labels, count: NDArray[np.int64]) -> Floats:
    """Return the mean of `class_weights` over the positives of each row; 1 for a row without any.

    Args:
        labels: of the rows, pseudo-labels included.
        count: positives of each class that were annotated, in all tasks so far.

    >>> row_weights(np.array([[1, 0], [1, 1]]), np.array([4, 1]))
    array([0.66666667, 1.        ])
    """
    each = labels.sum(axis=1, dtype=np.int64)
    return np.where(each > 0, (labels @ class_weights(count)) / np.maximum(each, 1), 1.0)


def pseudo_labels(scores: Floats, threshold: float) -> Labels:
    """Return 1 where the sigmoid of an old class's score is above the threshold.

    >>> pseudo_labels(np.array([[0.0, 1.0, 0.8]]), 0.7)
    array([[0, 1, 0]], dtype=uint8)
    """
    # sigmoid(s) > t, without the sigmoid: it rises
    if threshold <= 0 or threshold >= 1:
        return np.full(scores.shape, int(threshold <= 0), np.uint8)
    found: Labels = (scores > np.log(threshold / (1 - threshold))).astype(np.uint8)
    return found


@dataclass(frozen=True, eq=False)
class Analytic:
    """The two sums of L3A, ``A = Z'OZ`` and ``C = Z'OY`` with O the row weights.

    Attributes:
        gram: ``A``, float64 ``[d, d]``.
        cross: ``C``, float64 ``[d, K]``; zero columns for classes that no row was annotated for.
        seen: which classes were, bool ``[K]``.
        count: their annotated positives so far, int64 ``[K]``.

    >>> rng = np.random.default_rng(0)
    >>> labels = (rng.random((300, 2)) < 0.4).astype(np.uint8)
    >>> rows = np.maximum(0, labels + rng.normal(0, 0.3, (300, 2)))
    >>> learner = Analytic.begin(2, 2).learn(rows, labels, [0, 1])
    >>> (rows @ learner.solve(1.0))[labels == 1].mean() > 0.5
    np.True_
    """

    gram: Floats
    cross: Floats
    seen: NDArray[np.bool_]
    count: NDArray[np.int64]

    @classmethod
    def begin(cls, dimensions: int, classes: int) -> Analytic:
        """Return sums over no rows."""
        gram, cross = np.zeros((dimensions, dimensions)), np.zeros((dimensions, classes))
        return cls(gram, cross, np.zeros(classes, np.bool_), np.zeros(classes, np.int64))

    @property
    def nbytes(self) -> int:
        """Return the size of the sums in bytes."""
        return self.gram.nbytes + self.cross.nbytes + self.count.nbytes

    def learn(
        self,
        rows: NDArray[np.floating],
        labels: Labels,
        ids: NDArray[np.int64] | list[int],
        *,
        threshold: float = 0.7,
        ridge: float = 1.0,
    ) -> Analytic:
        """Return the sums with the rows of a task, whose labels of earlier classes are filled in (`pseudo_labels`).

        Args:
            rows: ``z``, ``[n, d]``.
            labels: of the task's classes, 0 or 1, ``[n, len(ids)]``.
            ids: class number of each column.
            threshold: of pseudo-labels.
            ridge: of the weights that score the earlier classes.
        """
        values, own = np.asarray(rows, np.float64), np.asarray(ids, np.int64)
        if values.ndim != 2 or values.shape[1] != len(self.gram) or labels.shape != (len(values), len(own)):
            raise InputError(
                f"rows has shape {values.shape} and labels {labels.shape}, but [n, {len(self.gram)}] and "
                f"[n, {len(own)}] were expected"
            )
        squares = np.einsum("nd,nd->d", values, values)
        before = Seen(np.diag(self.gram).copy(), float(self.count.sum()))
        if (
            large := first_large(FeatureMap(np.zeros(len(squares)), None), values, squares, before)
        ) is not None:
            raise InputError(f"the data {large.sentence()}; nothing was changed")
        complete = np.zeros((len(values), len(self.seen)), np.uint8)
        old = self.seen.copy()
        old[own] = False
        if old.any():
            complete[:, old] = pseudo_labels(values @ self.solve(ridge)[:, old], threshold)
        complete[:, own] = labels
        seen, count = self.seen.copy(), self.count.copy()
        seen[own] = True
        count[own] += labels.sum(axis=0, dtype=np.int64)
        weighted = values * row_weights(complete, count)[:, None]
        return Analytic(self.gram + weighted.T @ values, self.cross + weighted.T @ complete, seen, count)

    def solve(self, ridge: float) -> Floats:
        """Return ``W = (A + ridge I)^-1 C``, ``[d, K]``.

        Args:
            ridge: g, above 0.
        """
        check_number("ridge", ridge, open_low=True)
        regular = self.gram + ridge * np.eye(len(self.gram))
        found: Floats = scipy.linalg.solve(regular, self.cross, assume_a="pos", overwrite_a=True)
        return found
