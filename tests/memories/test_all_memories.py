"""What every registered strategy keeps to, over random sequences of tasks."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcl.memories import MEMORIES, Memory, TaskSamples

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((kind, {}) for kind in MEMORIES.names()),
    ("wru", {"shrink": "greedy_removal", "criterion": "prevalence"}),
    ("wru", {"shrink": "random", "candidates": 3}),
    ("prs", {"rho": -0.5}),
    ("ocdm", {"distance": "l1", "rho": 0.7, "batch_size": 3}),
]


@st.composite
def streams(draw: st.DrawFn) -> list[TaskSamples]:
    """Up to four tasks of 1 to 30 rows and 1 to 4 classes, labels from sparse to dense, an extra column."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    tasks, first = [], 0
    for number in range(draw(st.integers(1, 4))):
        n, k = draw(st.integers(1, 30)), draw(st.integers(1, 4))
        labels = (rng.random((n, k)) < draw(st.sampled_from([0.1, 0.4, 0.8]))).astype(np.uint8)
        rows = rng.permutation(n)
        whole = TaskSamples.of(number, np.arange(first, first + k), rows, labels)
        tasks.append(replace(whole, extra={"tag": rows * 1000 + number}))
        first += k
    return tasks


def update(memory: Memory, task: TaskSamples) -> None:
    features = np.random.default_rng(task.task).normal(size=(len(task), 3)) if memory.needs_features else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        memory.update(task, features)


@pytest.mark.parametrize(("kind", "options"), VARIANTS, ids=lambda v: str(v))
@settings(deadline=None, max_examples=30)
@given(tasks=streams(), size=st.integers(0, 25), seed=st.integers(0, 5), stop=st.integers(0, 3))
def test_invariants(
    kind: str, options: dict[str, Any], tasks: list[TaskSamples], size: int, seed: int, stop: int
) -> None:
    memory, twin = (Memory(kind, size, seed=seed, **options) for _ in range(2))
    for number, whole in enumerate(tasks):
        before = memory.tasks
        room = min(size, len(memory) + len(whole)) if kind != "none" else 0
        update(memory, whole)
        # Full, as far as there are rows, and never over M.
        assert len(memory) == room <= size
        # One entry a task for ever, with the constants of the whole task.
        assert [samples.task for samples in memory.tasks] == list(range(number + 1))
        for samples, source in zip(memory.tasks, tasks, strict=False):
            assert samples.counts == source.counts
            assert np.array_equal(samples.classes, source.classes)
            # Rows are rows of the task, each once, with their own labels and columns.
            where = {row: i for i, row in enumerate(source.rows.tolist())}
            assert len(set(samples.rows.tolist())) == len(samples)
            assert np.array_equal(samples.labels, source.labels[[where[r] for r in samples.rows.tolist()]])
            assert np.array_equal(samples.extra["tag"], samples.rows * 1000 + samples.task)
        # Old tasks only lose rows, and keep the order of the rest.
        for old, now in zip(before, memory.tasks, strict=False):
            assert [row for row in old.rows.tolist() if row in set(now.rows.tolist())] == now.rows.tolist()
        # The same seed gives the same memory, also for one that was saved and restored on the way.
        if number == stop:
            twin = Memory.from_state(twin.state())
        update(twin, whole)
        assert all(np.array_equal(a.rows, b.rows) for a, b in zip(memory.tasks, twin.tasks, strict=True))


@pytest.mark.parametrize("kind", [kind for kind in MEMORIES.names() if kind not in ("none", "herding")])
def test_the_seed_matters(kind: str) -> None:
    labels = np.random.default_rng(0).integers(0, 2, size=(60, 3))
    found = set()
    for seed in range(5):
        memory = Memory(kind, 10, seed=seed)
        memory.update(TaskSamples.of(0, np.arange(3), np.arange(60), labels))
        found.add(tuple(sorted(memory.rows.tolist())))
    assert len(found) > 1


@pytest.mark.parametrize("kind", ["prs", "ocdm"])
def test_tasks_that_share_classes(kind: str) -> None:
    """Classes are told apart by their ids, not by their place in a task."""
    memory = Memory(kind, 30)
    memory.update(TaskSamples.of(0, [5, 2], np.arange(100), np.eye(2)[[0] * 90 + [1] * 10]))
    memory.update(TaskSamples.of(1, [2], np.arange(100), np.ones((100, 1))))
    counts = {2: 0, 5: 0}
    for samples in memory.tasks:
        for class_id, number in zip(
            samples.classes.tolist(), samples.labels.sum(axis=0, dtype=int), strict=True
        ):
            counts[class_id] += int(number)
    assert counts[5] == pytest.approx(15, abs=3)
    assert counts[2] == 30 - counts[5]
