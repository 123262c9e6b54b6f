"""The measures of class-incremental papers, after each session (docs/specification.md#sessions).

A session is a task. What is measured after each, over all classes seen so far, is averaged over the sessions ("avg") or
taken after the last ("last").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from mlcl.errors import InputError
from mlcl.metrics.columns import mean_defined
from mlcl.metrics.inputs import Floats, check_scores, to_array
from mlcl.metrics.ranking import average_precision
from mlcl.metrics.thresholded import check_threshold, f1_scores

MEASURES = ("map", "cf1", "of1", "cp", "cr", "op", "or", "fpr", "mf1")
"""What `session_measures` returns: mAP, precision, recall and F1 of decisions, their false-positive rate, and the mean
of the F1 of each class, which released code of the field reports as CF1."""


def false_positive_rate(
    scores: ArrayLike, labels: ArrayLike, *, threshold: float | ArrayLike, mask: ArrayLike | None = None
) -> float:
    """Return the share of negatives, over all classes together, that score above ``threshold``; nan without any.

    Args:
        scores: ``[n, K]``, finite.
        labels: ``[n, K]``, 0 or 1.
        threshold: one number, or one per class ``[K]``, on the scale of the scores.
        mask: which labels are known, ``[n, K]``; all by default.

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
    values: Floats = to_array(precisions).astype(np.float64)
    if values.ndim != 2:
        raise InputError(f"precisions has shape {values.shape}, but [sessions, classes] was expected")
    if len(values) != len(tasks):
        return float("nan")
    by_task = np.array([[mean_defined(row[list(task)]) for task in tasks] for row in values])
    if len(tasks) < 2:
        return float("nan")
    learnt = np.tril(np.ones(by_task.shape, np.bool_))
    best = np.fmax.reduce(np.where(learnt, by_task, np.nan)[:-1, :-1], axis=0)
    return mean_defined(best - by_task[-1, :-1])
