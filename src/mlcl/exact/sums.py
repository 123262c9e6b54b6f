"""The sums of all rows, of the rows annotated for each class, and of the positives of each class.

Rows may be annotated for any of the classes. The annotated rows of a class are one set of moments; classes that were
annotated for the same rows so far, usually those of one task, share it: they form a *block*. So there are one set of
moments for all rows, one per block and one per class, however many rows there are and however their labels are cut
into tasks or are missing cell by cell.

In the *full* form a class keeps the whole second moment of its positives. In the *shared* form it keeps the diagonal
alone, so that a class is 2 d + 1 numbers, and all classes of a block share the second moment of its rows; and, if there
are *leading directions*, the second moment along these, q (q + 1) / 2 numbers more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mlcl.errors import InputError
from mlcl.exact.moments import NOISE, Floats, Moments

Marks = NDArray[np.bool_]
MANY = 2000
"""With more classes than this, leading directions are given up: a class must take little space then."""


@dataclass(frozen=True, eq=False)
class Sums:
    """Moments by class. Every operation returns a new object and leaves this one unchanged.

    Attributes:
        total: moments of all rows, annotated or not.
        block_of: the block of each class.
        annotated: moments of the annotated rows of each block.
        positive: moments of the positives of each class, among the rows annotated for it; diagonal in the shared form.
        shared: whether this is the shared form.
        lead: the leading directions, ``[d, q]``, in the shared form; None without any.
    """

    total: Moments
    block_of: tuple[int, ...]
    annotated: tuple[Moments, ...]
    positive: tuple[Moments, ...]
    shared: bool = False
    lead: Floats | None = None

    @classmethod
    def zeros(cls, d: int, classes: int = 0, *, shared: bool = False, lead: Floats | None = None) -> Sums:
        """Return the sums of no rows."""
        nothing, own = Moments.zeros(d), Moments.zeros(d, diagonal=shared)
        return cls(nothing, (0,) * classes, (nothing,) * min(classes, 1), (own,) * classes, shared, lead)

    @classmethod
    def of(
        cls,
        rows: Floats,
        positive: Any,
        annotated: Marks | None = None,
        weights: Floats | None = None,
        *,
        shared: bool = False,
        lead: Floats | None = None,
    ) -> Sums:
        """Return the sums of rows.

        Args:
            rows: ``[n, d]``, float64.
            positive: which labels are present, ``[n, K]``; a sparse matrix without ``annotated`` only.
            annotated: which labels are known, ``[n, K]``; all by default. Unknown labels are not read.
            weights: a weight of at least 0 per row; 1 each by default.
            shared: the form.
            lead: leading directions, ``[d, q]``, in the shared form.
        """
        lead = None if positive.shape[1] > MANY else lead
        if annotated is None:
            total = Moments.of(rows, weights)
            block_of, parts = (0,) * positive.shape[1], (total,) * min(positive.shape[1], 1)
        else:
            positive = positive & annotated
            total, block_of, parts = _by_block(rows, annotated, weights)
        own = [Moments.zeros(rows.shape[1], diagonal=shared)] * positive.shape[1]
        pairs = label_pairs(positive)
        if shared:
            for k, count, sums in zip(*diagonals(rows, pairs, lead, weights), strict=True):
                own[k] = diagonal_moments(count, sums, rows.shape[1])
        else:
            for k, chosen in by_label(pairs):
                own[k] = Moments.of(rows[chosen], None if weights is None else weights[chosen])
        return cls(total, block_of, parts, tuple(own), shared, lead)

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
        total, annotated, positive = self.total, self.annotated_for(k), self.positive[k]
        if self.shared:
            total, annotated, positive = total.diagonal(), annotated.diagonal(), positive.diagonal()
        negative = annotated.remainder(positive)
        if unlabelled:
            negative = negative + total.remainder(annotated).scaled(unlabelled)
        return positive, negative

    def as_shared(self) -> Sums:
        """Return the same sums in the shared form, without leading directions."""
        if self.shared and self.lead is None:
            return self
        return replace(self, positive=tuple(one.diagonal() for one in self.positive), shared=True, lead=None)

    def alike(self, other: Sums) -> bool:
        """Return whether both are of one form, with the same leading directions or none."""
        if self.lead is None or other.lead is None:
            return self.shared == other.shared and self.lead is other.lead
        return self.lead is other.lead or np.array_equal(self.lead, other.lead)

    def counts(self, unlabelled: float) -> tuple[Floats, Floats]:
        """Return the numbers of rows in the two of `sides` of every class, ``[K]``, without their moments."""
        positive = np.array([one.count for one in self.positive])
        annotated = np.array([one.count for one in self.annotated])[list(self.block_of)]
        known, rest = annotated - positive, self.total.count - annotated
        known = np.where(known > NOISE * annotated, known, 0.0)
        return positive, known + unlabelled * np.where(rest > NOISE * self.total.count, rest, 0.0)

    def grown(self, classes: int) -> Sums:
        """Return the same sums with more classes, for which no row was annotated."""
        more = classes - self.classes
        if not more:
            return self
        return replace(
            self,
            block_of=(*self.block_of, *(len(self.annotated),) * more),
            annotated=(*self.annotated, Moments.zeros(self.dimension)),
            positive=(*self.positive, *(self.nothing,) * more),
        )

    @property
    def nothing(self) -> Moments:
        """Return the moments of a class without positives."""
        return Moments.zeros(self.dimension, diagonal=self.shared)

    def placed(self, ids: Sequence[int], classes: int) -> Sums:
        """Return the sums with class i as class ``ids[i]`` of ``classes``; the others were not annotated."""
        if list(ids) == list(range(classes)):
            return self
        block_of = [len(self.annotated)] * classes
        positive = [self.nothing] * classes
        for i, k in enumerate(ids):
            block_of[k], positive[k] = self.block_of[i], self.positive[i]
        return self.tidy(block_of, positive, (*self.annotated, Moments.zeros(self.dimension)))

    def __add__(self, other: Sums) -> Sums:
        if not self.alike(other) or (self.lead is not None and self.classes > MANY):
            return self.as_shared() + other.as_shared()
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
        return Sums(total, block_of, parts, positive, self.shared, self.lead)

    def without(self, other: Sums, names: Sequence[object] | None = None) -> Sums:
        """Return the sums without some of the rows; an `InputError` if they cannot have been learnt so.

        Args:
            other: the sums of these rows.
            names: of the classes, for the error.
        """
        if self.shared and not self.alike(other):
            return self.as_shared().without(other.as_shared(), names)
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
        return Sums(total, block_of, tuple(parts), tuple(positive), self.shared, self.lead)

    def removed(self, k: int) -> Sums:
        """Return the sums without class k; its rows stay, as rows of the other classes and unlabelled ones."""
        block_of = list(self.block_of)
        del block_of[k]
        return self.tidy(block_of, [one for i, one in enumerate(self.positive) if i != k], self.annotated)

    def mapped(self, matrix: Floats, shift: Floats) -> Sums:
        """Return the sums of the rows ``A z + b``; see `Moments.mapped`.

        In the shared form the variances of positives are mapped as if they were correlated as all rows are: exact
        where A is diagonal, as for a shift. Leading directions are given up.
        """
        done = {id(one): one.mapped(matrix, shift) for one in (self.total, *self.annotated)}
        total = done[id(self.total)]
        if self.shared:
            table = matrix**2
            usual, now = table @ self.total.variances, total.variances
            table *= np.divide(now, usual, out=np.ones_like(now), where=usual > 0)[:, None]
            done |= {id(one): _mapped_diagonal(one, matrix, shift, table) for one in self.positive}
        else:
            done |= {id(one): one.mapped(matrix, shift) for one in self.positive if id(one) not in done}
        return Sums(
            total,
            self.block_of,
            tuple(done[id(one)] for one in self.annotated),
            tuple(done[id(one)] for one in self.positive),
            self.shared,
        )

    def tidy(
        self, block_of: Sequence[int], positive: Sequence[Moments], annotated: Sequence[Moments]
    ) -> Sums:
        """Return sums of other classes, whose blocks are numbered in the order of their first class.

        Args:
            block_of: the block of each class; those that no class has are left out.
            positive: moments of the positives of each class.
            annotated: moments of each block.
        """
        order = {block: number for number, block in enumerate(dict.fromkeys(block_of))}
        places = tuple(order[block] for block in block_of)
        return replace(
            self, block_of=places, annotated=tuple(annotated[b] for b in order), positive=tuple(positive)
        )


def label_pairs(positive: Any) -> NDArray[np.int64]:
    """Return the cells of a matrix of labels, ``[2, m]``: numbers of classes, ascending, and rows."""
    if sparse.issparse(positive):
        columns = positive.tocsc().sorted_indices()
        numbers = np.repeat(np.arange(columns.shape[1]), np.diff(columns.indptr))
        return np.stack([numbers, columns.indices.astype(np.int64)])[:, columns.data != 0]
    return np.stack(np.nonzero(positive.T))


def by_label(pairs: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield the number of each class in `label_pairs`, and its rows."""
    for start, stop in pairwise([*firsts(pairs[0]), len(pairs[0])]):
        yield int(pairs[0, start]), pairs[1, start:stop]


