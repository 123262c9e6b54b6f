"""Counts, sums and second moments of rows: what the exact learner keeps instead of rows.

Moments of two sets of rows add, and those of a subset can be subtracted again. All numbers are float64. The second
moment is symmetric and is stored packed, its upper triangle column by column as LAPACK does; or its diagonal alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from mlcl.errors import InputError
from mlcl.exact.digits import HALF, ORDINARY, limits

Floats = NDArray[np.float64]

FEW = 4
"""Up to so many rows, packed rank-one updates are faster than a full product."""
ROUNDING = 1e-10
"""Below this share of the mean square, a variance is taken for the rounding of zero."""
NOISE = 1e-9
"""What may be left by rounding where nothing should be, relative to what was there before."""
RESIDUE = 2.0**-46
"""The same for one sum after a few thousand additions and subtractions."""


@dataclass(frozen=True, eq=False)
class Moments:
    """Count, sum and second moment of a set of rows, which may be weighted. Every operation returns a new one.

    Attributes:
        count: the number of rows, or the sum of their weights.
        sum: sum of the rows, ``[d]``.
        second: sum of ``z z'`` over the rows ``z``, packed, ``[d (d + 1) / 2]``; or its diagonal, ``[d]``, and after
            it, packed, what the sum is along a few leading directions, ``[q (q + 1) / 2]`` with q below d - 1.
        peak: the largest that its diagonal has been, ``[d]``: its rounding is that of the peak, whatever was taken away
            since. None: nothing was.

    >>> a, b = Moments.of(np.array([[1.0, 2.0]])), Moments.of(np.array([[3.0, 0.0], [2.0, 1.0]]))
    >>> (a + b).mean
    array([2., 1.])
    >>> (a + b).covariance()
    array([[ 0.66666667, -0.66666667],
           [-0.66666667,  0.66666667]])
    """

    count: float
    sum: Floats
    second: Floats
    peak: Floats | None = None

    @classmethod
    def zeros(cls, d: int, *, diagonal: bool = False) -> Moments:
        """Return the moments of no rows of ``d`` numbers."""
        return cls(0.0, np.zeros(d), np.zeros(d if diagonal else packed_size(d)))

    @classmethod
    def of(cls, rows: Floats, weights: Floats | None = None) -> Moments:
        """Return the moments of rows.

        Args:
            rows: ``[n, d]``, float64.
            weights: a weight of at least 0 per row; 1 each by default.
        """
        n, d = rows.shape
        if weights is not None:
            roots = rows * np.sqrt(weights)[:, None]
            return cls(float(weights.sum()), weights @ rows, _second(roots))
        return cls(float(n), _column_sums(rows, np.zeros(d)), _second(rows))

    @property
    def dimension(self) -> int:
        """Return d."""
        return len(self.sum)

    @property
    def nbytes(self) -> int:
        """Return the size of the numbers in bytes."""
        return 8 + self.sum.nbytes + self.second.nbytes + (0 if self.peak is None else self.peak.nbytes)

    @property
    def squares(self) -> Floats:
        """Return the sum of squares of each column, ``[d]``."""
        return packed_diagonal(self.second) if self.whole else self.second[: self.dimension]

    @property
    def whole(self) -> bool:
        """Return whether all of the second moment is known, not its diagonal alone."""
        return len(self.second) == packed_size(self.dimension)

    @property
    def peaks(self) -> Floats:
        """Return the largest that `squares` have been, ``[d]``."""
        return self.squares if self.peak is None else self.peak

    @property
    def mean(self) -> Floats:
        """Return the mean of the rows, ``[d]``; zeros without rows."""
        return self.sum / self.count if self.count > 0 else np.zeros_like(self.sum)

    @property
    def mean_squares(self) -> Floats:
        """Return the mean square of each column, ``[d]``; zeros without rows."""
        return self.squares / (self.count if self.count > 0 else 1.0)

    @property
    def variances(self) -> Floats:
        """Return the variance of each column (divided by the count), ``[d]``; 0 where only rounding is left."""
        squares = self.mean_squares
        found = squares - self.mean**2
        least = ROUNDING * squares
        if self.peak is not None and self.count > 0:
            least = np.maximum(least, RESIDUE / self.count * self.peak)
        return np.where(found > least, found, 0.0)

    def packed_covariance(self) -> Floats:
        """Return the covariance (divided by the count), packed; zeros without rows."""
        if self.count <= 0:
            return np.zeros_like(self.second)
        return _rank_one(self.dimension, -1.0, self.mean, self.second / self.count)

    def covariance(self) -> Floats:
        """Return the covariance (divided by the count), ``[d, d]``."""
        return unpack(self.packed_covariance())

    def diagonal(self) -> Moments:
        """Return the same with the diagonal of the second moment alone."""
        return replace(self, second=self.squares)

    def __add__(self, other: Moments) -> Moments:
        if not other.count:
            return self
        if not self.count:
            return other
        second = self.second + other.second
        peak = None if self.peak is None and other.peak is None else _highest(self, other)
        return Moments(self.count + other.count, self.sum + other.sum, second, peak)

    def scaled(self, factor: float) -> Moments:
        """Return the moments of the same rows, each with ``factor`` times its weight."""
        if factor == 1:
            return self
        peak = None if self.peak is None else factor * self.peak
        return Moments(factor * self.count, factor * self.sum, factor * self.second, peak)

    def without(self, other: Moments, *, usual: float = 0.0) -> Moments:
        """Return the moments without some of the rows; an `InputError` if these rows cannot have been among them.

        It is not always visible in the sums whether rows were among them. Refused are rows that would leave a
        negative count, a negative variance in some direction, or something where no row is left; and rows so large
        that of what is left too few digits would be known.

        Args:
            other: the moments of these rows.
            usual: the mean of the squared length of rows like these.
        """
        if not other.count:
            return self
        count = self.count - other.count
        if count < -NOISE * self.count:
            raise InputError(f"{self.count:g} rows were learnt, but {other.count:g} are to be forgotten")
        left = replace(self._minus(other), peak=np.maximum(self.peaks, other.squares))
        slack = NOISE * np.maximum(self.squares, other.squares)
        after = left.squares
        if count <= NOISE * self.count:
            if (np.abs(after) > slack).any() or (left.sum**2 > slack * self.count).any():
                raise InputError("as many rows are to be forgotten as were learnt, but not the same rows")
            return self._nothing()
        if possible := bool((after >= -slack).all()):
            _check_digits(left, self.count, ORDINARY * max(float(after.sum()), usual * count))
        if not possible or not _is_positive(left, slack / count):
            raise InputError("these rows were not learnt: without them a variance would be negative")
        return left

    def remainder(self, other: Moments) -> Moments:
        """Return the moments without rows that are known to be among them, as a class's positives among all rows."""
        if not other.count:
            return self
        count = self.count - other.count
        if count <= NOISE * self.count:
            return self._nothing()
        return self._minus(other)

    def _nothing(self) -> Moments:
        return Moments(0.0, np.zeros_like(self.sum), np.zeros_like(self.second))

    def _minus(self, other: Moments) -> Moments:
        return Moments(self.count - other.count, self.sum - other.sum, self.second - other.second)

    def mapped(self, matrix: Floats, shift: Floats) -> Moments:
        """Return the moments of the rows ``A z + b``: the mean becomes ``A mu + b``, the covariance ``A S A'``.

        Args:
            matrix: A, ``[e, d]``.
            shift: b, ``[e]``.

        >>> moments = Moments.of(np.array([[1.0, 2.0], [0.0, 4.0]]))
        >>> moments.mapped(np.array([[2.0, 1.0]]), np.array([-3.0])).sum
        array([2.])
        """
        total = matrix @ self.sum
        second = matrix @ unpack(self.second) @ matrix.T
        second += np.outer(total, shift) + np.outer(shift, total) + self.count * np.outer(shift, shift)
        peak = None
        if self.peak is not None:
            peak = (np.abs(matrix) @ np.sqrt(self.peak) + np.sqrt(self.count) * np.abs(shift)) ** 2
        return Moments(self.count, total + self.count * shift, pack(second), peak)


