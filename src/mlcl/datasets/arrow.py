"""Columns of an Arrow table as numpy arrays, without a Python object per row: vectors, labels, which of them are known.

Every table comes through here, whatever file it was in: shards batch by batch, all others whole. Pyarrow is imported
only when there is a table to read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets.archives import reason
from mlcl.datasets.cells import split_cells
from mlcl.datasets.tags import MAX_CLASSES
from mlcl.errors import InputError, first_unfit, nearest
from mlcl.labels import Labels

Ints = NDArray[np.int64]
Pairs = tuple[Ints, Ints]
"""A row and the number of a name, for each name."""

IMAGE_COLUMNS = ("image", "img", "jpg", "picture")
LABEL_COLUMNS = ("labels", "label", "tags", "classes")
FEATURE_COLUMNS = ("features", "embedding", "vector", "x")
ANNOTATED_COLUMNS = ("annotated",)
LABEL_PREFIX = "label_"


def open_parquet(source: Path | BinaryIO, *, where: str) -> Any:
    """Return a Parquet file; one that cannot be read is an `InputError`."""
    import pyarrow.parquet

    try:
        return pyarrow.parquet.ParquetFile(source)
    except Exception as error:  # the parser of an untrusted file: whatever it trips over, the file is bad
        raise InputError(f"{where} is not a readable Parquet file: {reason(error)}") from None


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


@dataclass(frozen=True, eq=False)
class Tags:
    """The labels of a table.

    Attributes:
        classes: their names.
        labels: 0 or 1, ``[n, K]``.
        known: which of them are known, bool ``[n, K]``; None: all.
        separator: what separates them in a text; None where they are no texts.
    """

    classes: tuple[str, ...]
    labels: Labels
    known: NDArray[np.bool_] | None
    separator: str | None = None


def read_tags(
    table: Any,
    column: str | None,
    *,
    where: str,
    annotated: str | None = None,
    separator: str | None = None,
    classes: Sequence[str] | None = None,
    start: int = 1,
) -> Tags:
    """Return the labels of a table.

    ``column`` holds lists of names, texts such as ``a|b|c`` (`split_cells`), or lists of class numbers. The names of
    numbered classes are those that Hugging Face writes into the schema, or else the numbers themselves. A row without a
    list (null) was not annotated. Without such a column, those whose names start with ``label_`` hold 0 and 1, or
    nothing where it is not known.

    Args:
        table: the table.
        column: of the labels.
        where: the file, for errors.
        annotated: the column of the labels that a row was annotated for; a row without a list for all.
        separator: between the names in a text; found if not given.
        classes: all labels, in the order of the columns; by default those that are met, sorted.
        start: the number of the first row, for errors.
    """
    if column is None:
        names = [name for name in table.column_names if name.startswith(LABEL_PREFIX)]
        return one_hot(table, names, where)
    cells = whole(table, column)
    _check_lists(cells, column, where, start)
    cells, used = split_texts(cells, separator, f"column {column!r} of {where}", classes or ())
    pairs, found = names_of(_named(table, column, cells, where), column, where, start, null_is_empty=True)
    rows = cells.is_valid().to_numpy(zero_copy_only=False)
    known = None if rows.all() else np.repeat(rows.reshape(-1, 1), len(found), axis=1)
    listed = found
    if annotated is not None:
        cells = whole(table, annotated)
        lists = _annotations(cells, separator or used, f"column {annotated!r} of {where}")
        seen, listed = annotated_pairs(lists, annotated, pairs, found, where, start)
        known = np.repeat(rows.reshape(-1, 1), len(listed), axis=1)
        known[np.unique(seen[0])] = False
        known[seen[0][seen[1] >= 0], seen[1][seen[1] >= 0]] = True
        known &= rows[:, None]
    names = list(classes or _numbered(table, column) or sorted(listed))
    for number, name in enumerate(listed):
        if name not in names:
            row = start + int(pairs[0][(pairs[1] == number).argmax()])
            raise InputError(f"{where} has the unknown label {name!r} in row {row}.{nearest(name, names)}")
    return _sorted(names, listed, pairs, known, used, where, table.num_rows)


def _annotations(cells: Any, separator: str | None, where: str) -> Any:
    """Return the labels that rows were annotated for as lists; an empty text stands for all, as an empty cell does."""
    from pyarrow import compute, types

    if types.is_string(cells.type) or types.is_large_string(cells.type):
        cells = compute.if_else(compute.equal(compute.utf8_trim_whitespace(cells), ""), None, cells)
    return split_texts(cells, separator, where)[0]


def _sorted(
    classes: list[str],
    names: list[str],
    pairs: Pairs,
    known: NDArray[np.bool_] | None,
    separator: str | None,
    where: str,
    rows: int,
) -> Tags:
    """Return the labels with their columns in the order of the classes."""
    if len(classes) > MAX_CLASSES:
        raise InputError(f"{where} has {len(classes)} classes, but at most {MAX_CLASSES} were expected")
    place = {name: k for k, name in enumerate(classes)}
    order = np.array([place[name] for name in names], np.int64)
    labels = np.zeros((rows, len(classes)), np.uint8)
    labels[pairs[0], order[pairs[1]]] = 1
    if known is not None:
        wide = np.repeat(known.any(axis=1).reshape(-1, 1), len(classes), axis=1)
        wide[:, order] = known
        known = wide
    return Tags(tuple(classes), labels, known, separator)


def whole(table: Any, column: str) -> Any:
    """Return a column of a table, or of a batch of one, as one array, without the type that an extension gives it."""
    cells = table.column(column)
    cells = cells.combine_chunks() if hasattr(cells, "combine_chunks") else cells
    return getattr(cells, "storage", cells)


def _check_lists(cells: Any, column: str, where: str, start: int) -> None:
    """Refuse cells that are no lists of names or of whole numbers, and no texts."""
    from pyarrow import types

    kind = cells.type
    lists = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    inner = kind.value_type if lists else kind
    inner = inner.value_type if types.is_dictionary(inner) else inner
    good = types.is_string(inner) or types.is_large_string(inner) or types.is_null(inner)
    if not good and not (lists and types.is_integer(inner)):
        row = int(np.asarray(cells.is_valid()).argmax()) if len(cells) else 0
        value = str(cells[row].as_py() if len(cells) else kind)[:60]
        raise InputError(
            f"{where} has {value!r} in row {start + row} of column {column!r}, but a list of names or of class "
            "numbers, or a text a|b|c, was expected"
        )


def split_texts(
    cells: Any, separator: str | None, where: str, known: Sequence[str] = ()
) -> tuple[Any, str | None]:
    """Return texts as lists of names, and what separates them; lists stay as they are, with None."""
    import pyarrow
    from pyarrow import compute, types

    if types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    if types.is_null(cells.type):
        return cells.cast(pyarrow.list_(pyarrow.string())), None
    if not (types.is_string(cells.type) or types.is_large_string(cells.type)):
        return cells, None
    coded = compute.dictionary_encode(cells)  # null stays null
    lists, used = split_cells(coded.dictionary.to_pylist(), separator=separator, known=known, where=where)
    return pyarrow.array(lists, pyarrow.list_(pyarrow.string())).take(coded.indices), used


def _named(table: Any, column: str, cells: Any, where: str) -> Any:
    """Return lists of class numbers as lists of names."""
    import pyarrow
    from pyarrow import types

    if not types.is_integer(cells.type.value_type):
        return cells
    numbers = cells.flatten()
    top = (pyarrow.compute.max(numbers).as_py() if len(numbers) else 0) or 0
    known = _numbered(table, column) or [str(k) for k in range(min(top + 1, MAX_CLASSES))]
    if (len(numbers) and (pyarrow.compute.min(numbers).as_py() or 0) < 0) or top >= len(known):
        raise InputError(f"{where} has class numbers in {column!r} that are not in 0 to {len(known) - 1}")
    names = pyarrow.array(known, pyarrow.string()).take(numbers)
    offsets = np.concatenate([[0], np.cumsum(_lengths(cells))])
    found = pyarrow.ListArray.from_arrays(pyarrow.array(offsets, pyarrow.int32()), names)
    return found if not cells.null_count else pyarrow.compute.if_else(cells.is_valid(), found, None)


def _numbered(table: Any, column: str) -> list[str] | None:
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


def one_hot(table: Any, names: Sequence[str], where: str) -> Tags:
    """Return the labels in columns of 0 and 1; an empty cell is not known."""
    if not names:
        raise InputError(
            f"{where} has no column of labels: 'labels' (lists, or a|b|c), or columns {LABEL_PREFIX}... "
            f"of 0 and 1, were expected; it has {', '.join(table.column_names)[:200]}"
        )
    matrix = np.stack([numbers_of(table, name, where) for name in names], axis=1)
    known = ~np.isnan(matrix)
    bad = known & (matrix != 0) & (matrix != 1)
    if bad.any():
        row, k = (int(place) for place in np.unravel_index(int(bad.argmax()), bad.shape))
        raise InputError(
            f"{where} has {matrix[row, k]:g} in row {row + 1} of column {names[k]!r}, but 0 or 1 was expected"
        )
    classes = tuple(name.removeprefix(LABEL_PREFIX) for name in names)
    return Tags(classes, (matrix == 1).astype(np.uint8), None if known.all() else known)


def number_columns(table: Any, leave: Sequence[str | None]) -> list[str]:
    """Return the columns of numbers, or of texts that all are numbers, except for some and those of labels."""
    from pyarrow import ArrowInvalid, compute, float64, types

    def is_number(name: str) -> bool:
        kind = table.schema.field(name).type
        if not (types.is_string(kind) or types.is_large_string(kind)):
            return bool(types.is_integer(kind) or types.is_floating(kind))
        try:
            return bool(compute.cast(table.column(name).slice(0, 100), float64()) is not None)
        except ArrowInvalid:
            return False

    return [
        name
        for name in table.column_names
        if name not in leave and not name.startswith(LABEL_PREFIX) and is_number(name)
    ]


def numbers_of(table: Any, name: str, where: str) -> NDArray[np.float64]:
    """Return a column of numbers, nan where a cell is empty."""
    from pyarrow import compute, float64, types

    cells = whole(table, name)
    if types.is_string(cells.type) or types.is_large_string(cells.type):
        cells = compute.if_else(compute.equal(compute.utf8_trim_whitespace(cells), ""), None, cells)
    try:
        found = cells.cast(float64(), safe=False).to_numpy(zero_copy_only=False)
        return np.asarray(found, dtype=np.float64)
    except Exception:  # every kind of cell has an error of its own
        raise InputError(f"{where} has something that is not a number in column {name!r}") from None


def image_bytes(value: Any, *, name: str) -> bytes:
    """Return the encoded image in a cell: bytes, or Hugging Face's struct of bytes and path."""
    data = value.get("bytes") if isinstance(value, dict) else value
    if not isinstance(data, bytes):
        raise InputError(f"{name} holds no bytes of an image")
    return data


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
    cells: Any, column: str, where: str, start: int, *, null_is_empty: bool = False, blanks: bool = False
) -> tuple[Pairs, list[str]]:
    """Return a row and the number of a name for each name in a column of lists, and the names.

    Args:
        cells: the column.
        column: its name, for errors.
        where: the file, for errors.
        start: the number of the first row, for errors.
        null_is_empty: take an empty cell (null) for an empty list; otherwise it is refused.
        blanks: whether blank names are left out, as in a text ``a||b``; otherwise they are refused.

    >>> import pyarrow
    >>> (rows, numbers), names = names_of(pyarrow.array([["cat", "dog"], [], ["dog"]]), "tags", "a.parquet", 0)
    >>> rows.tolist(), numbers.tolist(), names
    ([0, 0, 2], [0, 1, 1], ['cat', 'dog'])
    """
    import pyarrow
    from pyarrow import compute, types

    if not null_is_empty:
        _refuse_nulls(cells, column, where, start, "a list of names")
    elif cells.null_count and types.is_fixed_size_list(cells.type):
        cells = cells.cast(pyarrow.list_(cells.type.value_type))
    rows = np.repeat(np.arange(len(cells)), _lengths(cells))
    flat = cells.flatten()
    if flat.null_count:
        row = int(rows[np.asarray(flat.is_null()).argmax()])
        raise InputError(
            f"{where} has no name (null) in row {start + row} of column {column!r}; expected names"
        )
    if types.is_dictionary(flat.type):
        flat = flat.dictionary_decode()
    if types.is_null(flat.type):
        flat = flat.cast(pyarrow.string())
    trimmed = compute.utf8_trim_whitespace(flat)
    some = np.asarray(compute.not_equal(trimmed, ""))
    if not some.all():
        if not blanks:
            row = int(rows[some.argmin()])
            raise InputError(
                f"{where} has a blank name in row {start + row} of column {column!r}; expected names"
            )
        rows, trimmed = rows[some], trimmed.filter(pyarrow.array(some))
    coded = (trimmed if blanks else flat).dictionary_encode()
    numbers = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return (rows, numbers), coded.dictionary.to_pylist()


