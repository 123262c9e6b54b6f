"""Ranking metrics: Macro-AUC and average precision, exact also with ties (specification.md#macro-auc).

All of them are computed from two numbers for every positive: how many negatives score below it, and how many do not
score above it. A class costs one sort, O(n log n); see `mlcl.metrics.columns`.
"""

from __future__ import annotations

from functools import partial
from typing import Literal, overload

import numpy as np
from numpy.typing import ArrayLike

from mlcl.errors import check_choice, check_int
from mlcl.metrics.columns import Column, by_class, insertion_points, mean_defined, ordered_pairs, split
from mlcl.metrics.inputs import Bools, Floats, check_average, check_scores

Ties = Literal["half", "strict", "lenient"]


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
    """Return the exact Macro-AUC: the mean over classes of the share of (positive, negative) pairs in order.

    A class without a positive or without a negative has no AUC; it is left out of the mean, never scored 0 or
    0.5. With ``average=None`` it is nan.

    Args:
        scores: ``[n, K]``, finite, any increasing scale (logits or probabilities); array or tensor.
        labels: ``[n, K]``, 0 or 1.
        average: ``"macro"`` for the mean, ``None`` for one value per class, nan where undefined.
        ties: a pair with equal scores counts one half (``"half"``), nothing (``"strict"``: only ``f+ > f-``
            is in order) or one (``"lenient"``).
        mask: ``[n, K]``, true where the label is known; other entries are left out of their class.

    Returns:
        A value in [0, 1] (nan if no class is defined), or float64 ``[K]``.

    >>> scores = [[0.9, 0.2], [0.9, 0.7], [0.1, 0.4]]
    >>> labels = [[1, 0], [0, 1], [0, 0]]
    >>> macro_auc(scores, labels), macro_auc(scores, labels, ties="strict")
    (0.875, 0.75)
    >>> macro_auc(scores, [[1, 0], [0, 0], [0, 0]], average=None)
    array([0.75,  nan])
    """
    check_average(average)
    check_choice("ties", ties, ("half", "strict", "lenient"))
    per_class = by_class(partial(_auc, ties=ties), *check_scores(scores, labels, mask))
    return per_class if average is None else mean_defined(per_class)


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
    """Return the mean average precision (mAP).

    AP is the sum over thresholds of the gain in recall times the precision there: scikit-learn's definition,
    without interpolation, rows with equal scores passing the threshold together. That is the mean, over the
    positives of a class, of the precision among the rows that score at least as high. A class without
    positives has none and is left out (scikit-learn scores it 0); a class without negatives has 1.

    Args:
        scores: ``[n, K]``, finite.
        labels: ``[n, K]``, 0 or 1.
        average: ``"macro"`` for the mean, ``None`` for one value per class, nan where undefined.
        mask: ``[n, K]``, true where the label is known.

    >>> average_precision([[0.9], [0.8], [0.3], [0.1]], [[1], [0], [1], [0]])  # (1/1 + 2/3) / 2
    0.833...
    """
    check_average(average)
    per_class = by_class(_average_precision, *check_scores(scores, labels, mask))
    return per_class if average is None else mean_defined(per_class)


def batch_mean_auc(scores: ArrayLike, labels: ArrayLike, *, batch_size: int, seed: int = 0) -> float:
    """Return the mean Macro-AUC of shuffled mini-batches, as the released code does: FOR COMPARISON ONLY.

    Rows are shuffled and cut into batches; an incomplete last one is dropped. The value of a batch is the mean over
    the classes with positives and negatives in it; a batch without such classes is left out. The result depends on
    the batch size and on the shuffle, and rare classes are missing in most batches, so it is not an estimate of the
    Macro-AUC: use `macro_auc`. See specification.md#batch-mean.

    Args:
        scores: ``[n, K]``, finite.
        labels: ``[n, K]``, 0 or 1.
        batch_size: rows per batch, at least 2.
        seed: of the shuffle.

    Returns:
        A value in [0, 1]; nan if no full batch has a class with positives and negatives.

    >>> batch_mean_auc([[0.9], [0.1], [0.4], [0.6]], [[1], [0], [1], [0]], batch_size=4)
    0.75
    """
    values, truth, _ = check_scores(scores, labels)
    check_int("batch_size", batch_size, 2)
    full = len(values) // batch_size
    order = np.random.default_rng(seed).permutation(len(values))
    batches = order[: full * batch_size].reshape(full, batch_size)
    kernel = partial(_auc, ties="half")
    means = [mean_defined(by_class(kernel, values[rows], truth[rows])) for rows in batches]
    return mean_defined(np.array(means, dtype=np.float64))


def _auc(column: Column, positive: Bools, *, ties: Ties) -> float:
    positives = int(np.count_nonzero(positive))
    pairs = positives * (positive.size - positives)
    if not pairs:
        return float("nan")
    strict, lenient = ordered_pairs(column, positive)
    # Whole numbers until the one division, so the value is the exact one, rounded once.
    twice = {"half": strict + lenient, "strict": 2 * strict, "lenient": 2 * lenient}[ties]
    return twice / (2 * pairs)


def _average_precision(column: Column, positive: Bools) -> float:
    positives, negatives = split(column, positive)
    if not positives.size:
        return float("nan")
    if not negatives.size:
        return 1.0
    hits = positives.size - positives.searchsorted(positives, side="left")
    false_alarms = negatives.size - insertion_points(negatives, positives)[0]
    return float((hits / (hits + false_alarms)).mean())
