"""Optimal margins with a numerical check of Proposition 1, and the two imbalance terms of Theorem 1.

See specification.md#margins and #imbalance-terms. The theorem bounds the risk by ``4 Lambda r / sqrt(n)`` times
the first term plus ``6 B sqrt(log(2/delta) / (2 n))`` times the second. Its constants are unknown for a network, so the
terms serve to compare data, memories and margins, and are not a guarantee.

The exact learner's theory (docs/explanation/exact.md) is checked numerically, too, by optimisers that know the
objectives alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from mlcl.errors import InputError
from mlcl.labels import LabelCounts
from mlcl.losses import MarginCount
from mlcl.losses import margins as loss_margins
from mlcl.streams import Benchmark

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
        value: ``sum_k 1 / (D_k sqrt(P_k))`` of the closed form; ``numeric_value`` and ``equal_value`` are those of the
            numeric optimum and of equal margins, which is never smaller.
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
    value, numeric_value, equal_value = (float((weights / each).sum()) for each in (closed, numeric, equal))
    plus, minus = numeric_margins(np.full(2, weights[0]), 2.0)
    difference = float(np.abs(numeric / closed - 1).max())
    within = float(plus), float(minus)
    return Proposition(total, closed, numeric, difference, value, numeric_value, equal_value, within)


@dataclass(frozen=True)
class ImbalanceTerms:
    """The imbalance terms of one set of rows. Infinite if a class is undefined on them, nan without classes or rows.

    Attributes:
        rows: number of rows, ``n``.
        classes: number of classes, ``K``.
        lost: the number of these classes without positives or without negatives among the rows.
        complexity: ``(1/K) sum_k sqrt(1/tau_k) (rho_k+ + rho_k-)`` with the paper's ``rho = 1/D_k``.
        complexity_equal: the same if all classes had one margin, with the same sum of margins.
        complexity_best: the smallest value that margins of the same sum can give.
        complexity_lipschitz: the same with ``rho = 1``, which holds for ``l(z - D)`` whatever ``D`` is.
        deviation: ``sqrt((1/K) sum_k 1/tau_k)``.
    """

    rows: int
    classes: int
    lost: int
    complexity: float
    complexity_equal: float
    complexity_best: float
    complexity_lipschitz: float
    deviation: float

    def rate(self, name: str = "complexity") -> float:
        """Return a term over ``sqrt(n)``, as in the bound.

        >>> imbalance_terms(LabelCounts([2], [2], 4), [1.0]).rate("deviation")
        0.7071067811865476
        """
        value: float = getattr(self, name)
        return value / math.sqrt(self.rows) if self.rows else math.nan


def imbalance_terms(counts: LabelCounts, margins: ArrayLike) -> ImbalanceTerms:
    """Return the imbalance terms of a set of rows with these label counts.

    Args:
        counts: ``P_k`` and ``N_k`` among the rows; for a memory, those of the stored rows.
        margins: ``D_k``, ``[K]``, of positives and negatives; for a memory, those of its task (`optimal_margins`).

    >>> terms = imbalance_terms(LabelCounts([1, 8], [15, 8], 16), [1.0, 0.5])
    >>> terms.complexity, terms.complexity_lipschitz, terms.deviation
    (6.82842712474619, 5.414213562373095, 3.0)
    >>> imbalance_terms(LabelCounts([0, 8], [16, 8], 16), [1.0, 0.5]).deviation
    inf
    """
    given = np.asarray(margins, dtype=np.float64)
    if given.shape != (len(counts),) or not (np.isfinite(given) & (given > 0)).all():
        raise InputError(
            f"margins is {given.tolist()}; expected a finite number above 0 for each of {len(counts)} classes."
        )
    lost = int((~counts.defined).sum())
    if not counts.total or not len(counts):
        return ImbalanceTerms(counts.total, len(counts), lost, *[math.nan] * 5)
    if lost:
        return ImbalanceTerms(counts.total, len(counts), lost, *[math.inf] * 5)
    root: Floats = np.sqrt(1 / counts.tau)
    total = float(given.sum())
    # rho+ = rho- = 1/D for each choice of D
    choices = (given, total / len(counts), best_margins(root, total), 1.0)
    terms = [float(np.mean(2 * root / margin)) for margin in choices]
    terms.append(float(np.sqrt((1 / counts.tau).mean())))
    return ImbalanceTerms(counts.total, len(counts), 0, *terms)


def _weights(values: ArrayLike, *, name: str = "weights") -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not len(array) or not (np.isfinite(array) & (array > 0)).all():
        raise InputError(f"{name} is {array.tolist()}; expected a vector of finite numbers above 0.")
    return array


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
