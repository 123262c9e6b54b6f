"""Batches: which rows a step sees, and how rows become tensors. No Python loop over samples anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from mlcl.datasets.base import Split
from mlcl.errors import InputError

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Normaliser:
    """Shift and scale of inputs: ``x * scale + shift``, one value per channel of images or per column of features."""

    scale: Tensor
    shift: Tensor
    layout: torch.memory_format = torch.contiguous_format

    @classmethod
    def fit(cls, split: Split, *, normalise: bool, rows: Rows | None = None) -> Normaliser:
        """Measure mean and standard deviation on training rows; without ``normalise`` images only go to [0, 1].

        Args:
            normalise: whether to measure at all; nothing can be measured on no rows either.
            rows: the rows to measure on, such as the first task's, as later ones are not known yet; None: all.

        >>> images = np.full((2, 1, 2, 2), 255, np.uint8)
        >>> n = Normaliser.fit(Split(images, np.ones((2, 1), np.uint8)), normalise=False)
        >>> float(n(torch.from_numpy(images)).max())
        1.0
        """
        is_image = split.kind == "images"
        if not normalise or (rows is not None and not len(rows)):
            size = split.inputs.shape[1]
            scale = torch.full((size,), 1 / 255 if is_image else 1.0)
            return cls(*cls._shaped(scale, torch.zeros(size), is_image))
        mean, std = _moments(split.inputs, (0, 2, 3) if is_image else (0,), rows)
        std = np.where(std > 1e-6, std, 1.0)  # a constant column carries nothing and stays finite
        scale = torch.from_numpy(1 / std).float()
        return cls(*cls._shaped(scale, torch.from_numpy(-mean / std).float(), is_image))

    @staticmethod
    def _shaped(scale: Tensor, shift: Tensor, is_image: bool) -> tuple[Tensor, Tensor]:
        shape = (1, -1, 1, 1) if is_image else (1, -1)
        return scale.view(shape), shift.view(shape)

    def to(self, device: torch.device) -> Normaliser:
        """Move to a device."""
        return Normaliser(self.scale.to(device), self.shift.to(device), self.layout)

    def load(self, scale: Tensor, shift: Tensor) -> None:
        """Take the values of another one."""
        if (scale.shape, shift.shape) != (self.scale.shape, self.shift.shape):
            raise InputError(
                f"the normaliser is for inputs of {scale.numel()} channels, not {self.scale.numel()}"
            )
        self.scale.copy_(scale)
        self.shift.copy_(shift)

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return float inputs, images in the memory layout that the network wants."""
        if inputs.ndim == 4:
            inputs = inputs.to(torch.float32, memory_format=self.layout)
        return torch.addcmul(self.shift, inputs, self.scale)


