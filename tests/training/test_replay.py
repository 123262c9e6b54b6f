"""ReplaySampler and replay_loader: every row where it belongs, on any number of workers and processes."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import ceil

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset, TensorDataset

import mlcl
from mlcl.errors import InputError
from mlcl.training.replay import ReplaySampler, replay_loader


def memory_of(rows_of_tasks):
    """A memory that holds exactly these rows of each task."""
    memory = mlcl.Memory("random", 1000)
    for task, rows in enumerate(rows_of_tasks):
        labels = np.arange(len(rows))[:, None] % 2
        memory.update(mlcl.TaskSamples.of(task, [task], rows=rows, labels=labels))
    return memory


def batches(sampler):
    """Pairs of rows and tasks of an epoch."""
    plan = sampler.plan()
    return [plan.step(number)[:2] for number in range(len(sampler))]


@settings(deadline=None, max_examples=60)
@given(
    count=st.integers(1, 40),
    stored=st.lists(st.integers(1, 9), max_size=4),
    batch_size=st.integers(1, 12),
    memory_batch=st.integers(0, 12),
    world=st.integers(1, 4),
    epoch=st.integers(0, 3),
    sampling=st.sampled_from(["uniform", "balanced"]),
)
def test_an_epoch_against_its_definition(count, stored, batch_size, memory_batch, world, epoch, sampling):
    """All processes together see each current row once (or twice to fill up), in as many equal steps each."""
    current = 100 + np.arange(count)
    bounds = np.cumsum([0, *stored])
    memory = memory_of([np.arange(a, b) for a, b in pairwise(bounds)])
    options = {"batch_size": batch_size, "memory_batch": memory_batch, "sampling": sampling, "seed": 5}
    seen: list[int] = []
    shapes = set()
    for rank in range(world):
        sampler = ReplaySampler(current, memory, rank=rank, world_size=world, **options)
        sampler.set_epoch(epoch)
        steps = batches(sampler)
        assert len(steps) == len(sampler) == ceil(ceil(count / world) / batch_size)
        assert [rows.tolist() for rows, _ in steps] == list(sampler)
        shapes.add(tuple(len(rows) for rows, _ in steps))
        for rows, tasks in steps:
            new = tasks == len(stored)
            assert np.array_equal(new, rows >= 100)
            assert new.sum() <= batch_size
            assert (~new).sum() == min(memory_batch, len(memory))
            assert not new[new.sum() :].any()  # current rows come first
            owner = np.searchsorted(bounds, rows[~new], side="right") - 1
            assert np.array_equal(tasks[~new], owner)
            seen += rows[new].tolist()
        past = np.concatenate([rows[tasks < len(stored)] for rows, tasks in steps])
        if sampling == "uniform" and len(past):
            uses = [Counter(past.tolist())[row] for row in range(len(memory))]
            assert max(uses) - min(uses) <= 1
        elif len(past):
            turns = np.bincount(np.searchsorted(bounds, past, side="right") - 1, minlength=len(stored))
            assert turns.max() - turns.min() <= 1
    assert len(shapes) == 1
    assert set(seen) == set(current.tolist())
    assert len(seen) == ceil(count / world) * world
    assert max(Counter(seen).values()) - min(Counter(seen).values()) <= 1


def test_draws_depend_on_seed_epoch_and_rank_alone():
    memory = memory_of([np.arange(20)])

    def drawn(*, epoch=0, **options):
        sampler = ReplaySampler(100 + np.arange(40), memory, batch_size=8, **options)
        sampler.set_epoch(epoch)
        return list(sampler)

    state = torch.get_rng_state()
    assert drawn() == drawn()
    assert torch.equal(torch.get_rng_state(), state)
    others = [drawn(seed=1), drawn(epoch=1), drawn(rank=1, world_size=2), drawn(rank=0, world_size=2)]
    assert all(drawn() != other for other in others)


def test_the_memory_is_the_one_at_the_beginning_of_a_pass():
    memory = memory_of([[0, 1]])
    sampler = ReplaySampler([8, 9], memory, batch_size=2)
    assert sorted(next(iter(sampler))) == [0, 1, 8, 9]
    memory.update(mlcl.TaskSamples.of(1, [1], rows=[8], labels=[[1]]))
    assert batches(sampler)[0][1].max() == 2  # and the current task is the one after
    assert len(next(iter(sampler))) == 4


def test_rows_alone_are_a_memory():
    labels = np.random.default_rng(0).random((50, 3)) < 0.3
    sampler = ReplaySampler(range(50, 60), mlcl.select_wru(labels, 6), batch_size=5, memory_batch=3, task=4)
    for rows, tasks in batches(sampler):
        assert tasks.tolist() == [4] * 5 + [0] * 3
        assert rows[5:].max() < 50


def test_drop_last():
    sampler = ReplaySampler(11, [], batch_size=4, drop_last=True)
    assert [len(batch) for batch in sampler] == [4, 4]
    assert len(sampler) == 2
    with pytest.raises(InputError, match="with drop_last no batch is left"):
        ReplaySampler(3, [], batch_size=4, drop_last=True)


class Pictures(Dataset):
    """A map-style data set with samples of its own form."""

    def __len__(self):
        return 60

    def __getitem__(self, row):
        return {"image": torch.full((2, 2), float(row)), "name": f"picture-{row}"}


def collate(samples):
    return torch.stack([sample["image"] for sample in samples]), [sample["name"] for sample in samples]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_gives_the_data_sets_own_batches_and_their_tasks(workers):
    sampler = ReplaySampler(np.arange(20, 60), memory_of([np.arange(5), np.arange(5, 9)]), batch_size=16)
    loader = replay_loader(Pictures(), sampler, num_workers=workers, collate_fn=collate)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        found = list(loader)
        assert len(found) == len(loader) == 3
        for ((images, names), tasks), (rows, expected) in zip(found, batches(sampler), strict=True):
            assert images[:, 0, 0].tolist() == rows.tolist()
            assert names == [f"picture-{row}" for row in rows]
            assert torch.equal(tasks, torch.from_numpy(expected))


def test_a_row_may_be_current_and_remembered():
    """In the paper's setting an image comes back with another task's labels, so a task is not a matter of the row."""
    loader = replay_loader(
        TensorDataset(torch.arange(4)), ReplaySampler(4, memory_of([[1, 2]]), batch_size=4)
    )
    ((rows,), tasks) = next(iter(loader))
    assert sorted(zip(rows.tolist(), tasks.tolist(), strict=True)) == [
        (0, 1),
        (1, 0),
        (1, 1),
        (2, 0),
        (2, 1),
        (3, 1),
    ]


def test_a_plain_loader_takes_the_sampler():
    data = TensorDataset(torch.arange(10))
    loader = DataLoader(data, batch_sampler=ReplaySampler(range(4, 10), [0, 1], batch_size=3), num_workers=1)
    assert [len(rows) for (rows,) in loader] == [5, 5]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"current": []}, "current holds no rows"),
        ({"current": 0}, "current holds no rows"),
        ({"current": [[1]]}, r"current is int64 of shape \(1, 1\)"),
        ({"current": [1.5]}, "current is float64"),
        ({"current": [-1]}, "row numbers of at least 0"),
        ({"memory": ["a"]}, "memory is <U1"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"memory_batch": -1}, "memory_batch is -1"),
        ({"sampling": "balancd"}, "Did you mean 'balanced'"),
        ({"seed": -1}, "seed is -1"),
        ({"rank": 2, "world_size": 2}, "rank is 2, but a number from 0 to 1"),
        ({"world_size": 0}, "world_size is 0"),
        ({"task": -1}, "task is -1"),
    ],
)
def test_bad_options_are_told_in_a_sentence(options, sentence):
    given = {"current": 4, "memory": [], "batch_size": 2} | options
    with pytest.raises(InputError, match=sentence):
        ReplaySampler(given.pop("current"), given.pop("memory"), **given)


def test_a_loader_refuses_what_the_sampler_decides():
    sampler = ReplaySampler(4, [], batch_size=2)
    with pytest.raises(InputError, match="shuffle is an option of ReplaySampler"):
        replay_loader(Pictures(), sampler, shuffle=True)
    with pytest.raises(InputError, match="sampler has the row 60, but dataset has 60 rows"):
        replay_loader(Pictures(), ReplaySampler([1], [60], batch_size=2))
    with pytest.raises(InputError, match="epoch is -1"):
        sampler.set_epoch(-1)
