"""Writing the inputs of a store: a ready array in one go, images chunk by chunk and resumable."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets.decoding import Bad, Chunk, Decoder, decode_all
from mlcl.datasets.partial import Ledger
from mlcl.datasets.plan import EncodedImages
from mlcl.datasets.store import INPUTS
from mlcl.engines.cores import cores
from mlcl.errors import InputError
from mlcl.files import cut_file, is_there, new_file, opened, refuse_link, write_all, write_at

Progress = Callable[[int, int], None]


def _header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """Return the header of an .npy file; its length stays the same when the number of rows changes."""
    buffer = io.BytesIO()
    descr = np.lib.format.dtype_to_descr(dtype)
    fields = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, fields)
    return buffer.getvalue()


def write_array(path: Path, array: NDArray[Any], progress: Progress | None) -> None:
    """Write a ready array, a few thousand rows at a time."""
    with opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as number:
        write_all(number, _header(array.shape, array.dtype))
        for start in range(0, len(array), 4096):
            write_all(number, array[start : start + 4096].tobytes())
            if progress is not None:
                progress(min(start + 4096, len(array)), len(array))


Compute = Callable[[Sequence[Chunk]], Iterator[tuple[Chunk, NDArray[np.float32]]]]
"""Takes ranges of rows and yields each with its inputs, in any order."""


def one_after_the_other(compute: Callable[[int, int], NDArray[np.float32]]) -> Compute:
    """Return what computes ranges of rows in this process, by a function of the first row and the one after the last.

    >>> list(one_after_the_other(lambda start, stop: np.arange(start, stop))([(0, 2), (4, 5)]))
    [((0, 2), array([0, 1])), ((4, 5), array([4]))]
    """
    return lambda ranges: ((chunk, compute(*chunk)) for chunk in ranges)


def write_computed(
    compute: Compute, ledger: Ledger, width: int, step: int, progress: Progress | None
) -> None:
    """Compute the rows that the ledger lists as left, at least ``step`` at a time, into the store's file."""
    path, rows = ledger.folder / INPUTS, ledger.rows
    header = _header((rows, width), np.dtype(np.float32))
    if not is_there(path):
        new_file(path, header, size=len(header) + 4 * rows * width)
    left = ledger.left()
    counted = rows - sum(stop - start for start, stop in left)
    ranges: dict[Chunk, list[Chunk]] = {}
    while left:
        taken = [left.pop(0)]
        while left and left[0][0] == taken[-1][1] and taken[-1][1] - taken[0][0] < step:
            taken.append(left.pop(0))
        ranges[taken[0][0], taken[-1][1]] = taken
    try:
        for (first, last), found in compute(list(ranges)):
            block = np.ascontiguousarray(found, dtype="<f4")
            write_at(path, len(header) + 4 * first * width, block.tobytes())
            for chunk in ranges[first, last]:
                ledger.record(chunk, [])
            counted += last - first
            if progress is not None:
                progress(counted, rows)
    finally:
        ledger.save()


def write_images(
    images: EncodedImages,
    ledger: Ledger,
    size: int,
    skip_bad: bool,
    jobs: int | None,
    progress: Progress | None,
) -> None:
    """Decode the rows that the ledger lists as left."""
    path, rows = ledger.folder / INPUTS, ledger.rows
    header = _header((rows, 3, size, size), np.dtype(np.uint8))
    if not is_there(path):
        new_file(path, header, size=len(header) + rows * 3 * size * size)

    left = ledger.left()
    counted = rows - sum(stop - start for start, stop in left)

    def done(chunk: Chunk, bad: Bad) -> None:
        nonlocal counted
        ledger.record(chunk, bad)
        _refuse(images, ledger.bad, skip_bad)
        counted += chunk[1] - chunk[0]
        if progress is not None:
            progress(counted, rows)

    _refuse(images, ledger.bad, skip_bad)
    if progress is not None:
        progress(counted, rows)
    try:
        decode_all(Decoder(images, size, path, len(header)), left, jobs=jobs or cores(), done=done)
    finally:
        ledger.save()


def _refuse(images: EncodedImages, bad: Bad, skip_bad: bool) -> None:
    if bad and not skip_bad:
        row, why = min(bad)
        raise InputError(f"{images.name(row)} {why} (--skip-bad would leave such images out)")


def close_gaps(ledger: Ledger, good: NDArray[np.int64]) -> None:
    """Keep only the rows ``good`` of the file, ascending: undecodable images have left gaps in it."""
    ledger.save(restart=True)  # half moved, the rows could not be trusted
    path = ledger.folder / INPUTS
    refuse_link(path)
    pixels = np.load(path, mmap_mode="r+", allow_pickle=False)
    row_bytes = pixels[0].nbytes
    for start in range(0, len(good), 1024):
        rows = good[start : start + 1024]
        pixels[start : start + len(rows)] = pixels[rows]  # rows move towards the front, never past each other
    pixels.flush()
    header = _header((len(good), *pixels.shape[1:]), pixels.dtype)
    del pixels
    write_at(path, 0, header)
    cut_file(path, len(header) + len(good) * row_bytes)
