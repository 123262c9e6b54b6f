"""The embedded dataset: small canvases of real handwritten digits in two inks, with a long tail of classes.

A canvas is 16 x 16 RGB and shows one to four digits, one in each cell of a 2 x 2 grid, on a noisy background
of its own shade. A class is a digit in an ink, so there are 20, and a canvas has a class at most once. The
most frequent class is on half of the canvases and the rarest on one in a hundred.

The handwriting is scikit-learn's `load_digits`: 1,797 images of 8 x 8 pixels by 13 writers. It does not
name the writers, but its rows run form by form: every 130 rows or so the same text of digits starts again.
Training canvases show the rows before one such start and test canvases those from it on, so no drawing and
no form is on both sides, which is as close to disjoint writers as the file allows.

Everything is integer arithmetic on the raw 64-bit output of PCG64, which numpy keeps stable over its
versions, so a seed gives the same bytes everywhere.
"""

from __future__ import annotations

import contextlib
import io
import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets.base import Dataset
from mlcl.errors import check_int
from mlcl.files import cache_dir, write_bytes
from mlcl.labels import Labels

INKS = ("red", "blue")
CLASSES = tuple(f"{digit}-{ink}" for digit in range(10) for ink in INKS)

_RECIPE = 1  # part of the cache's file name; to be raised with any change to a pixel or a label
_FIRST_TEST_ROW = 1287  # a form starts here; the last four forms are for test canvases

# The r-th most frequent class (r = 0..19) is to be on the share 0.5 * 0.02 ** (r / 19) of the canvases. Each
# class is drawn on its own with the chance below (in millionths); a canvas with no label, or more than
# four, is drawn again. The chances were solved for, by scaling odds with wanted / achieved until they met,
# so that the shares among the canvases that are kept are the wanted ones, to within 0.003 %. Mean: 2.64
# labels per canvas.
_CHANCES = (
    *(523590, 435900, 362500, 300964, 249368, 206167, 170084, 140034, 115086, 94433),
    *(77382, 63335, 51788, 42312, 34546, 28190, 22992, 18746, 15279, 12450),
)
# The rank r of each class: a fixed shuffle in which rarity depends neither on the digit nor on the ink.
_RANKS = (13, 15, 12, 7, 9, 19, 1, 3, 0, 5, 8, 2, 11, 18, 16, 17, 10, 4, 14, 6)

_PAPER = (164, 224)  # range of each channel of the background
_NOISE = 24  # each channel of each pixel is off by up to this much
_INK = np.array([[-8, -88, -88], [-88, -88, -8]], dtype=np.int32)  # what full ink adds to red, green and blue


def make_digits(*, train: int = 6000, test: int = 2000, seed: int = 0) -> Dataset:
    """Make the dataset, without looking at the cache.

    Args:
        train: number of training canvases.
        test: number of test canvases.
        seed: seed of all random draws: labels, drawings, cells, jitter, noise.

    Returns:
        uint8 images ``[N, 3, 16, 16]`` and labels ``[N, 20]``.
    """
    for name, value, low in (("train", train, 1), ("test", test, 1), ("seed", seed, 0)):
        check_int(name, value, low)
    from sklearn.datasets import load_digits  # slow to import, and not needed when the cache answers

    source = load_digits()
    glyphs, digits = source.images.astype(np.int32), source.target
    parts = []
    for part, (count, rows) in enumerate(
        ((train, slice(None, _FIRST_TEST_ROW)), (test, slice(_FIRST_TEST_ROW, None)))
    ):
        bits = np.random.PCG64([seed, part])
        labels = _draw_labels(bits, count)
        parts += [_draw_canvases(bits, labels, glyphs[rows], digits[rows]), labels]
    return _digits(*parts)


def load_digits_dataset(*, train: int = 6000, test: int = 2000, seed: int = 0) -> Dataset:
    """Return `make_digits` of the same arguments, kept as a file in `cache_dir` for the next time.

    A file that is missing or damaged is made again; without a folder to write to, the data is made each time.
    """
    try:
        path = cache_dir() / f"digits-{_RECIPE}-{train}-{test}-{seed}.npz"
    except RuntimeError:  # no home folder
        return make_digits(train=train, test=test, seed=seed)
    cached = _read(path)
    if cached is not None and (len(cached.train), len(cached.test)) == (train, test):
        return cached
    made = make_digits(train=train, test=test, seed=seed)
    _write(path, made)
    return made


