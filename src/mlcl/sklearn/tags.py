"""Targets as lists of tags: which rows have which names, as a matrix of labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlcl.errors import InputError
from mlcl.labels import Labels
from mlcl.sklearn.targets import Name, check_names


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


def tag_matrix(y: Any, classes: Any | None, *, known: Sequence[Name]) -> tuple[list[Name], Labels]:
    """Return the class of each column, and the labels as 0 and 1.

    The columns are ``classes``, or else the classes known so far and then the new tags in sorted order: a row without
    a tag is a negative of it.

    Args:
        y: of `is_tags`.
        classes: a name for each column, or None; every tag must be among them.
        known: the classes of earlier calls, in order.

    >>> tag_matrix([["dog"], [], ["cat", "dog"]], None, known=[])
    (['cat', 'dog'], array([[0, 1],
           [0, 0],
           [1, 1]], dtype=uint8))
    """
    rows = [[name.item() if isinstance(name, np.generic) else name for name in row] for row in y]
    if classes is None:
        found = {name for row in rows for name in row if isinstance(name, str | int)} - set(known)
        names = check_names([*known, *sorted(found, key=lambda name: (str(type(name)), name))], "y", known)
    else:
        names = check_names(classes, "classes", known)
    column = {name: k for k, name in enumerate(names)}
    labels = np.zeros((len(rows), len(names)), np.uint8)
    for number, row in enumerate(rows):
        for name in row:
            if not isinstance(name, str | int) or name not in column:
                raise InputError(f"y has the tag {name!r} at row {number}; expected tags of classes {names}")
            labels[number, column[name]] = 1
    return names, labels
