"""Suspected label errors: labels that a model, which has not seen the rows, contradicts with confidence.

The rule is that of confident learning (Northcutt et al., 2021), for each class alone: a label is suspected where the
model is at least as sure of the opposite as it is on average where the opposite is the label. Suspected labels are
ranked by the probability of the opposite: with a share of wrong labels that is the same everywhere, that is the order
of how likely each is wrong.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlcl.metrics.columns import column_means
from mlcl.metrics.inputs import check_scores


def suspected_errors(
    probabilities: ArrayLike, labels: ArrayLike, *, mask: ArrayLike | None = None
) -> NDArray[np.int64]:
    """Return the cells whose labels are suspected, the most suspected first: rows and classes, int64 ``[m, 2]``.

    Args:
        probabilities: ``[n, K]``, from 0 to 1, for rows that the model was not trained on.
        labels: 0 or 1, ``[n, K]``.
        mask: which labels are known, ``[n, K]``; all by default.

    >>> suspected_errors([[0.9], [0.8], [0.1], [0.2], [0.95]], [[1], [1], [0], [0], [0]]).tolist()
    [[4, 0]]
    """
    values, truth, known = check_scores(probabilities, labels, mask)
    cells = np.ones_like(truth) if known is None else known
    positive, negative = truth & cells, ~truth & cells
    # nan, which nothing exceeds, without such rows
    high, low = column_means(values, positive), column_means(values, negative)
    suspected = (negative & (values >= high)) | (positive & (values <= low))
    rows, classes = np.nonzero(suspected)
    opposite = np.where(truth, 1 - values, values)[rows, classes]
    order = np.argsort(-opposite, kind="stable")
    return np.stack([rows[order], classes[order]], axis=1).astype(np.int64)
