"""The distance of a memory from its task: risks estimated from it, and the expectation of a random choice.

Defined in specification.md#memory-distance.
"""

from __future__ import annotations

import math
from typing import NamedTuple, get_args

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike, NDArray
from scipy.stats import hypergeom
from torch import Tensor

from mlcl.errors import InputError, check_choice
from mlcl.labels import LabelCounts, as_labels
from mlcl.losses.bases import BASES, Base
from mlcl.memories.wru import gap_terms
from mlcl.theory.bounds import Floats


def class_risks(
    logits: ArrayLike, labels: ArrayLike, counts: LabelCounts, *, margins: ArrayLike, base: Base = "logistic"
) -> Floats:
    """Return each class's risk estimated from some rows of its task, ``[K]``; nan where it is not defined.

    ``R_k = (n/|S|) [ sum_{y=1} l(f - D_k) / P_k + sum_{y=0} l(-f - D_k) / N_k ]`` over the rows S. With all rows
    of the task this is the full risk (Eq. 4). With a memory's rows and the task's counts it is the estimate
    from stored constants, unbiased where positives have the share ``P_k/n`` in the memory. With the counts of the
    rows themselves, ``LabelCounts.of(labels)``, it is the estimate of the released code's weights.

    Args:
        logits: ``f``, ``[S, K]``.
        labels: 0 or 1, ``[S, K]``.
        counts: ``P_k``, ``N_k`` and ``n``.
        margins: ``D_k``, ``[K]``.
        base: ``l``.

    >>> labels = [[1], [0], [0], [0]]
    >>> counts = LabelCounts.of(labels)
    >>> full = class_risks([[2.0], [-1.0], [0.5], [-2.0]], labels, counts, margins=[1.0])
    >>> part = class_risks([[2.0], [-1.0]], labels[:2], counts, margins=[1.0])  # too many positives
    >>> (part / full).round(3)
    array([0.895])
    """
    known = as_labels(labels)
    scores = torch.tensor(np.asarray(logits), dtype=torch.float64)
    shift = torch.tensor(np.asarray(margins), dtype=torch.float64)
    if scores.shape != known.shape:
        raise InputError(
            f"logits has shape {tuple(scores.shape)}, but {known.shape}, that of labels, was expected"
        )
    if shift.shape != (known.shape[1],) or len(counts) != known.shape[1]:
        raise InputError(
            f"margins has shape {tuple(shift.shape)} and counts has {len(counts)} classes, but {known.shape[1]} "
            f"of each were expected, one value per column of labels"
        )
    if not len(known):
        return np.full(known.shape[1], np.nan)
    targets = torch.tensor(known, dtype=torch.float64)
    positive = (targets * base_loss(scores - shift, base)).sum(0).numpy()
    negative = ((1 - targets) * base_loss(-scores - shift, base)).sum(0).numpy()
    risks = positive / np.maximum(counts.positive, 1) + negative / np.maximum(counts.negative, 1)
    return np.where(counts.defined, counts.total / len(known) * risks, np.nan)


def base_loss(z: Tensor, base: Base) -> Tensor:
    """Return ``l(z)``.

    >>> base_loss(torch.tensor([0.0, -100.0]), "logistic")
    tensor([  0.6931, 100.0000])
    """
    check_choice("base", base, get_args(Base))
    return F.softplus(-z) if base == "logistic" else BASES[base](z)


class RandomChoice(NamedTuple):
    """Expected values for a uniformly random choice of rows: both WRU gaps, and the number of undefined classes."""

    gap: float
    gap_prevalence: float
    lost: float


def random_choice(counts: LabelCounts, size: int) -> RandomChoice:
    """Return the expected values for ``size`` random rows of a task, as the reference for a memory.

    They are exact: the positives of class k among the rows are hypergeometric, and all three values are sums over
    classes. The gap of the ratio ``c / (m - c + 0.01)`` is huge where a class may lose all negatives, however rarely;
    that of the prevalence is bounded. Classes without positives or negatives in the task are left out.

    >>> random_choice(LabelCounts([2], [6], 8), 4)
    RandomChoice(gap=0.2138..., gap_prevalence=0.1071..., lost=0.2142...)
    """
    if not 0 <= size <= counts.total:
        raise InputError(f"size is {size}; expected a number of rows from 0 to {counts.total}")
    if not size:
        return RandomChoice(math.nan, math.nan, math.nan)
    held = counts.select(counts.defined)
    drawn: NDArray[np.int64] = np.arange(size + 1)[:, None]
    chance = hypergeom.pmf(drawn, counts.total, held.positive, size)  # [size + 1, K]
    counted = np.broadcast_to(drawn, chance.shape)
    ratio, prevalence = (
        float((chance * gap_terms(held, counted, size, criterion=criterion)).sum())
        for criterion in ("ratio", "prevalence")
    )
    return RandomChoice(ratio, prevalence, float(chance[[0, -1]].sum()))