def _below(bits: np.random.PCG64, bound: int | NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Draw ``count`` whole numbers from 0 to ``bound - 1``, with one bound for all or one for each."""
    high = (bits.random_raw(count) >> np.uint64(32)).astype(np.int64)
    return (high * bound) >> 32


def _draw_labels(bits: np.random.PCG64, count: int) -> Labels:
    """Draw label rows of one to four classes ``[count, 20]``."""
    chance = np.array(_CHANCES)[list(_RANKS)]
    kept = np.empty((0, len(CLASSES)), dtype=np.uint8)
    while len(kept) < count:
        rows = count + count // 4 + 16  # 83 % of the rows are kept, so one turn is mostly enough
        drawn = (_below(bits, 1_000_000, rows * len(CLASSES)).reshape(rows, -1) < chance).astype(np.uint8)
        size = drawn.sum(axis=1)
        kept = np.concatenate([kept, drawn[(size >= 1) & (size <= 4)]])
    return kept[:count]


def _draw_canvases(
    bits: np.random.PCG64, labels: Labels, glyphs: NDArray[np.int32], digits: NDArray[np.int64]
) -> NDArray[np.uint8]:
    """Draw canvases ``[N, 3, 16, 16]`` with given labels, from ``glyphs`` (0..16) that show ``digits``."""
    count = len(labels)
    canvas, label = np.nonzero(labels)  # one entry for each digit to draw
    place = (np.cumsum(labels, axis=1, dtype=np.int64) - 1)[canvas, label]  # it is the canvas's place-th
    digit, ink = label // len(INKS), label % len(INKS)

    by_digit = np.argsort(digits, kind="stable")
    many = np.bincount(digits, minlength=10)
    glyph = by_digit[(np.cumsum(many) - many)[digit] + _below(bits, many[digit], len(digit))]

    cells = np.array(list(itertools.permutations(range(4))))[_below(bits, 24, count)]
    cell = cells[canvas, place]
    top = cell // 2 * 8 + _below(bits, 3, len(cell))  # in a frame one pixel wide around the canvas,
    left = cell % 2 * 8 + _below(bits, 3, len(cell))  # so 0..2 is a shift of -1..1

    coverage = np.zeros((count, len(INKS), 18, 18), dtype=np.int32)
    eight = np.arange(8)
    for turn in range(4):  # at most one digit per canvas in each turn, so no two writes meet in one statement
        at = place == turn
        ys, xs = (top[at, None] + eight)[:, :, None], (left[at, None] + eight)[:, None, :]
        coverage[canvas[at, None, None], ink[at, None, None], ys, xs] += glyphs[glyph[at]]
    inked = np.minimum(coverage[:, :, 1:17, 1:17], 16)

    low, high = _PAPER
    paper = low + _below(bits, high - low + 1, count * 3).reshape(count, 3, 1, 1)
    noise = _below(bits, 2 * _NOISE + 1, count * 3 * 256).reshape(count, 3, 16, 16) - _NOISE
    tint = np.einsum("nihw,ic->nchw", inked, _INK) // 16
    pixels: NDArray[np.int64] = np.clip(paper + noise + tint, 0, 255)
    return pixels.astype(np.uint8)


def _digits(*parts: NDArray[np.uint8]) -> Dataset:
    # A mirrored 2 is no 2, and digits fill the canvas, so that a crop cuts them.
    return replace(Dataset.of("digits", CLASSES, *parts), augmentation="none")


def _read(path: Path) -> Dataset | None:
    """Return the dataset of a cache file, or None if it is missing or damaged."""
    try:
        with np.load(path, allow_pickle=False) as file:
            data = _digits(file["x_train"], file["y_train"], file["x_test"], file["y_test"])
            return data if data.fingerprint == str(file["fingerprint"]) else None
    except Exception:
        return None  # a damaged archive can raise nearly anything; whatever it was, the data is made again


def _write(path: Path, data: Dataset) -> None:
    """Write a cache file, if that is possible: after a failure, such as a full disk, the next time is only slower.

    Two processes may write it at once; `_read` checks what it finds, so the worst that follows is to make it again.
    """
    buffer = io.BytesIO()
    with contextlib.suppress(OSError):
        np.savez(
            buffer,
            x_train=data.train.inputs,
            y_train=data.train.labels,
            x_test=data.test.inputs,
            y_test=data.test.labels,
            fingerprint=np.array(data.fingerprint),
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, buffer.getvalue())
