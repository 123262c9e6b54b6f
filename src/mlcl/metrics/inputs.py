"""What every metric does first: read scores, labels and mask, and say clearly what is wrong with them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlcl.errors import InputError, nearest
from mlcl.labels import as_labels

Scores = NDArray[np.float32] | NDArray[np.float64]
Bools = NDArray[np.bool_]
G = TypeVar("G", bound=np.generic)
T = TypeVar("T")
R = TypeVar("R")

# Below this many scores a thread pool costs more than it saves.
SLAB=1<<15
_WORTH_THREADS = 1 << 17


def to_array(values: ArrayLike) -> NDArray[Any]:
    """Return ``values`` as a numpy array; a torch tensor may be on any device, need gradients, or be bfloat16.

    Tensors are known by their methods, so torch is not imported here.

    >>> to_array([[1, 2]])
    array([[1, 2]])
    """
    tensor: Any = values
    if hasattr(tensor, "detach") and hasattr(tensor, "cpu"):
        tensor = tensor.detach().cpu()
        if str(tensor.dtype) == "torch.bfloat16":  # numpy has no such type; float32 holds its values exactly
            tensor = tensor.float()
    return np.asarray(tensor)


def check_scores(scores: ArrayLike, labels: ArrayLike, mask: ArrayLike | None = None) -> tuple[Scores, Bools]:
    """Return finite scores ``[n, K]`` and labels as booleans ``[n, K]``.

    float32 and float64 keep their type, so that no two scores become equal; float16 widens to float32, everything
    else to float64. Scores need be finite only where ``mask`` (booleans ``[n, K]``, if given) is true.

    >>> check_scores([[1, 2]], [[0, 1]])
    (array([[1., 2.]]), array([[False,  True]]))
    """
    try:
        array = to_array(scores)
    except (TypeError, ValueError) as error:
        raise InputError(f"scores is not a matrix of numbers: {error}") from None
    if array.ndim != 2 or array.dtype.kind not in "buif":
        raise InputError(
            f"scores has shape {array.shape} and dtype {array.dtype}, but a matrix of numbers "
            f"[samples, classes] was expected"
        )
    truth = as_labels(to_array(labels), rows=len(array))
    if truth.shape != array.shape:
        raise InputError(f"labels has shape {truth.shape}, but {array.shape} was expected, as of scores")
    narrow = array.dtype.kind == "f" and array.dtype.itemsize <= 4
    values: Scores = array.astype(np.float32 if narrow else np.float64, copy=False)
    bad = ~np.isfinite(values)
    if mask is not None:
        bad &= check_mask(mask, values.shape)
    if bad.any():
        row, column = np.unravel_index(int(bad.argmax()), bad.shape)
        raise InputError(
            f"scores has the value {values[row, column]} at row {row}, column {column}, "
            f"but finite numbers were expected"
        )
    return values, truth.view(np.bool_)


def check_mask(mask: ArrayLike, shape: tuple[int, ...]) -> Bools:
    """Return ``mask`` as booleans of the given shape.

    >>> check_mask([[1, 0]], (1, 2))
    array([[ True, False]])
    """
    array = as_labels(to_array(mask), name="mask")
    if array.shape != shape:
        raise InputError(f"mask has shape {array.shape}, but {shape} was expected, as of scores")
    return array.view(np.bool_)


def check_choice(name: str, value: object, known: tuple[str, ...]) -> None:
    """Refuse a ``value`` of the option ``name`` that is not one of ``known``.

    >>> check_choice("ties", "haf", ("half", "strict"))
    Traceback (most recent call last):
    ...
    mlcl.errors.InputError: ties is 'haf', but one of half, strict was expected. Did you mean 'half'?
    """
    if value not in known:
        raise InputError(
            f"{name} is {value!r}, but one of {', '.join(known)} was expected.{nearest(str(value), known)}"
        )


def check_level(level: float) -> None:
    """Refuse a confidence level outside (0, 1)."""
    if not 0 < level < 1:
        raise InputError(f"level is {level!r}, but a number between 0 and 1, such as 0.95, was expected")


def transposed(matrix: NDArray[G]) -> NDArray[G]:
    """Return a C-contiguous copy of ``matrix.T``, some 512 rows at a time.

    A plain copy walks a whole column of the source for each row of the result and misses the cache at every step;
    in slabs it is about six times as fast on 40,504 x 80.

    >>> transposed(np.array([[1, 2], [3, 4]]))
    array([[1, 3],
           [2, 4]])
    """
    result = np.empty(matrix.shape[::-1], dtype=matrix.dtype)
    rows = max(16, SLAB // max(1, matrix.shape[1]))
    for start in range(0, len(matrix), rows):
        result[:, start : start + rows] = matrix[start : start + rows].T
    return result


def in_threads(work: Callable[[T], R], items: Iterable[T], *, size: int) -> list[R]:
    """Return ``[work(item) for item in items]``, on the cores this process may use if ``size`` numbers are worth it.

    Numpy lets other threads run while it sorts, gathers and sums.

    >>> in_threads(abs, [-1, 2], size=2)
    [1, 2]
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cores == 1 or size < _WORTH_THREADS:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(cores, 8)) as pool:
        return list(pool.map(work, items))
