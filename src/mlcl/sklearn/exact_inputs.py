"""Read and check what an exact tagger is given: features, labels, annotated cells and weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import _check_sample_weight

from mlcl.errors import InputError, first_unfit
from mlcl.sklearn.rows import check_rows
from mlcl.sklearn.targets import Name, read_targets


@dataclass(frozen=True, eq=False)
class Annotations:
    """What is known of some rows.

    Attributes:
        names: the class of each column.
        labels: 0 or 1, ``[n, len(names)]``: an array, or a CSR matrix if all of them are known.
        annotated: which labels are known; None for all.
        weights: of the rows; None for 1 each.
    """

    names: list[Name]
    labels: Any
    annotated: NDArray[np.bool_] | None
    weights: NDArray[np.float64] | None


def read_features(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Return features as an array or a CSR matrix, checked as scikit-learn does.

    A value that is not finite, or so large that sums of squares could overflow (`mlcl.errors.LARGEST`), is named with
    its row and column.

    Args:
        estimator: it keeps the number and the names of the features.
        X: ``[n, D]``.
        reset: whether these are its first rows.
    """
    rows = check_rows(
        estimator,
        X,
        reset=reset,
        dtype=(np.float64, np.float32),
        accept_sparse="csr",
        ensure_all_finite=False,
    )
    sparse = hasattr(rows, "indptr")
    unfit = first_unfit(rows.data if sparse else rows)
    if unfit is not None:
        place, found, expected = unfit
        if sparse:
            cells = rows.tocoo()
            row, column = cells.row[place], cells.col[place]
        else:
            row, column = divmod(place, rows.shape[1])
        raise InputError(f"X contains {found} at row {row}, column {column}; expected {expected}")
    return rows


def read_annotations(
    y: Any,
    classes: Any | None,
    *,
    rows: int,
    known: Sequence[Name],
    only_known: bool = False,
    annotated: Any | None = None,
    sample_weight: Any | None = None,
) -> Annotations:
    """Return the classes, labels, annotated cells and weights of a call.

    Args:
        y: labels, ``[n, K]``, or one collection of tags per row.
        classes: a name for each column, or None.
        rows: the number of rows expected.
        known: the classes of earlier calls, in order.
        only_known: refuse names that are not known yet.
        annotated: which cells of ``y`` are known, ``[n, K]``, or None for all.
        sample_weight: a weight per row, from 0 to `mlcl.errors.LARGEST`, or None.

    >>> found = read_annotations([["dog"], []], None, rows=2, known=["cat"])
    >>> found.names, found.labels.tolist()
    (['cat', 'dog'], [[0, 1], [0, 0]])
    """
    names, labels = read_targets(y, classes, known=known, rows=rows, only_known=only_known)
    marks = None if annotated is None else _marks(annotated, labels.shape)
    if marks is not None and sparse.issparse(labels):
        labels = labels.toarray()
    weights = None
    if sample_weight is not None:
        weights = _check_sample_weight(sample_weight, labels, dtype=np.float64, ensure_non_negative=True)
        unfit = first_unfit(weights)
        if unfit is not None:
            place, found, expected = unfit
            raise InputError(f"sample_weight contains {found} at row {place}; expected {expected}")
    return Annotations(names, labels, marks, weights)


def _marks(annotated: Any, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    marks = np.asarray(annotated.toarray() if hasattr(annotated, "toarray") else annotated)
    if marks.shape != shape or not np.isin(marks, (0, 1)).all():
        raise InputError(
            f"annotated has shape {marks.shape} and dtype {marks.dtype}; expected booleans of the shape of y, {shape}"
        )
    return marks.astype(np.bool_)