class Growing:
    """Moments of rows that come in blocks, added in place.

    Args:
        d: numbers per row.
        patience: fewer rows than this wait for more, so that a product is worth its result of d x d numbers; 1: none
            waits, and the second moment is a whole matrix until the end, to which BLAS adds at its full speed.

    >>> growing = Growing(1, patience=2)
    >>> for block in (np.array([[1.0]]), np.array([[2.0], [3.0]])):
    ...     growing.add(block)
    >>> growing.moments().sum
    array([6.])
    """

    def __init__(self, d: int, *, patience: int = 1) -> None:
        self.patience = patience
        self._count, self._sum = 0, np.zeros(d)
        whole = patience <= 1
        self._second = np.zeros((d, d), order="F") if whole else np.zeros(packed_size(d))
        self._waiting: list[Floats] = []
        self._held = 0

    def add(self, rows: Floats) -> None:
        """Add rows ``[n, d]``, which must not be a view of something larger: they may be kept for a while."""
        self._waiting.append(rows)
        self._held += len(rows)
        if self._held >= self.patience:
            self._flush()

    def _flush(self) -> None:
        rows = self._waiting[0] if len(self._waiting) == 1 else np.concatenate(self._waiting)
        self._count += self._held
        self._waiting, self._held = [], 0
        self._sum = _column_sums(rows, self._sum)
        if self.patience <= 1:
            rows = np.ascontiguousarray(rows)
            self._second = np.asarray(blas.dsyrk(1.0, rows.T, 1.0, self._second, overwrite_c=1))
        else:
            self._second += _second(rows)

    def moments(self) -> Moments:
        """Return the moments of all rows; this is the end of adding."""
        if self._held:
            self._flush()
        second = pack(self._second) if self.patience <= 1 else self._second
        return Moments(float(self._count), self._sum, second)


def packed_size(d: int) -> int:
    """Return how many numbers the upper triangle of a ``d`` x ``d`` matrix has."""
    return d * (d + 1) // 2


