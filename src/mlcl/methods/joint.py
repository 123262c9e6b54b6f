"""Joint training: all tasks at once, an upper bound for continual methods. Two kinds, because there are two measures.

``joint`` trains every image for every class: the upper bound of the pooled measure. ``joint-masked`` trains every image
for the classes of the tasks that it belongs to: the upper bound of the in-task measure (the paper's Eq. 6) for networks
trained from scratch; on feature vectors ``exact`` and ``lwf`` can be above it. In both an epoch shows every image once.
See specification.md#joint.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mlcl.labels import LabelCounts
from mlcl.streams import Benchmark, Task


def joint_task(benchmark: Benchmark, *, masked: bool = False) -> Task:
    """Return one task with all classes and every image of the benchmark's tasks, each once, with all its labels.

    Tests stay those of the benchmark's tasks, so that the number compares with the others.

    Args:
        masked: positives and negatives of a class are counted inside its own task, as `joint_mask` trains them.
    """
    train = np.unique(np.concatenate([task.train for task in benchmark.tasks]))
    test = np.unique(np.concatenate([task.test for task in benchmark.tasks]))
    classes = np.arange(len(benchmark.dataset.classes), dtype=np.int64)
    if not masked:
        counts = benchmark.dataset.train.counts(train, classes)
        return Task(index=0, classes=classes, train=train, test=test, counts=counts)
    positive, negative = np.zeros((2, len(classes)), np.int64)
    for task in benchmark.tasks:
        positive[task.classes], negative[task.classes] = task.counts.positive, task.counts.negative
    counts = LabelCounts(positive, negative, len(train))
    return Task(index=0, classes=classes, train=train, test=test, counts=counts)


def joint_mask(benchmark: Benchmark) -> NDArray[np.bool_]:
    """Return for which classes each training row contributes in masked joint training, bool ``[N, K]``.

    >>> y = [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]]
    >>> import numpy as np
    >>> stream = Benchmark.from_arrays(np.eye(3), y, np.eye(3), y, tasks=2, order="sorted")
    >>> joint_mask(stream).astype(int)
    array([[1, 1, 0, 0],
           [1, 1, 1, 1],
           [0, 0, 1, 1]])
    """
    mask = np.zeros((len(benchmark.dataset.train), len(benchmark.dataset.classes)), np.bool_)
    for task in benchmark.tasks:
        mask[np.ix_(task.train, task.classes)] = True
    return mask if benchmark.dataset.train.known is None else mask & benchmark.dataset.train.known
