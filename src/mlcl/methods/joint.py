"""Joint training: all classes and all images at once, an upper bound for continual methods."""

from __future__ import annotations

import numpy as np

from mlcl.labels import LabelCounts
from mlcl.streams import Benchmark, Task


def joint_task(benchmark: Benchmark) -> Task:
    """Return one task with all classes and every image of the benchmark's tasks, each once, with all its labels.

    Tests stay those of the benchmark's tasks, so that the number compares with the others.
    """
    train = np.unique(np.concatenate([task.train for task in benchmark.tasks]))
    test = np.unique(np.concatenate([task.test for task in benchmark.tasks]))
    classes = np.arange(len(benchmark.dataset.classes), dtype=np.int64)
    counts = LabelCounts.of(benchmark.dataset.train.labels[train])
    return Task(index=0, classes=classes, train=train, test=test, counts=counts)
