"""Decisions at a threshold, their measures after each session, and means by class frequency.

See specification.md#map, #thirds and #sessions. A session is a task of class-incremental papers. What is measured
after each, over all classes seen so far, is averaged over the sessions ("avg") or taken after the last ("last").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlcl.errors import InputError
from mlcl.metrics.columns import mean_defined
from mlcl.metrics.inputs import Floats, check_scores, matrix_of, to_array, vector
from mlcl.metrics.ranking import average_precision

MEASURES = ("map", "cf1", "of1", "cp", "cr", "op", "or", "fpr", "mf1")
"""What `session_measures` returns: mAP, precision, recall and F1 of decisions, their false-positive rate, and the mean
of the F1 of each class, which released code of the field reports as CF1."""


@dataclass(frozen=True, eq=False)
class F1Scores:
    """Precision, recall and F1 of multi-label decisions, in [0, 1], under their names in the literature.

    ``C``: means over classes, ``O``: over all decisions together; ``CF1`` is ``2 CP CR / (CP + CR)``, not the mean of
    ``f1``. ``precision``, ``recall`` and ``f1`` are those of each class, ``[K]``; nan where it has no positive.
    """

    CP: float
    CR: float
    CF1: float
    OP: float
    OR: float
    OF1: float
    precision: Floats
    recall: Floats
    f1: Floats


def f1_scores(
    scores: ArrayLike, labels: ArrayLike, *, threshold: float | ArrayLike, mask: ArrayLike | None = None
) -> F1Scores:
    """Return precision, recall and F1 where a class is predicted when its score is above ``threshold``.

    Where a ratio is 0/0: a class that is never predicted has precision 0, as usual in multi-label work. A
    class without positives has no recall: its three values are nan and it is left out of CP and CR, though
    predictions of it still count against OP. With no prediction at all OP is 0; with no positive at all
    everything is nan. Where every class has a positive this is the definition of the literature.

    Args:
        scores: ``[n, K]``, finite.
        labels: ``[n, K]``, 0 or 1.
        threshold: one number, or one per class ``[K]``, on the scale of the scores (0 for logits).
        mask: which labels are known, ``[n, K]``; all by default.

    >>> result = f1_scores([[2.0, -1.0], [1.0, 3.0], [-2.0, -3.0]], [[1, 1], [0, 1], [0, 0]], threshold=0.0)
    >>> result.precision, result.recall, result.f1
    (array([0.5, 1. ]), array([1. , 0.5]), array([0.66666667, 0.66666667]))
    >>> result.CP, result.CR, result.CF1, result.OF1
    (0.75, 0.75, 0.75, 0.666...)
    """
    values, truth, known = check_scores(scores, labels, mask)
    predicted = values > check_threshold(threshold, values.shape[1])
    if known is not None:
        predicted, truth = predicted & known, truth & known
    hits = (predicted & truth).sum(axis=0)
    chosen, positive = predicted.sum(axis=0), truth.sum(axis=0)
    defined = positive > 0

    precision, recall = (np.where(defined, _ratio(hits, whole), np.nan) for whole in (chosen, positive))
    cp, cr = mean_defined(precision), mean_defined(recall)
    all_hits = hits.sum() if defined.any() else np.nan
    op, or_ = (float(_ratio(all_hits, whole.sum())) for whole in (chosen, positive))
    f1 = np.where(defined, _ratio(2 * hits, chosen + positive), np.nan)
    return F1Scores(cp, cr, _harmonic(cp, cr), op, or_, _harmonic(op, or_), precision, recall, f1)


def check_threshold(threshold: float | ArrayLike, classes: int) -> NDArray[Any]:
    """Return a threshold, or one per class, as an array; refuse anything else.

    >>> check_threshold(0.5, 3)
    array(0.5)
    """
    cut = to_array(threshold)
    if cut.dtype.kind not in "uif" or cut.shape not in ((), (classes,)) or np.isnan(cut).any():
        raise InputError(
            f"threshold is {threshold!r}, but a number, or one for each of {classes} classes, was expected"
        )
    return cut


def by_frequency(values: ArrayLike, positive: ArrayLike) -> dict[str, float]:
    """Return the means of ``values`` over the most frequent, the middle and the rarest third of the classes.

    Classes are ordered by ``P_k``, most frequent first, equal counts by class number, and cut into three. Of
    a remainder the first class goes to the head and the second to the medium part, so 20 classes give 7, 7
    and 6. Values that are nan are skipped; a part without values is nan.

    Args:
        values: ``[K]``, one value per class, such as ``macro_auc(..., average=None)``.
        positive: ``[K]``, the counts ``P_k`` (usually of the training data).

    >>> by_frequency([0.9, 0.5, 0.7, 0.8], [1000, 3, 40, 500])
    {'head': 0.85..., 'medium': 0.7, 'tail': 0.5}
    """
    per_class, count = vector(values, "values"), vector(positive, "positive")
    if per_class.shape != count.shape:
        raise InputError(
            f"values has shape {per_class.shape} and positive {count.shape}; expected one of each per class"
        )
    if not (count >= 0).all():  # refuses nan too
        raise InputError(f"positive is {count.tolist()}, but counts >= 0 were expected")
    parts = np.array_split(np.argsort(-count, kind="stable"), 3)
    names = ("head", "medium", "tail")
    return {name: mean_defined(per_class[part]) for name, part in zip(names, parts, strict=True)}


def false_positive_rate(
    scores: ArrayLike, labels: ArrayLike, *, threshold: float | ArrayLike, mask: ArrayLike | None = None
) -> float:
    """Return the share of negatives, over all classes together, that score above ``threshold``; nan without any.

    Arguments are those of `f1_scores`.

    >>> false_positive_rate([[2.0, -1.0], [1.0, 3.0]], [[1, 0], [0, 0]], threshold=0.0)
    0.666...
    """
    values, truth, known = check_scores(scores, labels, mask)
    negative = ~truth if known is None else ~truth & known
    wrong = int(((values > check_threshold(threshold, values.shape[1])) & negative).sum())
    return wrong / int(negative.sum()) if negative.any() else float("nan")


def session_measures(
    scores: ArrayLike, labels: ArrayLike, *, threshold: float | ArrayLike, mask: ArrayLike | None = None
) -> dict[str, float]:
    """Return the measures of one session, in [0, 1], from the scores of all classes seen so far.

    Args:
        scores: of the test rows that have a class seen so far, ``[n, K seen]``, finite.
        labels: all their labels for these classes, ``[n, K seen]``.
        threshold: on the scale of the scores, one number or one per class: 0 for logits is a probability of 0.5.
        mask: which labels are known; all by default.

    >>> found = session_measures([[2.0, -1.0], [1.0, 3.0], [-2.0, -3.0]], [[1, 1], [0, 1], [0, 0]], threshold=0.0)
    >>> {name: round(found[name], 3) for name in ("map", "cf1", "mf1", "of1", "fpr")}
    {'map': 1.0, 'cf1': 0.75, 'mf1': 0.667, 'of1': 0.667, 'fpr': 0.333}
    """
    decided = f1_scores(scores, labels, threshold=threshold, mask=mask)
    return {
        "map": average_precision(scores, labels, mask=mask),
        "cf1": decided.CF1,
        "of1": decided.OF1,
        "cp": decided.CP,
        "cr": decided.CR,
        "op": decided.OP,
        "or": decided.OR,
        "fpr": false_positive_rate(scores, labels, threshold=threshold, mask=mask),
        "mf1": mean_defined(decided.f1),
    }


def session_means(sessions: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each measure over the sessions, the papers' "avg"; sessions without a value are skipped.

    >>> session_means([{"map": 0.9}, {"map": 0.7}])
    {'map': 0.8}
    """
    names = dict.fromkeys(name for session in sessions for name in session)
    return {
        name: mean_defined(np.array([session.get(name, np.nan) for session in sessions])) for name in names
    }


