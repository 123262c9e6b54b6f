"""The theory diagnostics of one task and of the samples that a memory holds of it.

The distance of a memory from its task is defined in specification.md#memory-distance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.stats import hypergeom

from mlcl.config.schema import LossConfig
from mlcl.errors import InputError, check_choice
from mlcl.labels import LabelCounts, as_labels
from mlcl.losses import Base, MarginCount
from mlcl.losses.margin import BASES
from mlcl.memories import TaskSamples, wru_gap
from mlcl.memories.wru import gap_terms
from mlcl.theory.bounds import (
    DirectionCheck,
    Floats,
    ImbalanceTerms,
    Proposition,
    check_proposition,
    imbalance_terms,
    optimal_margins,
)

REMARK = (
    "A diagnostic, not a guarantee: l(z - D) is 1-Lipschitz for every D (hinge, logistic), so the paper's rho = 1/D "
    "holds only for the scaled hinge max(0, 1 - z/D); and nothing here bounds the error of a deep network."
)


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
    known, loss = as_labels(labels), BASES[check_choice("base", base, BASES)]
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
    positive = (targets * loss(scores - shift)).sum(0).numpy()
    negative = ((1 - targets) * loss(-scores - shift)).sum(0).numpy()
    risks = positive / np.maximum(counts.positive, 1) + negative / np.maximum(counts.negative, 1)
    return np.where(counts.defined, counts.total / len(known) * risks, np.nan)


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


class Scored(NamedTuple):
    """Logits of a task's classes: for all its training rows with their labels, and for the stored rows."""

    logits: NDArray[Any]
    labels: NDArray[Any]
    stored: NDArray[Any]


@dataclass(frozen=True)
class RiskSettings:
    """Settings of the risk, which is that of RLDAM: margins ``margin / P_k^power`` and the base loss."""

    margin: float = 1.0
    power: float = 0.25
    margin_count: MarginCount = "positive"
    base: Base = "logistic"

    @classmethod
    def of(cls, loss: LossConfig) -> RiskSettings:
        """Return the settings of a loss; a loss without margins has RLDAM's defaults and its own base loss.

        >>> RiskSettings.of(LossConfig(kind="rldam", margin=3.5)).margin, RiskSettings.of(LossConfig(kind="bce")).margin
        (3.5, 1.0)
        """
        names = ("margin", "power", "margin_count", "base")
        return cls(**{name: value for name, value in loss.options.items() if name in names})


