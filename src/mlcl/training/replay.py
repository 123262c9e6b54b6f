"""Replay for a loop of your own: a batch sampler that puts rows of a memory beside those of the task at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler, default_collate

from mlcl.errors import InputError, check_choice, check_int
from mlcl.memories import Memory
from mlcl.seeds import numpy_generator
from mlcl.training.batches import EpochPlan, Rows, plan_epoch


class ReplaySampler(Sampler[list[int]]):
    """Batches of row numbers: ``batch_size`` rows of the current task, then ``memory_batch`` rows of the memory.

    For ``DataLoader(dataset, batch_sampler=sampler)`` over any map-style dataset in which the numbers of both lie, or
    for `replay_loader`, which also returns the task of each row. Every current row comes once per epoch; memory rows
    come in random order, all of them before any comes again. Draws depend on ``seed``, epoch and ``rank`` alone.

    Args:
        current: row numbers of the task at hand, or how many there are if they are 0, 1, 2, ...
        memory: a `Memory` (as it is when an epoch begins), or row numbers, as `select_wru` gives them.
        batch_size: current rows per batch, on each process.
        memory_batch: memory rows per batch, on each process; ``batch_size`` if not given, never more than there are.
        task: number of the current task; the next one after those in the memory if not given.
        sampling: memory rows drawn ``uniform`` from the whole memory, or ``balanced``: past tasks take turns.
        drop_last: leave out a last batch with fewer than ``batch_size`` current rows.
        seed: of all draws; the same on every process.
        rank: number of this process.
        world_size: number of processes. Each sees its own share of the current rows, all shares have equal length
            (some rows come twice to fill them up), and all processes make the same number of steps.

    >>> sampler = ReplaySampler([4, 5, 6, 7, 8], memory=[0, 2], batch_size=2)
    >>> len(sampler), [len(batch) for batch in sampler]
    (3, [4, 4, 3])
    >>> list(ReplaySampler(4, [], batch_size=2))
    [[0, 2], [1, 3]]
    """

    def __init__(
        self,
        current: int | ArrayLike,
        memory: Memory | ArrayLike,
        *,
        batch_size: int,
        memory_batch: int | None = None,
        task: int | None = None,
        sampling: Literal["uniform", "balanced"] = "uniform",
        drop_last: bool = False,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self.current = (
            np.arange(current) if isinstance(current, int | np.integer) else _rows("current", current)
        )
        if not len(self.current):
            raise InputError("current holds no rows, but at least one was expected")
        self.memory = memory if isinstance(memory, Memory) else _rows("memory", memory)
        self.batch_size = check_int("batch_size", batch_size, 1)
        self.memory_batch = (
            self.batch_size if memory_batch is None else check_int("memory_batch", memory_batch, 0)
        )
        self.task = None if task is None else check_int("task", task, 0)
        check_choice("sampling", sampling, ("uniform", "balanced"))
        self.sampling: Literal["uniform", "balanced"] = sampling
        self.drop_last = drop_last
        self.seed = check_int("seed", seed, 0)
        self.world_size = check_int("world_size", world_size, 1)
        self.rank = check_int("rank", rank, 0)
        if self.rank >= self.world_size:
            raise InputError(f"rank is {rank}, but a number from 0 to {self.world_size - 1} was expected")
        self.epoch = 0
        if drop_last and len(self) == 0:
            raise InputError(
                f"batch_size is {batch_size}, but this process has {self._share} rows; "
                f"with drop_last no batch is left"
            )

    @property
    def _share(self) -> int:
        """Return how many current rows a process sees."""
        return -(-len(self.current) // self.world_size)

    @property
    def stored(self) -> tuple[Rows, Rows]:
        """Return the row number and the task of each stored sample; rows without a `Memory` are of task 0."""
        if isinstance(self.memory, Memory):
            return self.memory.rows, self.memory.task_of_row
        return self.memory, np.zeros_like(self.memory)

    @property
    def sampler(self) -> ReplaySampler:
        """Return itself: Lightning calls ``set_epoch`` on the sampler that a batch sampler holds, and there is none."""
        return self

    def __len__(self) -> int:
        return self._share // self.batch_size if self.drop_last else -(-self._share // self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """Choose the draws of the next pass; without it every pass is the same, as with ``DistributedSampler``."""
        self.epoch = check_int("epoch", epoch, 0)

    def plan(self) -> EpochPlan:
        """Return all batches of the epoch, with the task of each row."""
        order = numpy_generator(self.seed, "shares", self.epoch).permutation(self.current)
        share = np.resize(order, self._share * self.world_size)[self.rank :: self.world_size]
        stored = self.stored
        return plan_epoch(
            share,
            stored,
            numpy_generator(self.seed, "replay", self.epoch, self.rank),
            task=int(stored[1].max(initial=-1)) + 1 if self.task is None else self.task,
            batch_size=self.batch_size,
            memory_batch=self.memory_batch,
            sampling=self.sampling,
        )

    def __iter__(self) -> Iterator[list[int]]:
        plan = self.plan()
        return (plan.step(number)[0].tolist() for number in range(len(self)))


@dataclass(frozen=True)
class _Tagged(Dataset[tuple[Any, int]]):
    """A dataset whose keys are pairs of row and task: a row may come back in another task, with other labels."""

    dataset: Any

    def __getitem__(self, key: tuple[int, int]) -> tuple[Any, int]:
        return self.dataset[key[0]], key[1]


@dataclass(frozen=True)
class _TaggedBatches(Sampler[list[tuple[int, int]]]):
    """The batches of a `ReplaySampler` as pairs of row and task."""

    sampler: ReplaySampler

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        plan = self.sampler.plan()
        steps = (plan.step(number) for number in range(len(self)))
        return (list(zip(rows.tolist(), tasks.tolist(), strict=True)) for rows, tasks, _ in steps)


@dataclass(frozen=True)
class _Collate:
    """Collates samples as the user wants, beside the tensor of their tasks; a class, so that workers can pickle it."""

    collate: Callable[[list[Any]], Any]

    def __call__(self, items: Sequence[tuple[Any, int]]) -> tuple[Any, Tensor]:
        return self.collate([sample for sample, _ in items]), torch.tensor([task for _, task in items])


def replay_loader(
    dataset: Dataset[Any],
    sampler: ReplaySampler,
    *,
    collate_fn: Callable[[list[Any]], Any] = default_collate,
    **options: Any,
) -> DataLoader[Any]:
    """Return a ``DataLoader`` that gives pairs: the dataset's own batch, and the task of each row, int64 ``[B]``.

    The tasks are what a loss takes as ``groups``, and decide for which classes a row contributes.

    Args:
        dataset: any map-style dataset; its rows are those that the sampler numbers.
        sampler: which rows; call its ``set_epoch`` before each pass (Lightning does it by itself).
        collate_fn: makes a batch of the dataset's samples.
        options: further options of ``DataLoader``, such as ``num_workers``; not those that choose rows.

    >>> from torch.utils.data import TensorDataset
    >>> data = TensorDataset(torch.arange(10.0), torch.arange(10) % 3)
    >>> loader = replay_loader(data, ReplaySampler([6, 7, 8, 9], memory=[0, 2], batch_size=2))
    >>> (inputs, labels), tasks = next(iter(loader))
    >>> inputs, labels, tasks
    (tensor([6., 8., 2., 0.]), tensor([0, 2, 2, 0]), tensor([1, 1, 0, 0]))
    """
    chosen = sorted({"batch_size", "shuffle", "sampler", "batch_sampler", "drop_last"} & set(options))
    if chosen:
        raise InputError(f"{chosen[0]} is an option of ReplaySampler, not of replay_loader")
    rows = np.concatenate([sampler.current, sampler.stored[0]])
    size = len(cast(Sized, dataset))
    if rows.max() >= size:
        raise InputError(f"sampler has the row {rows.max()}, but dataset has {size} rows")
    return DataLoader(
        _Tagged(dataset), batch_sampler=_TaggedBatches(sampler), collate_fn=_Collate(collate_fn), **options
    )


def _rows(name: str, values: ArrayLike) -> Rows:
    """Check row numbers."""
    rows = np.asarray(values)
    if rows.ndim != 1 or (rows.size and (rows.dtype.kind not in "ui" or rows.min() < 0)):
        raise InputError(
            f"{name} is {rows.dtype} of shape {rows.shape}, but a vector of row numbers of at least 0 was expected"
        )
    return rows.astype(np.int64)
