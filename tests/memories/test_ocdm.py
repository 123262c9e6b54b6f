"""OCDM against a twin that evaluates the distance after every possible removal by its definition."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcl.memories import Memory, TaskSamples
from mlcl.memories.ocdm import ocdm_pass


def distance_to(p: list[float], inside: list[int], kind: str) -> float:
    """KL(p || q + 1e-8) or the l1 distance, q the share of each class among the labels in memory."""
    labels = sum(inside)
    q = [count / labels if labels else 0.0 for count in inside]
    if kind == "l1":
        return sum(abs(a - b) for a, b in zip(p, q, strict=True))
    return sum(a * math.log(a / (b + 1e-8)) for a, b in zip(p, q, strict=True) if a > 0)


def twin(
    rows: np.ndarray, ids: np.ndarray, offered: int, seen: np.ndarray, size: int, rng: np.random.Generator,
    *, batch_size: int, distance: str, rho: float,
) -> list[int]:  # fmt: skip
    """Plain loops over samples and classes; equal samples are pooled in the same way, for equal draws."""
    pools: dict[int, list[int]] = {u: [] for u in range(len(rows))}
    n = seen.tolist()
    start = len(ids) - offered
    for sample in range(start):
        pools[int(ids[sample])].append(sample)
    for first in range(start, len(ids), batch_size):
        for sample in range(first, min(first + batch_size, len(ids))):
            pools[int(ids[sample])].append(sample)
            n = [count + int(y) for count, y in zip(n, rows[ids[sample]], strict=True)]
        powers = [count**rho if count else 0.0 for count in n]
        p = [power / sum(powers) if sum(powers) else 0.0 for power in powers]
        overflow = max(sum(len(pool) for pool in pools.values()) - size, 0)
        for draw in rng.random(overflow) if overflow else ():
            live = [u for u, pool in pools.items() if pool]
            bare = [u for u in live if not rows[u].any()]
            if bare:
                best = bare[0]
            else:
                inside = [sum(len(pools[u]) * int(rows[u, k]) for u in live) for k in range(rows.shape[1])]
                after = {u: [c - int(y) for c, y in zip(inside, rows[u], strict=True)] for u in live}
                scores = {u: distance_to(p, after[u], distance) for u in live}
                best = next(u for u in live if scores[u] <= min(scores.values()) + 1e-12)
            pool = pools[best]
            position = int(draw * len(pool))
            pool[position], pool[-1] = pool[-1], pool[position]
            pool.pop()
    return sorted(sample for pool in pools.values() for sample in pool)


@settings(deadline=None, max_examples=50)
@given(
    seed=st.integers(0, 10**6),
    size=st.integers(0, 12),
    offered=st.integers(0, 30),
    batch_size=st.sampled_from([1, 4, 100]),
    distance=st.sampled_from(["kl", "kl", "l1"]),
    rho=st.sampled_from([0.0, 0.0, 0.5, -1.0, 4.0]),
)
def test_pass_equals_brute_force(
    seed: int, size: int, offered: int, batch_size: int, distance: str, rho: float
) -> None:
    rng = np.random.default_rng(seed)
    rows = np.unique((rng.random((8, 4)) < 0.4).astype(np.uint8), axis=0)
    held_before = int(rng.integers(size + 1))
    ids = rng.integers(len(rows), size=held_before + offered)
    seen = rows[ids[:held_before]].sum(axis=0, dtype=np.int64) * rng.integers(1, 6, size=4)
    options = {"batch_size": batch_size, "distance": distance, "rho": rho}
    held = ocdm_pass(rows, ids, offered, seen, size, np.random.default_rng(1), **options)
    expected = twin(rows, ids, offered, seen, size, np.random.default_rng(1), **options)
    assert np.flatnonzero(held).tolist() == expected


@pytest.mark.parametrize("distance", ["kl", "l1"])
@pytest.mark.parametrize(("classes", "sums"), [(5, (3,)), (7, (1, 2, 3)), (7, (3, 4))])
def test_ties_go_to_the_first_pattern(classes: int, sums: tuple[int, ...], distance: str) -> None:
    """Classes that are alike: many patterns are equally good, and rounding must not choose between them."""
    rows = np.array([y for y in product([0, 1], repeat=classes) if sum(y) in sums], dtype=np.uint8)
    ids, seen = np.arange(len(rows)), np.zeros(classes, np.int64)
    arguments = (rows, ids, len(ids), seen, len(ids) // 3)
    options = {"batch_size": 100, "distance": distance, "rho": 0.0}
    held = ocdm_pass(*arguments, np.random.default_rng(0), **options)
    assert np.flatnonzero(held).tolist() == twin(*arguments, np.random.default_rng(0), **options)


def test_smoothing_says_what_a_vanishing_class_costs() -> None:
    """Class 1 has 0.2% of the target and 1% of memory: q + 1e-8 still keeps its last row, 1e-3 would not."""
    rows = np.array([[1, 0], [0, 1]], dtype=np.uint8)
    ids = np.array([1] + [0] * 100)
    costs = {kept: distance_to([0.998, 0.002], [100 - kept, kept], "kl") for kept in (0, 1)}
    assert costs[1] < costs[0]
    held = ocdm_pass(rows, ids, 0, np.array([998, 2]), 100, np.random.default_rng(0), rho=1.0)
    assert held[0]


def test_update_removes_what_brute_force_over_samples_would() -> None:
    """Three tasks, then one sample more: the distance after the update is the least possible."""
    rng = np.random.default_rng(0)
    memory = Memory("ocdm", 12, batch_size=1)
    for number in range(3):
        labels = (rng.random((13, 3)) < 0.4).astype(np.uint8)
        labels[labels.sum(axis=1) == 0, 0] = 1
        memory.update(TaskSamples.of(number, np.arange(3) + 3 * number, np.arange(13), labels))
    before = np.zeros((12, 12), dtype=int)
    stop = 0
    for samples in memory.tasks:
        before[stop : stop + len(samples), samples.classes] = samples.labels
        stop += len(samples)
    memory.update(TaskSamples.of(3, np.arange(9, 12), [0], [[1, 0, 1]]))
    offered = np.concatenate([before, [[0] * 9 + [1, 0, 1]]])
    seen = np.concatenate([samples.counts.positive for samples in memory.tasks]) > 0
    p = (seen / seen.sum()).tolist()
    best = min(distance_to(p, np.delete(offered, i, axis=0).sum(axis=0).tolist(), "kl") for i in range(13))
    after = np.zeros(12, dtype=int)
    for samples in memory.tasks:
        after[samples.classes] += samples.labels.sum(axis=0, dtype=int)
    assert distance_to(p, after.tolist(), "kl") == pytest.approx(best, abs=1e-9)


def test_a_vanishing_class_is_protected() -> None:
    """A class with a single row among hundreds of others is in memory at the end, two tasks later too."""
    memory = Memory("ocdm", 30, batch_size=16)
    for number in range(3):
        labels = np.zeros((400, 3), dtype=np.uint8)
        labels[np.arange(400), np.arange(400) % 2] = 1
        labels[17] = [0, 0, 1]
        memory.update(TaskSamples.of(number, np.arange(3) + 3 * number, np.arange(400), labels))
    for samples in memory.tasks:
        assert samples.labels[:, 2].sum() == 1
        assert samples.rows[samples.labels[:, 2] == 1].tolist() == [17]


@pytest.mark.parametrize("distance", ["kl", "l1"])
def test_long_tail_is_balanced(distance: str) -> None:
    rng = np.random.default_rng(0)
    memory = Memory("ocdm", 120, distance=distance)
    for number in range(2):
        labels = np.repeat(np.eye(4, dtype=np.uint8), [900, 300, 100, 40], axis=0)
        memory.update(
            TaskSamples.of(number, np.arange(4) + 4 * number, np.arange(1340), rng.permutation(labels))
        )
    counts = np.concatenate([samples.labels.sum(axis=0, dtype=int) for samples in memory.tasks])
    assert counts.tolist() == [15] * 8


def test_rows_without_labels_go_first() -> None:
    labels = np.concatenate([np.zeros((50, 2)), np.tile(np.eye(2), (5, 1))])
    memory = Memory("ocdm", 20, batch_size=8)
    memory.update(TaskSamples.of(0, [0, 1], np.arange(60), labels))
    assert int(memory.tasks[0].labels.sum(dtype=int)) == 10  # all labelled rows, and ten without labels
    memory.update(TaskSamples.of(1, [2], np.arange(15), np.ones((15, 1))))
    assert [len(samples) for samples in memory.tasks] == [10, 10]
    assert memory.tasks[0].labels.any(axis=1).sum() + len(memory.tasks[1]) == 20


def test_within_a_pattern_old_and_new_rows_are_drawn_alike() -> None:
    """One class only: rows of the last batch are as likely to be held as old ones."""
    old = new = 0
    for seed in range(400):
        held = ocdm_pass(
            np.ones((1, 1), np.uint8), np.zeros(30, np.int64), 10, np.array([20]), 20,
            np.random.default_rng(seed), batch_size=10,
        )  # fmt: skip
        old += int(held[:20].sum())
        new += int(held[20:].sum())
    assert old + new == 400 * 20
    assert abs(old - 400 * 20 * 20 / 30) < 4 * (400 * 20 * 2 / 9) ** 0.5