@dataclass(frozen=True, eq=False)
class TaskDiagnosis:
    """The diagnostics of one task and of its stored samples. Values per class are ``[Kt]``, nan if undefined.

    Attributes:
        margins: ``D_k``.
        proposition: Proposition 1 for these classes; None if no class has positives and negatives.
        data: imbalance terms of the task.
        memory: those of the stored samples, over the same classes; infinite if a class has lost all positives or
            all negatives.
        kept: those of the stored samples, over the classes that still have positives and negatives.
        gap: the WRU gap, ``sum_k |P_k/N_k - ratio in memory|``; nan if nothing is stored.
        gap_prevalence: ``sum_k |P_k/n - share in memory|``.
        random: the expected values for the same number of random rows.
        risk: full risk of each class, for a network; nan without one, as are its estimates.
        risk_memory: its estimate from the memory with the stored constants.
        risk_own: its estimate from the memory with weights counted in the memory.
    """

    task: int
    class_ids: NDArray[np.int64]
    classes: tuple[str, ...]
    counts: LabelCounts
    stored: LabelCounts
    margins: Floats
    proposition: Proposition | None
    data: ImbalanceTerms
    memory: ImbalanceTerms
    kept: ImbalanceTerms
    gap: float
    gap_prevalence: float
    random: RandomChoice
    risk: Floats
    risk_memory: Floats
    risk_own: Floats

    @property
    def lost(self) -> NDArray[np.bool_]:
        """Return which classes are defined in the task but not in the memory; none if nothing is stored."""
        return self.counts.defined & ~self.stored.defined & (self.stored.total > 0)

    @property
    def ratio_counts(self) -> Floats:
        """Return the memory estimate of each class's risk over the full risk, if all samples had the same loss.

        With ``c_k`` positives among ``m`` rows it is ``(c_k/m / (P_k/n) + (m - c_k)/m / (N_k/n)) / 2``: the effect of
        the label counts alone on the estimate. It is the `ratio` of a network whose logits are all 0.
        """
        counts, stored = self.counts, self.stored
        if not stored.total:
            return np.full(len(counts), np.nan)
        positive = stored.positive / np.maximum(counts.positive, 1)
        negative = stored.negative / np.maximum(counts.negative, 1)
        return np.where(counts.defined, (positive + negative) * counts.total / stored.total / 2, np.nan)

    @property
    def ratio(self) -> Floats:
        """Return the memory estimate of each class's risk over the full risk, for a network; 1 is exact."""
        with np.errstate(divide="ignore", invalid="ignore"):  # a hinge loss may be 0
            return self.risk_memory / self.risk

    @property
    def ratio_own(self) -> Floats:
        """Return the same with weights counted in the memory, as in the released code."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.risk_own / self.risk


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """The diagnostics of a memory, per task. `REMARK` states their limits.

    A loss without margins (``loss`` is its kind) has those of RLDAM. There are risks if a network was ``trained``.
    ``directions`` compare the exact learner's closed form with numeric minimisers; where they are None, ``unchecked``
    says why, as part of a sentence.
    """

    benchmark: str
    memory: str
    size: int
    seed: int
    loss: str
    trained: bool
    settings: RiskSettings
    tasks: tuple[TaskDiagnosis, ...]
    directions: DirectionCheck | None = None
    unchecked: str = ""

    @property
    def stored(self) -> int:
        """Return the number of samples in the memory."""
        return sum(task.stored.total for task in self.tasks)


def diagnose_task(
    samples: TaskSamples,
    *,
    classes: Sequence[str] | None = None,
    settings: RiskSettings | None = None,
    scored: Scored | None = None,
) -> TaskDiagnosis:
    """Return the diagnostics of one task and of its stored samples.

    Args:
        samples: the stored rows with the constants of their task; without rows only the task is diagnosed.
        classes: names of its classes; their ids if not given.
        settings: margins and base loss.
        scored: logits of a network, for its risks; without it they are nan.

    >>> task = TaskSamples.of(0, [4, 7], rows=range(4), labels=[[1, 0], [1, 1], [0, 1], [0, 0]])
    >>> found = diagnose_task(task.take([1, 3]))
    >>> found.data.complexity == found.memory.complexity, found.gap_prevalence, found.ratio_counts
    (True, 0.0, array([1., 1.]))
    """
    chosen = settings or RiskSettings()
    counts, stored = samples.counts, LabelCounts.of(samples.labels)
    margins = optimal_margins(
        counts, margin=chosen.margin, power=chosen.power, margin_count=chosen.margin_count
    )
    defined, kept = counts.defined, counts.defined & stored.defined
    risk = risk_memory = risk_own = np.full(len(counts), np.nan)
    if scored is not None:
        options: dict[str, Any] = {"margins": margins, "base": chosen.base}
        risk = class_risks(scored.logits, scored.labels, counts, **options)
        risk_memory = class_risks(scored.stored, samples.labels, counts, **options)
        risk_own = class_risks(scored.stored, samples.labels, stored, **options)

    return TaskDiagnosis(
        task=samples.task,
        class_ids=samples.classes,
        classes=tuple(classes) if classes is not None else tuple(map(str, samples.classes.tolist())),
        counts=counts,
        stored=stored,
        margins=margins,
        proposition=check_proposition(counts.positive[defined]) if defined.any() else None,
        data=imbalance_terms(counts.select(defined), margins[defined]),
        memory=imbalance_terms(stored.select(defined), margins[defined]),
        kept=imbalance_terms(stored.select(kept), margins[kept]),
        gap=wru_gap(counts, samples.labels) if len(samples) else math.nan,
        gap_prevalence=wru_gap(counts, samples.labels, criterion="prevalence") if len(samples) else math.nan,
        random=random_choice(counts, len(samples)),
        risk=risk,
        risk_memory=risk_memory,
        risk_own=risk_own,
    )
