"""How far a memory is from its task: risks estimated from it, and what a random choice would give (SPEC 7)."""

from __future__ import annotations

import math
from typing import NamedTuple, get_args

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike, NDArray
from scipy.stats import hypergeom
from torch import Tensor

from mlcl.errors import InputError
from mlcl.labels import LabelCounts, as_labels
from mlcl.losses.bases import BASES, Base
from mlcl.memories.wru import gap_terms
from mlcl.theory.margins import Floats


def class_risks(
    logits: ArrayLike, labels: ArrayLike, counts: LabelCounts, *, margins: ArrayLike, base: Base = "logistic"
) -> Floats:
    """Return each class's risk estimated from some rows of its task, ``[K]``; nan where it is not defined.

    ``R_k = (n/|S|) [ sum_{y=1} l(f - D_k) / P_k + sum_{y=0} l(-f - D_k) / N_k ]`` over the rows S (SPEC 3). With all
    rows of the task this is the full risk (Eq. 4). With a memory's rows and the task's counts it is the estimate
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
    wide = torch.tensor(np.asarray(margins), dtype=torch.float64)
    if scores.shape != known.shape:
        raise InputError(
            f"logits has shape {tuple(scores.shape)}, but {known.shape}, that of labels, was expected"
        )
    if wide.shape != (known.shape[1],) or len(counts) != known.shape[1]:
        raise InputError(
            f"margins has shape {tuple(wide.shape)} and counts has {len(counts)} classes, but {known.shape[1]} "
            f"of each were expected, a value for each column of labels"
        )
    if not len(known):
        return np.full(known.shape[1], np.nan)
    signs = torch.tensor(known, dtype=torch.float64)
    plus = (signs * base_loss(scores - wide, base)).sum(0).numpy()
    minus = ((1 - signs) * base_loss(-scores - wide, base)).sum(0).numpy()
    risks = plus / np.maximum(counts.positive, 1) + minus / np.maximum(counts.negative, 1)
    return np.where(counts.defined, counts.total / len(known) * risks, np.nan)


def base_loss(z: Tensor, base: Base) -> Tensor:
    """Return ``l(z)``.

    >>> base_loss(torch.tensor([0.0, -100.0]), "logistic")
    tensor([  0.6931, 100.0000])
    """
    if base not in get_args(Base):
        raise InputError(f"base is {base!r}, but one of {', '.join(get_args(Base))} was expected")
    return F.softplus(-z) if base == "logistic" else BASES[base](z)


class RandomChoice(NamedTuple):
    """What a uniformly random choice of rows gives in expectation: both WRU gaps, and classes that lose a sign."""

    gap: float
    gap_prevalence: float
    lost: float


def random_choice(counts: LabelCounts, size: int) -> RandomChoice:
    """Return what ``size`` random rows of a task give in expectation: what a memory is to be compared with.

    Exact: the positives of class k among them are hypergeometric, and all three are sums over classes. The gap of the
    ratio ``c / (m - c + 0.01)`` is huge where a class may lose all negatives, however seldom; that of the prevalence
    is bounded. Classes without both signs in the task stay out.

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
    wide = np.broadcast_to(drawn, chance.shape)
    ratio, prevalence = (
        float((chance * gap_terms(held, wide, size, criterion=criterion)).sum())
        for criterion in ("ratio", "prevalence")
    )
    return RandomChoice(ratio, prevalence, float(chance[[0, -1]].sum()))
