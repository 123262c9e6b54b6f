"""Macro-AUC of scores that arrive in batches and need not fit in memory, with a bound on its error."""

from __future__ import annotations

from typing import Literal, overload

import numpy as np
from numpy.typing import ArrayLike

from mlcl.errors import InputError, check_int
from mlcl.metrics.columns import each_class, in_threads, mean_defined
from mlcl.metrics.histograms import EMPTY, LARGEST, Histogram
from mlcl.metrics.inputs import Bools, Floats, Scores, check_average, check_scores

# Rows that wait for the next merge, for each bin: fewer merges, and memory stays in proportion to the bins.
_WAITING = 4


class StreamingMacroAUC:
    """Macro-AUC in memory O(classes x bins), however many rows there are.

    Scores may have any range. The scores of a class's positives are counted in at most ``bins`` adaptive bins (see
    `mlcl.metrics.histograms`), and so are those of its negatives; pairs inside a bin count one half. With at most
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
    if values.dtype == np.float32:
        return
    far = np.abs(values) > LARGEST if known is None else (np.abs(values) > LARGEST) & known
    if far.any():
        raise InputError(
            f"scores has the value {values[far][0]}, but magnitudes up to {LARGEST:.0e} were expected"
        )
