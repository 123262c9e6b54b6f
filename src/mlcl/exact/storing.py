"""Sums as a few arrays and back. Arrays may come from a file, so whatever does not fit together is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.errors import InputError
from mlcl.exact.moments import NOISE, Moments, packed_diagonal, packed_size
from mlcl.exact.sums import Sums

ARRAYS = ("block_of", "places", "counts", "sums", "seconds")
"""The names of the arrays."""
PEAKS = "peaks"
"""Of one more, if rows were forgotten: see `Moments.peak`."""


def sums_arrays(sums: Sums) -> dict[str, NDArray[Any]]:
    """Return sums as arrays; moments that are shared take space once, those of no row none.

    >>> sums = Sums.of(np.array([[1.0, 2.0]]), np.array([[True, False]]))
    >>> sums_arrays(sums)["places"]  # all rows, those annotated for both classes (the same), positives of each
    array([ 0,  0,  1, -1])
    """
    moments = (sums.total, *sums.annotated, *sums.positive)
    unique = {id(one): one for one in moments if one.count}
    place = {name: number for number, name in enumerate(unique)}
    d = sums.dimension
    peaks = {}
    if any(one.peak is not None for one in unique.values()):
        peaks[PEAKS] = np.array([one.peaks for one in unique.values()])
    return peaks | {
        "block_of": np.array(sums.block_of, np.int64),
        "places": np.array([place.get(id(one), -1) for one in moments], np.int64),
        "counts": np.array([one.count for one in unique.values()]),
        "sums": np.array([one.sum for one in unique.values()]).reshape(-1, d),
        "seconds": np.array([one.second for one in unique.values()]).reshape(-1, packed_size(d)),
    }


def read_sums(arrays: Mapping[str, NDArray[Any]]) -> Sums:
    """Return the sums that `sums_arrays` was made of; values that do not fit together are an `InputError`."""
    block_of, places, counts, sums, seconds = (np.asarray(arrays[name]) for name in ARRAYS)
    peaks = None if PEAKS not in arrays else np.asarray(arrays[PEAKS])
    d, classes = sums.shape[1] if sums.ndim == 2 else -1, len(block_of)
    blocks = int(block_of.max(initial=-1)) + 1
    fits = (
        block_of.dtype == places.dtype == np.int64
        and all(one.dtype == np.float64 for one in (counts, sums, seconds))
        and block_of.ndim == counts.ndim == 1
        and np.array_equal(np.unique(block_of), np.arange(blocks))
        and places.shape == (1 + blocks + classes,)
        and np.array_equal(np.unique(places[places != -1]), np.arange(len(counts)))
        and sums.shape == (len(counts), d)
        and seconds.shape == (len(counts), packed_size(d))
        and (peaks is None or (peaks.dtype == np.float64 and peaks.shape == sums.shape))
        and all(
            np.isfinite(one).all() for one in (counts, sums, seconds, *([] if peaks is None else [peaks]))
        )
        and (counts > 0).all()
    )
    if not fits:
        raise InputError("the sums are not those of a learner: their shapes, types or values do not fit")
    unique = [
        Moments(
            float(n),
            one.copy(),
            second.copy(),
            None if peaks is None else np.maximum(peaks[i], packed_diagonal(second)),
        )
        for i, (n, one, second) in enumerate(zip(counts, sums, seconds, strict=True))
    ]
    unique.append(Moments.zeros(d))  # at the place -1
    total, *rest = (unique[place] for place in places)
    found = Sums(total, tuple(block_of.tolist()), tuple(rest[:blocks]), tuple(rest[blocks:]))
    for k, own in enumerate(found.positive):
        if not own.count <= found.annotated_for(k).count * (1 + NOISE) <= total.count * (1 + NOISE) ** 2:
            raise InputError(f"the sums have more positives of class {k} than rows annotated for it, or rows")
    return found
