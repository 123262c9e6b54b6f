"""Read and check targets: the class of each column of y, and labels that are 0 or 1; or tags per row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mlcl.datasets.tags import is_tags
from mlcl.errors import InputError
from mlcl.labels import Labels, as_labels

Name: TypeAlias = str | int
MANY = 2**24
"""Tags of more cells than this become a sparse matrix."""


def read_targets(
    y: Any, classes: Any | None, *, known: Sequence[Name], rows: int, only_known: bool = False
) -> tuple[list[Name], Any]:
    """Return the class of each column, and the labels as 0 and 1: an array, or a CSR matrix if y is sparse.

    The names are ``classes``, or else the column names of a data frame, or else the classes known so far; if there are
    none yet, 0, 1, 2, ...

    Args:
        y: ``[n, K]``: an array, nested lists, a sparse matrix, or a data frame; or the tags of each row (`tag_matrix`).
        classes: a name for each column, or None.
        known: the classes of earlier calls, in order.
        rows: the number of rows expected.
        only_known: refuse names that are not known yet.

    >>> read_targets([[1, 0], [0, 0]], ["cat", "dog"], known=[], rows=2)[0]
    ['cat', 'dog']
    >>> read_targets([[1, 0], [0, 0]], None, known=["cat"], rows=2)
    Traceback (most recent call last):
    ...
    mlcl.errors.InputError: y has 2 columns without names and 1 class is known; expected as many, or names in classes
    """
    if y is None:
        raise InputError("the tagger requires y to be passed, but the target y is None")
    if is_tags(y):
        if len(y) != rows:
            raise InputError(
                f"y has {len(y)} rows and X has {rows}, but one row of y per row of X was expected"
            )
        classes, y = tag_matrix(y, classes, known=known)
    given = _given_names(y, classes, known)
    labels = _sparse_labels(y, rows) if sparse.issparse(y) else _as_labels(y, rows)
    names = given or _default_names(known, labels.shape[1])
    if len(names) != labels.shape[1] or not names:
        raise InputError(
            f"classes has {len(names)} names and y has {labels.shape[1]} columns; expected one name for each, "
            f"and at least one"
        )
    unknown = [name for name in names if name not in known] if only_known else []
    if unknown:
        raise InputError(f"classes has {_shown(unknown)}, but only these are known: {_shown(known)}")
    return names, labels


def tag_matrix(y: Any, classes: Any | None, *, known: Sequence[Name]) -> tuple[list[Name], Any]:
    """Return the class of each column, and the labels as 0 and 1: a CSR matrix if there are many.

    The columns are ``classes``, or else the classes known so far and then the new tags in sorted order: a row without
    a tag is a negative of it.

    Args:
        y: of `mlcl.datasets.tags.is_tags`.
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
    cells: list[int] = []
    for number, row in enumerate(rows):
        for name in row:
            if not isinstance(name, str | int) or name not in column:
                raise InputError(
                    f"y has the tag {name!r} at row {number}; expected tags of classes {_shown(names)}"
                )
            cells.append(column[name])
    ends = np.cumsum([0, *map(len, rows)])
    labels = sparse.csr_matrix((np.ones(len(cells), np.bool_), cells, ends), (len(rows), len(names)))
    labels.sum_duplicates()  # of booleans: a tag given twice counts once
    labels = labels.astype(np.uint8)
    return names, labels if len(rows) * len(names) > MANY else labels.toarray()


def _given_names(y: Any, classes: Any | None, known: Sequence[Name]) -> list[Name] | None:
    """Return the names in ``classes`` or of the columns of a data frame, which must agree; None without either."""
    columns = check_names(list(y.columns), "y.columns", known) if hasattr(y, "columns") else None
    given = None if classes is None else check_names(classes, "classes", known)
    if given is not None and columns is not None and given != columns:
        raise InputError(f"classes is {_shown(given)}, but the columns of y are {_shown(columns)}")
    return given or columns


