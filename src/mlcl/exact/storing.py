"""Sums as a few arrays and back. Arrays may come from a file, so whatever does not fit together is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.errors import InputError
from mlcl.exact.moments import NOISE, Moments, packed_size
from mlcl.exact.sums import Sums

ARRAYS = ("block_of", "places", "counts", "sums", "seconds")
"""The names of the arrays."""
PEAKS, SQUARES, LEAD = MORE = ("peaks", "squares", "lead")
"""Of more: `Moments.peak`, if rows were forgotten; second moments of positives that are not whole; and `Sums.lead`."""


def sums_arrays(sums: Sums) -> dict[str, NDArray[Any]]:
    """Return sums as arrays; moments that are shared take space once, those of no row none.

    >>> sums = Sums.of(np.array([[1.0, 2.0]]), np.array([[True, False]]))
    >>> sums_arrays(sums)["places"]  # all rows, those annotated for both classes (the same), positives of each
    array([ 0,  0,  1, -1])
    """
    moments = (sums.total, *sums.annotated, *sums.positive)
    unique = {id(one): one for one in moments if one.count}
    place = {name: number for number, name in enumerate(unique)}
    d, more = sums.dimension, {}
    if any(one.peak is not None for one in unique.values()):
        more[PEAKS] = np.array([one.peaks for one in unique.values()])
    packed = list(unique.values())
    if sums.shared:
        rows = {id(one) for one in (sums.total, *sums.annotated)}
        packed, own = (
            [one for key, one in unique.items() if (key in rows) == side] for side in (True, False)
        )
        width = d + (0 if sums.lead is None else packed_size(sums.lead.shape[1]))
        more[SQUARES] = np.array([one.second for one in own]).reshape(-1, width)
        if sums.lead is not None:
            more[LEAD] = sums.lead
    return more | {
        "block_of": np.array(sums.block_of, np.int64),
        "places": np.array([place.get(id(one), -1) for one in moments], np.int64),
        "counts": np.array([one.count for one in unique.values()]),
        "sums": np.array([one.sum for one in unique.values()]).reshape(-1, d),
        "seconds": np.array([one.second for one in packed]).reshape(-1, packed_size(d)),
    }


def read_sums(arrays: Mapping[str, NDArray[Any]]) -> Sums:
    """Return the sums that `sums_arrays` was made of; values that do not fit together are an `InputError`."""
    block_of, places, counts, sums, seconds = (np.asarray(arrays[name]) for name in ARRAYS)
    peaks = None if PEAKS not in arrays else np.asarray(arrays[PEAKS])
    d, classes = sums.shape[1] if sums.ndim == 2 else -1, len(block_of)
    shared = SQUARES in arrays
    squares = np.asarray(arrays[SQUARES]) if shared else np.zeros((0, max(d, 0)))
    lead = np.asarray(arrays[LEAD]) if LEAD in arrays else np.zeros((max(d, 0), 0))
    blocks = int(block_of.max(initial=-1)) + 1
    fits = (
        block_of.dtype == places.dtype == np.int64
        and all(one.dtype == np.float64 for one in (counts, sums, seconds, squares, lead))
        and block_of.ndim == counts.ndim == 1
        and np.array_equal(np.unique(block_of), np.arange(blocks))
        and places.shape == (1 + blocks + classes,)
        and np.array_equal(np.unique(places[places != -1]), np.arange(len(counts)))
        and sums.shape == (len(counts), d)
        and seconds.shape == (len(counts) - len(squares), packed_size(d))
        and lead.ndim == 2
        and len(lead) == d
        and (LEAD not in arrays or (shared and 0 < lead.shape[1] < d - 1))
        and squares.shape == (len(squares), d + packed_size(lead.shape[1]))
        and (not shared or (places[: 1 + blocks] < len(seconds)).all())
        and (not shared or (places[1 + blocks :] >= len(seconds))[places[1 + blocks :] >= 0].all())
        and (peaks is None or (peaks.dtype == np.float64 and peaks.shape == sums.shape))
        and all(
            np.isfinite(one).all()
            for one in (counts, sums, seconds, squares, lead, *([] if peaks is None else [peaks]))
        )
        and (counts > 0).all()
    )
    if not fits:
        raise InputError("the sums are not those of a learner: their shapes, types or values do not fit")
    unique = [
        Moments(float(n), one.copy(), second.copy())
        for n, one, second in zip(counts, sums, (*seconds, *squares), strict=True)
    ]
    if peaks is not None:
        unique = [
            replace(one, peak=np.maximum(peak, one.squares)) for one, peak in zip(unique, peaks, strict=True)
        ]
    total, *rest = (Moments.zeros(d) if place < 0 else unique[place] for place in places[: 1 + blocks])
    nothing = Moments.zeros(d, diagonal=shared)
    own = tuple(nothing if place < 0 else unique[place] for place in places[1 + blocks :])
    found = Sums(total, tuple(block_of.tolist()), tuple(rest), own, shared, lead if LEAD in arrays else None)
    for k, one in enumerate(found.positive):
        if not one.count <= found.annotated_for(k).count * (1 + NOISE) <= total.count * (1 + NOISE) ** 2:
            raise InputError(f"the sums have more positives of class {k} than rows annotated for it, or rows")
    return found
