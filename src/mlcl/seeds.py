"""Random streams by name: every random choice has a generator of its own, made from the seed and what it is for.

There is no global random state and none to save: the batches of task 3, epoch 2 are the same whether the run got there
in one go or was resumed.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def derive_seed(seed: int, purpose: str, *position: int) -> int:
    """Return a 63-bit seed for one purpose at one position of the run.

    >>> derive_seed(0, "batches", 1) == derive_seed(0, "batches", 1) != derive_seed(0, "batches", 2)
    True
    """
    entropy = [seed, zlib.crc32(purpose.encode()), *position]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> 1)


def numpy_generator(seed: int, purpose: str, *position: int) -> np.random.Generator:
    """Return a numpy generator for one purpose at one position of the run."""
    return np.random.default_rng(derive_seed(seed, purpose, *position))


def torch_generator(seed: int, purpose: str, *position: int) -> torch.Generator:
    """Return a torch generator (on the CPU) for one purpose at one position of the run."""
    import torch  # a foundation module: loaded only for those who train

    return torch.Generator().manual_seed(derive_seed(seed, purpose, *position))
