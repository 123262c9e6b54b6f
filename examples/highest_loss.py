"""A memory of the rows that the network has learnt worst.

    mlcl run --plugin examples/highest_loss.py --memory highest-loss

A strategy asks for what the network makes of a task's rows by the name of a parameter: ``losses``, ``logits`` or
``features``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.errors import check_number
from mlcl.memories import MEMORIES, TaskSamples, quotas


@MEMORIES.register("highest-loss", summary="Equal quotas; of each task the rows with the highest loss.")
def update_highest_loss(
    stored: tuple[TaskSamples, ...],
    new: TaskSamples,
    size: int,
    rng: np.random.Generator,
    losses: NDArray[Any],
    *,
    skip: float = 0.0,
) -> tuple[TaskSamples, ...]:
    """Cut the old tasks to the first rows of their order, and take the rows of the new one by their mean loss.

    Args:
        stored: What is kept of the past tasks.
        new: All rows of the task.
        size: The largest number of samples kept.
        rng: Random numbers, for equal losses.
        losses: Of the task's rows and classes, as the network is now.
        skip: Share of the rows, those with the highest loss of all, that is left out: wrong labels are among them.
    """
    check_number("skip", skip, high=1)
    *old, fresh = quotas(size, [len(task) for task in (*stored, new)])
    kept = [task.take(np.arange(places)) for task, places in zip(stored, old, strict=True)]
    order = np.lexsort((rng.random(len(new)), -losses.sum(1)))
    first = min(int(skip * len(new)), len(new) - fresh)
    return (*kept, new.take(order[first : first + fresh]))
