"""The sums of all rows, of the rows annotated for each class, and of the positives of each class.

Rows may be annotated for any of the classes. The annotated rows of a class are one set of moments; classes that were
annotated for the same rows so far, usually those of one task, share it: they form a *block*. So there are one set of
moments for all rows, one per block and one per class, however many rows there are and however their labels are cut
into tasks or are missing cell by cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlcl.errors import InputError
from mlcl.exact.moments import NOISE, Floats, Moments

Marks = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Sums:
    """Moments by class. Every operation returns a new object and leaves this one unchanged.

    Attributes:
        total: moments of all rows, annotated or not.
        block_of: the block of each class.
        annotated: moments of the annotated rows of each block.
        positive: moments of the positives of each class, among the rows annotated for it.
    """

    total: Moments
    block_of: tuple[int, ...]
    annotated: tuple[Moments, ...]
    positive: tuple[Moments, ...]

    @classmethod
    def zeros(cls, d: int, classes: int = 0) -> Sums:
        """Return the sums of no rows."""
        nothing = Moments.zeros(d)
        return cls(nothing, (0,) * classes, (nothing,) * min(classes, 1), (nothing,) * classes)

    @classmethod
    def of(
        cls, rows: Floats, positive: Marks, annotated: Marks | None = None, weights: Floats | None = None
    ) -> Sums:
        """Return the sums of rows.

        Args:
            rows: ``[n, d]``, float64.
            positive: which labels are present, ``[n, K]``.
            annotated: which labels are known, ``[n, K]``; all by default. Unknown labels are not read.
            weights: a weight of at least 0 per row; 1 each by default.
        """
        nothing = Moments.zeros(rows.shape[1])
        if annotated is None:
            total = Moments.of(rows, weights)
            block_of, parts = (0,) * positive.shape[1], (total,) * min(positive.shape[1], 1)
        else:
            positive = positive & annotated
            total, block_of, parts = _by_block(rows, annotated, weights)
        own = tuple(
            _subset(rows, column, weights) if any_of else nothing
            for column, any_of in zip(positive.T, np.any(positive, axis=0).tolist(), strict=True)
        )
        return cls(total, block_of, parts, own)

    @property
    def classes(self) -> int:
        """Return the number of classes, K."""
        return len(self.positive)

    @property
    def dimension(self) -> int:
        """Return d."""
        return self.total.dimension

    @property
    def nbytes(self) -> int:
        """Return the size of all moments of at least one row, each counted once, in bytes."""
        moments = (self.total, *self.annotated, *self.positive)
        return sum(one.nbytes for one in {id(one): one for one in moments}.values() if one.count)

    def annotated_for(self, k: int) -> Moments:
        """Return the moments of the rows that were annotated for class k."""
        return self.annotated[self.block_of[k]]

    def sides(self, k: int, unlabelled: float) -> tuple[Moments, Moments]:
        """Return the moments of the positives and of the negatives of class k.

        Args:
            k: number of the class.
            unlabelled: the weight of rows that were not annotated for the class, as negatives.
        """
        annotated = self.annotated_for(k)
        negative = annotated.remainder(self.positive[k])
        if unlabelled:
            negative = negative + self.total.remainder(annotated).scaled(unlabelled)
        return self.positive[k], negative

    def counts(self, k: int, unlabelled: float) -> tuple[float, float]:
        """Return the numbers of rows in the two of `sides`, without their moments."""
        positive, annotated, total = self.positive[k].count, self.annotated_for(k).count, self.total.count
        negative, rest = annotated - positive, total - annotated
        known = negative if negative > NOISE * annotated else 0.0
        return positive, known + (unlabelled * rest if rest > NOISE * total else 0.0)

    def grown(self, classes: int) -> Sums:
        """Return the same sums with more classes, for which no row was annotated."""
        more = classes - self.classes
        if not more:
            return self
        nothing = Moments.zeros(self.dimension)
        block = len(self.annotated)
        return Sums(
            self.total,
            (*self.block_of, *(block,) * more),
            (*self.annotated, nothing),
            (*self.positive, *(nothing,) * more),
        )

    def placed(self, ids: Sequence[int], classes: int) -> Sums:
        """Return the sums with class i as class ``ids[i]`` of ``classes``; the others were not annotated."""
        if list(ids) == list(range(classes)):
            return self
        nothing = Moments.zeros(self.dimension)
        block_of = [len(self.annotated)] * classes
        positive = [nothing] * classes
        for i, k in enumerate(ids):
            block_of[k], positive[k] = self.block_of[i], self.positive[i]
        return _tidy(self.total, block_of, (*self.annotated, nothing), tuple(positive))

    def __add__(self, other: Sums) -> Sums:
        block_of, pairs = _common(self, other)
        total = self.total + other.total
        # Where every row was annotated for a block in both, its moments are the total: one object, added once.
        parts = tuple(
            total
            if self.annotated[a] is self.total and other.annotated[b] is other.total
            else self.annotated[a] + other.annotated[b]
            for a, b in pairs
        )
        positive = tuple(a + b for a, b in zip(self.positive, other.positive, strict=True))
        return Sums(total, block_of, parts, positive)

    def without(self, other: Sums, names: Sequence[object] | None = None) -> Sums:
        """Return the sums without some of the rows; an `InputError` if they cannot have been learnt so.

        Args:
            other: the sums of these rows.
            names: of the classes, for the error.
        """
        block_of, pairs = _common(self, other)
        shown = names or range(self.classes)
        total = _checked(self.total, other.total, "", 0.0)
        usual = float(total.squares.sum()) / total.count if total.count else 0.0
        parts = [
            _checked(
                self.annotated[a],
                other.annotated[b],
                f" annotated for {shown[block_of.index(number)]!r}",
                usual,
            )
            for number, (a, b) in enumerate(pairs)
        ]
        positive = [
            _checked(a, b, f" positive for {name!r}", usual)
            for a, b, name in zip(self.positive, other.positive, shown, strict=True)
        ]
        for k, own in enumerate(positive):
            if own.count > parts[block_of[k]].count * (1 + NOISE):
                raise InputError(
                    f"these rows were not learnt as they are given: {shown[k]!r} would have more positives than rows"
                )
        return Sums(total, block_of, tuple(parts), tuple(positive))

    def removed(self, k: int) -> Sums:
        """Return the sums without class k; its rows stay, as rows of the other classes and unlabelled ones."""
        drop = [i for i in range(self.classes) if i != k]
        block_of = [self.block_of[i] for i in drop]
        return _tidy(self.total, block_of, self.annotated, tuple(self.positive[i] for i in drop))

    def mapped(self, matrix: Floats, shift: Floats) -> Sums:
        """Return the sums of the rows ``A z + b``; see `Moments.mapped`."""
        done = {id(one): one.mapped(matrix, shift) for one in (self.total, *self.annotated, *self.positive)}
        return Sums(
            done[id(self.total)],
            self.block_of,
            tuple(done[id(one)] for one in self.annotated),
            tuple(done[id(one)] for one in self.positive),
        )


def _subset(rows: Floats, chosen: Marks, weights: Floats | None) -> Moments:
    if chosen.all():
        return Moments.of(rows, weights)
    return Moments.of(rows[chosen], None if weights is None else weights[chosen])


def _by_block(
    rows: Floats, annotated: Marks, weights: Floats | None
) -> tuple[Moments, tuple[int, ...], tuple[Moments, ...]]:
    """Return the moments of all rows, the block of each class, and the moments of each block."""
    columns, block_of = np.unique(annotated, axis=1, return_inverse=True)
    patterns, pattern_of = np.unique(columns, axis=0, return_inverse=True)
    pattern_of = pattern_of.ravel()
    if len(patterns) <= columns.shape[1] + 1:
        # Few kinds of rows: the moments of each kind, added up.
        kinds = [_subset(rows, pattern_of == i, weights) for i in range(len(patterns))]
        nothing = Moments.zeros(rows.shape[1])
        total = sum(kinds, nothing)
        parts = tuple(
            sum((kind for kind, has in zip(kinds, column, strict=True) if has), nothing)
            for column in patterns.T
        )
    else:
        total = Moments.of(rows, weights)
        parts = tuple(_subset(rows, column, weights) for column in columns.T)
    return total, tuple(int(b) for b in block_of.ravel()), parts


def _common(one: Sums, other: Sums) -> tuple[tuple[int, ...], list[tuple[int, int]]]:
    """Return blocks of classes that share a block in both, and for each block its block in one and in the other."""
    if one.classes != other.classes or one.dimension != other.dimension:
        raise InputError(
            f"sums of {one.classes} classes and {one.dimension} numbers do not go with sums of "
            f"{other.classes} classes and {other.dimension} numbers"
        )
    numbers: dict[tuple[int, int], int] = {}
    block_of = tuple(
        numbers.setdefault(pair, len(numbers)) for pair in zip(one.block_of, other.block_of, strict=True)
    )
    return block_of, list(numbers)


def _tidy(
    total: Moments, block_of: Sequence[int], annotated: Sequence[Moments], positive: tuple[Moments, ...]
) -> Sums:
    """Return sums whose blocks are numbered in the order of their first class; unused ones are left out."""
    order = {block: number for number, block in enumerate(dict.fromkeys(block_of))}
    return Sums(total, tuple(order[b] for b in block_of), tuple(annotated[b] for b in order), positive)


def _checked(before: Moments, rows: Moments, which: str, usual: float) -> Moments:
    try:
        return before.without(rows, usual=usual)
    except InputError as error:
        raise InputError(f"rows{which}: {error}; nothing was changed") from None
