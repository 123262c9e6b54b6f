"""Every shipped memory keeps the rules of memories (`mlcl.testing`), and is full and seeded beyond them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcl.memories import MEMORIES, Memory, TaskSamples
from mlcl.testing import check_memory
from mlcl.testing.memories import random_memory_cases, update_memory

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((kind, {}) for kind in MEMORIES.names()),
    ("wru", {"shrink": "greedy_removal", "criterion": "prevalence"}),
    ("wru", {"shrink": "random", "candidates": 3}),
    ("prs", {"rho": -0.5}),
    ("ocdm", {"distance": "l1", "rho": 0.7, "batch_size": 3}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "options"), VARIANTS, ids=lambda v: str(v))
def test_the_rules_of_memories(kind: str, options: dict[str, Any]) -> None:
    check_memory(kind, **options)


@pytest.mark.parametrize(
    ("kind", "options"), [variant for variant in VARIANTS if variant[0] != "none"], ids=lambda v: str(v)
)
@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_shipped_memory_is_full(kind: str, options: dict[str, Any], seed: int) -> None:
    """As far as there are rows; a memory of a user's own may keep fewer."""
    (case,) = random_memory_cases(1, seed)
    memory = Memory(kind, case.size, seed=case.seed, **options)
    for whole in case.tasks:
        room = min(case.size, len(memory) + len(whole))
        update_memory(memory, whole)
        assert len(memory) == room


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
    """Classes are identified by their ids, not by their position in a task."""
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
