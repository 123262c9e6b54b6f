"""The AUC of each class under two models on the same rows: how it changed, with intervals that hold for all classes.

Rows are drawn with replacement (`mlcl.metrics.bootstrap`), the same for both models, so that what makes a row hard for
both cancels in the difference.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mlcl.errors import InputError, check_int
from mlcl.metrics.bootstrap import draw_counts, resampled_auc, sort_classes
from mlcl.metrics.columns import column_means
from mlcl.metrics.inputs import Floats, check_level, check_scores
from mlcl.metrics.ranking import macro_auc

BLOCK = 1 << 18
"""Counts held at once, rows x resamples."""


@dataclass(frozen=True, eq=False)
class AucChanges:
    """The AUC of each class before and after, ``[K]``; nan for a class without positives or without negatives.

    Attributes:
        before: AUC under the first scores.
        after: AUC under the second scores.
        change: after minus before.
        low: lower ends of the changes: all K hold together with probability ``level``.
        high: upper ends, likewise; infinite for a class with a single positive or a single negative.
        level: the confidence level of all lower ends together, and of all upper ends together.
    """

    before: Floats
    after: Floats
    change: Floats
    low: Floats
    high: Floats
    level: float


def auc_changes(
    before: ArrayLike,
    after: ArrayLike,
    labels: ArrayLike,
    *,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    mask: ArrayLike | None = None,
) -> AucChanges:
    """Return how the AUC of each class changed from one model to another, with simultaneous intervals.

    An end is ``change ± t * s``: ``s`` is the standard deviation of the change over paired bootstrap resamples, and
    ``t`` the quantile of Student's distribution at ``1 - (1 - level) / m``, with one degree of freedom less than the
    class has positives (or negatives, if those are fewer). Dividing by ``m``, the number of classes that have an AUC,
    keeps the chance that any class at all lies outside below ``1 - level`` (Bonferroni). Student's distribution is
    wider than the bootstrap's own quantiles, which are too narrow where positives are few.

    Args:
        before: scores ``[n, K]``, finite.
        after: scores of the other model for the same rows and classes.
        labels: ``[n, K]``, 0 or 1.
        resamples: how many draws of rows.
        level: confidence level.
        seed: of the draws.
        mask: which labels are known, ``[n, K]``; all by default.

    >>> rng = np.random.default_rng(0)
    >>> labels = rng.random((300, 2)) < 0.3
    >>> good = labels + rng.normal(0, 0.5, (300, 2))
    >>> found = auc_changes(good, np.stack([good[:, 0], rng.normal(size=300)], axis=1), labels)
    >>> found.change.round(2), found.high.round(2)
    (array([ 0.  , -0.45]), array([ 0.  , -0.37]))
    """
    # Imported here so that importing mlcl does not wait for it.
    from scipy.special import stdtrit

    check_level(level)
    check_int("resamples", resamples, 2)
    first, truth, known = check_scores(before, labels, mask)
    second, _, _ = check_scores(after, labels, mask)
    n = len(first)
    if not n:
        raise InputError("before has no rows, but at least one was expected")
    old, new = (macro_auc(scores, truth, average=None, mask=known) for scores in (first, second))
    ordered = sort_classes(first, truth, known), sort_classes(second, truth, known)
    rng = np.random.default_rng(seed)
    step = max(1, min(BLOCK // n, resamples))
    drawn = []
    for start in range(0, resamples, step):
        counts = draw_counts(rng, n, min(step, resamples - start))
        drawn.append(resampled_auc(ordered[1], counts) - resampled_auc(ordered[0], counts))
    cells = np.ones_like(truth) if known is None else known
    fewer = np.minimum((truth & cells).sum(axis=0), (~truth & cells).sum(axis=0))
    spread = _spread(np.concatenate(drawn))
    tested = max(int(np.count_nonzero(fewer > 1)), 1)
    with np.errstate(invalid="ignore"):
        quantile = stdtrit(np.maximum(fewer - 1, 1), 1 - (1 - level) / tested)
        width = np.where(fewer > 1, quantile * spread, np.where(fewer == 1, np.inf, np.nan))
    change = new - old
    return AucChanges(old, new, change, change - width, change + width, level)


def _spread(values: Floats) -> Floats:
    """Return the standard deviation of each column over what is not nan: 0 where nothing is."""
    known = ~np.isnan(values)
    squares = np.where(known, (values - column_means(values, known)) ** 2, 0.0).sum(axis=0)
    return np.asarray(np.sqrt(squares / np.maximum(known.sum(axis=0) - 1, 1)))
