"""What is measured after each task: every measure is read off one matrix of scores (SPEC 6)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.metrics import average_precision, macro_auc
from mlcl.streams import Benchmark


@dataclass
class Measured:
    """What a run has measured so far. AUC values lie between 0 and 1.

    Attributes:
        matrix: a row a learnt task, a column a test task: Macro-AUC (SPEC 6).
        per_class: a row a learnt task, a column a class: AUC of the class on its own task's test images.
        pooled: after each task, Macro-AUC and mAP over all seen classes on all test images of seen tasks.
        task_seconds: seconds of each task, evaluation included.
    """

    matrix: list[list[float]] = field(default_factory=list)
    per_class: list[list[float]] = field(default_factory=list)
    pooled: list[dict[str, float]] = field(default_factory=list)
    task_seconds: list[float] = field(default_factory=list)

    def add(self, scores: NDArray[Any], benchmark: Benchmark, *, learnt: int) -> None:
        """Read all measures off the scores [n, K] of the test split. The first ``learnt`` tasks are seen."""
        labels, classes = benchmark.dataset.test.labels, len(benchmark.dataset.classes)
        row, per_class = [], np.full(classes, np.nan)
        for task in benchmark.tasks:
            mine = np.ix_(task.test, task.classes)
            if not len(task.test):  # an old task of an extended run, whose data are gone
                row.append(float("nan"))
                continue
            values = macro_auc(scores[mine], labels[mine], average=None)
            per_class[task.classes] = values
            row.append(float(np.nanmean(values)) if np.isfinite(values).any() else float("nan"))
        seen = benchmark.tasks[:learnt]
        rows = np.unique(np.concatenate([task.test for task in seen]))
        pool = np.ix_(rows, np.concatenate([task.classes for task in seen]))
        self.matrix.append(row)
        self.per_class.append(per_class.tolist())
        # Where no image has the labels of all tasks (an extended run), nothing can be pooled.
        whole = getattr(benchmark, "complete", True)
        self.pooled.append(
            {
                "macro_auc": macro_auc(scores[pool], labels[pool]) if whole else float("nan"),
                "map": average_precision(scores[pool], labels[pool]) if whole else float("nan"),
            }
        )
