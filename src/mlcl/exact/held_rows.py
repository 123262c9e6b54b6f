"""Rows that are held out of the sums, chosen by their content, so that any order and any cut hold out the same ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.errors import InputError
from mlcl.labels import Labels

Ints = NDArray[np.int64]
Pairs = tuple[Ints, Ints]
PREFIX = "held."
MOST_BYTES = 16 << 20
"""Of the inputs of rows that are held out of a tagger and kept."""
_SEED = 0x9E3779B97F4A7C15


@dataclass(frozen=True, eq=False)
class HeldRows:
    """Rows with their tags, by the names of their labels.

    Attributes:
        inputs: float32, ``[n, D]``; ``[0, 0]`` without rows.
        tags: a row and a label for each tag: the label's place in ``names``.
        annotated: the same for the labels that a row was annotated for; of rows in ``partly`` alone.
        partly: rows that were annotated for some labels only.
        names: of the labels, each once.
    """

    inputs: NDArray[np.float32]
    tags: Pairs
    annotated: Pairs
    partly: Ints
    names: tuple[str, ...]

    @classmethod
    def none(cls) -> HeldRows:
        """Return no rows."""
        nothing = np.zeros(0, np.int64)
        return cls(np.zeros((0, 0), np.float32), (nothing, nothing), (nothing, nothing), nothing, ())

    @classmethod
    def of(
        cls, rows: NDArray[Any], tags: Pairs, names: Sequence[str], annotated: Pairs | None, chosen: Ints
    ) -> HeldRows:
        """Return the chosen rows of a batch; the arguments are those of `mlcl.exact.counting.Counter.add`."""
        if not len(chosen):
            return cls.none()
        nothing = np.zeros(0, np.int64)
        marked = (nothing, nothing) if annotated is None else of_rows(annotated, chosen)
        labels = marked[1] >= 0
        return cls(
            np.ascontiguousarray(rows[chosen], np.float32),
            of_rows(tags, chosen),
            (marked[0][labels], marked[1][labels]),
            np.unique(marked[0]),
            tuple(names),
        )

    def __len__(self) -> int:
        return len(self.inputs)

    def __add__(self, other: HeldRows) -> HeldRows:
        if not len(self) or not len(other):
            return self if len(self) else other
        names = tuple(dict.fromkeys([*self.names, *other.names]))
        place = {name: k for k, name in enumerate(names)}
        moved = np.array([place[name] for name in other.names], np.int64)
        return HeldRows(
            np.concatenate([self.inputs, other.inputs]),
            _joined(self.tags, other.tags, len(self), moved),
            _joined(self.annotated, other.annotated, len(self), moved),
            np.concatenate([self.partly, other.partly + len(self)]),
            names,
        )

    def ordered(self) -> HeldRows:
        """Return the same rows in an order that follows from their content alone."""
        order = np.argsort(row_hashes(self.inputs), kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        tags, annotated = ((place[rows], labels) for rows, labels in (self.tags, self.annotated))
        return HeldRows(self.inputs[order], tags, annotated, np.sort(place[self.partly]), self.names)

    def labels(self, classes: Sequence[str]) -> tuple[Labels, NDArray[np.bool_]]:
        """Return the labels for some classes, ``[n, K]``, and which of them are known."""
        place = {name: k for k, name in enumerate(classes)}
        columns = np.array([place.get(name, -1) for name in self.names], np.int64)
        found = np.zeros((len(self), len(classes)), np.uint8)
        known = np.ones(found.shape, np.bool_)
        known[self.partly] = False
        for marks, (rows, names) in ((known, self.annotated), (found, self.tags)):
            inside = columns[names] >= 0
            marks[rows[inside], columns[names][inside]] = 1
        return found, known

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the rows as arrays by name, nothing without rows; `from_arrays` reads them."""
        if not len(self):
            return {}
        found: dict[str, NDArray[Any]] = {
            "inputs": self.inputs,
            "tags": np.stack(self.tags),
            "annotated": np.stack(self.annotated),
            "partly": self.partly,
            "names": np.frombuffer(json.dumps(self.names).encode(), np.uint8),
        }
        return {PREFIX + name: value for name, value in found.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> HeldRows:
        """Return what `arrays` was made of; values that do not fit together are an `InputError`."""
        if f"{PREFIX}inputs" not in arrays:
            return cls.none()
        inputs, tags, annotated, partly, text = (
            arrays[PREFIX + name] for name in ("inputs", "tags", "annotated", "partly", "names")
        )
        names = tuple(str(name) for name in json.loads(text.tobytes()))
        n, good = len(inputs), inputs.dtype == np.float32 and inputs.ndim == 2 and np.isfinite(inputs).all()
        for rows, labels in (tags, annotated):
            good &= bool(((rows >= 0) & (rows < n)).all() and ((labels >= 0) & (labels < len(names))).all())
        if not good or not ((partly >= 0) & (partly < n)).all() or len(set(names)) != len(names):
            raise InputError("the rows that were held out do not fit together")
        return cls(inputs, (tags[0], tags[1]), (annotated[0], annotated[1]), partly, names)


@dataclass(frozen=True, eq=False)
class HeldOutRows:
    """Rows that are not in the sums: what probabilities and thresholds are fitted on, and quality is measured on.

    Attributes:
        inputs: ``[n, D]``.
        labels: 0 or 1, ``[n, K]``; 0 where not known.
        known: which labels are known, bool ``[n, K]``.
        keys: by which they were drawn, see `row_keys`; ``[n]``.
    """

    inputs: NDArray[Any]
    labels: Labels
    known: NDArray[np.bool_]
    keys: NDArray[np.uint64]

    @classmethod
    def none(cls, features: int, classes: int) -> HeldOutRows:
        """Return no rows."""
        nothing = np.zeros((0, classes), np.bool_)
        return cls(np.zeros((0, features)), nothing.astype(np.uint8), nothing, np.zeros(0, np.uint64))

    def __len__(self) -> int:
        return len(self.inputs)

    def take(self, chosen: Any) -> HeldOutRows:
        """Return some of the rows."""
        return HeldOutRows(*(one[chosen] for one in vars(self).values()))

    def placed(self, ids: Sequence[int], classes: int) -> HeldOutRows:
        """Return the same rows, whose columns have other numbers among so many classes."""
        labels, known = np.zeros((len(self), classes), np.uint8), np.zeros((len(self), classes), np.bool_)
        labels[:, list(ids)], known[:, list(ids)] = self.labels * self.known, self.known
        return HeldOutRows(self.inputs, labels, known, self.keys)

    def joined(self, other: HeldOutRows, most: int) -> tuple[HeldOutRows, HeldOutRows]:
        """Return the rows of both with the lowest keys, and the others.

        So the rows that are kept follow from all rows that there were, whatever their order.
        """
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        both = HeldOutRows(*(np.concatenate(pair) for pair in pairs))
        most = min(most, MOST_BYTES // max(both.inputs[:1].nbytes, 1))
        order = np.argsort(both.keys, kind="stable")
        return both.take(order[:most]), both.take(order[most:])

    def without(self, other: HeldOutRows) -> tuple[HeldOutRows, NDArray[np.bool_]]:
        """Return the rows without some, and which of these there were: with the same input, labels and known labels."""
        left, found = np.ones(len(self), np.bool_), np.zeros(len(other), np.bool_)
        mine = row_hashes(self.inputs)
        for place, own in enumerate(row_hashes(other.inputs)):
            same = np.flatnonzero(left & (mine == own))
            cells = (self.known[same] == other.known[place]) & (self.labels[same] == other.labels[place])
            same = same[cells.all(axis=1)]
            if len(same):
                left[same[0]], found[place] = False, True
        return self.take(left), found


def held_out(rows: Any, share: float) -> NDArray[np.bool_]:
    """Return which rows are held out: a share of them by a hash of their content.

    >>> rows = np.random.default_rng(0).normal(size=(10_000, 8))
    >>> float(held_out(rows, 0.1).mean().round(2)), held_out(rows[:0], 0.1)
    (0.1, array([], dtype=bool))
    """
    if share <= 0:
        return np.zeros(rows.shape[0], np.bool_)
    return np.asarray(row_hashes(rows) < np.uint64(int(share * 2**64)))


def row_keys(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return numbers by which rows are drawn: their hashes, and of equal rows others for all but the first.

    >>> found = row_keys(np.array([7, 9, 7], np.uint64))
    >>> found[:2].tolist(), len(set(found.tolist()))
    ([7, 9], 3)
    """
    hashes = hashes.copy()
    order = np.argsort(hashes, kind="stable")
    new = np.append(True, hashes[order][1:] != hashes[order][:-1])[: len(order)]
    place = np.arange(len(order))
    before = np.empty_like(place)
    before[order] = place - np.maximum.accumulate(np.where(new, place, 0))
    again = before > 0
    hashes[again] = _mixed(hashes[again] + before[again].astype(np.uint64) * np.uint64(_SEED | 1))
    return hashes


def row_hashes(rows: Any) -> NDArray[np.uint64]:
    """Return a hash of each row as float32, ``[n]``: of one row whatever the others are; of an array or CSR matrix."""
    odd = np.random.default_rng(_SEED).integers(0, 2**63, rows.shape[1], np.uint64) * np.uint64(2)
    odd += np.uint64(1)
    cells = rows.data if hasattr(rows, "indptr") else rows
    words = np.ascontiguousarray(cells, np.float32).view(np.uint32).astype(np.uint64)
    if hasattr(rows, "indptr"):  # sparse: what is not stored is 0, and has no bits
        words = type(rows)((words, rows.indices, rows.indptr), shape=rows.shape)
    with np.errstate(over="ignore"):
        return _mixed(np.asarray(words @ odd))


def _mixed(found: NDArray[np.uint64]) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        for shift, factor in (
            (30, 0xBF58476D1CE4E5B9),
            (27, 0x94D049BB133111EB),
        ):  # the finaliser of splitmix64
            found = (found ^ (found >> np.uint64(shift))) * np.uint64(factor)
        return np.asarray(found ^ (found >> np.uint64(31)))


def of_rows(pairs: Pairs, chosen: Ints) -> Pairs:
    """Return the pairs of some rows, at least one and ascending, numbered anew."""
    place = np.searchsorted(chosen, pairs[0])
    inside = (place < len(chosen)) & (chosen[np.minimum(place, len(chosen) - 1)] == pairs[0])
    return place[inside], pairs[1][inside]


def _joined(first: Pairs, second: Pairs, rows: int, moved: Ints) -> Pairs:
    return np.concatenate([first[0], second[0] + rows]), np.concatenate([first[1], moved[second[1]]])