def _default_names(known: Sequence[Name], columns: int) -> list[Name]:
    """Return the names of columns that have none: the known classes, or else 0, 1, 2, ..."""
    names: list[Name] = list(known) or list(range(columns))
    if len(names) != columns:
        are = "class is" if len(known) == 1 else "classes are"
        raise InputError(
            f"y has {columns} columns without names and {len(known)} {are} known; expected as many, "
            f"or names in classes"
        )
    return names


def _sparse_labels(y: Any, rows: int) -> Any:
    """Return a sparse matrix of labels as CSR, which is never made dense: there may be many thousands of classes."""
    matrix = sparse.csr_matrix(y)
    matrix.sum_duplicates()
    if matrix.shape[0] != rows:
        raise InputError(
            f"y has {matrix.shape[0]} rows and X has {rows}, but one row of y per row of X was expected"
        )
    if (bad := ~np.isin(matrix.data, (0, 1))).any():
        cells, place = matrix.tocoo(), int(bad.argmax())
        raise InputError(
            f"Unknown label type: y has the value {cells.data[place]} at row {cells.row[place]}, column "
            f"{cells.col[place]}, but only 0 and 1 are allowed"
        )
    return matrix.astype(np.uint8)


def _as_labels(y: Any, rows: int) -> Labels:
    """Return any kind of matrix as labels; errors begin with the words that scikit-learn's checks look for."""
    try:
        matrix = np.asarray(y.toarray() if hasattr(y, "toarray") else y)
        if matrix.dtype == object and hasattr(y, "columns"):  # a data frame with columns of several types
            matrix = matrix.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"Unknown label type: y is not a matrix of 0 and 1: {error}") from None
    if matrix.ndim == 1:
        raise InputError(
            f"Unknown label type: y has shape {matrix.shape}, but a matrix [samples, classes] was expected: for one "
            f"class use y.reshape(-1, 1), for tags a list or a set of names per row"
        )
    if matrix.ndim == 2 and len(matrix) != rows:
        raise InputError(
            f"y has {len(matrix)} rows and X has {rows}, but one row of y per row of X was expected"
        )
    try:
        return as_labels(matrix, name="y")
    except InputError as error:
        raise InputError(f"Unknown label type: {error}") from None


def class_array(names: Sequence[Name]) -> NDArray[Any]:
    """Return names as the array that scikit-learn expects in ``classes_``.

    >>> class_array(["cat", "dog"])
    array(['cat', 'dog'], dtype=object)
    """
    if all(isinstance(name, int) for name in names):
        return np.array(names, dtype=np.int64)
    return np.array(names, dtype=object)  # an array of fixed-width strings would truncate longer names


def check_names(classes: Any, source: str, known: Sequence[Name]) -> list[Name]:
    """Check that names are distinct, not blank, and all strings or all whole numbers, like the known ones."""
    names = classes.tolist() if hasattr(classes, "tolist") else classes
    if isinstance(names, str) or not isinstance(names, list | tuple):
        raise InputError(f"{source} is {classes!r}, but a list of names was expected")
    names = [name.item() if isinstance(name, np.generic) else name for name in names]
    seen: set[Name] = set()
    wanted = type((list(known) or names or [""])[0])
    for name in names:
        _check_name(name, source, wanted)
        if name in seen:
            raise InputError(f"{source} has the name {name!r} twice, but distinct names were expected")
        seen.add(name)
    return names


def _check_name(name: Any, source: str, wanted: type) -> None:
    """Check one name: a string that is not blank or a whole number, and of the same type as the others."""
    if type(name) not in (str, int) or (isinstance(name, str) and not name.strip()):
        raise InputError(f"{source} has the entry {name!r}, but a name that is not blank was expected")
    if type(name) is not wanted:
        kind = "strings" if wanted is str else "whole numbers"
        raise InputError(
            f"{source} has the entry {name!r}, but names of one type were expected: the others are {kind}"
        )
    if isinstance(name, int) and not 0 <= name < 2**63:
        raise InputError(f"{source} has the entry {name}, but numbers from 0 to 2^63 - 1 were expected")


def _shown(names: Sequence[Name]) -> str:
    return str(list(names)) if len(names) <= 6 else f"{list(names[:6])} and {len(names) - 6} more"
