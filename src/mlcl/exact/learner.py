"""The exact learner: a feature map, the sums of the rows it has seen, and nothing else.

The state is one frozen object; learning, forgetting and merging return a new one. The weights are solved whenever they
are asked for (`mlcl.exact.solve`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mlcl.errors import LARGEST, InputError
from mlcl.exact.counting import Positives
from mlcl.exact.digits import WIDEST, Seen, check_weights, narrow, too_wide
from mlcl.exact.features import FeatureMap, blocks, first_large, fit_map, leading
from mlcl.exact.moments import Floats, Growing, Moments, check_parts
from mlcl.exact.storing import ARRAYS, MORE, read_sums, sums_arrays
from mlcl.exact.sums import Sums, label_pairs

Form = Literal["shared", "full", "auto"]
FORMS: tuple[Form, ...] = ("shared", "full", "auto")
NARROW, LEADING, FREE = 64, 48, 256
"""Up to `NARROW` dimensions the form ``auto`` keeps whole second moments per class: they take little space, and a few
hundred positives determine them. With more, classes share one, and keep the second moment along `LEADING` directions.
Up to `FREE` features, or if none are to be projected, nothing but the centre is to depend on the first rows: then there
are no leading directions, unless the first rows are said to be fixed."""


@dataclass(frozen=True, eq=False)
class ExactLearner:
    """What an exact learner knows.

    Attributes:
        features: the feature map, fixed.
        sums: of the rows seen, after the feature map.

    >>> rng = np.random.default_rng(0)
    >>> labels = rng.random((400, 2)) < 0.3
    >>> rows = labels + rng.normal(0, 0.3, (400, 2))
    >>> learner = ExactLearner.begin(rows).learn(rows, labels[:, :1], [0])
    >>> learner = learner.learn(rows, labels[:, 1:], [1])  # a new class, on rows of its own
    >>> learner.classes, learner.sums.total.count
    (2, 800.0)
    """

    features: FeatureMap
    sums: Sums

    @classmethod
    def begin(
        cls,
        rows: Any,
        *,
        dimensions: int | None = 256,
        seed: int = 0,
        form: Form = "full",
        fixed: bool | None = None,
    ) -> ExactLearner:
        """Return a learner that has seen nothing, with the feature map that these rows determine.

        Args:
            rows: the first rows ``[n, D]``, n at least 1: an array or a CSR matrix.
            dimensions: rows of more features are projected to so many principal components; None: never.
            seed: of random directions, where the rows determine fewer than ``dimensions``.
            form: of the sums; ``auto``: ``full`` for up to `NARROW` dimensions, else ``shared``.
            fixed: whether the first rows are always these, so that leading directions may follow from them; by default
                if there are more than `FREE` features, and ``dimensions``.
        """
        features = fit_map(rows, dimensions=dimensions, seed=seed)
        shared, lead = form == "shared" or (form == "auto" and features.dimension > NARROW), None
        if fixed is None:
            fixed = dimensions is not None and rows.shape[1] > FREE
        if shared and fixed and features.dimension > NARROW:
            lead = leading(features, rows, LEADING, seed)
        return cls(features, Sums.zeros(features.dimension, shared=shared, lead=lead))

    @property
    def classes(self) -> int:
        """Return the number of classes, K."""
        return self.sums.classes

    @property
    def nbytes(self) -> int:
        """Return the size of all sums in bytes: what the learner remembers of the rows."""
        return self.sums.nbytes

    def empty(self) -> ExactLearner:
        """Return a learner with the same feature map and classes that has seen nothing: it can be merged later."""
        sums = self.sums
        return replace(
            self, sums=Sums.zeros(sums.dimension, self.classes, shared=sums.shared, lead=sums.lead)
        )

    def learn(
        self,
        rows: Any,
        positive: NDArray[Any],
        ids: Sequence[int] | None = None,
        *,
        annotated: NDArray[np.bool_] | None = None,
        weights: Floats | None = None,
    ) -> ExactLearner:
        """Return the learner that has also seen these rows.

        Args:
            rows: ``[n, D]``, an array or a CSR matrix; finite, no value above `mlcl.errors.LARGEST`. If their sums are
                not finite, or a value would cost them too many digits (`mlcl.exact.digits`), that is an `InputError`.
            positive: labels, 0 or 1, ``[n, len(ids)]``.
            ids: the class number of each column, all distinct; numbers from K on are new classes. All K by default.
            annotated: which labels are known, ``[n, len(ids)]``; all by default.
            weights: a weight per row, from 0 to `mlcl.errors.LARGEST`; 1 each by default.
        """
        check_weights(weights, self.sums.total.count)
        seen = self._seen(rows, positive, ids, annotated, weights)
        before = Seen(self.sums.total.squares, self.sums.total.count)
        if (large := first_large(self.features, rows, seen.total.squares, before, weights)) is not None:
            raise InputError(f"the data {large.sentence()}; nothing was changed")
        return replace(self, sums=self._of_one_scale(self.sums.grown(seen.classes) + seen))

    def forget(
        self,
        rows: Any,
        positive: NDArray[Any],
        ids: Sequence[int] | None = None,
        *,
        annotated: NDArray[np.bool_] | None = None,
        weights: Floats | None = None,
        names: Sequence[object] | None = None,
    ) -> ExactLearner:
        """Return the learner that has never seen these rows; the arguments are those of `learn`.

        Rows that cannot have been learnt so, as far as sums show it, are an `InputError`.

        Args:
            rows: ``[n, D]``.
            positive: their labels, as they were learnt.
            ids: the class number of each column.
            annotated: which labels were known.
            weights: the weights with which the rows were learnt.
            names: of all classes, for errors.
        """
        seen = self._seen(rows, positive, ids, annotated, weights)
        if seen.classes > self.classes:
            raise InputError(f"class {seen.classes - 1} is not known, so no row of it can be forgotten")
        return replace(self, sums=self.sums.without(seen, names))

    def merge(self, other: ExactLearner, ids: Sequence[int] | None = None) -> ExactLearner:
        """Return the learner that has seen the rows of both.

        Without a projection, sums around another centre are moved to this one, and leading directions are given up
        if they differ. Learners with a projection cannot be merged unless they share it: `empty` makes such a learner.

        Args:
            other: the other learner.
            ids: the number here of each of its classes; numbers from K on are new classes. The same by default.
        """
        if not self.features.same(other.features):
            raise InputError(
                "the learners have different feature maps, so their sums cannot be added; expected two that began "
                "with the same rows, or a copy of an empty learner"
            )
        ids = list(range(other.classes)) if ids is None else list(ids)
        classes = max(self.classes, max(ids, default=-1) + 1)
        shift = other.features.centre - self.features.centre
        theirs = other.sums
        if self.features.projection is None and shift.any():
            theirs = theirs.mapped(np.eye(len(shift)), shift)
        check_parts(self.sums.total, theirs.total)
        merged = _finite(self.sums.grown(classes) + theirs.placed(ids, classes))
        return replace(self, sums=self._of_one_scale(merged))

    def remove(self, k: int) -> ExactLearner:
        """Return the learner without class k; the numbers of later classes decrease by one."""
        return replace(self, sums=self.sums.removed(k))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the state as arrays by name; `from_arrays` reads them."""
        found: dict[str, NDArray[Any]] = {
            "features.centre": self.features.centre,
            "features.random": np.array([self.features.random], np.int64),
        }
        if self.features.projection is not None:
            found["features.projection"] = np.ascontiguousarray(self.features.projection)
        return found | {f"sums.{name}": value for name, value in sums_arrays(self.sums).items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> ExactLearner:
        """Return what `arrays` was made of; values that do not fit together are an `InputError`."""
        centre, projection = arrays["features.centre"], arrays.get("features.projection")
        given = [centre] if projection is None else [centre, projection]
        fits = (
            all(one.dtype == np.float64 and np.isfinite(one).all() for one in given)
            and centre.ndim == 1
            and (projection is None or (projection.ndim == 2 and len(projection) == len(centre)))
        )
        if not fits:
            raise InputError(
                "the feature map is not one of a learner: its shapes, types or values do not fit"
            )
        features = FeatureMap(centre, projection, int(arrays["features.random"][0]))
        names = [*ARRAYS, *(name for name in MORE if f"sums.{name}" in arrays)]
        sums = read_sums({name: arrays[f"sums.{name}"] for name in names})
        if sums.dimension != features.dimension:
            raise InputError(f"the sums have {sums.dimension} numbers; expected {features.dimension}")
        return cls(features, sums)

    def _seen(
        self,
        rows: Any,
        positive: NDArray[Any],
        ids: Sequence[int] | None,
        annotated: NDArray[np.bool_] | None,
        weights: Floats | None,
    ) -> Sums:
        """Return the sums of these rows, for all classes."""
        ids = list(range(self.classes)) if ids is None else [int(k) for k in ids]
        classes = max(self.classes, max(ids, default=-1) + 1)
        marks = positive.astype(np.bool_, copy=False)
        kept: dict[str, Any] = {"shared": self.sums.shared, "lead": self.sums.lead}
        pieces = list(blocks(rows.shape[0], max(self.features.features, self.features.dimension)))
        if annotated is None and weights is None and len(pieces) > 1:
            return _finite(self._counted(rows, marks, pieces)).placed(ids, classes)
        seen: Sums | None = None
        for piece in pieces:
            part = Sums.of(
                self.features(rows[piece]),
                marks[piece],
                None if annotated is None else annotated[piece],
                None if weights is None else weights[piece],
                **kept,
            )
            seen = part if seen is None else seen + part
        if seen is None:
            seen = Sums.zeros(self.features.dimension, len(ids), **kept)
        return _finite(seen).placed(ids, classes)

    def _of_one_scale(self, sums: Sums) -> Sums:
        """Return the sums; an `InputError` if a feature is too small beside another to be solved."""
        if self.features.projection is None:
            check_scales(sums.total, self.features.centre)
        return sums

    def _counted(self, rows: Any, marks: Any, pieces: Sequence[slice]) -> Sums:
        """Return the sums of rows that were annotated for all classes of ``marks``, added in place block by block."""
        d, classes, shared = self.features.dimension, range(marks.shape[1]), self.sums.shared
        total, positive = (
            Growing(d),
            Positives[int](d, shared=shared, lead=self.sums.lead, classes=len(classes)),
        )
        for piece in pieces:
            z = self.features(rows[piece])
            total.add(z)
            positive.add(z, label_pairs(marks[piece]), classes)
        every, own = total.moments(), positive.moments(classes)
        return Sums(every, (0,) * len(own), (every,) * min(len(own), 1), own, shared, positive.lead)


def check_scales(total: Moments, centre: Floats) -> None:
    """Refuse sums in which a feature is too small beside another to be solved; the features are not projected."""
    if far := narrow(total.variances, centre + total.mean, widest=WIDEST):
        raise too_wide(total.variances, far)


def _finite(sums: Sums) -> Sums:
    """Return the sums; an `InputError` if a value has overflowed, or was never finite.

    The squares of all rows bound those of any of them, and these the products of two columns: d numbers tell.
    """
    if not np.isfinite(sums.total.squares).all():
        raise InputError(
            f"the sums of these rows are not finite; expected finite numbers of at most {LARGEST:g} in absolute value; "
            f"nothing was changed"
        )
    return sums