def precision_forgetting(precisions: ArrayLike, tasks: Sequence[Sequence[int]]) -> float:
    """Return how much of the mAP of each task except for the last was lost by the end, the mean over these tasks.

    The mAP of a task is the mean over its classes of the AP on the test rows of *all* tasks. On these rows, which stay
    the same, a drop is forgetting; among rows of seen classes only it would also be the growing number of negatives.

    Args:
        precisions: AP of each class after each session, ``[T, K]``; nan before a class is learnt, or where undefined.
        tasks: class ids of each task, ``T`` of them.

    Returns:
        ``mean_{i<T} (max_{i<=l<T} mAP[l, i] - mAP[T, i])``; nan for joint training, which has one session.

    >>> precision_forgetting([[0.9, np.nan], [0.6, 0.8]], [[0], [1]])
    0.3...
    """
    values = matrix_of(precisions, "precisions").astype(np.float64)
    if len(values) != len(tasks) or len(tasks) < 2:
        return float("nan")
    by_task = np.array([[mean_defined(row[list(task)]) for task in tasks] for row in values])
    learnt = np.tril(np.ones(by_task.shape, np.bool_))
    best = np.fmax.reduce(np.where(learnt, by_task, np.nan)[:-1, :-1], axis=0)
    return mean_defined(best - by_task[-1, :-1])


def _ratio(part: Any, whole: Any) -> Any:
    """Return part / whole, with 0/0 = 0."""
    return part / np.maximum(whole, 1)


def _harmonic(a: float, b: float) -> float:
    return 2 * a * b / (a + b) if a + b != 0 else 0.0
