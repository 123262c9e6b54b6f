"""What Parquet files and Hugging Face datasets share: columns of an Arrow table become labels and features.

This module does not import pyarrow: it calls the methods of the tables only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets.base import as_inputs
from mlcl.datasets.cells import split_cells
from mlcl.datasets.tags import MAX_CLASSES, label_matrix
from mlcl.errors import InputError
from mlcl.labels import Labels

IMAGE_COLUMNS = ("image", "img", "jpg", "picture")
LABEL_COLUMNS = ("labels", "label", "tags", "classes")
FEATURE_COLUMNS = ("features", "embedding", "vector", "x")
LABEL_PREFIX = "label_"


def find_column(
    names: Sequence[str], wanted: str | None, usual: Sequence[str], *, option: str, where: str
) -> str | None:
    """Return the column that an option names, or the first that has a usual name, or None."""
    if wanted is None:
        return next((name for name in usual if name in names), None)
    if wanted not in names:
        raise InputError(
            f"{where} has no column {wanted!r} (option {option}); it has {', '.join(names)[:200]}"
        )
    return wanted


def find_image_column(schema: Any, wanted: str | None, *, where: str) -> str | None:
    """Return the column of encoded images (bytes, or a struct with a field ``bytes``), or None.

    A column that only has a usual name, but holds something else, is not one; if an option names it, it is refused.
    """
    name = find_column(schema.names, wanted, IMAGE_COLUMNS, option="image", where=where)
    kind = "" if name is None else str(schema.field(name).type)
    if kind in ("binary", "large_binary") or (kind.startswith("struct<") and "bytes: binary" in kind):
        return name
    if wanted is not None:
        raise InputError(f"{where} has the column {name!r} of {kind}, but bytes were expected")
    return None


def read_labels(
    table: Any, column: str | None, *, where: str, separator: str | None = None
) -> tuple[tuple[str, ...], Labels]:
    """Return class names and the 0/1 matrix of a table.

    ``column`` holds lists of names, texts such as ``a|b|c`` (`split_cells`), or lists of class numbers. The names of
    numbered classes are those that Hugging Face writes into the schema, or else the numbers themselves. Without such a
    column, the columns whose names start with ``label_`` hold 0 and 1.
    """
    if column is None:
        return _one_hot(table, where)
    values = _label_lists(table, column, where, separator)
    kinds = {type(v) for value in values for v in value}
    if len(kinds) > 1:
        raise InputError(
            f"{where} has names and numbers in column {column!r}, but one of the two was expected"
        )
    if kinds == {int}:
        return _numbered_labels(table, column, values, where)
    return label_matrix(values, classes=None, where=where)


def _one_hot(table: Any, where: str) -> tuple[tuple[str, ...], Labels]:
    """Return names and 0/1 matrix of the columns whose names start with ``label_``."""
    names = [name for name in table.column_names if name.startswith(LABEL_PREFIX)]
    if not names:
        raise InputError(
            f"{where} has no column of labels: 'labels' (lists, or a|b|c), or columns {LABEL_PREFIX}... "
            f"of 0 and 1, were expected; it has {', '.join(table.column_names)[:200]}"
        )
    matrix = np.stack([_numbers(table, name, where) for name in names], axis=1)
    bad = (matrix != 0) & (matrix != 1)
    if bad.any():
        name = names[int(bad.any(axis=0).argmax())]
        raise InputError(f"{where} has a value in column {name!r} that is not 0 or 1")
    return tuple(name.removeprefix(LABEL_PREFIX) for name in names), matrix.astype(np.uint8)


def _label_lists(table: Any, column: str, where: str, separator: str | None) -> list[list[Any]]:
    """Return the cells of a column as lists, each of names only or of numbers only."""
    values: list[Any] = table.column(column).to_pylist()
    texts = [row for row, value in enumerate(values) if isinstance(value, str)]
    lists, _ = split_cells(
        [values[row] for row in texts], separator=separator, where=f"{column!r} of {where}"
    )
    for row, names in zip(texts, lists, strict=True):
        values[row] = names
    for row, value in enumerate(values):
        if not isinstance(value, list) or not all(type(v) is type(value[0]) in (int, str) for v in value):
            raise InputError(
                f"{where} has {str(value)[:60]!r} in row {row + 1} of column {column!r}, "
                f"but a list of names or of class numbers, or a text a|b|c, was expected"
            )
    return values


def _numbered_labels(
    table: Any, column: str, values: list[list[int]], where: str
) -> tuple[tuple[str, ...], Labels]:
    """Return the names of numbered classes, and the 0/1 matrix."""
    numbers = [v for value in values for v in value]
    top = max(numbers) + 1
    known = _class_names(table, column) or [str(k) for k in range(min(top, MAX_CLASSES))]
    if min(numbers) < 0 or top > len(known):
        raise InputError(f"{where} has class numbers in {column!r} that are not in 0 to {len(known) - 1}")
    return label_matrix([[known[v] for v in value] for value in values], classes=known, where=where)


def _class_names(table: Any, column: str) -> list[str] | None:
    """Return the names of a ClassLabel column, which Hugging Face keeps as JSON in the schema."""
    try:
        content = json.loads((table.schema.metadata or {}).get(b"huggingface", b"{}"))
        entry = content.get("info", {}).get("features", {}).get(column)
        while isinstance(entry, dict) and "names" not in entry:
            entry = entry.get("feature")
        names = entry.get("names") if isinstance(entry, dict) else None
    except (ValueError, AttributeError, RecursionError):
        return None
    sound = (
        isinstance(names, list) and all(isinstance(n, str) for n in names) and len(set(names)) == len(names)
    )
    return names if sound else None


def read_features(
    table: Any, column: str | None, *, leave: Sequence[str | None], where: str
) -> NDArray[np.float32]:
    """Return float32 ``[N, D]`` from a column of equally long lists, or from the numeric columns."""
    if column is not None:
        return as_inputs(_number_lists(table, column, where), name=f"column {column!r} of {where}")
    names = [
        name
        for name, kind in zip(table.column_names, table.schema.types, strict=True)
        if name not in leave
        and not name.startswith(LABEL_PREFIX)
        and str(kind).startswith(("int", "uint", "float", "double", "half"))
    ]
    if not names:
        raise InputError(f"{where} has no images and no columns of numbers, but features were expected")
    return as_inputs(np.stack([_numbers(table, name, where) for name in names], axis=1), name=where)


def _number_lists(table: Any, column: str, where: str) -> NDArray[np.float64]:
    rows = table.column(column).to_pylist()
    lengths = {len(row) if isinstance(row, list) else -1 for row in rows}
    if len(lengths) != 1 or min(lengths) < 1:
        raise InputError(f"{where} has lists of different lengths, or none, in column {column!r}")
    try:
        return np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{where} has something that is not a number in column {column!r}") from None


def _numbers(table: Any, name: str, where: str) -> NDArray[np.float64]:
    column = table.column(name)
    if column.null_count:
        raise InputError(
            f"{where} has {column.null_count} empty cells in column {name!r}, but numbers were expected"
        )
    try:
        return np.asarray(column.to_numpy(), dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{where} has something that is not a number in column {name!r}") from None


def image_bytes(value: Any, *, name: str) -> bytes:
    """Return the encoded image in a cell: bytes, or Hugging Face's struct of bytes and path."""
    data = value.get("bytes") if isinstance(value, dict) else value
    if not isinstance(data, bytes):
        raise InputError(f"{name} holds no bytes of an image")
    return data
