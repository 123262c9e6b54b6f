"""Metrics of ranking: exact Macro-AUC and average precision, class by class, ties counted right (SPEC 6).

All of them come from one thing: for every positive, how many negatives score below it and how many do not score above
it. A class costs one sort, O(n log n). The loop over classes is a Python loop: each turn is a handful of numpy calls
on whole columns, and the classes are shared out over threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlcl.errors import InputError
from mlcl.metrics.inputs import Bools, Scores, check_choice, check_mask, check_scores, in_threads, transposed

Floats = NDArray[np.float64]
Column = NDArray[Any]
Ties = Literal["half", "strict", "lenient"]

# Classes handled by one thread at a time: few enough to share out evenly, and a slab of columns stays in the cache.
_COLUMNS = 8


@dataclass(frozen=True, eq=False)
class AucReport:
    """Macro-AUC with what it was computed from.

    Attributes:
        per_class: AUC of each class, float64 ``[K]``; nan where the class has no positive or no negative.

    >>> report = auc_report([[0.9, 0.1], [0.2, 0.3]], [[1, 0], [0, 0]])
    >>> report.macro, report.defined.tolist(), report.skipped
    (1.0, [True, False], 1)
    """

    per_class: Floats

    @property
    def macro(self) -> float:
        """Return the mean over the classes that have an AUC; nan if none has."""
        return mean_defined(self.per_class)

    @property
    def defined(self) -> Bools:
        """Return which classes have an AUC, bool ``[K]``."""
        return ~np.isnan(self.per_class)

    @property
    def skipped(self) -> int:
        """Return how many classes were left out, for want of a positive or of a negative."""
        return int(np.isnan(self.per_class).sum())


@overload
def macro_auc(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    average: Literal["macro"] = ...,
    ties: Ties = ...,
    mask: ArrayLike | None = ...,
) -> float: ...
@overload
def macro_auc(
    scores: ArrayLike, labels: ArrayLike, *, average: None, ties: Ties = ..., mask: ArrayLike | None = ...
) -> Floats: ...
def macro_auc(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    average: Literal["macro"] | None = "macro",
    ties: Ties = "half",
    mask: ArrayLike | None = None,
) -> float | Floats:
    """Return the exact Macro-AUC: the mean over classes of the share of (positive, negative) pairs ranked right.

    A class without a positive or without a negative has no AUC; it is left out of the mean, never scored 0 or 0.5.
    `auc_report` says how many were left out.

    Args:
        scores: ``[n, K]``, finite, any increasing scale (logits or probabilities); array or tensor.
        labels: ``[n, K]``, 0 or 1.
        average: ``"macro"`` for the mean, ``None`` for one value a class, nan where undefined.
        ties: a pair with equal scores counts one half (``"half"``), nothing (``"strict"``, only ``f+ > f-`` is right)
            or one (``"lenient"``).
        mask: ``[n, K]``, true where the label is known; the other entries take no part in their class.

    Returns:
        A value in [0, 1] (nan if no class is defined), or float64 ``[K]``.

    >>> scores = [[0.9, 0.2], [0.9, 0.7], [0.1, 0.4]]
    >>> labels = [[1, 0], [0, 1], [0, 0]]
    >>> macro_auc(scores, labels), macro_auc(scores, labels, ties="strict")
    (0.875, 0.75)
    >>> macro_auc(scores, [[1, 0], [0, 0], [0, 0]], average=None)
    array([0.75,  nan])
    """
    _check_average(average)
    check_choice("ties", ties, ("half", "strict", "lenient"))
    per_class = _by_class(partial(_auc, ties=ties), scores, labels, mask)
    return per_class if average is None else mean_defined(per_class)


def auc_report(
    scores: ArrayLike, labels: ArrayLike, *, ties: Ties = "half", mask: ArrayLike | None = None
) -> AucReport:
    """Return the AUC of every class, their mean, and which classes had to be skipped; arguments as of `macro_auc`.

    >>> auc_report([[0.9, 0.1], [0.2, 0.3]], [[1, 0], [0, 0]]).per_class
    array([ 1., nan])
    """
    return AucReport(macro_auc(scores, labels, average=None, ties=ties, mask=mask))


@overload
def average_precision(
    scores: ArrayLike, labels: ArrayLike, *, average: Literal["macro"] = ..., mask: ArrayLike | None = ...
) -> float: ...
@overload
def average_precision(
    scores: ArrayLike, labels: ArrayLike, *, average: None, mask: ArrayLike | None = ...
) -> Floats: ...
def average_precision(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    average: Literal["macro"] | None = "macro",
    mask: ArrayLike | None = None,
) -> float | Floats:
    """Return the mean average precision (mAP): sum over thresholds of the gain in recall times the precision there.

    This is scikit-learn's definition, without interpolation: rows with equal scores pass the threshold together. It is
    also the mean, over the positives of a class, of the precision among the rows that score at least as high. A class
    without positives has none and is left out (scikit-learn scores it 0); a class without negatives has 1.

    Args:
        scores: ``[n, K]``, finite.
        labels: ``[n, K]``, 0 or 1.
        average: ``"macro"`` for the mean, ``None`` for one value a class, nan where undefined.
        mask: ``[n, K]``, true where the label is known.

    >>> average_precision([[0.9], [0.8], [0.3], [0.1]], [[1], [0], [1], [0]])  # (1/1 + 2/3) / 2
    0.833...
    """
    _check_average(average)
    per_class = _by_class(_average_precision, scores, labels, mask)
    return per_class if average is None else mean_defined(per_class)


def batch_mean_auc(scores: ArrayLike, labels: ArrayLike, *, batch_size: int, seed: int = 0) -> float:
    """Return the mean Macro-AUC of shuffled mini-batches: the released code's metric, FOR COMPARISON ONLY (SPEC 1).

    Rows are shuffled, cut into batches of ``batch_size``, and an incomplete last one is dropped. A batch is scored on
    the classes with both signs in it; a batch without any is left out. The value depends on the batch size and on the
    shuffle, and rare classes drop out of most batches, so it is no estimate of Macro-AUC. Use `macro_auc`.

    Args:
        scores: ``[n, K]``, finite.
        labels: ``[n, K]``, 0 or 1.
        batch_size: rows a batch, at least 2.
        seed: of the shuffle.

    Returns:
        A value in [0, 1]; nan if no batch has a class with both signs.

    >>> batch_mean_auc([[0.9], [0.1], [0.4], [0.6]], [[1], [0], [1], [0]], batch_size=4)
    0.75
    """
    values, truth = check_scores(scores, labels)
    if not isinstance(batch_size, int | np.integer) or batch_size < 2:
        raise InputError(f"batch_size is {batch_size!r}, but a whole number of at least 2 was expected")
    order = np.random.default_rng(seed).permutation(len(values))
    kernel = partial(_auc, ties="half")
    starts = range(0, len(order) - batch_size + 1, batch_size)
    batches = (order[start : start + batch_size] for start in starts)
    return mean_defined(np.array([mean_defined(_run(kernel, values[b], truth[b], None)) for b in batches]))


def mean_defined(values: Floats) -> float:
    """Return the mean of the values that are not nan, nan if there is none (and no warning).

    >>> mean_defined(np.array([0.5, np.nan, 1.0]))
    0.75
    """
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")


def insertion_points(hay: Column, needles: Column) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return for each needle how many of ``hay`` are below it, and how many are not above it. Both sorted, not empty.

    The two differ exactly where a needle ties with something in ``hay``.

    >>> insertion_points(np.array([1.0, 2.0, 2.0]), np.array([0.0, 2.0]))
    (array([0, 1]), array([0, 3]))
    """
    if needles.size * 8 < hay.size:
        upper = hay.searchsorted(needles, side="right")
    else:
        # Two sorted runs: a stable sort (timsort) merges them in linear time and puts hay first among equals.
        order = np.concatenate([hay, needles]).argsort(kind="stable")
        upper = np.flatnonzero(order >= hay.size) - np.arange(needles.size)
    lower = upper.copy()
    # Few needles tie as a rule, so only those are searched again. Where upper is 0 the clipped index is hay[0], which
    # is greater than the needle and so never equal to it.
    tied = np.flatnonzero(hay.take(upper - 1, mode="clip") == needles)
    lower[tied] = hay.searchsorted(needles[tied], side="left")
    return lower, upper


