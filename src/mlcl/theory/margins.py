"""Optimal margins, and a numerical check of Proposition 1 (docs/specification.md#margins)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from mlcl.errors import InputError
from mlcl.labels import LabelCounts
from mlcl.losses import MarginCount
from mlcl.losses import margins as loss_margins

Floats = NDArray[np.float64]


def optimal_margins(
    counts: LabelCounts,
    *,
    margin: float = 1.0,
    power: float = 0.25,
    margin_count: MarginCount = "positive",
) -> Floats:
    """Return ``D_k = margin / P_k^(1/4)``, ``[K]``: the margins of the loss; nan for an undefined class.

    Args:
        counts: of one task.
        margin: ``lambda``, above 0.
        power: of the count; 1/4 is the optimum of Proposition 1.
        margin_count: ``positive`` (the paper) or ``minority``, ``min(P_k, N_k)``, which Theorem 1 contains.

    >>> optimal_margins(LabelCounts([1, 16, 81], [99, 84, 19], 100))
    array([1.        , 0.5       , 0.33333333])
    """
    if not (np.isfinite(margin) and margin > 0):
        raise InputError(f"margin is {margin}; the theory divides by margins and expects a number above 0.")
    positive, negative = (torch.tensor(c, dtype=torch.float64) for c in (counts.positive, counts.negative))
    found = loss_margins(positive, negative, margin=margin, power=power, margin_count=margin_count).numpy()
    return np.where(counts.defined, found, np.nan)


def best_margins(weights: ArrayLike, total: float) -> Floats:
    """Return the margins of sum ``total`` that minimise ``sum_k weights_k / D_k``: ``D_k ~ sqrt(weights_k)``.

    >>> best_margins([1.0, 4.0], 3.0)
    array([1., 2.])
    """
    root = np.sqrt(_weights(weights))
    margins: Floats = total * root / root.sum()
    return margins


def numeric_margins(weights: ArrayLike, total: float) -> Floats:
    """Return the same margins as `best_margins`, found by a quasi-Newton method from the objective alone.

    Positive margins of a fixed sum are ``D = total * softmax(theta)``, and the logarithm of the objective is
    convex in ``theta``, so there is one minimum and no constraint. The search does not start from equal
    margins, which would already be the answer for equal weights.

    >>> numeric_margins([1.0, 4.0], 3.0).round(6)
    array([1., 2.])
    """
    logs = np.log(_weights(weights))

    def objective(theta: Floats) -> tuple[float, Floats]:
        value = logsumexp(theta) + logsumexp(logs - theta)
        return float(value), softmax(theta) - softmax(logs - theta)

    start = np.linspace(-1.0, 1.0, len(logs))
    found = minimize(objective, start, jac=True, method="BFGS", options={"gtol": 1e-12})
    return np.asarray(total * softmax(found.x), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Proposition:
    """Proposition 1 for the classes of one task: closed form against a numeric optimum.

    Attributes:
        total: the sum of the margins.
        closed: ``D_k ~ P_k^(-1/4)``, ``[K]``.
        numeric: what the optimiser found, ``[K]``.
        difference: the largest relative difference of the two.
        value: ``sum_k 1 / (D_k sqrt(P_k))`` of the closed form.
        numeric_value: the same of the numeric optimum.
        equal_value: the same of equal margins; never smaller.
        within: the numeric optimum of ``D+`` and ``D-`` in a class whose margins have the sum 2: both 1.
    """

    total: float
    closed: Floats
    numeric: Floats
    difference: float
    value: float
    numeric_value: float
    equal_value: float
    within: tuple[float, float]


def check_proposition(positive: ArrayLike, *, total: float | None = None) -> Proposition:
    """Minimise ``sum_k 1 / (D_k sqrt(P_k))`` for a fixed sum of margins, in closed form and numerically.

    Args:
        positive: ``P_k`` of the classes, ``[K]``, all above 0.
        total: the sum of the margins; that of ``P_k^(-1/4)`` if not given.

    >>> found = check_proposition([16, 81, 10000])
    >>> found.closed, found.difference < 1e-6
    (array([0.5       , 0.33333333, 0.1       ]), True)
    >>> round(found.value, 4), round(found.equal_value, 4)
    (0.9333, 1.1929)
    """
    counts = _weights(positive, name="positive")
    if total is None:
        total = float((counts**-0.25).sum())
    elif not (np.isfinite(total) and total > 0):
        raise InputError(f"total is {total}; expected a finite number above 0.")
    weights = counts**-0.5
    closed, numeric = best_margins(weights, total), numeric_margins(weights, total)
    equal = np.full(len(counts), total / len(counts))
    values = [float((weights / each).sum()) for each in (closed, numeric, equal)]
    plus, minus = numeric_margins(np.full(2, weights[0]), 2.0)
    return Proposition(
        total=total,
        closed=closed,
        numeric=numeric,
        difference=float(np.abs(numeric / closed - 1).max()),
        value=values[0],
        numeric_value=values[1],
        equal_value=values[2],
        within=(float(plus), float(minus)),
    )


def _weights(values: ArrayLike, *, name: str = "weights") -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not len(array) or not (np.isfinite(array) & (array > 0)).all():
        raise InputError(f"{name} is {array.tolist()}; expected a vector of finite numbers above 0.")
    return array
