"""OCDM, PRS and reservoir sampling beside transcriptions that look at one sample at a time."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import numpy as np

from benches.problems import is_real, tasks_of
from benches.rivals import ocdm_by_sample, prs_by_sample, reservoir_by_sample
from benches.timing import Row, best, faster, once, told
from mlcl.labels import Labels
from mlcl.memories import Memory, TaskSamples


def held(kind: str, size: int, tasks: list[TaskSamples]) -> Memory:
    """Run a memory over tasks."""
    memory = Memory(kind, size)
    for task in tasks:
        memory.update(task)
    return memory


def spread(labels: Labels) -> float:
    """Return how far the label counts of some rows are from equal ones: what OCDM and PRS want to be small."""
    share = labels.sum(axis=0) / labels.sum()
    return float(np.abs(share - 1 / labels.shape[1]).sum())


def over_all_classes(tasks: list[TaskSamples]) -> Labels:
    """Return the labels of tasks, one after the other, over the classes of all."""
    classes = np.unique(np.concatenate([task.classes for task in tasks]))
    parts = []
    for task in tasks:
        wide = np.zeros((len(task), len(classes)), dtype=np.uint8)
        wide[:, np.searchsorted(classes, task.classes)] = task.labels
        parts.append(wide)
    return np.concatenate(parts)


def part_of(task: TaskSamples, rows: slice) -> TaskSamples:
    """Return some rows of a task as a task."""
    return TaskSamples.of(task.task, task.classes, task.rows[rows], task.labels[rows])


def measure(*, quick: bool) -> list[Row]:
    """Time all three on the stream of COCO; where a transcription is too slow for it, both on a part."""
    size = 200 if quick else 2000
    tasks = tasks_of("coco2017")
    where = "COCO" if is_real("coco2017") else "COCO's shape"
    rows = []
    thin = [part_of(task, slice(None, None, 240 if quick else 24)) for task in tasks]
    jobs: list[tuple[str, list[TaskSamples], str, int, Callable[[Labels], list[int]]]] = [
        (
            "ocdm", [part_of(tasks[0], slice(size + 256))], f"first {size + 256:,} rows", 100,
            lambda labels: ocdm_by_sample(labels, size),
        ),
        ("prs", thin, "every 24th row of 8 tasks", 20, lambda labels: prs_by_sample(labels, size, 0)),
    ]  # fmt: skip
    for kind, stream, words, goal, rival in jobs:
        ours = best({kind: partial(held, kind, size, stream)}, repeats=5)[kind]
        labels = over_all_classes(stream)
        seconds, chosen = once(partial(rival, labels))
        mine = spread(over_all_classes(list(held(kind, size, stream).tasks)))
        theirs = spread(labels[chosen])
        assert mine <= theirs + 0.02
        note = f"distance from equal shares: ours {mine:.3f}, theirs {theirs:.3f}"
        shape = f"{where}, {words}, M {size:,}"
        rows.append(faster(kind.upper(), shape, ours, "one sample at a time", seconds, goal, note))
    offered = sum(map(len, tasks))
    ours = best({"ours": partial(held, "reservoir", size, tasks)}, repeats=7)["ours"]
    draws = np.random.default_rng(0).integers, random.Random(0).random
    others = best(
        {
            "numpy": partial(reservoir_by_sample, tasks, size, lambda n: int(draws[0](n))),
            "python": partial(reservoir_by_sample, tasks, size, lambda n: int(draws[1]() * n)),
        },
        repeats=1,
    )
    shape = f"{where}, all {len(tasks)} tasks, {offered:,} rows, M {size:,}"
    note = f"with draws of Python's own `random` instead: {others['python'] / ours:.0f} x"
    rows.append(
        faster("reservoir", shape, ours, "one sample, one draw at a time", others["numpy"], 100, note)
    )
    for name, title in (("coco2017", "COCO"), ("nuswide", "NUS-WIDE")):
        stream = tasks_of(name)
        made = "" if is_real(name) else "'s shape"
        for kind in ("random", "reservoir", "wru", "prs", "ocdm"):
            times = _updates(kind, size, stream)
            note = f"the slowest of {len(stream)}; together {sum(times):.2f} s"
            rows.append(told(f"update of {kind}", f"{title}{made}, M {size:,}", max(times), note))
    return rows


def _updates(kind: str, size: int, tasks: list[TaskSamples]) -> list[float]:
    memory = Memory(kind, size)
    return [once(partial(memory.update, task))[0] for task in tasks]