def _check_average(average: object) -> None:
    if average is not None:
        check_choice("average", average, ("macro",))


def _by_class(
    kernel: Callable[[Column, Column], float], scores: ArrayLike, labels: ArrayLike, mask: ArrayLike | None
) -> Floats:
    """Check the input, then apply ``kernel(positives, negatives)`` to the sorted scores of each class."""
    values, truth = check_scores(scores, labels, mask)
    return _run(kernel, values, truth, None if mask is None else check_mask(mask, values.shape))


def _run(
    kernel: Callable[[Column, Column], float], values: Scores, truth: Bools, known: Bools | None
) -> Floats:
    def block(start: int) -> list[float]:
        part = slice(start, start + _COLUMNS)
        columns, positive = transposed(values[:, part]), transposed(truth[:, part])
        if known is None:
            return [kernel(*_split(column, sign)) for column, sign in zip(columns, positive, strict=True)]
        keep = transposed(known[:, part])
        return [
            kernel(*_split(column[k], sign[k]))
            for column, sign, k in zip(columns, positive, keep, strict=True)
        ]

    blocks = in_threads(block, range(0, values.shape[1], _COLUMNS), size=values.size)
    return np.array([value for part in blocks for value in part], dtype=np.float64)


def _split(column: Column, positive: Bools) -> tuple[Column, Column]:
    """Return the sorted scores of the positives and of the negatives; ``column`` is used up as scratch.

    The rarer sign is taken out and infinity put in its place, so that sorting the column in place leaves the other sign
    in front: cheaper than copying out the many.
    """
    positives_rare = 2 * np.count_nonzero(positive) <= positive.size
    rare = np.flatnonzero(positive if positives_rare else ~positive)
    few = column[rare]
    few.sort()
    column[rare] = np.inf
    column.sort()
    many = column[: column.size - rare.size]
    return (few, many) if positives_rare else (many, few)


def _auc(positives: Column, negatives: Column, *, ties: Ties) -> float:
    pairs = positives.size * negatives.size
    if not pairs:
        return float("nan")
    if positives.size <= negatives.size:
        lower, upper = insertion_points(negatives, positives)
        strict, lenient = int(lower.sum()), int(upper.sum())
    else:
        lower, upper = insertion_points(positives, negatives)
        strict, lenient = pairs - int(upper.sum()), pairs - int(lower.sum())
    # Whole numbers until the one division, so the value is exact to the last bit.
    return {"half": (strict + lenient) / (2 * pairs), "strict": strict / pairs, "lenient": lenient / pairs}[ties]


def _average_precision(positives: Column, negatives: Column) -> float:
    if not positives.size:
        return float("nan")
    if not negatives.size:
        return 1.0
    hits = positives.size - positives.searchsorted(positives, side="left")
    false_alarms = negatives.size - insertion_points(negatives, positives)[0]
    return float((hits / (hits + false_alarms)).mean())
