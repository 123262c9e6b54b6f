"""TaskSamples, quotas and the Memory class."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcl.errors import InputError
from mlcl.labels import LabelCounts
from mlcl.memories import MEMORIES, Memory, TaskSamples, quotas


def task(number: int, n: int = 8, k: int = 2, seed: int = 0) -> TaskSamples:
    labels = np.random.default_rng([seed, number]).integers(0, 2, size=(n, k))
    return TaskSamples.of(number, np.arange(k) + number * k, np.arange(n) + 100 * number, labels)


def deal(size: int, available: list[int]) -> list[int]:
    """Twin of quotas: hand out one place at a time, round by round, to tasks that still have rows."""
    given_out = [0] * len(available)
    while size and given_out != available:
        for i, rows in enumerate(available):
            if size and given_out[i] < rows:
                given_out[i] += 1
                size -= 1
    return given_out


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 60), st.lists(st.integers(0, 25), min_size=1, max_size=7))
def test_quotas_are_what_dealing_place_by_place_gives(size: int, available: list[int]) -> None:
    assert quotas(size, available) == deal(size, available)


@pytest.mark.parametrize(("size", "tasks"), [(2000, 8), (2000, 9), (7, 3), (2, 5)])
def test_quotas_of_large_tasks(size: int, tasks: int) -> None:
    expected = [size // tasks + (i < size % tasks) for i in range(tasks)]
    assert quotas(size, [10_000] * tasks) == expected


def test_take_moves_everything_but_the_constants() -> None:
    whole = replace(task(0), extra={"logits": np.arange(16.0).reshape(8, 2)})
    part = whole.take([5, 0])
    assert part.rows.tolist() == [5, 0]
    assert np.array_equal(part.labels, whole.labels[[5, 0]])
    assert np.array_equal(part.extra["logits"], whole.extra["logits"][[5, 0]])
    assert part.counts == whole.counts == LabelCounts.of(whole.labels)
    assert np.array_equal(part.classes, whole.classes)
    assert len(part.take([])) == 0
    assert part.take([]).labels.shape == (0, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": np.arange(3)}, "labels of task 1 have shape"),
        ({"counts": LabelCounts.of(np.zeros((8, 3), np.uint8))}, "counts of task 1 cover 3 classes"),
        ({"extra": {"key": np.zeros(7)}}, "extra column 'key' of task 1"),
        ({"extra": {"key": np.array([None] * 8)}}, "extra column 'key' of task 1"),
    ],
)
def test_samples_that_do_not_fit_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(task(0), **change)


@pytest.mark.parametrize(
    ("kind", "size", "options", "message"),
    [
        ("wur", 5, {}, "unknown memory 'wur'.*Did you mean 'wru'"),
        ("wru", -1, {}, "memory size is -1"),
        ("wru", 2.5, {}, "memory size is 2.5"),
        ("wru", True, {}, "memory size is True"),
        ("wru", 5, {"seed": -3}, "memory seed is -3"),
        ("random", 5, {"rho": 0.1}, "memory 'random' takes no option 'rho'"),
        ("wru", 5, {"criterion": "ratios"}, "criterion is 'ratios'.*Did you mean 'ratio'"),
        ("wru", 5, {"shrink": "last"}, "shrink is 'last'"),
        ("wru", 5, {"candidates": 0}, "candidates is 0"),
        ("prs", 5, {"rho": float("nan")}, "rho is nan"),
        ("prs", 5, {"rho": 400}, "rho is 400"),
        ("ocdm", 5, {"rho": "0"}, "rho is '0'"),
        ("ocdm", 5, {"batch_size": 0}, "batch_size is 0"),
        ("ocdm", 5, {"distance": "l2"}, "distance is 'l2'"),
    ],
)
def test_bad_settings_are_refused_at_construction(
    kind: str, size: int, options: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Memory(kind, size, **options)


def test_options_that_are_none_are_not_set() -> None:
    assert Memory("random", 5, rho=None).options == {}
    assert Memory("prs", 5, rho=np.float32(0.5)).options == {"rho": 0.5}


def test_a_task_is_taken_in_once() -> None:
    memory = Memory("random", 5)
    memory.update(task(0))
    with pytest.raises(InputError, match=r"task 1 \(task=0\) is in the memory already"):
        memory.update(task(0))


def test_features_go_only_where_they_are_needed() -> None:
    # Other tests load memories of their own.
    own = [kind for kind in MEMORIES.names() if MEMORIES.get(kind).__module__.startswith("mlcl.")]
    assert [kind for kind in own if Memory(kind, 5).needs] == ["herding"]
    with pytest.raises(InputError, match="features was given, but is not used by memory 'random'"):
        Memory("random", 5).update(task(0), features=np.zeros((8, 2)))
    with pytest.raises(InputError, match="features is missing, but is needed by memory 'herding'"):
        Memory("herding", 5).update(task(0))


def test_rows_and_their_tasks() -> None:
    memory = Memory("random", 6)
    assert memory.rows.shape == memory.task_of_row.shape == (0,)
    for number in (3, 1):
        memory.update(task(number))
    assert len(memory) == 6
    assert memory.task_of_row.tolist() == [3, 3, 3, 1, 1, 1]
    assert (memory.rows // 100).tolist() == [3, 3, 3, 1, 1, 1]


def test_each_update_has_its_own_draws() -> None:
    """The generator is made of seed and number of the update, so equal tasks are not thinned out alike."""
    memory = Memory("reservoir", 40, seed=1)
    for number in range(2):
        memory.update(task(number, n=20))
    first, second = (samples.extra["key"] for samples in memory.tasks)
    assert not np.array_equal(first, second)


def test_state_is_plain_numbers_and_survives_a_file() -> None:
    memory = Memory("ocdm", 6, seed=4, rho=0.25, batch_size=3)
    memory.update(replace(task(0), extra={"logits": np.linspace(0, 1, 16).reshape(8, 2)}))
    memory.update(task(1))
    state = memory.state()
    assert all(array.dtype.kind in "uif" for array in state.values())
    file = io.BytesIO()
    np.savez(file, **state)
    file.seek(0)
    with np.load(file, allow_pickle=False) as loaded:
        again = Memory.from_state(dict(loaded))
    assert (again.kind, again.size, again.seed, again.options) == ("ocdm", 6, 4, memory.options)
    restored = again.state()
    assert restored.keys() == state.keys()
    for name, array in state.items():
        assert restored[name].dtype == array.dtype
        assert np.array_equal(restored[name], array)
    assert again.tasks[0].extra["logits"].dtype == np.float64


def test_a_state_with_a_hole_is_refused() -> None:
    memory = Memory("random", 3)
    memory.update(task(0))
    state = memory.state()
    del state["0.labels"]
    with pytest.raises(InputError, match=r"memory state has no entry '0\.labels'"):
        Memory.from_state(state)


def test_none_keeps_only_constants() -> None:
    memory = Memory("none", 100)
    whole = task(0)
    memory.update(whole)
    assert len(memory) == 0
    assert memory.tasks[0].counts == whole.counts
