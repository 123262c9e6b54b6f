"""Bootstrap of the Macro-AUC (specification.md#uncertainty): many resamples at the cost of one sort per class.

A resample is a vector of counts: how often each row was drawn. The order of the scores does not change, so the AUC of a
resample is a weighted AUC: for each drawn positive, the drawn negatives below it, ties one half. That is a
gather and a cumulative sum along the sorted negatives, done for a block of resamples at once.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlcl.errors import InputError, check_int
from mlcl.metrics.columns import Column, column_means, in_threads, insertion_points, ratio, transposed
from mlcl.metrics.inputs import Bools, Floats, Scores, check_level, check_scores, group_numbers
from mlcl.metrics.intervals import Interval
from mlcl.metrics.ranking import macro_auc

Ints = NDArray[np.int64]
Counts = NDArray[np.int32]

# Counts held by one block of resamples (rows x resamples): small enough to stay in a core's cache.
_BLOCK = 1 << 18


class SortedClass(NamedTuple):
    """One class, sorted once: all that its AUC under any row counts needs."""

    needles: Ints  # positives or negatives, whichever are fewer, which are searched among the others
    hay: Ints  # the others, by increasing score
    starts: (
        Ints | None
    )  # where the segments of the hay begin that no needle falls into; None if each row is one
    lower: Ints  # for each needle the number of segments below it
    upper: Ints  # for each needle the number of segments not above it
    positives_rare: bool  # whether the needles are the positives


def bootstrap_interval(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    groups: ArrayLike | None = None,
) -> Interval:
    """Return the Macro-AUC with its percentile bootstrap interval, rows (or groups of rows) drawn with replacement.

    The interval shows how much the value would vary on other test sets of this size. It does not cover the variation
    of training: for that see `mean_std` over seeds. Arguments and skipped classes are those of `bootstrap_macro_auc`.

    >>> rng = np.random.default_rng(0)
    >>> labels = rng.random((200, 3)) < 0.2
    >>> interval = bootstrap_interval(labels + rng.normal(size=(200, 3)), labels, resamples=200)
    >>> round(interval.low, 3), round(interval.estimate, 3), round(interval.high, 3)
    (0.696, 0.74, 0.805)
    """
    check_level(level)
    values = bootstrap_macro_auc(scores, labels, resamples=resamples, seed=seed, groups=groups)
    low, high = (float(end) for end in percentile_ends(values, level))
    return Interval(estimate=macro_auc(scores, labels), low=low, high=high, level=level)


def percentile_ends(draws: Floats, level: float) -> tuple[Floats, Floats]:
    """Return the ends of the interval that has a share ``level`` of the draws that are not nan; nan without any."""
    tail = (1 - level) / 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # all draws are nan
        low, high = np.nanquantile(draws, [tail, 1 - tail], axis=0)
    return low, high


def bootstrap_macro_auc(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    resamples: int = 1000,
    seed: int = 0,
    groups: ArrayLike | None = None,
) -> Floats:
    """Return the Macro-AUC of each bootstrap resample, float64 ``[resamples]``.

    Each value is the `macro_auc` of the drawn rows. A class without positives or without negatives in a resample is
    skipped in it; a resample without any class is nan. The drawn rows depend on ``n``, ``resamples`` and ``seed``
    alone, so two models with scores for the same rows can be compared resample by resample.

    Args:
        scores: ``[n, K]``, finite.
        labels: ``[n, K]``, 0 or 1.
        resamples: how many.
        seed: of the draws.
        groups: a group per row, ``[n]``: rows of one group depend on one another, and are drawn together; each row is
            its own group by default.

    >>> bootstrap_macro_auc([[0.9], [0.8], [0.2], [0.1]], [[1], [1], [0], [0]], resamples=3)
    array([1., 1., 1.])
    """
    values = bootstrap_class_auc(scores, labels, resamples=resamples, seed=seed, groups=groups)
    return column_means(values.T, ~np.isnan(values.T))


def bootstrap_class_auc(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    resamples: int = 1000,
    seed: int = 0,
    mask: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> Floats:
    """Return the AUC of each class in each bootstrap resample, float64 ``[resamples, K]``, nan where undefined.

    The draws and the arguments are those of `bootstrap_macro_auc`, which is the mean over classes of these values.
    Where the ``mask`` ``[n, K]`` is false the label is not known, and a row does not count for its class.

    >>> bootstrap_class_auc([[0.9, 0.1], [0.8, 0.2], [0.2, 0.3]], [[1, 0], [1, 0], [0, 0]], resamples=2)
    array([[ 1., nan],
           [ 1., nan]])
    """
    values, truth, known = check_scores(scores, labels, mask)
    check_int("resamples", resamples, 1)
    n = len(values)
    if not n:
        raise InputError("scores has no rows, but at least one was expected")
    classes = sort_classes(values, truth, known)
    step = max(1, min(_BLOCK // n, 256))
    sizes = [min(step, resamples - start) for start in range(0, resamples, step)]
    # One stream of random numbers per block: the result is the same however many threads share the blocks.
    streams = np.random.default_rng(seed).spawn(len(sizes))

    place, count = group_numbers(groups, n)

    def block(job: tuple[np.random.Generator, int]) -> Floats:
        counts = draw_counts(job[0], count, job[1])
        return resampled_auc(classes, counts if count == n else counts.take(place, axis=1))

    work = values.size * resamples
    return np.concatenate(in_threads(block, zip(streams, sizes, strict=True), size=work))


def draw_counts(rng: np.random.Generator, n: int, size: int) -> Counts:
    """Draw ``n`` of ``n`` rows, ``size`` times, and return how often each row was drawn, ``[size, n]``.

    >>> draw_counts(np.random.default_rng(0), 4, 2).sum(axis=1)
    array([4, 4])
    """
    drawn = rng.integers(0, n, size=(size, n))
    drawn += n * np.arange(size)[:, None]
    return np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n).astype(np.int32)


def sort_classes(scores: Scores, truth: Bools, known: Bools | None = None) -> list[SortedClass | None]:
    """Sort the known rows of each class once; None for a class without positives or without negatives."""
    cells = np.ones(truth.shape[::-1], np.bool_) if known is None else transposed(known)
    columns = zip(transposed(scores), transposed(truth), cells, strict=True)
    return [_sort_class(*column) for column in columns]


def resampled_auc(classes: list[SortedClass | None], counts: Counts) -> Floats:
    """Return the AUC of each class under row counts ``[B, n]``: float64 ``[B, K]``, nan where undefined."""
    result = np.full((len(counts), len(classes)), np.nan)
    for k, ordered in enumerate(classes):
        if ordered is not None:
            result[:, k] = _weighted_auc(ordered, counts)
    return result


def _sort_class(column: Column, positive: Bools, known: Bools) -> SortedClass | None:
    positives_rare = bool(2 * np.count_nonzero(positive & known) <= np.count_nonzero(known))
    rare = positive if positives_rare else ~positive
    if not (rare & known).any():
        return None
    sides = np.flatnonzero(rare & known), np.flatnonzero(~rare & known)
    needles, hay = (rows[np.argsort(column[rows])] for rows in sides)
    lower, upper = insertion_points(column[hay], column[needles])
    # Only sums of hay up to an insertion point are needed. Where these are few, it is faster to add up the
    # segments between them first than to take a cumulative sum over all rows; where they are many it is slower.
    starts = np.unique(np.concatenate([[0], lower, upper]))
    starts = starts[starts < hay.size]
    if starts.size * 8 > hay.size:
        return SortedClass(needles, hay, None, lower, upper, positives_rare)
    lower, upper = starts.searchsorted(lower), starts.searchsorted(upper)
    return SortedClass(needles, hay, starts, lower, upper, positives_rare)


def _weighted_auc(ordered: SortedClass, counts: Counts) -> Floats:
    hay = counts.take(ordered.hay, axis=1)
    if ordered.starts is not None:
        hay = np.add.reduceat(hay, ordered.starts, axis=1, dtype=np.int32)
    # Cumulative sums of the drawn hay; no more than n rows are drawn, so they fit int32.
    before = np.zeros((len(hay), hay.shape[1] + 1), dtype=np.int32)
    np.cumsum(hay, axis=1, out=before[:, 1:])
    weight = counts.take(ordered.needles, axis=1)
    # Sums of products are whole numbers of at most n^2, exact in float64.
    lower, upper = (
        np.einsum("bp,bp->b", weight, before.take(at, axis=1), dtype=np.float64)
        for at in (ordered.lower, ordered.upper)
    )
    pairs = weight.sum(axis=1, dtype=np.float64) * before[:, -1]
    return ratio(lower + upper if ordered.positives_rare else 2 * pairs - lower - upper, 2 * pairs)
