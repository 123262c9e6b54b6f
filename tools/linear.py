"""Logistic regression for every label at once: the baseline of `tools/exact_sets.py`.

Newton's method, each step by conjugate gradients with the diagonal of the Hessian in the principal components of the
rows as preconditioner; labels are separate problems that share every matrix product. The minimiser is scikit-learn's
``LogisticRegression(C)``: ``C sum log(1 + exp(-t f)) + |w|^2 / 2`` with a free intercept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Array = NDArray[Any]
STEPS, INNER, HALVINGS = 40, 60, 12


@dataclass(frozen=True, eq=False)
class Turned:
    """Rows in their principal components, centred, with a column of ones: the form in which problems are solved.

    Attributes:
        rows: ``[n, d + 1]``.
        centre: ``[D]``.
        basis: ``[D, d]``.
        curvature: the sum of squares of each column, ``[d + 1]``.
    """

    rows: Array
    centre: Array
    basis: Array
    curvature: Array

    @classmethod
    def of(cls, rows: Array) -> Turned:
        """Turn rows; the penalty ``|w|^2`` is the same in any basis. Directions without variance are left out."""
        centre = rows.mean(0)
        moved = rows - centre
        values, vectors = np.linalg.eigh(moved.T @ moved)
        basis = np.ascontiguousarray(vectors[:, values > 1e-6 * values[-1]])
        turned = np.hstack([moved @ basis, np.ones((len(rows), 1), rows.dtype)])
        return cls(turned, centre, basis, np.einsum("nd,nd->d", turned, turned))

    def apply(self, rows: Array) -> Array:
        """Return new rows in the same form."""
        return np.hstack([(rows - self.centre) @ self.basis, np.ones((len(rows), 1), rows.dtype)])


def regressions(
    turned: Turned,
    labels: NDArray[Any],
    strength: float,
    *,
    start: Array | None = None,
    tolerance: float = 1e-4,
) -> Array:
    """Return the weights of all labels, intercepts last, ``[d + 1, K]``, on rows as `Turned.apply` gives them.

    Args:
        turned: the rows.
        labels: 0 or 1, ``[n, K]``.
        strength: C.
        start: weights to begin with, as those of another C.
        tolerance: of a label's gradient, relative to its gradient at weights of zero.
    """
    x, kind = turned.rows, turned.rows.dtype
    y = np.asarray(labels, kind)
    ridge = np.full((x.shape[1], 1), 1 / strength, kind)
    ridge[-1] = 0
    share = np.clip(y.mean(0), 0.5 / len(y), 1 - 0.5 / len(y))
    weights = np.zeros((x.shape[1], y.shape[1]), kind)
    weights[-1] = np.log(share / (1 - share))
    enough = tolerance * np.linalg.norm(x.T @ (share - y), axis=0)
    if start is not None:
        weights[:] = start
    active = np.arange(y.shape[1])
    logits = x @ weights
    for _ in range(STEPS):
        own, z, truth = weights[:, active], logits[:, active], y[:, active]
        p = expit(z)
        gradient = x.T @ (p - truth) + ridge * own
        size = np.linalg.norm(gradient, axis=0)
        left = size > enough[active]
        if not left.any():
            break
        active, own, z, truth = active[left], own[:, left], z[:, left], truth[:, left]
        p, gradient = p[:, left], gradient[:, left]
        curved = p * (1 - p)
        diagonal = turned.curvature[:, None] * curved.mean(0) + ridge
        step = _descent(x, curved, ridge, gradient, diagonal)
        along = x @ step
        length = _lengths(own, step, z, along, truth, ridge, gradient)
        weights[:, active] = own + step * length
        logits[:, active] = z + along * length
    return weights


def _descent(x: Array, curved: Array, ridge: Array, gradient: Array, diagonal: Array) -> Array:
    """Return about ``-H^-1 g`` for each label, by preconditioned conjugate gradients."""
    step, rest = np.zeros_like(gradient), -gradient
    solved = rest / diagonal
    direction, product = solved.copy(), np.einsum("dk,dk->k", rest, solved)
    first = product.copy()
    for _ in range(INNER):
        image = x.T @ (curved * (x @ direction)) + ridge * direction
        bend = np.einsum("dk,dk->k", direction, image)
        move = np.divide(product, bend, out=np.zeros_like(bend), where=bend > 0)
        step += move * direction
        rest -= move * image
        solved = rest / diagonal
        before, product = product, np.einsum("dk,dk->k", rest, solved)
        if (product <= 0.01 * first).all():
            break
        ratio = np.divide(product, before, out=np.zeros_like(before), where=before > 0)
        direction = solved + ratio * direction
    return step


def _lengths(
    own: Array, step: Array, z: Array, along: Array, truth: Array, ridge: Array, gradient: Array
) -> Array:
    """Return how far to go for each label: 1, or halves of it until the loss falls as it should."""
    sign = 1 - 2 * truth
    promised = np.einsum("dk,dk->k", gradient, step)

    def loss(length: Array, at: NDArray[np.bool_]) -> Array:
        moved = (own[:, at] + length[at] * step[:, at]) ** 2
        fit = np.logaddexp(0, sign[:, at] * (z[:, at] + length[at] * along[:, at])).sum(0)
        return np.asarray(fit + (ridge * moved).sum(0) / 2)

    length = np.ones(own.shape[1], own.dtype)
    every = np.ones(own.shape[1], np.bool_)
    now = loss(np.zeros_like(length), every)
    for _ in range(HALVINGS):
        high = np.zeros_like(every)
        tried = np.flatnonzero(every)
        found = loss(length, every)
        high[tried] = found > now[tried] + 1e-4 * length[tried] * promised[tried] + 1e-6 * np.abs(now[tried])
        if not high.any():
            return length
        length[high] /= 2
        every = high
    length[every] = 0
    return length
