"""Counting rows into sums in place, batch by batch: memory does not grow with the rows.

`Sums` are immutable, and adding two of them touches every class. Here a batch touches only the classes it has
positives of, and a class waits until it has so many that a matrix product pays.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from mlcl.errors import InputError
from mlcl.exact.digits import ORDINARY, Seen
from mlcl.exact.features import FeatureMap, first_large
from mlcl.exact.held_rows import HeldRows, held_out, of_rows
from mlcl.exact.moments import FEW, Floats, Growing, Moments, packed_size
from mlcl.exact.parts import Part
from mlcl.exact.sums import MANY, Sums, by_label, diagonal_moments, diagonals, firsts

Ints = NDArray[np.int64]
Key = TypeVar("Key", bound=Hashable)
Pairs = tuple[Ints, Ints]
"""Rows of a batch, and for each the number of a label: one pair per tag."""


class Counter:
    """Adds batches of rows with their tags, and returns their `Part`.

    Args:
        features: the feature map.
        usual: sums of squares of some rows, after the feature map, which say what is too large for a column
            (`mlcl.exact.digits`): the same for all parts, whatever rows they have. None: the rows of each batch say it.
        held_out: the share of the rows that are held out of the sums, see `mlcl.exact.held_rows`.
        shared: the form of the sums.
        lead: leading directions, in the shared form.

    >>> from mlcl.exact.features import fit_map
    >>> rows = np.array([[1.0], [3.0], [5.0]])
    >>> counter = Counter(fit_map(rows))
    >>> counter.add(rows, (np.array([0, 2, 2]), np.array([0, 0, 1])), ["cat", "dog"])  # [cat], [], [cat, dog]
    >>> part = counter.part()
    >>> part.names, [positive.count for positive in part.sums.positive]
    (('cat', 'dog'), [2.0, 1.0, 0.0])
    """

    def __init__(
        self,
        features: FeatureMap,
        usual: Seen | None = None,
        *,
        held_out: float = 0.0,
        shared: bool = False,
        lead: Floats | None = None,
    ) -> None:
        self.features, self.share, self.shared, self.lead = features, held_out, shared, lead
        self._usual = usual or Seen(np.zeros(features.dimension), 0)
        self._held = HeldRows.none()
        self._total = Growing(features.dimension)
        self._positive: Positives[str] = Positives(features.dimension, shared=shared, lead=lead)
        self._open = Part.empty(features.dimension, shared=shared, lead=lead)

    def add(
        self,
        rows: NDArray[np.generic],
        tags: Pairs,
        names: Sequence[str],
        annotated: Pairs | None = None,
        *,
        start: int = 0,
        where: str = "the data",
    ) -> None:
        """Count rows.

        Args:
            rows: ``[n, D]``, finite.
            tags: the labels of the rows; a pair that is given twice counts once.
            names: of the labels, by number.
            annotated: rows that were annotated for some labels only, and these labels, its own tags among them; a
                label of -1 marks a row without any. Rows that do not occur were annotated for all labels.
            start: number of the first row, for errors.
            where: what the rows are called in errors.
        """
        z = self.features(rows)
        # One fast pass says of almost every batch that no value can be too large; only then columns are looked at.
        if float(np.vdot(z, z)) > ORDINARY * self._usual.squares.sum() and (
            large := first_large(self.features, rows, np.einsum("nd,nd->d", z, z), self._usual)
        ):
            raise InputError(f"{where} {large.sentence(start)}; it was not counted")
        if (aside := held_out(rows, self.share)).any():
            chosen, rest = np.flatnonzero(aside), np.flatnonzero(~aside)
            self._held += HeldRows.of(rows, tags, names, annotated, chosen)
            if not len(rest):
                return
            z, tags = z[rest], of_rows(tags, rest)
            annotated = None if annotated is None else of_rows(annotated, rest)
        # As one number each, pairs sort by label and then by row; np.unique takes ten times as long.
        keys = np.sort(tags[1] * len(z) + tags[0])
        pairs = np.stack(np.divmod(keys[firsts(keys)], max(len(z), 1)))
        if annotated is not None and len(annotated[0]):
            marked = np.zeros(len(z), np.bool_)
            marked[annotated[0]] = True
            self._open += _partly(z, marked, pairs, annotated, names, shared=self.shared, lead=self.lead)
            pairs = pairs[:, ~marked[pairs[1]]]
            self._total.add(z[~marked])
        else:
            self._total.add(z)
        self._positive.add(z, pairs, names)

    def part(self) -> Part:
        """Return the sums of all rows so far, labels in sorted order; this is the end of counting."""
        names = tuple(sorted(self._positive.keys()))
        total = self._total.moments()
        positive = (
            *self._positive.moments(names),
            Moments.zeros(self.features.dimension, diagonal=self.shared),
        )
        sums = Sums(total, (0,) * len(positive), (total,), positive, self.shared, self._positive.lead)
        closed = Part(names, sums, self._held)
        if not self._open.rows:
            return closed
        both = closed + self._open
        return both.over(sorted(both.names))


class Positives(Generic[Key]):
    """Moments of the positives of each class, added in place; a class takes space from its first positive on.

    Args:
        d: numbers per row.
        shared: the form: diagonal moments, one row of a table per class, or whole ones.
        lead: leading directions; None from the class on that is too many for them.
        classes: so many are expected.
    """

    def __init__(self, d: int, *, shared: bool, lead: Floats | None = None, classes: int = 0) -> None:
        lead = lead if classes <= MANY else None
        self.d, self.shared, self.lead = d, shared, lead
        self._growing: dict[Key, Growing] = {}
        self._place: dict[Key, int] = {}
        width = 2 * d if lead is None else 2 * d + packed_size(lead.shape[1])
        self._count, self._sums = np.zeros(classes), np.zeros((classes if shared else 0, width))

    def keys(self) -> Iterable[Key]:
        """Return the classes with positives."""
        return self._place if self.shared else self._growing

    def add(self, z: Floats, pairs: Ints, keys: Sequence[Key]) -> None:
        """Add the positives of each class among rows.

        Args:
            z: rows, ``[n, d]``.
            pairs: of `mlcl.exact.sums.label_pairs`.
            keys: of the classes, by number.
        """
        if not self.shared:
            for k, rows in by_label(pairs):
                # So many rows make a product worth its result, and take half the space of a class's sums.
                patience = max(FEW + 1, self.d // 4)
                self._growing.setdefault(keys[k], Growing(self.d, patience=patience)).add(z[rows])
            return
        labels, counts, sums = diagonals(z, pairs, self.lead)
        places = np.array(
            [self._place.setdefault(keys[k], len(self._place)) for k in labels.tolist()], np.int64
        )
        if (missing := len(self._place) - len(self._count)) > 0:
            missing = max(missing, len(self._count) // 2)
            self._count = np.concatenate([self._count, np.zeros(missing)])
            self._sums = np.concatenate([self._sums, np.zeros((missing, self._sums.shape[1]))])
        if self.lead is not None and len(self._place) > MANY:
            self.lead, self._sums, sums = None, self._sums[:, : 2 * self.d].copy(), sums[:, : 2 * self.d]
        self._count[places] += counts
        self._sums[places] += sums

    def moments(self, keys: Iterable[Key]) -> tuple[Moments, ...]:
        """Return the moments of classes, also of those without positives; this is the end of adding."""
        nothing = Moments.zeros(self.d, diagonal=self.shared)
        if not self.shared:
            return tuple(
                self._growing.pop(key).moments() if key in self._growing else nothing for key in keys
            )
        found = (self._place.get(key, -1) for key in keys)
        return tuple(
            nothing if k < 0 else diagonal_moments(self._count[k], self._sums[k], self.d) for k in found
        )


def _partly(
    z: Floats,
    marked: NDArray[np.bool_],
    pairs: Ints,
    annotated: Pairs,
    names: Sequence[str],
    *,
    shared: bool,
    lead: Floats | None,
) -> Part:
    """Return the sums of the marked rows, which were annotated for some labels only."""
    own = pairs[:, marked[pairs[1]]]
    labels = np.unique(np.concatenate([own[0], annotated[1]]))
    labels = labels[labels >= 0]
    known = np.zeros((len(z), len(labels) + 1), np.bool_)  # the last column is the rest: not annotated
    positive = np.zeros_like(known)
    positive[own[1], np.searchsorted(labels, own[0])] = True
    named = annotated[1] >= 0
    known[annotated[0][named], np.searchsorted(labels, annotated[1][named])] = True
    sums = Sums.of(z[marked], positive[marked], known[marked], shared=shared, lead=lead)
    return Part(tuple(names[k] for k in labels.tolist()), sums)