def _moments(
    inputs: NDArray[Any], axes: tuple[int, ...], rows: Rows | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and standard deviation in one pass over pieces, so that a memory map need not fit in memory."""
    total = squares = np.float64(0)
    count = 0
    for piece_rows in slices(len(inputs if rows is None else rows), 4096):
        piece = np.asarray(inputs[piece_rows if rows is None else rows[piece_rows]], np.float64)
        total = total + piece.sum(axes)
        squares = squares + (piece**2).sum(axes)
        count += piece.size // piece.shape[1]
    mean = total / count
    return np.asarray(mean), np.asarray(np.sqrt(np.maximum(squares / count - mean**2, 0)))


def gather(inputs: NDArray[Any], rows: Rows) -> Tensor:
    """Return rows of an array or memory map as a tensor of the same type."""
    return torch.from_numpy(inputs.take(rows, axis=0) if isinstance(inputs, np.ndarray) else inputs[rows])


@dataclass(frozen=True)
class RowInputs:
    """The inputs of some rows as the network gets them, read when asked for: what `Backbone.fit` looks at."""

    inputs: NDArray[Any]
    rows: Rows
    normaliser: Normaliser

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: Tensor) -> Tensor:
        """Return the inputs of rows, counted among these."""
        found = gather(self.inputs, self.rows[rows.numpy()])
        return self.normaliser(found.to(self.normaliser.scale.device))


def reduced(images: Tensor, factor: int) -> Tensor:
    """Return images [B, C, H, W] at 1/factor of their side: what a memory stores of them.

    >>> reduced(torch.tensor([[[[0, 10], [20, 31]]]], dtype=torch.uint8), 2)
    tensor([[[[15]]]], dtype=torch.uint8)
    """
    if factor == 1:
        return images
    return F.avg_pool2d(images.float(), factor).round_().to(images.dtype)


def enlarged(images: Tensor, factor: int) -> Tensor:
    """Return images at their full side again: every pixel a block, so that reducing them gives the same pixels."""
    return images.repeat_interleave(factor, 2).repeat_interleave(factor, 3) if factor > 1 else images


def stored_inputs(inputs: NDArray[Any], rows: Rows, factor: int) -> NDArray[Any]:
    """Return the inputs of a memory's rows as they are stored there, at 1/factor of their side."""
    found: NDArray[Any] = enlarged(reduced(gather(inputs, rows), factor), factor).numpy()
    return found


def as_stored(raw: Tensor, in_memory: NDArray[np.bool_], factor: int) -> Tensor:
    """Return inputs with those of the memory as they are stored there, at 1/factor of their side."""
    if factor > 1 and in_memory.any():
        raw[in_memory] = enlarged(reduced(raw[in_memory], factor), factor)
    return raw


def check_downscale(factor: int, shape: tuple[int, ...]) -> None:
    """Refuse to store inputs smaller than they can be.

    >>> check_downscale(3, (3, 32, 32))
    Traceback (most recent call last):
    ...
    mlcl.errors.InputError: memory.downscale is 3, but the inputs are 3 x 32 x 32; expected images with sides it divides
    """
    if factor > 1 and (len(shape) != 3 or shape[1] % factor or shape[2] % factor):
        raise InputError(
            f"memory.downscale is {factor}, but the inputs are {' x '.join(map(str, shape))}; "
            "expected images with sides it divides"
        )


def slices(count: int, size: int) -> Iterator[slice]:
    """Cut ``range(count)`` into pieces of at most ``size``."""
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def cycle_rows(rows: Rows, count: int, rng: np.random.Generator) -> Rows:
    """Return ``count`` of the rows, going through random permutations of them one after another.

    Every row comes once before any comes twice.

    >>> sorted(cycle_rows(np.array([4, 7]), 4, np.random.default_rng(0)).tolist())
    [4, 4, 7, 7]
    """
    rounds = -(-count // max(len(rows), 1))
    order = rng.permuted(np.broadcast_to(np.arange(len(rows)), (rounds, len(rows))), axis=1)
    drawn: Rows = rows[order.reshape(-1)[:count]]
    return drawn


def count_steps(rows: int, batch_size: int, *, join: bool = False) -> int:
    """Return the steps of an epoch; with ``join`` one row that is left over belongs to the step before.

    >>> [(count_steps(rows, 4), count_steps(rows, 4, join=True)) for rows in (1, 4, 5, 6)]
    [(1, 1), (1, 1), (2, 1), (2, 2)]
    """
    alone = join and batch_size > 1 and rows > batch_size and rows % batch_size == 1
    return -(-rows // batch_size) - alone


@dataclass(frozen=True)
class EpochPlan:
    """All rows of one epoch, drawn beforehand: step s sees ``rows[s]`` with the task numbers ``tags[s]``.

    Because a plan depends on seed, task and epoch alone, a resumed run continues at any step of it.
    """

    current: Rows
    memory_rows: Rows
    memory_tags: Rows
    memory_slots: Rows
    task: int
    batch_size: int
    memory_batch: int
    join: bool = False

    def __len__(self) -> int:
        return count_steps(len(self.current), self.batch_size, join=self.join)

    def step(self, number: int) -> tuple[Rows, Rows, Rows]:
        """Return row numbers, their task numbers, and their places in the memory (-1 for the current rows, which
        come first).
        """
        last = number == len(self) - 1
        now = self.current[number * self.batch_size : None if last else (number + 1) * self.batch_size]
        past = slice(number * self.memory_batch, (number + 1) * self.memory_batch)
        rows = np.concatenate([now, self.memory_rows[past]])
        tags = np.concatenate([np.full(len(now), self.task), self.memory_tags[past]])
        return rows, tags, np.concatenate([np.full(len(now), -1), self.memory_slots[past]])


def plan_epoch(
    train_rows: Rows,
    memory: tuple[Rows, Rows],
    rng: np.random.Generator,
    *,
    task: int,
    batch_size: int,
    memory_batch: int,
    sampling: Literal["uniform", "balanced"],
    join: bool = False,
) -> EpochPlan:
    """Draw an epoch: a permutation of the task's rows, and beside each batch one from the memory.

    Args:
        memory: the row number and the task of each stored sample.
        memory_batch: rows of the memory per step; all of them if it holds fewer.
        sampling: ``uniform`` over the memory, or ``balanced``: past tasks take turns, so each has an equal share.
        join: one row that is left over belongs to the last step. Alone it has no spread, and a batch normalisation of
            one value fails.
    """
    current = rng.permutation(train_rows)
    rows, tags = memory
    width = min(memory_batch, len(rows))
    count = width * count_steps(len(current), batch_size, join=join)
    if sampling == "uniform" or not width:
        slots = cycle_rows(np.arange(len(rows)), count, rng)
    else:
        stored = [np.flatnonzero(tags == task) for task in np.unique(tags)]
        turns = np.stack([cycle_rows(one, -(-count // len(stored)), rng) for one in stored], axis=1)
        slots = turns.reshape(-1)[:count]
    return EpochPlan(current, rows[slots], tags[slots], slots, task, batch_size, width, join)
