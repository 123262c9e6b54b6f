"""Experience replay (specification.md#random): equal quotas, uniform choice, uniform removal."""

from __future__ import annotations

import numpy as np

from mlcl.memories.base import MEMORIES, TaskSamples, quotas


@MEMORIES.register(
    "random",
    summary="Equal room for every task, rows chosen and dropped uniformly (ER).",
    reference="Chaudhry et al., On Tiny Episodic Memories in Continual Learning, 2019",
)
def update_random(
    stored: tuple[TaskSamples, ...], new: TaskSamples, size: int, rng: np.random.Generator
) -> tuple[TaskSamples, ...]:
    """Cut old tasks to their quota by dropping rows uniformly; draw the quota of the new one uniformly.

    >>> rng = np.random.default_rng(0)
    >>> task = TaskSamples.of(0, [0], rows=np.arange(5), labels=[[1], [0], [0], [1], [0]])
    >>> [len(samples) for samples in update_random((), task, 3, rng)]
    [3]
    """
    tasks = (*stored, new)
    room = quotas(size, [len(samples) for samples in tasks])
    return tuple(
        s.take(np.sort(rng.permutation(len(s))[:quota])) for s, quota in zip(tasks, room, strict=True)
    )
