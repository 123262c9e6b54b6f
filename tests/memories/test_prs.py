"""PRS against a twin of plain loops that is given the same random numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcl.memories import Memory, TaskSamples
from mlcl.memories.prs import _acceptance, prs_pass


def partition(seen: list[int], rho: float) -> list[float]:
    powers = [n**rho if n > 0 else 0.0 for n in seen]
    return [power / sum(powers) if sum(powers) else 0.0 for power in powers]


def acceptance(y: list[int], seen: list[int], p: list[float], size: int) -> float:
    labels = [i for i, on in enumerate(y) if on]
    if not labels:
        return 0.0
    lowest = min(seen[i] for i in labels)
    weights = [math.exp(lowest - seen[i]) for i in labels]
    ratios = [min(1.0, size * p[i] / seen[i]) if seen[i] else 1.0 for i in labels]
    return sum(w * r for w, r in zip(weights, ratios, strict=True)) / sum(weights)


def gap(inside: list[int], y: list[int], p: list[float]) -> float:
    rest = [count - on for count, on in zip(inside, y, strict=True)]
    return sum(abs(count - share * sum(rest)) for count, share in zip(rest, p, strict=True))


def eviction(held: list[list[int]], p: list[float], class_draw: float, tie_draw: float) -> int:
    bare = [slot for slot, y in enumerate(held) if not any(y)]
    if bare:
        return bare[int(tie_draw * len(bare))]
    inside = [sum(column) for column in zip(*held, strict=True)]
    d = [count - share * sum(inside) for count, share in zip(inside, p, strict=True)]
    present = [i for i, count in enumerate(inside) if count > 0]
    weights = [math.exp(d[i] - max(d[j] for j in present)) for i in present]
    target, r = class_draw * sum(weights), present[-1]
    for i, upto in zip(present, np.cumsum(weights), strict=True):
        if target < upto:
            r = i
            break
    slots = [slot for slot, y in enumerate(held) if y[r]]
    scarce = {
        slot: sum(on for on, excess in zip(held[slot], d, strict=True) if excess <= 1e-9) for slot in slots
    }
    slots = [slot for slot in slots if scarce[slot] == min(scarce.values())]
    gaps = {slot: gap(inside, held[slot], p) for slot in slots}
    ties = [slot for slot in slots if gaps[slot] <= min(gaps.values()) + 1e-9]
    return ties[int(tie_draw * len(ties))]


def twin(
    memory: np.ndarray, stream: np.ndarray, seen: np.ndarray, size: int, draws: np.ndarray, rho: float
) -> list[int]:
    held, ids = memory.tolist(), list(range(len(memory)))
    n = seen.tolist()
    for j, y in enumerate(stream.tolist()):
        p = partition(n, rho)
        if len(held) < size:
            held.append(y)
            ids.append(len(memory) + j)
        elif size and draws[j, 0] < acceptance(y, n, p, size):
            slot = eviction(held, p, draws[j, 1], draws[j, 2])
            held[slot], ids[slot] = y, len(memory) + j
        n = [count + on for count, on in zip(n, y, strict=True)]
    return sorted(ids)


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    size=st.integers(0, 12),
    n=st.integers(0, 60),
    rho=st.sampled_from([0.0, 0.0, -0.03, 0.5, -1.0]),
    density=st.sampled_from([0.1, 0.3, 0.6]),
)
def test_pass_equals_plain_loops(seed: int, size: int, n: int, rho: float, density: float) -> None:
    """A memory over six classes, partly unseen, then a stream over three of them in another order."""
    rng = np.random.default_rng(seed)
    columns = rng.permutation(6)[:3]
    memory = (rng.random((rng.integers(size + 1), 6)) < density).astype(np.uint8)
    seen = memory.sum(axis=0, dtype=np.int64) * rng.integers(1, 4, size=6)
    stream = (rng.random((n, 3)) < density * np.array([1, 0.5, 1.5])).astype(np.uint8)
    wide = np.zeros((n, 6), dtype=np.uint8)
    wide[:, columns] = stream
    draws = rng.random((n, 3))
    held = prs_pass(memory, stream, columns, seen, size, draws, rho=rho)
    assert held.tolist() == twin(memory, wide, seen, size, draws, rho)


@pytest.mark.parametrize("rho", [0.0, -1.0, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_a_longer_pass_equals_plain_loops(seed: int, rho: float) -> None:
    """Many labels a row, so that victims differ in how many scarce labels they would take with them."""
    rng = np.random.default_rng(seed)
    stream = (rng.random((400, 5)) < [0.7, 0.5, 0.5, 0.2, 0.1]).astype(np.uint8)
    draws = rng.random((400, 3))
    nothing, none_seen = np.zeros((0, 5), np.uint8), np.zeros(5, np.int64)
    held = prs_pass(nothing, stream, np.arange(5), none_seen, 40, draws, rho=rho)
    assert held.tolist() == twin(nothing, stream, none_seen, 40, draws, rho)


@pytest.mark.parametrize("rho", [0.0, -0.5])
def test_acceptance_equals_plain_loops(rho: float) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, size=(300, 4)).astype(np.uint8)
    before = rng.integers(0, 12, size=(300, 4))
    powers = np.where(before > 0, np.maximum(before, 1.0) ** rho, 0.0)
    chance = _acceptance(labels, before, powers, powers.sum(axis=1), 20)
    rows = zip(labels.tolist(), before.tolist(), strict=True)
    expected = [acceptance(y, n, partition(n, rho), 20) for y, n in rows]
    assert chance == pytest.approx(expected, abs=1e-12)
    assert min(expected) == 0 < np.median(expected) < max(expected) <= 1


def test_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    stream = (rng.random((500, 5)) < np.geomspace(0.5, 0.03, 5)).astype(np.uint8)
    draws = rng.random((500, 3))
    arguments = (np.zeros((0, 5), np.uint8), stream, np.arange(5), np.zeros(5, np.int64), 40, draws)
    whole = prs_pass(*arguments, rho=0.2)
    monkeypatch.setattr("mlcl.memories.prs._CHUNK", 7)
    assert np.array_equal(prs_pass(*arguments, rho=0.2), whole)


def long_tail(number: int, classes: int, rng: np.random.Generator) -> TaskSamples:
    """Single-label rows, class sizes from 1200 down to 60."""
    sizes = np.geomspace(1200, 60, classes).astype(int)
    labels = np.repeat(np.eye(classes, dtype=np.uint8), sizes, axis=0)
    ids = np.arange(classes) + number * classes
    return TaskSamples.of(number, ids, np.arange(len(labels)), rng.permutation(labels))


@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_memory_follows_the_partition(rho: float) -> None:
    """Two long-tailed tasks; label counts in memory come near M n_i^rho / sum_j n_j^rho."""
    rng = np.random.default_rng(0)
    memory = Memory("prs", 200, rho=rho)
    for number in range(2):
        memory.update(long_tail(number, 4, rng))
    counts = np.concatenate([samples.labels.sum(axis=0, dtype=float) for samples in memory.tasks])
    power = np.concatenate([samples.counts.positive for samples in memory.tasks]) ** rho
    target = 200 * power / power.sum()
    assert np.abs(counts - target).max() <= 4


@pytest.mark.slow
def test_within_a_class_early_and_late_rows_are_equally_likely() -> None:
    """The pass is in random order, so both halves of the task are held alike."""
    rng = np.random.default_rng(0)
    first_half = total = 0
    for seed in range(60):
        memory = Memory("prs", 40, seed=seed)
        task = long_tail(0, 2, rng)
        memory.update(task)
        first_half += int((memory.rows < len(task) / 2).sum())
        total += len(memory)
    assert abs(first_half - total / 2) < 4 * (total / 4) ** 0.5


@pytest.mark.slow
def test_one_class_is_reservoir_sampling() -> None:
    """With one class a sample is accepted with M/n and evicts a uniform one: inclusion has a closed form."""
    n, size, runs = 40, 8, 1500
    count = np.zeros(n)
    rng = np.random.default_rng(5)
    for _ in range(runs):
        held = prs_pass(
            np.zeros((0, 1), np.uint8), np.ones((n, 1), np.uint8), np.arange(1), np.zeros(1, np.int64), size,
            rng.random((n, 3)),
        )  # fmt: skip
        count[held] += 1
    # Acceptance is M/n with n counted before the sample (specification.md#prs), not M/(n+1).
    chance = np.ones(n)
    for j in range(size, n):
        accept = min(1.0, size / j)
        chance[:j] *= 1 - accept / size
        chance[j] = accept
    spread = np.sqrt(runs * np.maximum(chance * (1 - chance), 1e-3))
    assert np.abs((count - runs * chance) / spread).max() < 4


def test_rows_without_labels_fill_but_are_the_first_to_go() -> None:
    labels = np.concatenate([np.zeros((50, 2)), np.tile(np.eye(2), (50, 1))])
    memory = Memory("prs", 20)
    memory.update(TaskSamples.of(0, [0, 1], np.arange(150), labels))
    assert memory.tasks[0].labels.any(axis=1).all()
    few = Memory("prs", 120)
    few.update(TaskSamples.of(0, [0, 1], np.arange(150), labels))
    assert len(few) == 120
