"""The sums of some rows by the names of their labels, so that parts counted apart can be added.

A part was counted without knowing the labels of other parts. A row that was annotated for all labels is a negative
of a label that only another part has; a row with a list of annotated labels is not. So a part keeps one class more
than it has names: *the rest*, the labels that none of its rows has. Its annotated rows are those of every label yet
unknown, and it has no positives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from mlcl.errors import InputError
from mlcl.exact.held_rows import HeldRows
from mlcl.exact.moments import Floats, Moments, check_parts
from mlcl.exact.storing import read_sums, sums_arrays
from mlcl.exact.sums import Sums


@dataclass(frozen=True, eq=False)
class Part:
    """Sums of rows by label.

    Attributes:
        names: of the labels, each once.
        sums: of the rows, after the feature map; the last class is the rest.
        held: rows that were held out, and are not in the sums.

    >>> import numpy as np
    >>> one = Part(("cat",), Sums.of(np.array([[1.0], [2.0]]), np.array([[True, False], [False, False]])))
    >>> two = Part(("dog",), Sums.of(np.array([[4.0]]), np.array([[True, False]])))
    >>> both = one + two
    >>> both.names, [both.sums.sides(k, 0.0)[1].count for k in range(2)]  # each row without a tag is a negative
    (('cat', 'dog'), [2.0, 2.0])
    """

    names: tuple[str, ...]
    sums: Sums
    held: HeldRows = field(default_factory=HeldRows.none)

    @classmethod
    def empty(cls, d: int, *, shared: bool = False, lead: Floats | None = None) -> Part:
        """Return the part of no rows."""
        return cls((), Sums.zeros(d, 1, shared=shared, lead=lead))

    @classmethod
    def of(cls, names: Sequence[str], sums: Sums, rest: Moments, held: HeldRows) -> Part:
        """Return a part of the sums of a learner.

        Args:
            names: of its classes.
            sums: the sums.
            rest: moments of the rows that were annotated for all labels, also for those that nobody has named yet.
            held: rows that are not in the sums.
        """
        whole = sums.tidy(
            (*sums.block_of, len(sums.annotated)), (*sums.positive, sums.nothing), (*sums.annotated, rest)
        )
        return cls(tuple(names), whole, held)

    @property
    def rows(self) -> int:
        """Return the number of rows, held out or not."""
        return round(self.sums.total.count) + len(self.held)

    @property
    def rest(self) -> Moments:
        """Return the moments of the rows that were annotated for all labels."""
        return self.sums.annotated_for(len(self.names))

    def over(self, names: Sequence[str]) -> Part:
        """Return the same sums for more labels, or in another order; every name of this part must be among them."""
        if tuple(names) == self.names:
            return self
        nothing, rest = self.sums.nothing, len(self.names)
        place = {name: k for k, name in enumerate(self.names)}
        found = [place.get(name, rest) for name in names]
        blocks = [self.sums.block_of[k] for k in (*found, rest)]
        own = [nothing if k == rest else self.sums.positive[k] for k in found]
        sums = self.sums.tidy(blocks, [*own, nothing], self.sums.annotated)
        return Part(tuple(names), sums, self.held)

    def __add__(self, other: Part) -> Part:
        check_parts(self.sums.total, other.sums.total)
        names = (*self.names, *sorted(set(other.names) - set(self.names)))
        held = self.held + other.held
        return Part(names, self.over(names).sums + other.over(names).sums, held)

    def without_rest(self) -> Sums:
        """Return the sums of the named labels alone: those of a learner."""
        return self.sums.removed(len(self.names))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the sums as arrays by name; with the names of the labels, `from_arrays` reads them."""
        return {**sums_arrays(self.sums), **self.held.arrays()}

    @classmethod
    def from_arrays(cls, names: Sequence[str], arrays: Mapping[str, NDArray[Any]]) -> Part:
        """Return what `arrays` was made of; values that do not fit together are an `InputError`."""
        sums = read_sums(arrays)
        if sums.classes != len(names) + 1 or len(set(names)) != len(names) or sums.positive[-1].count:
            raise InputError(f"the sums have {sums.classes} classes; expected {len(names)} and the rest")
        return cls(tuple(names), sums, HeldRows.from_arrays(arrays))
