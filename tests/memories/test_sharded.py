"""Selection on shards against selection on all rows, shard by shard and with threads in place of processes."""

from __future__ import annotations

import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcl.errors import InputError
from mlcl.memories import Memory, TaskSamples, gather_samples, select_wru, select_wru_sharded
from mlcl.memories.sharded import Histogram, merge_histograms


def together(shards, function):
    """Call the function with each shard in a thread of its own; the threads exchange at a barrier."""
    table, barrier = [None] * len(shards), threading.Barrier(len(shards), timeout=600)

    def work(number):
        def exchange(value):
            table[number] = value
            barrier.wait()
            found = list(table)
            barrier.wait()
            return found

        try:
            return function(shards[number], exchange)
        except InputError as error:
            barrier.abort()
            return error
        except threading.BrokenBarrierError:
            return None  # another one failed

    with warnings.catch_warnings(), ThreadPoolExecutor(len(shards)) as pool:
        warnings.simplefilter("ignore", UserWarning)
        found = list(pool.map(work, range(len(shards))))
    for result in found:
        if isinstance(result, InputError):
            raise result
    return found


@st.composite
def sharded_labels(draw):
    """Labels with many equal rows, and which of 1 to 4 shards each row is in; shards may be empty."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, classes = draw(st.integers(1, 80)), draw(st.sampled_from([1, 3, 9, 70]))
    labels = (rng.random((n, classes)) < draw(st.sampled_from([0.05, 0.3, 0.6]))).astype(np.uint8)
    parts = draw(st.integers(1, 4))
    owner = rng.integers(0, parts, n)
    return labels, [rng.permutation(np.flatnonzero(owner == part)) for part in range(parts)]


@given(
    sharded_labels(),
    st.integers(0, 100),
    st.sampled_from([None, 5]),
    st.sampled_from(["ratio", "prevalence"]),
)
@settings(deadline=None, max_examples=40)
def test_wru_on_shards_chooses_the_rows_that_it_chooses_on_all(case, size, candidates, criterion):
    labels, shards = case
    given = {"seed": 3, "candidates": candidates, "criterion": criterion}
    found = together(
        shards,
        lambda rows, exchange: select_wru_sharded(labels[rows], rows, size, exchange=exchange, **given),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        wanted = select_wru(labels, size, **given)
    for chosen in found:
        assert chosen.tolist() == wanted.tolist()


@given(sharded_labels())
@settings(deadline=None, max_examples=20)
def test_merged_histograms_are_that_of_all_rows(case):
    labels, shards = case
    merged = merge_histograms([Histogram.of(labels[rows]) for rows in shards])
    whole = Histogram.of(labels)
    assert merged.rows.tolist() == whole.rows.tolist()
    assert merged.counts.tolist() == whole.counts.tolist()


@pytest.mark.parametrize("kind", ["wru", "ocdm", "prs", "reservoir", "random"])
def test_memories_of_shards_are_those_of_all_rows(kind):
    rng = np.random.default_rng(1)
    sizes, classes = (50, 70), (np.arange(4), np.arange(4, 9))
    tasks = [
        (rng.random((n, len(ids))) < 0.3).astype(np.uint8) for n, ids in zip(sizes, classes, strict=True)
    ]
    rows = [rng.permutation(1000)[:n] for n in sizes]
    owners = [rng.integers(0, 3, n) for n in sizes]

    def work(shard, exchange):
        memory = Memory(kind, 20, seed=5)
        for task in (0, 1):
            own = np.flatnonzero(owners[task] == shard)
            samples = TaskSamples.of(task, classes[task], rows[task][own], tasks[task][own])
            memory.update(gather_samples(samples, own, exchange=exchange))
        return memory

    alone = Memory(kind, 20, seed=5)
    for task in (0, 1):
        alone.update(TaskSamples.of(task, classes[task], rows[task], tasks[task]))
    for memory in together([0, 1, 2], work):
        assert memory.rows.tolist() == alone.rows.tolist()
        for found, wanted in zip(memory.tasks, alone.tasks, strict=True):
            assert found.labels.tolist() == wanted.labels.tolist()
            assert found.counts == wanted.counts


def test_what_is_exchanged_does_not_grow_with_the_rows():
    sent = []

    def exchange(value):
        sent.append(sum(array.nbytes for array in value))
        return [value]

    base = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.uint8)
    for repeats in (10, 10_000):
        labels = np.repeat(base, repeats, axis=0)
        select_wru_sharded(labels, np.arange(len(labels)), 8, exchange=exchange)
    assert sent[:2] == sent[2:]


@pytest.mark.parametrize(
    ("labels", "positions", "words"),
    [
        ([[1], [0]], [0], r"positions has shape \(1,\), expected 2 distinct numbers"),
        ([[1], [0]], [1, 1], "expected 2 distinct numbers"),
        ([[1], [0]], [0, 2], "positions run from 0 to 2, expected numbers from 0 to 1"),
        ([[2]], [0], "only 0 and 1 are allowed"),
    ],
)
def test_bad_shards_are_refused(labels, positions, words):
    with pytest.raises(InputError, match=words):
        select_wru_sharded(labels, positions, 1, exchange=lambda value: [value])


def test_shards_of_different_tasks_or_classes_are_refused():
    shards = [[[1, 0]], [[1]]]
    with pytest.raises(InputError, match=r"labels of the shards have \[1, 2\] columns"):
        together([0, 1], lambda i, e: select_wru_sharded(shards[i], [i], 1, exchange=e))
    samples = [TaskSamples.of(task, [0], [task], [[1]]) for task in (0, 1)]
    with pytest.raises(InputError, match=r"task \d meets task \d of another shard"):
        together([0, 1], lambda i, e: gather_samples(samples[i], [i], exchange=e))
