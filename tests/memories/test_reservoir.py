"""Reservoir by keys against Vitter's algorithm R."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2, chisquare, hypergeom

from mlcl.memories import Memory, TaskSamples

SIZES = (4, 9, 7)  # the first task does not fill the memory
M, N, RUNS = 5, sum(SIZES), 2500


def vitter(n: int, size: int, rng: np.random.Generator) -> list[int]:
    """Algorithm R: sample i (from 0) is accepted with probability M/(i+1) into a uniformly chosen slot."""
    slots: list[int] = []
    for i in range(n):
        if len(slots) < size:
            slots.append(i)
        elif rng.random() < size / (i + 1):
            slots[int(rng.integers(size))] = i
    return slots


def by_keys(seed: int) -> list[int]:
    memory = Memory("reservoir", M, seed=seed)
    start = 0
    for number, n in enumerate(SIZES):
        memory.update(TaskSamples.of(number, [number], np.arange(start, start + n), np.ones((n, 1))))
        start += n
    return memory.rows.tolist()


@pytest.fixture(scope="module")
def draws() -> dict[str, list[list[int]]]:
    rng = np.random.default_rng(0)
    return {"keys": [by_keys(s) for s in range(RUNS)], "vitter": [vitter(N, M, rng) for _ in range(RUNS)]}


@pytest.mark.parametrize("which", ["keys", "vitter"])
def test_every_position_is_held_with_probability_m_over_n(
    draws: dict[str, list[list[int]]], which: str
) -> None:
    count = np.bincount(np.concatenate(draws[which]), minlength=N)
    p = M / N
    statistic = ((count - RUNS * p) ** 2).sum() / (RUNS * p * (1 - p)) * (N - 1) / N
    assert chi2.sf(statistic, N - 1) > 1e-3


@pytest.mark.parametrize("which", ["keys", "vitter"])
def test_the_number_held_of_the_first_task_is_hypergeometric(
    draws: dict[str, list[list[int]]], which: str
) -> None:
    """Inclusion alone does not say that all subsets are equally likely; a joint count says more."""
    numbers = np.bincount([sum(row < SIZES[0] for row in rows) for rows in draws[which]], minlength=5)
    expected = hypergeom(N, SIZES[0], M).pmf(np.arange(5)) * RUNS
    merged = np.array([*numbers[:3], numbers[3:].sum()]), np.array([*expected[:3], expected[3:].sum()])
    assert chisquare(*merged).pvalue > 1e-3


def test_the_largest_keys_are_held() -> None:
    memory = Memory("reservoir", 8, seed=2)
    memory.update(TaskSamples.of(0, [0], np.arange(30), np.ones((30, 1))))
    first = memory.tasks[0].extra["key"]
    memory.update(TaskSamples.of(1, [1], np.arange(30), np.ones((30, 1))))
    old, new = (samples.extra["key"] for samples in memory.tasks)
    assert len(old) + len(new) == 8
    dropped = np.setdiff1d(first, old)
    assert len(dropped) == 8 - len(old)
    assert dropped.size == 0 or dropped.max() < min(old.min(initial=1), new.min())
