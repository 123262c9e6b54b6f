"""The two imbalance terms of Theorem 1 (docs/specification.md#imbalance-terms): how the bound grows with rare labels.

The theorem bounds the risk by ``4 Lambda r / sqrt(n)`` times the first term plus ``6 B sqrt(log(2/delta) / (2 n))``
times the second. Its constants are unknown for a network, so the terms serve to compare data,
memories and margins, and are not a guarantee.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mlcl.errors import InputError
from mlcl.labels import LabelCounts
from mlcl.theory.margins import Floats, best_margins


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
    inverse = 1 / counts.tau
    root: Floats = np.sqrt(inverse)
    total = float(given.sum())

    def complexity(divided_by: Floats | float) -> float:
        return float(np.mean(2 * root / divided_by))  # rho+ = rho- = 1/D

    return ImbalanceTerms(
        rows=counts.total,
        classes=len(counts),
        lost=0,
        complexity=complexity(given),
        complexity_equal=complexity(total / len(counts)),
        complexity_best=complexity(best_margins(root, total)),
        complexity_lipschitz=complexity(1.0),
        deviation=float(np.sqrt(inverse.mean())),
    )
