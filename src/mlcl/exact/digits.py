"""What large values cost the digits of the sums, and which are refused for it (specification.md#digits).

float64 has 53 binary digits. A square of 2^26 times the sum that it is added to leaves that sum 27 of them: they remain
once the row is taken back, and they are what a side of a class has where the row is on the other side. So a value may
cost half of the digits and no more. Sums of squares per column are looked at first: they bound every value in them, so
that rows are looked at one by one only where these sums are in doubt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.errors import InputError

Floats = NDArray[np.float64]

HALF = 2.0**26
"""A square may be so many times the sum of the other squares of its column: half the digits of float64."""
ORDINARY = 2.0**16
"""A square of up to so many times the sum over all columns is of an ordinary size, however small its column was: as
where a word is rare, or where a probability was close to 0 in all rows before."""
DOUBT, MOST = 4.0, 2.0**60
"""k rows allow ``HALF ^ (1 + DOUBT / k)``, at most `MOST`: two small draws do not make the third an outlier."""
WIDEST, WIDEST_PROJECTED = 1e13, 1e12
"""Columns whose standard deviations differ by more cannot be solved together (`mlcl.exact.solution.NOTHING`), or do not
determine principal components together."""
EXACT = 2.0**-48
"""Columns that vary by less of their own mean are constant up to rounding."""
NODATA = 1e20
"""Values from here on mark missing cells in many files (rasters, netCDF), and measure nothing."""
SAMPLE, NUMBERS = 1024, 2**22
"""So many rows, of at most so many numbers, say how large a column usually is."""
LIGHTEST = 2.0**-40
"""The least weight of a row, as a share of the weights of all rows before."""


@dataclass(frozen=True)
class Large:
    """A value that would cost too many digits.

    Attributes:
        row: where it is.
        column: where it is.
        value: what it is.
        others: the size of the other values of its column, as a root of their mean square.

    >>> print(Large(3, 1, -3.4e38, 2.0).sentence().partition(";")[0])
    contains -3.4e+38 at row 3, column 1, where other values are about 2: it looks like a NoData value
    """

    row: int
    column: int
    value: float
    others: float

    def sentence(self, start: int = 0) -> str:
        """Return what is wrong, after the name of the rows, whose first has the number ``start``."""
        hint = ": it looks like a NoData value" if abs(self.value) >= NODATA else ""
        return (
            f"contains {self.value:g} at row {start + self.row}, column {self.column}, where other values are about "
            f"{self.others:g}{hint}; expected values of one scale in a column, since its square would cost the sums "
            f"more than half of their digits"
        )


@dataclass(frozen=True, eq=False)
class Seen:
    """What is known of the size of columns.

    Attributes:
        squares: sums of squares over some rows, ``[d]``.
        count: how many rows.
    """

    squares: Floats
    count: float


def limits(squares: Floats, ordinary: float, rows: float) -> Floats:
    """Return the largest square that each column may be given, ``[d]``; infinite where it never varied.

    Args:
        squares: sums of squares so far.
        ordinary: their sum over all columns.
        rows: over how many rows.

    >>> limits(np.array([1.0, 4.0, 1e-9, 0.0]), 5.0, 1000)[:3] / HALF > 1e-3
    array([ True,  True,  True])
    """
    found = np.maximum(_allowed(np.asarray(rows)) * squares, ORDINARY * ordinary)
    return np.where(squares > 0, found, np.inf)


def usual(rows: Floats) -> Floats:
    """Return the sum of squares of each column without its outliers, ``[d]``.

    Squares are sorted; where one exceeds what those below it allow, it and all above are left out. So an outlier may be
    in many rows, and a heavy tail, in which each value is not far above the ones before, has none.

    >>> usual(np.array([[1.0, 1.0], [2.0, 0.0], [1.0, 1e12], [1.0, -1e12], [1.0, 1.0]]))
    array([8., 2.])
    """
    squares = np.sort(rows**2, axis=0)
    below = np.cumsum(squares, axis=0)
    counts = np.cumsum(squares > 0, axis=0)
    gaps = (squares[1:] > _allowed(counts[:-1]) * below[:-1]) & (below[:-1] > 0)
    last = np.where(gaps.any(axis=0), gaps.argmax(axis=0), len(rows) - 1) if len(rows) > 1 else 0
    return np.asarray(below[last, np.arange(rows.shape[1])])


def first_over(
    take: Callable[[slice, Any], Floats], rows: int, squares: Floats, before: Seen, *, width: int
) -> tuple[int, int, float] | None:
    """Return the first row and column whose square is over the limit, and the size of the others; None without one.

    A value is compared with the rows before, and with the other rows where those are fewer.

    Args:
        take: returns some columns of some rows, each times the root of its weight.
        rows: n.
        squares: of all rows, summed, ``[d]``.
        before: of the rows before.
        width: how many numbers a row has.
    """
    every, whole = slice(None), slice(0, rows)
    size, ordinary, count = before.squares, float(before.squares.sum()), before.count
    if count and not (squares > limits(size, ordinary, count)).any():
        return None
    if fewer := rows > count:
        sample = take(slice(0, rows, sample_step(rows, width)), every)
        size = np.maximum(size, usual(sample))
        ordinary, count = max(ordinary, usual_length(sample)), max(count, float(len(sample)))
    doubtful = np.flatnonzero(squares > limits(size, ordinary, count))
    if not len(doubtful):
        return None
    values, size = take(whole, doubtful), size[doubtful]
    if fewer:
        size = np.maximum(size, usual(values))
    over = np.argwhere(values**2 > limits(size, ordinary, count))
    if not len(over):
        return None
    row, place = (int(one) for one in over[0])
    return row, int(doubtful[place]), float(np.sqrt(size[place] / max(count, 1.0)))


def usual_length(rows: Floats) -> float:
    """Return the sum of the squares of all rows, without those that are far longer than the others."""
    return float(usual(np.sqrt((rows**2).sum(axis=1, keepdims=True)))[0])


def sample_step(rows: int, features: int) -> int:
    """Return the step between the rows of a sample."""
    return max(1, -(-rows // max(1, min(SAMPLE, NUMBERS // max(features, 1)))))


def narrow(variances: Floats, means: Floats, *, widest: float) -> tuple[int, int] | None:
    """Return the columns of the largest and the least standard deviation if they differ too much, else None.

    Columns that are constant, also up to the rounding of their own values, are left out.

    Args:
        variances: of the columns.
        means: of the columns as they came.
        widest: by how much they may differ.

    >>> narrow(np.array([1.0, 1e-30, 0.0]), np.zeros(3), widest=WIDEST)
    (0, 1)
    >>> narrow(np.array([1.0, 1e-30, 0.0]), np.ones(3), widest=WIDEST)
    """
    varying = np.flatnonzero(variances > (EXACT * means) ** 2)
    if not len(varying):
        return None
    largest, least = varying[variances[varying].argmax()], varying[variances[varying].argmin()]
    return (int(largest), int(least)) if variances[largest] > widest**2 * variances[least] else None


def too_wide(variances: Floats, columns: tuple[int, int], what: str = "column") -> InputError:
    """Return the error for the columns of `narrow`."""
    large, small = columns
    hint = ": it may hold NoData values" if variances[large] >= (NODATA / 1e3) ** 2 else ""
    return InputError(
        f"{what} {large} varies by {np.sqrt(variances[large]):g}{hint}, and {what} {small} by "
        f"{np.sqrt(variances[small]):g}, of which nothing would be left beside it; expected features in units that "
        f"differ less (standardise them), without columns that are the rounding of a constant; nothing was changed"
    )


def check_weights(weights: Floats | None, before: float) -> None:
    """Refuse weights beside which other rows would lose their digits.

    Args:
        weights: of the rows to learn; 0 is always allowed. None: 1 each.
        before: the sum of the weights of all rows before.
    """
    if weights is None:
        weights = np.ones(1)
    if not (weights > 0).any():
        return
    heavy, light = int(weights.argmax()), int(np.where(weights > 0, weights, np.inf).argmin())
    expected = (
        "expected weights that differ less, or 0, since of the lighter rows too few digits would be left"
    )
    if weights[heavy] > HALF * weights[light]:
        raise InputError(
            f"sample_weight is {weights[heavy]:g} at row {heavy} and {weights[light]:g} at row {light}; {expected}"
        )
    if before > 0:
        for row, far in (
            (heavy, weights[heavy] > HALF * before),
            (light, weights[light] < LIGHTEST * before),
        ):
            if far:
                raise InputError(
                    f"sample_weight is {weights[row]:g} at row {row}, and {before:g} of all rows before; {expected}"
                )


def _allowed(rows: NDArray[np.generic]) -> Floats:
    power = 1 + DOUBT / np.maximum(rows, 1)
    return np.asarray(np.minimum(HALF**power, MOST), np.float64)
