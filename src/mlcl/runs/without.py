"""A run, and its benchmark, without one label: the numbers of later labels, and of later tasks, decrease."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from mlcl.datasets import Split
from mlcl.errors import InputError
from mlcl.exact import Learner as ExactLearner
from mlcl.labels import LabelCounts
from mlcl.memories import Memory, TaskSamples
from mlcl.metrics import LogOddsLines, ResultMatrix
from mlcl.runs.base import Base
from mlcl.streams import Benchmark, Task


def without_label(base: Base, label: str) -> Base:
    """Return an exact run as if it had never known a label; a task that had no other is gone."""
    trained = base.trained
    k = trained.classes.index(label)
    kept = np.delete(np.arange(len(trained.classes)), k)
    tasks = np.array([t for t, ids in enumerate(trained.tasks) if set(ids.tolist()) != {k}], np.int64)
    if not len(tasks):
        raise InputError(f"{label!r} is the only label of {base.folder}; without it nothing is left.")
    result = trained.result
    linear = nn.Linear(trained.network.backbone.width, len(kept))
    trained.network.head.linear = linear  # its weights are solved from the sums
    memory = Memory.from_state(base.memory.state())
    memory.tasks = tuple(_samples(memory.tasks[t], number, k) for number, t in enumerate(tasks))
    learner = ExactLearner.from_arrays(
        {name: value.numpy() for name, value in base.kept.exact.items()}
    ).remove(k)
    exact = {name: torch.from_numpy(value) for name, value in learner.arrays().items()}
    lines, calibration, thresholds = trained.calibration.lines, trained.calibration, trained.thresholds
    return replace(
        base,
        trained=replace(
            trained,
            classes=tuple(trained.classes[i] for i in kept),
            tasks=tuple(samples.classes for samples in memory.tasks),
            result=replace(
                result,
                matrix=ResultMatrix(result.matrix.values[np.ix_(tasks, tasks)]),
                per_class=result.per_class[np.ix_(tasks, kept)],
                task_seconds=result.task_seconds[tasks],
            ),
            calibration=replace(
                calibration,
                lines=LogOddsLines(lines.slope[kept], lines.offset[kept]),
                prior=calibration.prior[kept],
                own=calibration.own[kept],
            ),
            thresholds=replace(
                thresholds,
                values=thresholds.values[kept],
                own=thresholds.own[kept],
                reached=thresholds.reached[kept],
            ),
        ),
        kept=replace(base.kept, memory=memory, exact=exact),
    )


def benchmark_without(benchmark: Benchmark, label: str) -> Benchmark:
    """Return a benchmark without one label."""
    data = benchmark.dataset
    k = data.classes.index(label)
    tasks = [task for task in benchmark.tasks if set(task.classes.tolist()) != {k}]
    print_of = hashlib.sha256(f"{data.fingerprint} without {label}".encode()).hexdigest()[:16]
    dataset = replace(
        data,
        classes=tuple(name for name in data.classes if name != label),
        train=Split(data.train.inputs, np.delete(data.train.labels, k, axis=1)),
        test=Split(data.test.inputs, np.delete(data.test.labels, k, axis=1)),
        fingerprint=print_of if data.fingerprint else "",
    )
    return replace(benchmark, dataset=dataset, tasks=tuple(_task(task, t, k) for t, task in enumerate(tasks)))


def _task(task: Task, index: int, k: int) -> Task:
    keep = task.classes != k
    return replace(
        task, index=index, classes=_renumbered(task.classes[keep], k), counts=_counts(task.counts, keep)
    )


def _samples(samples: TaskSamples, index: int, k: int) -> TaskSamples:
    keep = samples.classes != k
    return replace(
        samples,
        task=index,
        classes=_renumbered(samples.classes[keep], k),
        counts=_counts(samples.counts, keep),
        labels=samples.labels[:, keep],
    )


def _counts(counts: LabelCounts, keep: NDArray[np.bool_]) -> LabelCounts:
    return LabelCounts(counts.positive[keep], counts.negative[keep], counts.total)


def _renumbered(ids: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """Return class ids after class k is gone.

    >>> _renumbered(np.array([4, 0, 2]), 1)
    array([3, 0, 1])
    """
    return ids - (ids > k)
