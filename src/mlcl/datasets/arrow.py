"""Columns of an Arrow record batch as numpy arrays, without a Python object per row.

Pyarrow is an extra, and is imported only when there is a batch to read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.errors import InputError, first_unfit

Ints = NDArray[np.int64]


def vectors_of(cells: Any, width: int | None, column: str, where: str, start: int) -> NDArray[Any]:
    """Return a column of lists of numbers as ``[n, D]``; each must be finite, and no larger than `mlcl.errors.LARGEST`.

    Args:
        cells: the column.
        width: the length expected of every list; that of the first one if None.
        column: its name, for errors.
        where: the file, for errors.
        start: the number of the first row, for errors.

    >>> import pyarrow
    >>> vectors_of(pyarrow.array([[1.0, 2.0], [3.0, 4.0]]), None, "x", "a.parquet", 0)
    array([[1., 2.],
           [3., 4.]])
    >>> vectors_of(pyarrow.array([[1.0, 2.0], [3.0]]), None, "x", "a.parquet", 100)
    Traceback (most recent call last):
    ...
    mlcl.errors.InputError: a.parquet has a vector of length 1 in row 101 of column 'x'; expected 2
    """
    cells = getattr(cells, "storage", cells)
    _refuse_nulls(cells, column, where, start, "a vector")
    lengths = _lengths(cells)
    if width is None:
        width = int(lengths[0]) if len(lengths) else 0
    if (lengths != width).any():
        row = int((lengths != width).argmax())
        raise InputError(
            f"{where} has a vector of length {lengths[row]} in row {start + row} of column {column!r}; "
            f"expected {width}"
        )
    values = cells.flatten()
    if values.null_count:
        row, place = divmod(int(np.asarray(values.is_null()).argmax()), width)
        raise InputError(
            f"{where} has no number in row {start + row}, place {place} of column {column!r}; "
            f"expected finite numbers"
        )
    found = values.to_numpy(zero_copy_only=False).reshape(len(cells), width)
    unfit = first_unfit(found) if found.dtype.kind == "f" else None
    if unfit is not None:
        (row, place), kind, expected = divmod(unfit[0], width), unfit[1], unfit[2]
        raise InputError(
            f"{where} has {kind} in row {start + row}, place {place} of column {column!r}; expected {expected}"
        )
    return np.asarray(found)


def names_of(
    cells: Any, column: str, separator: str, where: str, start: int, *, null_is_empty: bool = False
) -> tuple[tuple[Ints, Ints], list[str]]:
    """Return a row and the number of a name for each name in a column of lists, or of texts, and the names.

    Args:
        cells: the column.
        column: its name, for errors.
        separator: between the names in a text.
        where: the file, for errors.
        start: the number of the first row, for errors.
        null_is_empty: take an empty cell (null) for an empty list; otherwise it is refused.

    >>> import pyarrow
    >>> (rows, numbers), names = names_of(pyarrow.array(["cat|dog", "", "dog"]), "tags", "|", "a.parquet", 0)
    >>> rows.tolist(), numbers.tolist(), names
    ([0, 0, 2], [0, 1, 1], ['cat', 'dog'])
    """
    import pyarrow
    from pyarrow import compute, types

    if not null_is_empty:
        _refuse_nulls(cells, column, where, start, "a list of names")
    elif cells.null_count and types.is_fixed_size_list(cells.type):
        cells = cells.cast(pyarrow.list_(cells.type.value_type))
    if types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    joined = types.is_string(cells.type) or types.is_large_string(cells.type)
    if joined:
        cells = compute.split_pattern(cells, separator)
    rows = np.repeat(np.arange(len(cells)), _lengths(cells))
    flat = cells.flatten()
    if flat.null_count:
        row = int(rows[np.asarray(flat.is_null()).argmax()])
        raise InputError(
            f"{where} has no name (null) in row {start + row} of column {column!r}; expected names"
        )
    if types.is_dictionary(flat.type):
        flat = flat.dictionary_decode()
    trimmed = compute.utf8_trim_whitespace(flat)
    some = np.asarray(compute.not_equal(trimmed, ""))
    if not some.all():
        if not joined:
            row = int(rows[some.argmin()])
            raise InputError(
                f"{where} has a blank name in row {start + row} of column {column!r}; expected names"
            )
        rows, trimmed = rows[some], trimmed.filter(pyarrow.array(some))
    coded = (trimmed if joined else flat).dictionary_encode()
    numbers = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return (rows, numbers), coded.dictionary.to_pylist()


def _lengths(cells: Any) -> Ints:
    from pyarrow import compute, types

    if types.is_fixed_size_list(cells.type):
        return np.full(len(cells), cells.type.list_size)
    found = compute.list_value_length(cells).fill_null(0)
    return np.asarray(found.to_numpy(zero_copy_only=False), np.int64)


def _refuse_nulls(cells: Any, column: str, where: str, start: int, expected: str) -> None:
    if cells.null_count:
        row = int(np.asarray(cells.is_null()).argmax())
        raise InputError(
            f"{where} has nothing (null) in row {start + row} of column {column!r}; expected {expected}"
        )
