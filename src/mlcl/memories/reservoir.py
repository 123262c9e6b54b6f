"""Reservoir sampling over the whole stream: every sample ever offered is held with the same probability.

See specification.md#reservoir.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mlcl.memories.base import MEMORIES, TaskSamples


@MEMORIES.register(
    "reservoir",
    summary="A uniform sample of the whole stream, whatever the sizes of its tasks (ER-RS).",
    reference="Vitter, Random Sampling with a Reservoir, ACM TOMS 1985",
)
def update_reservoir(
    stored: tuple[TaskSamples, ...], new: TaskSamples, size: int, rng: np.random.Generator
) -> tuple[TaskSamples, ...]:
    """Give every row of the task one uniform key and hold the ``M`` rows with the largest keys.

    The same distribution as Vitter's algorithm R (accept sample ``n + 1`` with probability ``M/(n+1)``
    into a random slot), without its loop: the keys are exchangeable, so each ``M``-subset of the stream
    is equally likely. The key of a held row stays with it, in the extra column ``key``. Once the memory is
    full, only keys above the least of those held matter: the number of rows that have one is drawn, and then which
    rows, so that the cost of a task depends on the number of such rows.

    >>> rng = np.random.default_rng(0)
    >>> first = TaskSamples.of(0, [0], rows=np.arange(5), labels=[[1], [0], [0], [1], [0]])
    >>> second = TaskSamples.of(1, [1], rows=np.arange(3), labels=[[1], [0], [0]])
    >>> tasks = update_reservoir(update_reservoir((), first, 3, rng), second, 3, rng)
    >>> sum(len(samples) for samples in tasks)
    3
    """
    held = np.concatenate([np.zeros(0), *(samples.extra["key"] for samples in stored)])
    least = float(held.min()) if size and len(held) >= size else 0.0
    if least > 0:
        some = rng.binomial(len(new), 1 - least)
        new = new.take(np.sort(rng.choice(len(new), some, replace=False, shuffle=False)))
    key = least + (1 - least) * rng.random(len(new))
    tasks = (*stored, replace(new, extra={**new.extra, "key": key}))
    chosen = np.zeros(len(held) + len(key), np.bool_)
    chosen[np.argsort(-np.concatenate([held, key]), kind="stable")[:size]] = True
    parts = np.split(chosen, np.cumsum([len(samples) for samples in tasks])[:-1])
    return tuple(samples.take(np.flatnonzero(part)) for samples, part in zip(tasks, parts, strict=True))
