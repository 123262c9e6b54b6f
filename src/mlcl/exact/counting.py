"""Counting rows into sums in place, batch by batch: memory does not grow with the rows.

`Sums` are immutable, and adding two of them touches every class. Here a batch touches only the classes it has
positives of, and a class waits until it has so many that a matrix product pays.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from mlcl.exact.features import FeatureMap
from mlcl.exact.held_rows import HeldRows, held_out, of_rows
from mlcl.exact.moments import FEW, Floats, Growing, Moments
from mlcl.exact.parts import Part
from mlcl.exact.sums import Sums

Ints = NDArray[np.int64]
Key = TypeVar("Key", bound=Hashable)
Pairs = tuple[Ints, Ints]
"""Rows of a batch, and for each the number of a label: one pair per tag."""


class Counter:
    """Adds batches of rows with their tags, and returns their `Part`.

    Args:
        features: the feature map.
        held_out: the share of the rows that are held out of the sums, see `mlcl.exact.held_rows`.

    >>> from mlcl.exact.features import fit_map
    >>> rows = np.array([[1.0], [3.0], [5.0]])
    >>> counter = Counter(fit_map(rows))
    >>> counter.add(rows, (np.array([0, 2, 2]), np.array([0, 0, 1])), ["cat", "dog"])  # [cat], [], [cat, dog]
    >>> part = counter.part()
    >>> part.names, [positive.count for positive in part.sums.positive]
    (('cat', 'dog'), [2.0, 1.0, 0.0])
    """

    def __init__(self, features: FeatureMap, *, held_out: float = 0.0) -> None:
        self.features, self.share = features, held_out
        self._held = HeldRows.none()
        self._total = Growing(features.dimension)
        self._positive: dict[str, Growing] = {}
        self._open = Part.empty(features.dimension)

    def add(
        self, rows: NDArray[np.generic], tags: Pairs, names: Sequence[str], annotated: Pairs | None = None
    ) -> None:
        """Count rows.

        Args:
            rows: ``[n, D]``, finite.
            tags: the labels of the rows; a pair that is given twice counts once.
            names: of the labels, by number.
            annotated: rows that were annotated for some labels only, and these labels, its own tags among them; a
                label of -1 marks a row without any. Rows that do not occur were annotated for all labels.
        """
        if (aside := held_out(rows, self.share)).any():
            chosen, rest = np.flatnonzero(aside), np.flatnonzero(~aside)
            self._held += HeldRows.of(rows, tags, names, annotated, chosen)
            if not len(rest):
                return
            rows, tags = rows[rest], of_rows(tags, rest)
            annotated = None if annotated is None else of_rows(annotated, rest)
        z = self.features(rows)
        # As one number each, pairs sort by label and then by row; np.unique takes ten times as long.
        keys = np.sort(tags[1] * len(z) + tags[0])
        pairs = np.stack(np.divmod(keys[_firsts(keys)], max(len(z), 1)))
        if annotated is not None and len(annotated[0]):
            marked = np.zeros(len(z), np.bool_)
            marked[annotated[0]] = True
            self._open += _partly(z, marked, pairs, annotated, names)
            pairs = pairs[:, ~marked[pairs[1]]]
            self._total.add(z[~marked])
        else:
            self._total.add(z)
        add_positives(self._positive, z, pairs, names)

    def part(self) -> Part:
        """Return the sums of all rows so far, labels in sorted order; this is the end of counting."""
        names = tuple(sorted(self._positive))
        total, nothing = self._total.moments(), Moments.zeros(self.features.dimension)
        positive = (*(self._positive.pop(name).moments() for name in names), nothing)
        closed = Part(names, Sums(total, (0,) * len(positive), (total,), positive), self._held)
        if not self._open.rows:
            return closed
        both = closed + self._open
        return both.over(sorted(both.names))


def add_positives(growing: dict[Key, Growing], z: Floats, pairs: Ints, keys: Sequence[Key]) -> None:
    """Add the positives of each class among rows to its moments.

    Args:
        growing: moments by key, with classes that have positives only; new ones are added.
        z: rows, ``[n, d]``.
        pairs: numbers of classes, ascending, and of the rows that are their positives, ``[2, m]``.
        keys: of the classes, by number.
    """
    d = z.shape[1]
    for start, stop in itertools.pairwise([*_firsts(pairs[0]), len(pairs[0])]):
        key = keys[pairs[0, start]]
        if key not in growing:
            # So many rows make a product worth its result, and take half the space of a class's sums.
            growing[key] = Growing(d, patience=max(FEW + 1, d // 4))
        growing[key].add(z[pairs[1, start:stop]])


def _firsts(ordered: Ints) -> list[int]:
    """Return where each value of a sorted array comes first."""
    if not len(ordered):
        return []
    return [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist()]


def _partly(
    z: Floats, marked: NDArray[np.bool_], pairs: Ints, annotated: Pairs, names: Sequence[str]
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
    sums = Sums.of(z[marked], positive[marked], known[marked])
    return Part(tuple(names[k] for k in labels.tolist()), sums)