def diagonals(
    rows: Floats, pairs: NDArray[np.int64], lead: Floats | None = None, weights: Floats | None = None
) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Return the classes in `label_pairs`, their counts, and sums of rows and of what `diagonal_moments` keeps."""
    starts = firsts(pairs[0])
    cells = np.ones(len(pairs[1])) if weights is None else weights[pairs[1]]
    bounds = np.array([*starts, len(pairs[1])], np.int64)
    marks = sparse.csr_array((cells, pairs[1], bounds), (len(starts), len(rows)))
    kept = [marks @ rows, marks @ rows**2]
    if lead is not None:
        kept.append(marks @ products(rows @ lead))
    return pairs[0, starts], marks.sum(axis=1), np.hstack(kept)


def diagonal_moments(count: float, sums: Floats, d: int) -> Moments:
    """Return the moments of one class of `diagonals`."""
    return Moments(float(count), sums[:d], sums[d:])


def products(rows: Floats) -> Floats:
    """Return the products of each row's numbers, packed as `mlcl.exact.moments.pack` does.

    >>> products(np.array([[2.0, 3.0]]))
    array([[4., 6., 9.]])
    """
    later, earlier = np.tril_indices(rows.shape[1])
    return np.asarray(rows[:, earlier] * rows[:, later])


def firsts(ordered: NDArray[np.int64]) -> list[int]:
    """Return where each value of a sorted array comes first."""
    if not len(ordered):
        return []
    return [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist()]


def _mapped_diagonal(one: Moments, matrix: Floats, shift: Floats, table: Floats) -> Moments:
    """Return diagonal moments of the rows ``A z + b``, where ``table`` maps variances."""
    mean = matrix @ one.mean + shift
    peak = (
        None
        if one.peak is None
        else (np.abs(matrix) @ np.sqrt(one.peak) + np.sqrt(one.count) * np.abs(shift)) ** 2
    )
    return Moments(one.count, one.count * mean, one.count * (table @ one.variances + mean**2), peak)


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


def _checked(before: Moments, rows: Moments, which: str, usual: float) -> Moments:
    try:
        return before.without(rows, usual=usual)
    except InputError as error:
        raise InputError(f"rows{which}: {error}; nothing was changed") from None
