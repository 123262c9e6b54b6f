"""What a store holds, and what is odd about it: the data behind ``mlcl data info``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets.store import Manifest, open_store, read_ids, read_manifest
from mlcl.labels import LabelCounts

_BLOCK_BYTES = 16 * 2**20


@dataclass(frozen=True, eq=False)
class StoreReport:
    """The description of a store.

    Attributes:
        path: of the store.
        manifest: all that is written about it.
        train: positives and negatives of each class in the training split.
        test: the same in the test split.
        labels_per_row: the mean number of labels, in training and test.
        without_sign: classes that have no positive or no negative, as (class, split, sign).
        duplicates: how many test rows have exactly the content of a training row.
        examples: some of them, as (id of the training row, id of the test row).
    """

    path: Path
    manifest: Manifest
    train: LabelCounts
    test: LabelCounts
    labels_per_row: tuple[float, float]
    without_sign: tuple[tuple[str, str, str], ...]
    duplicates: int
    examples: tuple[tuple[str, str], ...]


def describe_store(path: str | Path, *, examples: int = 5) -> StoreReport:
    """Describe a store; every row is read once, to find test rows that are training rows."""
    path = Path(path)
    data, ids, manifest = open_store(path), read_ids(path), read_manifest(path)
    counts = LabelCounts.of(data.train.labels), LabelCounts.of(data.test.labels)
    pairs = shared_rows(data.train.inputs, data.test.inputs)
    return StoreReport(
        path=path,
        manifest=manifest,
        train=counts[0],
        test=counts[1],
        labels_per_row=(float(data.train.labels.sum(1).mean()), float(data.test.labels.sum(1).mean())),
        without_sign=tuple(
            (data.classes[k], split, sign)
            for split, count in zip(("train", "test"), counts, strict=True)
            for sign in ("positive", "negative")
            for k in np.flatnonzero(getattr(count, sign) == 0)
        ),
        duplicates=len(pairs),
        examples=tuple((ids[i], ids[manifest.train + j]) for i, j in pairs[:examples].tolist()),
    )


def shared_rows(train: NDArray[Any], test: NDArray[Any]) -> NDArray[np.int64]:
    """Return ``[m, 2]``: for each test row that equals a training row, the first such and itself.

    Rows are compared by a hash of their content, and those of equal hash byte by byte. Images that differ
    in one pixel, such as the same photograph saved twice, are not found.

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