def separated(cells: Any, separator: str) -> tuple[Any, bool]:
    """Return texts as lists, cut at a separator that is not guessed; lists stay. And whether they were texts."""
    from pyarrow import compute, types

    if types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    if types.is_string(cells.type) or types.is_large_string(cells.type):
        return compute.split_pattern(cells, separator), True
    return cells, False


def annotated_pairs(
    cells: Any, column: str, tags: Pairs, names: list[str], where: str, start: int, *, blanks: bool = False
) -> tuple[Pairs, list[str]]:
    """Return which rows were annotated for which labels, and all labels; -1 for a row that was for none.

    A row with an empty cell was annotated for all and is not listed. The tags of a row must be among its labels.

    Args:
        cells: lists of the labels that a row was annotated for.
        column: its name, for errors.
        tags: a row and the number of a label for each tag.
        names: of the labels, by number.
        where: the file, for errors.
        start: the number of the first row, for errors.
        blanks: see `names_of`.
    """
    pairs, more = names_of(cells, column, where, start, null_is_empty=True, blanks=blanks)
    place = {name: k for k, name in enumerate(dict.fromkeys([*names, *more]))}
    numbers = np.array([place[name] for name in more], np.int64)[pairs[1]]
    all_labels = np.asarray(cells.is_null())
    listed = np.isin(tags[0] * len(place) + tags[1], pairs[0] * len(place) + numbers)
    missing = np.flatnonzero(~listed & ~all_labels[tags[0]])
    if len(missing):
        row, label = (int(part[missing[0]]) for part in tags)
        raise InputError(
            f"{where} has the tag {names[label]!r} in row {start + row}, which column {column!r} does not "
            f"list there; expected the tags of a row among the labels it was annotated for"
        )
    none = np.setdiff1d(np.flatnonzero(~all_labels), pairs[0])  # rows with an empty list
    rows = np.concatenate([pairs[0], none])
    return (rows, np.concatenate([numbers, np.full(len(none), -1)])), list(place)


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
