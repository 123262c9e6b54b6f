"""What every metric does first: read and check scores, labels and mask."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlcl.errors import InputError
from mlcl.labels import as_labels

Scores = NDArray[np.float32] | NDArray[np.float64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


def to_array(values: ArrayLike) -> NDArray[Any]:
    """Return ``values`` as a numpy array.

    A torch tensor may be on any device, require gradients, or be bfloat16. It is recognised by its methods, so that
    torch is not imported here.

    >>> to_array([[1, 2]])
    array([[1, 2]])
    """
    tensor: Any = values
    if hasattr(tensor, "detach") and hasattr(tensor, "cpu"):
        tensor = tensor.detach().cpu()
        if str(tensor.dtype) == "torch.bfloat16":  # numpy has no such type; float32 holds its values exactly
            tensor = tensor.float()
    if hasattr(tensor, "toarray"):  # a sparse matrix of scipy
        tensor = tensor.toarray()
    return np.asarray(tensor)


def check_scores(
    scores: ArrayLike, labels: ArrayLike, mask: ArrayLike | None = None
) -> tuple[Scores, Bools, Bools | None]:
    """Return finite scores, and labels and mask (if given) as booleans, all ``[n, K]``.

    float32 and float64 keep their type, so that no two scores become equal; float16 widens to float32,
    anything else to float64. Scores need be finite only where ``mask`` is true.

    >>> check_scores([[1, 2]], [[0, 1]])
    (array([[1., 2.]]), array([[False,  True]]), None)
    """
    array = matrix_of(scores, "scores")
    truth = as_labels(to_array(labels), rows=len(array))
    if truth.shape != array.shape:
        raise InputError(f"labels has shape {truth.shape}, but {array.shape} was expected, as for scores")
    known = None
    if mask is not None:
        known = as_labels(to_array(mask), name="mask").view(np.bool_)
        if known.shape != array.shape:
            raise InputError(f"mask has shape {known.shape}, but {array.shape} was expected, as for scores")
    narrow = array.dtype.kind == "f" and array.dtype.itemsize <= 4
    values: Scores = np.asarray(array, dtype=np.float32) if narrow else np.asarray(array, dtype=np.float64)
    bad = ~np.isfinite(values) if known is None else ~np.isfinite(values) & known
    refuse_cells("scores", values, bad, "finite numbers were expected")
    return values, truth.view(np.bool_), known


def check_average(average: object) -> None:
    """Refuse an average that is neither ``"macro"`` nor None."""
    if average is not None and average != "macro":
        raise InputError(f"average is {average!r}, but 'macro' or None was expected")


def group_numbers(groups: ArrayLike | None, rows: int) -> tuple[NDArray[np.int64], int]:
    """Return the number of each row's group, and how many groups there are; None: each row is its own."""
    if groups is None:
        return np.arange(rows), rows
    names = np.asarray(groups)
    if names.shape != (rows,):
        raise InputError(f"groups has shape {names.shape}; expected one group per row, ({rows},)")
    found, place = np.unique(names, return_inverse=True)
    return place.astype(np.int64), len(found)


def check_level(level: float) -> None:
    """Refuse a confidence level outside (0, 1)."""
    if not 0 < level < 1:
        raise InputError(f"level is {level!r}, but a number between 0 and 1, such as 0.95, was expected")


def vector(values: ArrayLike, name: str) -> Floats:
    """Return a vector of numbers as float64."""
    try:
        array = to_array(values).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} is not a vector of numbers: {error}") from None
    if array.ndim != 1:
        raise InputError(
            f"{name} has shape {array.shape}, but a vector, one value per seed or class, was expected"
        )
    return array


def matrix_of(values: ArrayLike, name: str) -> NDArray[Any]:
    """Return a matrix of numbers as it is."""
    try:
        array = to_array(values)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} is not a matrix of numbers: {error}") from None
    if array.ndim != 2 or array.dtype.kind not in "buif":
        raise InputError(
            f"{name} has shape {array.shape} and dtype {array.dtype}, but a matrix of numbers was expected"
        )
    return array


def refuse_cells(name: str, values: NDArray[Any], bad: Bools, expected: str) -> None:
    """Refuse a matrix that has bad cells: the first of them is named."""
    if bad.any():
        row, column = np.unravel_index(int(bad.argmax()), bad.shape)
        raise InputError(
            f"{name} has the value {values[row, column]} at row {row}, column {column}, but {expected}"
        )
