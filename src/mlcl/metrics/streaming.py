"""Macro-AUC of scores that arrive in batches and need not fit in memory, with a bound on its error.

Its state are histograms with adaptive bins that merge exactly. A score is mapped to a whole number, its key, in the
order of the scores. A bin of level e is a block of 2^e neighbouring keys; only bins that are not empty are stored. The
level is the smallest at which no more than a given number of bins are in use, so it depends on the scores alone, not on
the order or the batches in which they arrived: more scores can only raise it, and raising it joins bins exactly.

Keys are made from the bits of floating-point numbers, so that bins are fine near 0, and, through the distance to 1 and
-1, near those as well, where the outputs of a sigmoid or tanh accumulate. Empty bins cost nothing, so bins are also
fine where all scores are near each other, such as 1000 to 1001, and an outlier takes one bin.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlcl.errors import InputError, check_int
from mlcl.metrics.columns import Column, each_class, in_threads, mean_defined, split
from mlcl.metrics.inputs import Bools, Floats, Scores, check_average, check_scores, refuse_cells

Ints = NDArray[np.int64]

LARGEST = 2.0**960
_OCTAVE = 2**52  # doubles from one power of two to the next
_HALF = 1022 * _OCTAVE  # the bits of 1/2
_TURNS = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])


class Tally(NamedTuple):
    """Distinct numbers in increasing order, and how often each occurred; int64 ``[U]`` both."""

    keys: Ints
    counts: Ints

    def join(self, other: Tally) -> Tally:
        """Add two tallies.

        >>> a, b = Tally(np.array([1, 4]), np.array([2, 1])), Tally(np.array([4, 9]), np.array([5, 1]))
        >>> a.join(b)
        Tally(keys=array([1, 4, 9]), counts=array([2, 6, 1]))
        """
        if not len(self.keys) or not len(other.keys):
            return self if len(self.keys) else other
        keys = np.concatenate([self.keys, other.keys])
        order = keys.argsort(kind="stable")  # two sorted runs: merged in linear time
        return _summed(keys[order], np.concatenate([self.counts, other.counts])[order])

    def coarser(self, levels: int) -> Tally:
        """Join each block of ``2^levels`` neighbouring keys to one.

        >>> Tally(np.array([-1, 4, 5]), np.array([2, 1, 1])).coarser(1)
        Tally(keys=array([-1,  2]), counts=array([2, 2]))
        """
        return _summed(self.keys >> levels, self.counts) if levels else self

    def levels_to_fit(self, bins: int) -> int:
        """Return the smallest number of levels by which to coarsen it so that at most ``bins`` keys are left."""
        if len(self.keys) <= bins:
            return 0
        # Neighbours fall into one block of 2^e when their bits differ only in the last e. All but bins - 1 of
        # the neighbours have to; so it is the width of the (bins)-th largest difference that counts.
        differ = (self.keys[1:] ^ self.keys[:-1]).view(np.uint64)
        return int(np.partition(differ, len(differ) - bins)[len(differ) - bins]).bit_length()


@dataclass(frozen=True, eq=False)
class Histogram:
    """The scores of one class, positives and negatives separately, in bins of one level."""

    level: int
    positive: Tally
    negative: Tally

    @classmethod
    def of(cls, column: Column, positive: Bools) -> Histogram:
        """Count every distinct score; ``column`` is overwritten.

        >>> Histogram.of(np.array([0.5, 1.0, 0.5]), np.array([True, False, True])).positive.counts
        array([2])
        """
        above, below = split(column, positive)
        return cls(0, _count(ordered_keys(above)), _count(ordered_keys(below)))

    def merge(self, other: Histogram, bins: int) -> Histogram:
        """Add two histograms, with at most ``bins`` bins for positives and for negatives each."""
        level = max(self.level, other.level)
        mine, yours = (
            [tally.coarser(level - h.level) for tally in (h.positive, h.negative)] for h in (self, other)
        )
        sides = [a.join(b) for a, b in zip(mine, yours, strict=True)]
        more = max(side.levels_to_fit(bins) for side in sides)
        return Histogram(level + more, *(side.coarser(more) for side in sides))

    def auc(self) -> tuple[float, float]:
        """Return the AUC with pairs inside a bin counted one half, and how far from the exact one it can be.

        Both are nan without positives or without negatives. The bound is half of the share of pairs that fall into one
        bin, and 0 at level 0, where a bin is one score, as are the bins of 0, 1 and -1 up to level 52.

        >>> Histogram.of(np.array([3.0, 1.0, 3.0]), np.array([True, False, False])).auc()
        (0.75, 0.0)
        """
        positives, negatives = (int(side.counts.sum()) for side in (self.positive, self.negative))
        pairs = positives * negatives
        if not pairs:
            return float("nan"), float("nan")
        hay, needles = self.negative.keys, self.positive.keys
        before = np.concatenate([[0], np.cumsum(self.negative.counts)])
        at = hay.searchsorted(needles)
        below = int((before[at] * self.positive.counts).sum())
        here = np.flatnonzero(hay.take(at, mode="clip") == needles)
        together = self.negative.counts[at[here]] * self.positive.counts[here]
        unsure = together[~np.isin(needles[here], _POINTS >> self.level)] if self.level <= 52 else together
        # Whole numbers until the one division: at level 0 this is the value of `macro_auc`, bit for bit.
        value = (2 * below + int(together.sum())) / (2 * pairs)
        return value, int(unsure.sum()) / (2 * pairs) if self.level else 0.0


EMPTY = Histogram(0, *(Tally(np.zeros(0, np.int64), np.zeros(0, np.int64)),) * 2)


def ordered_keys(values: Column) -> Ints:
    """Return a whole number for each of the increasing ``values``, in the same order, equal where they are equal.

    With ``bits`` those of a double, magnitudes a go to ``bits(a)`` below 1/2, to ``2 bits(1/2) - bits(1 - a)``
    from there to 1 (the difference is exact), and to ``bits(a)`` and a constant above. 0, 1 and -1 have an
    octave (2^52 keys) to themselves. Magnitudes up to `LARGEST` leave room for that.

    >>> ordered_keys(np.array([-2.5, -0.0, 0.0, 0.75])).tolist()
    [-4856006298212237313, 0, 0, 4611686018427387904]
    """
    values = np.add(values, 0.0, dtype=np.float64)  # + 0.0 makes -0.0 the same as 0.0
    left, right = values.searchsorted(_TURNS, side="left"), values.searchsorted(_TURNS, side="right")
    size = np.abs(values)
    for mirrored in (slice(right[0], right[1]), slice(left[3], left[4])):  # (-1, -1/2] and [1/2, 1)
        np.subtract(1.0, size[mirrored], out=size[mirrored])
    keys = size.view(np.int64)
    for mirrored in (slice(right[0], right[1]), slice(left[3], left[4])):
        np.subtract(2 * _HALF, keys[mirrored], out=keys[mirrored])
    keys[: left[0]] += _OCTAVE
    keys[: right[0]] += 52 * _OCTAVE
    keys[left[4] :] += 52 * _OCTAVE
    keys[right[4] :] += _OCTAVE
    keys[: left[2]] += _OCTAVE
    keys[right[2] :] += _OCTAVE
    np.invert(keys[: left[2]], out=keys[: left[2]])  # below zero the order turns round
    return keys


def _count(keys: Ints) -> Tally:
    """Tally sorted numbers."""
    first = _starts(keys)
    return Tally(keys[first], np.diff(first, append=len(keys)))


def _summed(keys: Ints, counts: Ints) -> Tally:
    """Add up the counts of equal numbers, which stand next to each other."""
    first = _starts(keys)
    return Tally(keys[first], np.add.reduceat(counts, first)) if len(keys) else Tally(keys, counts)


def _starts(keys: Ints) -> Ints:
    """Return where runs of equal numbers begin."""
    new = np.ones(len(keys), dtype=np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=new[1:])
    return np.flatnonzero(new)


_POINTS = ordered_keys(np.array([-1.0, 0.0, 1.0]))

# Rows that wait for the next merge, for each bin: fewer merges, and memory stays in proportion to the bins.
_WAITING = 4


class StreamingMacroAUC:
    """Macro-AUC in memory O(classes x bins), however many rows there are.

    Scores may have any range. The scores of a class's positives are counted in at most ``bins`` adaptive bins (see
    `mlcl.metrics.streaming`), and so are those of its negatives; pairs inside a bin count one half. With at most
    ``bins`` distinct scores of each the value is exact. In any case `error_bound` returns how far it can be from the
    exact one; it is usually far nearer, because errors inside bins cancel. The state depends on the rows alone, not on
    their order or on how they were split into batches: merging the metrics of parts gives exactly that of the whole.

    Args:
        classes: the number of classes ``K``.
        bins: the largest number of bins for the positives and for the negatives of a class, at least 2. The peak
            memory is about ``150 x K x bins`` bytes.

    >>> rng = np.random.default_rng(0)
    >>> labels = rng.random((5000, 3)) < 0.1
    >>> scores = rng.normal(size=(5000, 3)) + labels
    >>> whole, first, second = (StreamingMacroAUC(3, bins=1000) for _ in range(3))
    >>> round(whole.update(scores, labels).compute(), 4), round(whole.error_bound(), 4)
    (0.7525, 0.0014)
    >>> first.update(scores[:2000], labels[:2000])
    StreamingMacroAUC(classes=3, bins=1000, rows=2000)
    >>> (first + second.update(scores[2000:], labels[2000:])).compute() == whole.compute()
    True
    """

    def __init__(self, classes: int, *, bins: int = 8192) -> None:
        self.classes = check_int("classes", classes, 1)
        self.bins = check_int("bins", bins, 2)
        self.reset()

    def reset(self) -> StreamingMacroAUC:
        """Forget all rows."""
        self.rows = 0
        self._held: list[Histogram] = [EMPTY] * self.classes
        self._waiting: list[tuple[Scores, Bools, Bools | None]] = []
        self._wait = 0
        return self

    def update(
        self, scores: ArrayLike, labels: ArrayLike, *, mask: ArrayLike | None = None
    ) -> StreamingMacroAUC:
        """Add rows, as in `macro_auc`: scores ``[n, K]``, labels 0 or 1, mask true where a label is known."""
        values, truth, known = check_scores(scores, labels, mask)
        if values.shape[1] != self.classes:
            raise InputError(f"scores has {values.shape[1]} columns, but {self.classes} were expected")
        _check_range(values, known)
        self.rows += len(values)
        limit = _WAITING * self.bins
        for start in range(0, len(values), limit):
            part = slice(start, start + limit)
            piece = values[part], truth[part], None if known is None else known[part]
            if len(piece[0]) == limit:
                self._count(*piece)
            else:
                self._put_aside(*piece)
        return self

    def merge(self, other: StreamingMacroAUC) -> StreamingMacroAUC:
        """Add all rows of another metric."""
        if (self.classes, self.bins) != (other.classes, other.bins):
            raise InputError(
                f"the other metric has {other.classes} classes and {other.bins} bins, "
                f"but {self.classes} and {self.bins} were expected"
            )
        other._flush()
        self._flush()
        self.rows += other.rows
        self._add(other._held)
        return self

    def __add__(self, other: StreamingMacroAUC) -> StreamingMacroAUC:
        if not isinstance(other, StreamingMacroAUC):
            return NotImplemented
        return StreamingMacroAUC(self.classes, bins=self.bins).merge(self).merge(other)

    @overload
    def compute(self, *, average: Literal["macro"] = ...) -> float: ...
    @overload
    def compute(self, *, average: None) -> Floats: ...
    def compute(self, *, average: Literal["macro"] | None = "macro") -> float | Floats:
        """Return the Macro-AUC of all rows so far, or with ``average=None`` one value per class, nan if undefined."""
        return self._average(0, average)

    @overload
    def error_bound(self, *, average: Literal["macro"] = ...) -> float: ...
    @overload
    def error_bound(self, *, average: None) -> Floats: ...
    def error_bound(self, *, average: Literal["macro"] | None = "macro") -> float | Floats:
        """Return how far `compute` can be from the exact value, or with ``average=None`` one bound per class."""
        return self._average(1, average)

    def __repr__(self) -> str:
        return f"StreamingMacroAUC(classes={self.classes}, bins={self.bins}, rows={self.rows})"

    def _average(self, which: int, average: Literal["macro"] | None) -> float | Floats:
        check_average(average)
        self._flush()
        values = np.array([held.auc()[which] for held in self._held], dtype=np.float64)
        return values if average is None else mean_defined(values)

    def _put_aside(self, values: Scores, truth: Bools, known: Bools | None) -> None:
        """Keep copies of rows until there are enough to be worth a merge; the caller may reuse the arrays."""
        self._waiting.append((values.copy(), truth.copy(), None if known is None else known.copy()))
        self._wait += len(values)
        if self._wait >= _WAITING * self.bins:
            self._flush()

    def _flush(self) -> None:
        """Count the rows that are waiting."""
        if not self._waiting:
            return
        scores, truths, masks = zip(*self._waiting, strict=True)
        self._waiting, self._wait = [], 0
        known = None
        if any(mask is not None for mask in masks):
            pairs = zip(masks, truths, strict=True)
            known = np.concatenate([np.ones_like(t) if m is None else m for m, t in pairs])
        self._count(np.concatenate(scores), np.concatenate(truths), known)

    def _count(self, values: Scores, truth: Bools, known: Bools | None) -> None:
        self._add(each_class(Histogram.of, values, truth, known))

    def _add(self, other: list[Histogram]) -> None:
        pairs = zip(self._held, other, strict=True)
        size = sum(len(h.positive.keys) + len(h.negative.keys) for h in other)
        self._held = in_threads(lambda pair: pair[0].merge(pair[1], self.bins), pairs, size=size)


def _check_range(values: Scores, known: Bools | None) -> None:
    if values.dtype != np.float32:
        far = (np.abs(values) > LARGEST) & (True if known is None else known)
        refuse_cells("scores", values, far, f"magnitudes up to {LARGEST:.0e} were expected")
