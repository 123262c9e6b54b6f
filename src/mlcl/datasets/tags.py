"""Labels as tags, one collection of names per row: how they become a matrix, and names that are alike."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mlcl.errors import InputError, nearest
from mlcl.labels import Labels

MAX_CLASSES = 100_000


def is_tags(y: Any) -> bool:
    """Return whether ``y`` is one collection of names per row: sets of any names, or lists and tuples of strings.

    A row without tags is an empty collection.

    >>> is_tags([["cat", "dog"], []]), is_tags([{1}, set()]), is_tags([[]]), is_tags([[1, 0], [0, 1]])
    (True, True, True, False)
    """
    if hasattr(y, "columns") or hasattr(y, "toarray"):
        return False
    if isinstance(y, np.ndarray) and y.dtype.kind != "O":  # a matrix of numbers, not to be made into lists
        return False
    rows = y.tolist() if hasattr(y, "tolist") else y
    if not isinstance(rows, list | tuple) or not rows:
        return False
    if not all(isinstance(row, list | tuple | set | frozenset) for row in rows):
        return False
    names = [name for row in rows for name in row]
    return not names or any(isinstance(row, set | frozenset) for row in rows) or isinstance(names[0], str)


def label_matrix(
    lists: Sequence[Sequence[str]], *, classes: Sequence[str] | None, where: str
) -> tuple[tuple[str, ...], Labels]:
    """Return class names and a 0/1 matrix from a list of names per row; without ``classes``, all names, sorted.

    >>> label_matrix([["dog"], ["cat", "dog"], []], classes=None, where="x")
    (('cat', 'dog'), array([[0, 1],
           [1, 1],
           [0, 0]], dtype=uint8))
    """
    if classes is None:
        classes = sorted({label for labels in lists for label in labels})
        if len(classes) > MAX_CLASSES:
            raise InputError(f"{where} has {len(classes)} classes, but at most {MAX_CLASSES} were expected")
    column = {name: k for k, name in enumerate(classes)}
    matrix = np.zeros((len(lists), len(classes)), dtype=np.uint8)
    for row, labels in enumerate(lists):
        for label in labels:
            if label not in column:
                raise InputError(
                    f"{where} has the unknown label {label!r} in row {row + 1}.{nearest(label, classes)}"
                )
            matrix[row, column[label]] = 1
    return tuple(classes), matrix


def alike(names: Sequence[str]) -> list[tuple[int, ...]]:
    """Return the groups of names that differ only in case or spaces, as places in ``names``.

    >>> alike(["Cat", "dog", "cat", "traffic light", "trafficlight"])
    [(0, 2), (3, 4)]
    """
    groups: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        groups.setdefault("".join(name.split()).casefold(), []).append(place)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def warn_of_alike(names: Sequence[str], counts: ArrayLike, *, where: str, limit: int = 3) -> None:
    """Warn of names that differ only in case or spaces, each with its number of rows; they are kept apart."""
    groups = alike(names)
    if not groups:
        return
    rows = [int(count) for count in np.asarray(counts)]
    shown = "; ".join(
        " and ".join(f"{names[k]!r} ({rows[k]} row{'s' * (rows[k] != 1)})" for k in group)
        for group in groups[:limit]
    )
    more = f"; and {len(groups) - limit} more" if len(groups) > limit else ""
    warnings.warn(
        f"{where} has labels that differ only in case or spaces and are kept apart: {shown}{more}",
        UserWarning,
        stacklevel=3,
    )
