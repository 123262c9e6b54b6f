"""Metrics of decisions at a threshold (CP, CR, CF1, OP, OR, OF1), and means by class frequency.

See docs/specification.md#map and #thirds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlcl.errors import InputError
from mlcl.metrics.columns import mean_defined
from mlcl.metrics.inputs import Floats, check_scores, to_array


@dataclass(frozen=True, eq=False)
class F1Scores:
    """Precision, recall and F1 of multi-label decisions, in [0, 1], under their names in the literature.

    Attributes:
        CP: mean precision over classes.
        CR: mean recall over classes.
        CF1: ``2 CP CR / (CP + CR)``, as in the literature (not the mean of ``f1``).
        OP: precision over all decisions together.
        OR: recall over all decisions together.
        OF1: ``2 OP OR / (OP + OR)``.
        precision: of each class, float64 ``[K]``; nan where the class has no positive.
        recall: of each class.
        f1: of each class.
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
        threshold: one number, or one per class ``[K]``, on the scale of the scores (0 for logits, 0.5 for
            probabilities).
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

    precision = np.where(defined, _ratio(hits, chosen), np.nan)
    recall = np.where(defined, _ratio(hits, positive), np.nan)
    cp, cr = mean_defined(precision), mean_defined(recall)
    if defined.any():
        op, or_ = float(_ratio(hits.sum(), chosen.sum())), float(_ratio(hits.sum(), positive.sum()))
    else:
        op = or_ = float("nan")
    return F1Scores(
        CP=cp,
        CR=cr,
        CF1=_harmonic(cp, cr),
        OP=op,
        OR=or_,
        OF1=_harmonic(op, or_),
        precision=precision,
        recall=recall,
        f1=np.where(defined, _ratio(2 * hits, chosen + positive), np.nan),
    )


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
    try:
        per_class, count = (to_array(part).astype(np.float64) for part in (values, positive))
    except (TypeError, ValueError) as error:
        raise InputError(f"values and positive are not both vectors of numbers: {error}") from None
    if per_class.ndim != 1 or per_class.shape != count.shape:
        raise InputError(
            f"values has shape {per_class.shape} and positive {count.shape}, but one of each was expected "
            f"for every class"
        )
    if not (count >= 0).all():  # refuses nan too
        raise InputError(f"positive is {count.tolist()}, but counts >= 0 were expected")
    parts = np.array_split(np.argsort(-count, kind="stable"), 3)
    names = ("head", "medium", "tail")
    return {name: mean_defined(per_class[part]) for name, part in zip(names, parts, strict=True)}


def _ratio(part: NDArray[np.int64], whole: NDArray[np.int64]) -> Floats:
    """Return part / whole, with 0/0 = 0."""
    return part / np.maximum(whole, 1)


def _harmonic(a: float, b: float) -> float:
    return 2 * a * b / (a + b) if a + b != 0 else 0.0
