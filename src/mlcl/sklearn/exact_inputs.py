"""Read and check what an exact tagger is given: features, labels, annotated cells and weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import _check_sample_weight, validate_data

from mlcl.errors import InputError
from mlcl.labels import Labels
from mlcl.sklearn.targets import Name, read_targets


@dataclass(frozen=True, eq=False)
class Annotations:
    """What is known of some rows.

    Attributes:
        names: the class of each column.
        labels: 0 or 1, ``[n, len(names)]``.
        annotated: which labels are known; None for all.
        weights: of the rows; None for 1 each.
    """

    names: list[Name]
    labels: Labels
    annotated: NDArray[np.bool_] | None
    weights: NDArray[np.float64] | None


def read_features(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Return features as an array or a CSR matrix, checked as scikit-learn does.

    A value that is not finite is named with its row and column.

    Args:
        estimator: it keeps the number and the names of the features.
        X: ``[n, D]``.
        reset: whether these are its first rows.
    """
    rows = validate_data(
        estimator,
        X,
        reset=reset,
        dtype=(np.float64, np.float32),
        accept_sparse="csr",
        ensure_all_finite=False,
    )
    values = rows.data if hasattr(rows, "indptr") else rows
    # A sum is finite if all values are, unless it overflows: only then every value is looked at.
    if not np.isfinite(values.sum(dtype=np.float64)) and not np.isfinite(values).all():
        _refuse(rows)
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
        sample_weight: a weight of at least 0 per row, or None.

    >>> found = read_annotations([["dog"], []], None, rows=2, known=["cat"])
    >>> found.names, found.labels.tolist()
    (['cat', 'dog'], [[0, 1], [0, 0]])
    """
    names, labels = read_targets(y, classes, known=known, rows=rows, only_known=only_known)
    marks = None if annotated is None else _marks(annotated, labels.shape)
    weights = None
    if sample_weight is not None:
        weights = _check_sample_weight(sample_weight, labels, dtype=np.float64, ensure_non_negative=True)
    return Annotations(names, labels, marks, weights)


def _marks(annotated: Any, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    marks = np.asarray(annotated.toarray() if hasattr(annotated, "toarray") else annotated)
    if marks.shape != shape or not np.isin(marks, (0, 1)).all():
        raise InputError(
            f"annotated has shape {marks.shape} and dtype {marks.dtype}; expected booleans of the shape of y, {shape}"
        )
    return marks.astype(np.bool_)


def _refuse(rows: Any) -> None:
    """Raise the error that names the first value that is not finite, in the words of scikit-learn's checks."""
    if hasattr(rows, "indptr"):
        rows = rows.tocoo()
        place = int(np.flatnonzero(~np.isfinite(rows.data))[0])
        row, column, value = rows.row[place], rows.col[place], rows.data[place]
    else:
        row, column = np.argwhere(~np.isfinite(rows))[0]
        value = rows[row, column]
    kind = "NaN" if np.isnan(value) else "infinity"
    raise InputError(f"X contains {kind} at row {row}, column {column}; expected finite numbers")