def pack(matrix: Floats) -> Floats:
    """Return the upper triangle, packed column by column.

    >>> pack(np.array([[1.0, 2.0], [2.0, 3.0]]))
    array([1., 2., 3.])
    """
    packed, _ = lapack.dtrttp(np.asfortranarray(matrix), uplo="U")
    return np.asarray(packed)


def unpack(packed: Floats) -> Floats:
    """Return the whole symmetric matrix of a packed one."""
    return mirrored(unpack_upper(packed))


def unpack_upper(packed: Floats) -> Floats:
    """Return the matrix whose upper triangle is packed, with zeros below, in Fortran's order."""
    d = (int(np.sqrt(8 * len(packed) + 1)) - 1) // 2
    matrix, _ = lapack.dtpttr(d, packed, uplo="U")
    return np.asarray(matrix)


def mirrored(upper: Floats) -> Floats:
    """Return the symmetric matrix of an upper triangle with zeros below.

    >>> mirrored(np.array([[1.0, 2.0], [0.0, 3.0]]))
    array([[1., 2.],
           [2., 3.]])
    """
    found = upper + upper.T
    found[np.diag_indices_from(found)] /= 2
    return found


def packed_diagonal(packed: Floats) -> Floats:
    """Return the diagonal of a packed matrix.

    >>> packed_diagonal(np.array([1.0, 2.0, 3.0]))
    array([1., 3.])
    """
    d = (int(np.sqrt(8 * len(packed) + 1)) - 1) // 2
    return packed[np.cumsum(np.arange(1, d + 1)) - 1]


def check_parts(one: Moments, other: Moments) -> None:
    """Refuse to add moments of which those of the fewer rows would cost the others too many digits."""
    few, many = (other, one) if other.count <= one.count else (one, other)
    squares = many.squares
    over = few.mean_squares > limits(squares, float(squares.sum()), many.count)
    if few.count and over.any():
        k = int(over.argmax())
        raise InputError(
            f"the {few.count:g} rows of one part are about {np.sqrt(few.mean_squares[k]):g} in column {k}, and the "
            f"{many.count:g} of the other {np.sqrt(many.mean_squares[k]):g}: their sum would lose more than half of "
            f"its digits; expected parts of one scale; nothing was changed"
        )


def _highest(one: Moments, other: Moments) -> Floats:
    squares = one.squares + other.squares
    return np.maximum(np.maximum(one.peaks, other.peaks), squares)


def _check_digits(left: Moments, before: float, ordinary: float) -> None:
    """Refuse sums of which fewer than half the digits are known.

    Args:
        left: the sums, of at least one row.
        before: the count before rows were taken away.
        ordinary: a square of this size is no outlier among what is left.
    """
    after = left.squares
    # One row whose squares are all exactly 0 is at the centre: a first row that came alone.
    alone = left.count <= 1 and not after.any()
    lost = (left.peaks > np.maximum(HALF * after, ordinary)) & (not alone)
    if lost.any() or before > HALF * left.count:
        k = int(lost.argmax())
        raise InputError(
            f"too few digits are left: the squares of column {k} were {left.peaks[k]:.3g} in all, and {after[k]:.3g} "
            f"would be left of them; the rows that are to stay must be learnt anew, without these"
        )


def _is_positive(moments: Moments, slack: Floats) -> bool:
    """Return whether no direction has a negative variance, with ``slack`` added to that of each column."""
    if not moments.whole:
        return bool((moments.mean_squares - moments.mean**2 + slack >= 0).all())
    upper = unpack_upper(moments.packed_covariance())
    diagonal = np.diag(upper) + slack
    if (diagonal < 0).any():
        return False
    scale = np.divide(1.0, np.sqrt(diagonal), out=np.zeros_like(diagonal), where=diagonal > 0)
    upper[np.diag_indices_from(upper)] += slack
    upper *= scale[:, None]
    upper *= scale
    upper[np.diag_indices_from(upper)] += scale == 0  # constant columns
    return not lapack.dpotrf(upper, lower=0, overwrite_a=1)[1]


def _column_sums(rows: Floats, onto: Floats) -> Floats:
    """Return ``onto``, changed in place, plus the sum of the rows.

    By scipy's BLAS, as all products here: numpy brings another, and the threads of the one wait, spinning, where those
    of the other work.
    """
    if not rows.size:
        return onto
    ones = np.ones(len(rows))
    return np.asarray(blas.dgemv(1.0, np.ascontiguousarray(rows).T, ones, 1.0, onto, overwrite_y=1))


def _second(rows: Floats) -> Floats:
    n, d = rows.shape
    if n <= FEW:
        packed = np.zeros(packed_size(d))
        for row in rows:
            packed = _rank_one(d, 1.0, row, packed)
        return packed
    # The transpose of a C-ordered matrix is Fortran's order: BLAS reads it in place.
    return pack(blas.dsyrk(1.0, np.ascontiguousarray(rows).T))


def _rank_one(d: int, factor: float, vector: Floats, packed: Floats) -> Floats:
    """Add ``factor * vector vector'`` to a packed matrix, in place."""
    return np.asarray(blas.dspr(d, factor, vector, packed, overwrite_ap=1)) if d else packed
