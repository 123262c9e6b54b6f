"""What is measured after each task: every measure is computed from one matrix of scores."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.errors import InputError
from mlcl.metrics import average_precision, macro_auc, session_measures
from mlcl.streams import Benchmark


@dataclass
class Evaluations:
    """What a run has measured so far. AUC values lie between 0 and 1. See specification.md#metrics.

    Attributes:
        matrix: one row per learnt task, one column per test task: Macro-AUC.
        per_class: one row per learnt task, one column per class: AUC of the class on the test images of its own task;
            of all its tasks, where an update made it part of several.
        pooled: after each task, over all seen classes on all test images of seen tasks: Macro-AUC, mAP, and precision,
            recall, F1 and false-positive rate of decisions.
        precision: one row per learnt task, one column per class: AP of each seen class on the test images of all tasks.
    """

    matrix: list[list[float]] = field(default_factory=list)
    per_class: list[list[float]] = field(default_factory=list)
    pooled: list[dict[str, float]] = field(default_factory=list)
    precision: list[list[float]] = field(default_factory=list)
    task_seconds: list[float] = field(default_factory=list)

    def add(self, scores: NDArray[Any], benchmark: Benchmark, *, learnt: int, threshold: float = 0.5) -> None:
        """Compute all measures from the scores [n, K] of the test split.

        Args:
            learnt: the first so many tasks are seen.
            threshold: a class is predicted where its probability, the sigmoid of its logit, is above this.
        """
        test, classes = benchmark.dataset.test, len(benchmark.classes)
        row, per_class = [], np.full(classes, np.nan)
        for task in benchmark.tasks:
            if not len(task.test):  # an old task of an extended run, whose data are gone
                row.append(float("nan"))
                continue
            own = test.cells(task.test, task.classes)
            values = macro_auc(scores[np.ix_(task.test, task.classes)], **own, average=None)
            per_class[task.classes] = values
            row.append(float(np.nanmean(values)) if np.isfinite(values).any() else float("nan"))
        for shared, rows in _in_several(benchmark):
            per_class[shared] = macro_auc(
                scores[np.ix_(rows, shared)], **test.cells(rows, shared), average=None
            )
        seen = benchmark.tasks[:learnt]
        rows = np.unique(np.concatenate([task.test for task in seen]))
        learnt_classes = np.unique(np.concatenate([task.classes for task in seen]))
        self.matrix.append(row)
        self.per_class.append(per_class.tolist())
        # Where no image has the labels of all tasks (an extended run), nothing can be pooled.
        precision = np.full(classes, np.nan)
        if not benchmark.complete:
            self.pooled.append({"macro_auc": float("nan"), "map": float("nan")})
        else:
            cut = math.log(threshold / (1 - threshold))
            pool, pooled = test.cells(rows, learnt_classes), scores[np.ix_(rows, learnt_classes)]
            found = session_measures(pooled, **pool, threshold=cut)
            self.pooled.append({"macro_auc": macro_auc(pooled, **pool), **found})
            every = np.unique(np.concatenate([task.test for task in benchmark.tasks]))
            precision[learnt_classes] = average_precision(
                scores[np.ix_(every, learnt_classes)], **test.cells(every, learnt_classes), average=None
            )
        self.precision.append(precision.tolist())

    def measure_again(self, scores: NDArray[Any], benchmark: Benchmark, *, threshold: float) -> None:
        """Replace what was measured last, where the model changed after it."""
        for table in (self.matrix, self.per_class, self.pooled, self.precision):
            table.pop()
        self.add(scores, benchmark, learnt=len(benchmark.tasks), threshold=threshold)

    def tables(self) -> dict[str, NDArray[np.float64]]:
        """Return the tables of tasks and classes as arrays: as text in a checkpoint they would outgrow all the rest."""
        names = ("matrix", "per_class", "precision")
        return {name: np.array(getattr(self, name), np.float64) for name in names}

    @classmethod
    def restore(
        cls,
        tables: dict[str, NDArray[np.float64]],
        values: dict[str, Any],
        *,
        tasks: int,
        shape: tuple[int, int],
    ) -> Evaluations:
        """Return the evaluations of the first ``tasks`` tasks from a state; what does not fit is an `InputError`.

        Args:
            tables: what `tables` returned.
            values: plain values with ``pooled`` and ``task_seconds``; undefined measures may be None, JSON's null.
            tasks: how many tasks were learnt.
            shape: number of tasks and number of classes of the benchmark.
        """
        precision = tables.get("precision", np.full_like(tables["per_class"], np.nan))  # not in older states
        widths = (*shape, shape[1])
        for table, width in zip((tables["matrix"], tables["per_class"], precision), widths, strict=True):
            if [len(row) for row in table.tolist()] != [width] * tasks:
                raise InputError(f"the state has no measures of {tasks} tasks.")
        return cls(
            matrix=tables["matrix"].tolist(),
            per_class=tables["per_class"].tolist(),
            precision=precision.tolist(),
            pooled=[
                {name: math.nan if value is None else value for name, value in found.items()}
                for found in values["pooled"]
            ],
            task_seconds=list(values["task_seconds"]),
        )


def _in_several(benchmark: Benchmark) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Iterate over the classes that several tasks have: those of the same tasks, and the test rows of these tasks."""
    member = np.zeros((len(benchmark.dataset.classes), len(benchmark.tasks)), np.bool_)
    for task in benchmark.tasks:
        member[task.classes, task.index] = True
    for pattern in np.unique(member[member.sum(1) > 1], axis=0):
        rows = [task.test for task in benchmark.tasks if pattern[task.index]]
        found = np.unique(np.concatenate(rows))
        if len(found):
            yield np.flatnonzero((member == pattern).all(1)), found
