"""Test rows that are also training rows, which ``mlcl data info`` warns of."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_BLOCK_BYTES = 16 * 2**20


def shared_rows(train: NDArray[Any], test: NDArray[Any]) -> NDArray[np.int64]:
    """Return ``[m, 2]``: each test row that equals a training row, after the first such training row.

    Rows are compared by a hash of their content, and those of equal hash byte by byte. Images that differ in one
    pixel, such as the same photograph compressed twice, are not found.

    >>> shared_rows(np.array([[1.0], [2.0], [2.0]]), np.array([[2.0], [3.0], [1.0]]))
    array([[1, 0],
           [0, 2]])
    """
    known, first = np.unique(row_hashes(train), return_index=True)
    hashes = row_hashes(test)
    place = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
    hit = np.flatnonzero(known[place] == hashes)
    pairs = np.stack([first[place[hit]], hit], axis=1).astype(np.int64)
    same = [np.array_equal(train[i], test[j]) for i, j in pairs]
    return pairs[np.asarray(same, dtype=np.bool_)]


def row_hashes(rows: NDArray[Any]) -> NDArray[np.uint64]:
    """Return a 64-bit hash of the content of each row, streaming: a sum of products modulo 2**64."""
    width = rows[0].nbytes
    words = -(-width // 8)
    # Odd random factors from a fixed seed: a hash must be the same in every run.
    factors = np.random.default_rng(0).integers(0, 2**63, words, dtype=np.uint64) * np.uint64(2) + np.uint64(
        1
    )
    hashes = np.empty(len(rows), dtype=np.uint64)
    step = max(1, _BLOCK_BYTES // max(width, 1))
    for start in range(0, len(rows), step):
        block = np.ascontiguousarray(rows[start : start + step])
        padded = np.zeros((len(block), words * 8), dtype=np.uint8)
        padded[:, :width] = block.reshape(len(block), -1).view(np.uint8)
        value = padded.view(np.uint64)
        # Mixed before and after: the low bits of a sum of products depend on the low bits of words alone.
        value = (value ^ (value >> np.uint64(29))) * factors
        hashes[start : start + step] = (value ^ (value >> np.uint64(32))).sum(axis=1, dtype=np.uint64)
    return hashes
