"""Sums of features that have drifted: a linear map carries them over to the features of today.

A network that goes on learning changes the features that sums were made of, and the rows are gone. What is left are
some rows at hand, seen by the old and by the new network. The linear map between their features, found by ridge
regression, maps every stored moment (`Moments.mapped`). Where the drift is linear, that is exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mlcl.exact.features import fit_map
from mlcl.exact.learner import ExactLearner
from mlcl.exact.moments import Floats

RIDGE = 1e-3
"""Of the map, relative to the mean variance of the old features."""


def linear_map(old: Floats, new: Floats, *, ridge: float = RIDGE) -> tuple[Floats, Floats]:
    """Return the matrix A and the shift b for which ``A z + b`` is nearest to the new features of a row.

    Args:
        old: ``[n, d]``, n at least 1.
        new: ``[n, e]``, of the same rows.
        ridge: what is added to the covariance of the old features, relative to their mean variance.

    >>> old = np.random.default_rng(0).normal(size=(50, 3))
    >>> matrix, shift = linear_map(old, old[:, :2] * [2.0, -1.0] + 5.0, ridge=1e-12)
    >>> matrix.round(6) + 0.0, shift.round(6)
    (array([[ 2.,  0.,  0.],
           [ 0., -1.,  0.]]), array([5., 5.]))
    """
    before, after = old.mean(0), new.mean(0)
    centred = old - before
    spread = centred.T @ centred / len(old)
    level = float(np.trace(spread)) / max(len(before), 1)
    # A column that never varied says nothing, whatever the ridge: it stays without influence.
    spread[np.diag_indices_from(spread)] += ridge * level if level > 0 else 1.0
    matrix = np.linalg.solve(spread, centred.T @ (new - after) / len(old)).T
    return matrix, after - matrix @ before


def carried(
    learner: ExactLearner,
    old: Any,
    new: Any,
    *,
    dimensions: int | None = 256,
    seed: int = 0,
    ridge: float = RIDGE,
) -> ExactLearner:
    """Return the learner with all its sums carried over to the new features.

    Args:
        learner: its sums are of old features.
        old: the old features of some rows, ``[n, D]``, n at least 1.
        new: the new features of the same rows, ``[n, D']``.
        dimensions: new features of more numbers are projected to so many principal components; None: never.
        seed: of random directions, where the rows determine fewer than ``dimensions``.
        ridge: of the map, see `linear_map`.

    >>> rng = np.random.default_rng(0)
    >>> labels = rng.random((400, 1)) < 0.3
    >>> old = labels + rng.normal(0, 0.3, (400, 2))
    >>> new = old @ [[2.0, 1.0], [0.0, 1.0]] + 3.0
    >>> learner = carried(ExactLearner.begin(old).learn(old, labels, [0]), old[:50], new[:50], ridge=1e-12)
    >>> bool(np.allclose(learner.features.centre + learner.sums.positive[0].mean, new[labels[:, 0]].mean(0)))
    True
    """
    features = fit_map(new, dimensions=dimensions, seed=seed)
    matrix, shift = linear_map(learner.features(old), features(new), ridge=ridge)
    return ExactLearner(features, learner.sums.mapped(matrix, shift))
