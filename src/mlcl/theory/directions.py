"""Numeric checks of the exact learner's theory (explanation/exact.md): optimisers that know the objectives alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlcl.errors import InputError
from mlcl.streams import Benchmark

Floats = NDArray[np.float64]


class DirectionCheck(NamedTuple):
    """How far the closed form's direction is from those that an optimiser finds, as 1 - cosine.

    Attributes:
        pairwise: from the minimiser of the squared loss over all pairs.
        reweighted: from that of the reweighted squared loss with a bias and a margin.
        pooled: from linear discriminant analysis: how much it is another direction (no check).
    """

    pairwise: float
    reweighted: float
    pooled: float


def check_direction(
    positive: Floats, negative: Floats, *, ridge: float = 1e-3, margin: float = 0.5
) -> DirectionCheck:
    """Compare ``(S+ + S- + R)^-1 (mu+ - mu-)`` with the numeric minimisers of two losses.

    Args:
        positive: rows of positives, ``[P, d]``.
        negative: rows of negatives, ``[N, d]``.
        ridge: R as a share of the mean variance.
        margin: D of the reweighted loss.

    >>> rng = np.random.default_rng(0)
    >>> found = check_direction(rng.normal(1, 1, (8, 3)), rng.normal(0, 2, (40, 3)))
    >>> found.pairwise < 1e-6, found.reweighted < 1e-6, found.pooled > 1e-4
    (True, True, True)
    """
    from scipy.optimize import minimize

    if len(positive) == 0 or len(negative) == 0:
        raise InputError(
            f"there are {len(positive)} positives and {len(negative)} negatives; expected some of both"
        )
    d = positive.shape[1]
    scatter = np.cov(positive.T, bias=True).reshape(d, d) + np.cov(negative.T, bias=True).reshape(d, d)
    added = ridge * np.trace(scatter) / d
    gap = positive.mean(0) - negative.mean(0)
    closed = np.linalg.solve(scatter + added * np.eye(d), gap)

    def pairwise(w: Floats) -> tuple[float, Floats]:
        off = 1 - (positive @ w)[:, None] + (negative @ w)[None, :]
        slope = -2 * (off.sum(1) @ positive - off.sum(0) @ negative) / off.size
        return float((off**2).mean() + added * w @ w), slope + 2 * added * w

    def reweighted(parameters: Floats) -> tuple[float, Floats]:
        w, b = parameters[:-1], parameters[-1]
        low, high = 1 + margin - positive @ w - b, 1 + margin + negative @ w + b
        slope = -2 * low @ positive / len(low) + 2 * high @ negative / len(high) + 2 * added * w
        value = (low**2).mean() + (high**2).mean() + added * w @ w
        return float(value), np.append(slope, -2 * low.mean() + 2 * high.mean())

    def least(loss: Callable[[Floats], tuple[float, Floats]], size: int) -> Floats:
        options = {"maxiter": 10_000, "gtol": 1e-12, "ftol": 0.0, "maxfun": 10**6}
        return np.asarray(minimize(loss, np.zeros(size), jac=True, method="L-BFGS-B", options=options).x)

    share = len(positive) / (len(positive) + len(negative))
    mixed = share * np.cov(positive.T, bias=True) + (1 - share) * np.cov(negative.T, bias=True)
    pooled = np.linalg.solve(mixed.reshape(d, d) + added * np.eye(d), gap)
    others = least(pairwise, d), least(reweighted, d + 1)[:-1], pooled
    return DirectionCheck(*(_angle(closed, other) for other in others))


def check_directions(
    benchmark: Benchmark,
    *,
    vectors: Callable[[NDArray[np.int64]], NDArray[Any]] | None = None,
    rows: int = 300,
    features: int = 24,
) -> DirectionCheck | None:
    """Check every task of a benchmark of feature vectors on its most frequent class, and return the largest values.

    Args:
        benchmark: the tasks.
        vectors: returns the features of training rows; by default the inputs, if they are vectors.
        rows: no more rows of a task than this, as all pairs of them are compared.
        features: no more features than this: the first ones, standardised.

    Returns:
        None for images without ``vectors``, and where no class has positives and negatives.
    """
    data = benchmark.dataset.train
    found = []
    if vectors is None and data.kind != "features":
        return None
    for task in benchmark.tasks:
        chosen = task.train[:rows]
        labels = data.labels[np.ix_(chosen, task.classes)].astype(bool)
        both = labels.any(0) & ~labels.all(0)
        if both.any():
            taken = data.inputs[chosen] if vectors is None else vectors(chosen)
            x = np.asarray(taken, np.float64)[:, :features]
            spread = x.std(0)
            x = (x - x.mean(0)) / np.where(spread > 0, spread, 1.0)
            column = labels[:, int(np.argmax(labels.sum(0) * both))]
            found.append(check_direction(x[column], x[~column]))
    if not found:
        return None
    return DirectionCheck(*map(max, zip(*found, strict=True)))


def _angle(a: Floats, b: Floats) -> float:
    return float(1 - a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
