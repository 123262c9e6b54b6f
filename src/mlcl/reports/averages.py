"""Means over the seeds of a row, for figures."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mlcl.memories.wru import wru_gap
from mlcl.reports.gather import Group
from mlcl.reports.records import Run

Floats = NDArray[np.float64]


def mean_and_spread(rows: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Return mean and sample standard deviation over seeds; rows of another length than the first are left out."""
    stack = np.array([row for row in rows if len(row) == len(rows[0])])
    none = np.full(stack.shape[1:], np.nan)
    return stack.mean(axis=0), stack.std(axis=0, ddof=1) if len(stack) > 1 else none


def mean_of_known(rows: Sequence[Floats]) -> Floats:
    """Return the mean over seeds of the finite values, nan where there is none."""
    stack = np.array([row for row in rows if row.shape == rows[0].shape])
    known = np.isfinite(stack)
    sums = np.where(known, stack, 0.0).sum(axis=0)
    counts = known.sum(axis=0)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def class_means(runs: Sequence[Run]) -> tuple[Floats, Floats]:
    """Return P_k and the final AUC of each class, means over the seeds."""
    same = [run for run in runs if run.classes == runs[0].classes]
    positive = np.mean([run.positive for run in same], axis=0)
    return positive, mean_of_known([run.per_class[-1] for run in same])


def memory_shares(run: Run) -> tuple[Floats, Floats]:
    """Return the share of positives of each class in its task, and in the stored samples of that task."""
    assert run.memory is not None  # noqa: S101
    stored = [samples for samples in run.memory.tasks if len(samples)]
    data = np.concatenate([samples.counts.positive / max(1, samples.counts.total) for samples in stored])
    return data, np.concatenate([samples.labels.mean(axis=0) for samples in stored])


def memory_gap(group: Group) -> tuple[float, float]:
    """Return mean and sample standard deviation over seeds of the WRU gap, ``sum_k |P_k/N_k - ratio in memory|``.

    The gap of a run is the mean over its tasks; nan if no run has a memory.
    """
    gaps = []
    for run in group.runs:
        if run.memory is not None:
            stored = [samples for samples in run.memory.tasks if len(samples)]
            gaps.append(np.mean([wru_gap(samples.counts, samples.labels) for samples in stored]))
    if not gaps:
        return math.nan, math.nan
    return float(np.mean(gaps)), float(np.std(gaps, ddof=1)) if len(gaps) > 1 else math.nan
