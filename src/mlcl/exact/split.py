"""Which rows are held out: a tenth of them, by a hash of their numbers, so that order and cut do not matter."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.seeds import numpy_generator

Held = NDArray[np.bool_]

SHARE = 0.1
"""The share of rows that is held out."""


@lru_cache(maxsize=8)
def hash_keys(features: int, seed: int) -> NDArray[np.uint64]:
    """Return one odd random number per feature, for `held_out`."""
    generator = numpy_generator(seed, "held-out rows")
    keys = generator.integers(0, 2**64, features, dtype=np.uint64) | np.uint64(1)
    keys.flags.writeable = False  # every caller gets the same array
    return keys


def held_out(rows: Any, keys: NDArray[np.uint64]) -> Held:
    """Return which rows are held out, bool ``[n]``.

    The hash is the sum of each number's float64 bits times its column's key, modulo 2^64, then mixed. Zeros add
    nothing, so a sparse matrix and its dense form have the same hash, as have float32 and float64 of equal values.

    Args:
        rows: ``[n, D]``: an array, or a CSR matrix in canonical format.
        keys: of `hash_keys`.

    >>> rows = np.random.default_rng(0).random((1000, 3))
    >>> held = held_out(rows, hash_keys(3, seed=0))
    >>> int(held.sum()), bool((held_out(rows[::-1], hash_keys(3, seed=0)) == held[::-1]).all())
    (102, True)
    """
    if hasattr(rows, "indptr"):
        terms = _bits(rows.data) * keys[rows.indices]
        ends = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
        sums = ends[rows.indptr[1:]] - ends[rows.indptr[:-1]]
    else:
        sums = _bits(rows) @ keys
    return _mixed(sums) < np.uint64(SHARE * 2**64)


def _bits(values: Any) -> NDArray[np.uint64]:
    # Adding 0 turns -0 into 0, whose bits are all zero.
    return (np.asarray(values, np.float64) + 0.0).view(np.uint64)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix the bits, so that all of them decide (the finaliser of MurmurHash3)."""
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        values = (values ^ (values >> np.uint64(33))) * np.uint64(factor)
    return values ^ (values >> np.uint64(33))
