"""A validation benchmark out of the training split, so that nothing is tuned on test rows."""

from __future__ import annotations

import hashlib
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets.base import Dataset, Split
from mlcl.errors import InputError
from mlcl.streams.draws import HOLD_OUT, generator


def hold_out(dataset: Dataset, *, fraction: float = 0.2, seed: int = 0) -> Dataset:
    """Return a dataset whose test split is a part of the training rows; the real test split is not in it.

    Rows are drawn uniformly, once for all tasks, and stay in their order. Inputs in memory are copied; of a
    memory map only the row numbers are kept, and rows are read when they are needed.

    Args:
        dataset: the dataset whose training split is divided.
        fraction: share of the training rows to hold out, above 0 and below 1; either part has at least one row.
        seed: seed of the draw.

    >>> y = np.ones((10, 1))
    >>> part = hold_out(Dataset.of("tiny", ["cat"], np.arange(10)[:, None], y, np.zeros((3, 1)), y[:3]))
    >>> part.train.inputs.ravel(), part.test.inputs.ravel()
    (array([0., 1., 2., 3., 4., 6., 7., 8.], dtype=float32), array([5., 9.], dtype=float32))
    """
    if not 0 < fraction < 1:
        raise InputError(f"fraction is {fraction}; expected a number above 0 and below 1")
    total = len(dataset.train)
    if total < 2:
        raise InputError(
            f"{dataset.name!r} has {total} training row, but at least 2 were expected to hold out one"
        )
    count = min(max(1, round(total * fraction)), total - 1)
    order = generator(seed, HOLD_OUT).permutation(total)
    held, kept = np.sort(order[:count]), np.sort(order[count:])
    # Derived from the known fingerprint and the row numbers: the content need not be read again.
    digest = hashlib.sha256(dataset.fingerprint.encode() + held.astype("<i8").tobytes())
    return Dataset(
        name=f"{dataset.name}-validation",
        classes=dataset.classes,
        train=_take(dataset.train, kept),
        test=_take(dataset.train, held),
        fingerprint=digest.hexdigest()[:16],
        augmentation=dataset.augmentation,
        origin=dataset.origin,
    )


class RowView:
    """Some rows of an array that is too large to copy; indexed by row only, and the rows that are taken are copied."""

    def __init__(self, base: NDArray[Any], rows: NDArray[np.int64]) -> None:
        self.base, self.rows = base, rows
        self.shape = (len(rows), *base.shape[1:])
        self.dtype, self.ndim = base.dtype, base.ndim
        self.nbytes = base.nbytes // max(1, len(base)) * len(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> NDArray[Any]:
        return np.asarray(self.base[self.rows[index]])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:].astype(self.dtype if dtype is None else dtype, copy=False)


def _take(split: Split, rows: NDArray[np.int64]) -> Split:
    """Return some rows of a split."""
    large = isinstance(split.inputs, np.memmap | RowView)
    inputs = RowView(split.inputs, rows) if large else split.inputs[rows]
    return Split(cast("NDArray[Any]", inputs), split.labels[rows])
