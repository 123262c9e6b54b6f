"""Columns of an Arrow table as numpy arrays, without a Python object per row: vectors, labels, which of them are known.

Every table comes through here, whatever file it was in: shards batch by batch, all others whole. Pyarrow is imported
only when there is a table to read.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets.tags import MAX_CLASSES, SEPARATOR, split_cells
from mlcl.errors import InputError, first_unfit, nearest, parsing
from mlcl.labels import Labels

Ints = NDArray[np.int64]
Pairs = tuple[Ints, Ints]
"""A row and the number of a name, for each name."""

IMAGE_COLUMNS = ("image", "img", "jpg", "picture")
LABEL_COLUMNS = ("labels", "label", "tags", "classes")
FEATURE_COLUMNS = ("features", "embedding", "vector", "x")
ANNOTATED_COLUMNS = ("annotated",)
LABEL_PREFIX = "label_"


MANY, PACKED, WIDEST, DENSEST = 2**24, 4096, 2**20, 1024
"""Values or bytes of a part of a column from which on they are compared with its bytes in the file; values per byte,
values per row, and bytes per byte."""
REPEATED, EQUAL = 2**30, 128
"""Bytes of the texts of a column, each counted as often as it occurs, from which on they are compared with those of the
file; and how many times as many they may be."""


def open_parquet(
    source: Path | BinaryIO, *, where: str, read: Sequence[str] = (), groups: Sequence[int] | None = None
) -> Any:
    """Return a Parquet file; one that cannot be read is an `InputError`.

    Args:
        source: the file.
        where: what errors call it.
        read: columns that will be read whole: their texts are counted before.
        groups: of rows that will be read (default: all).
    """
    import pyarrow.parquet

    with parsing(f"{where} is not a readable Parquet file"):
        found = pyarrow.parquet.ParquetFile(source)
        _refuse_packed(found.metadata, where)
        for name in read:
            _refuse_equal(source, found.metadata, name, groups, where)
    return found


def _refuse_packed(footer: Any, where: str) -> None:
    """Refuse what takes far more memory than its bytes say: runs of one value, and of one text, are stored as one."""
    nested = [k for k in range(footer.num_columns) if footer.schema.column(k).max_repetition_level]
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for k in range(footer.num_columns) if max(group.num_rows, group.total_byte_size) > MANY else nested:
            column = group.column(k)
            unpacked, packed = column.total_uncompressed_size, column.total_compressed_size
            if unpacked > MANY and unpacked > DENSEST * packed:
                raise InputError(
                    f"{where} has {unpacked} bytes in {packed} of column {column.path_in_schema!r}; at most {DENSEST} "
                    "times as many were expected"
                )
            values, name = column.num_values, column.path_in_schema.partition(".")[0]
            if values > MANY and values > PACKED * packed:
                raise InputError(
                    f"{where} has {values} values in {packed} bytes of column {name!r}; at most "
                    f"{PACKED} per byte were expected"
                )
            if values > WIDEST * max(1, group.num_rows):
                raise InputError(
                    f"{where} has {values} values in {group.num_rows} rows of column {name!r}; at most {WIDEST} per "
                    "row were expected"
                )


def _refuse_equal(
    source: Path | BinaryIO, footer: Any, name: str, groups: Sequence[int] | None, where: str
) -> None:
    """Refuse texts that a file stores once, or as the same beginning, and a table would hold once per row."""
    import pyarrow.parquet

    numbers = range(footer.num_row_groups) if groups is None else groups
    parts = [footer.row_group(g).column(k) for g in numbers for k in range(footer.num_columns)]
    leaves = [one for one in parts if one.path_in_schema.partition(".")[0] == name]
    most = sum(one.num_values * one.total_uncompressed_size for one in leaves)
    if most <= REPEATED or all(one.physical_type != "BYTE_ARRAY" for one in leaves):
        return
    packed = max(1, sum(one.total_compressed_size for one in parts))
    fronts = any("DELTA_BYTE_ARRAY" in one.encodings for one in leaves)
    once = [] if fronts else [one.path_in_schema for one in leaves]
    reader, size = pyarrow.parquet.ParquetFile(source, metadata=footer, read_dictionary=once), 0
    rows = 16 if fronts else 2**16
    for batch in reader.iter_batches(rows, row_groups=list(numbers), columns=[name], use_threads=False):
        size += _unpacked(batch.column(0))
        if size > max(REPEATED, EQUAL * packed):
            raise InputError(
                f"{where} has texts of {size} bytes and more in column {name!r}, most of them equal, and {packed} "
                f"bytes in all; at most {EQUAL} times as many were expected"
            )


def _unpacked(cells: Any) -> int:
    """Return the bytes of the texts of an Arrow array, each counted as often as it occurs."""
    from pyarrow import compute, types

    kind = cells.type
    if types.is_struct(kind):
        return sum(map(_unpacked, cells.flatten()))
    if types.is_nested(kind):
        return _unpacked(cells.flatten())
    if not types.is_dictionary(kind):
        return int(cells.nbytes)
    lengths = compute.binary_length(cells.dictionary)
    return compute.sum(lengths.cast("int64").take(cells.indices)).as_py() or 0


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
class Column:
    """A column of a file as one Arrow array, and what errors call it; ``start`` is the number of its first row.

    ``cut`` says that lists were cut from texts, where blank names such as in ``a||b`` are left out.
    """

    cells: Any
    name: str
    where: str
    start: int = 1
    cut: bool = False

    @classmethod
    def of(cls, table: Any, name: str, where: str, start: int = 1) -> Column:
        """Return a column of a table, or of a batch of one, without the type that an extension gives it."""
        cells = table.column(name)
        cells = cells.combine_chunks() if hasattr(cells, "combine_chunks") else cells
        cells = getattr(cells, "storage", cells)
        return cls(cells.dictionary_decode() if hasattr(cells, "dictionary") else cells, name, where, start)

    def refused(self, row: int, found: str, expected: str, place: int | None = None) -> InputError:
        """Return the error of what was found in a row."""
        at = f"row {self.start + row}" if place is None else f"row {self.start + row}, place {place}"
        return InputError(f"{self.where} has {found} in {at} of column {self.name!r}; expected {expected}")

    def refuse_nulls(self, expected: str) -> None:
        """Refuse an empty cell."""
        if self.cells.null_count:
            raise self.refused(int(np.asarray(self.cells.is_null()).argmax()), "nothing (null)", expected)

    def lengths(self) -> Ints:
        """Return the lengths of lists; that of an empty cell is 0."""
        from pyarrow import compute, types

        if types.is_fixed_size_list(self.cells.type):
            return np.full(len(self.cells), self.cells.type.list_size)
        found = compute.list_value_length(self.cells).fill_null(0)
        return np.asarray(found.to_numpy(zero_copy_only=False), np.int64)

    def without_blanks(self) -> Column:
        """Return the column in which blank texts are empty cells."""
        from pyarrow import compute

        if not is_text(self.cells.type):
            return self
        blank = compute.equal(compute.utf8_trim_whitespace(self.cells), "")
        return replace(self, cells=compute.if_else(blank, None, self.cells))

    def separated(self, separator: str) -> Column:
        """Return texts as lists, cut at a separator; lists stay."""
        from pyarrow import compute

        if not is_text(self.cells.type):
            return self
        return replace(self, cells=compute.split_pattern(self.cells, separator), cut=True)

    def split(self, separator: str | None, known: Sequence[str] = ()) -> tuple[Column, str | None]:
        """Return texts as lists, as `split_cells` reads them, and what separates them; lists stay, with None."""
        import pyarrow
        from pyarrow import types

        names = pyarrow.list_(pyarrow.string())
        if types.is_null(self.cells.type):
            return replace(self, cells=self.cells.cast(names)), None
        if not is_text(self.cells.type):
            return self, None
        coded = self.cells.dictionary_encode()  # null stays null
        texts, where = coded.dictionary.to_pylist(), f"column {self.name!r} of {self.where}"
        lists, used = split_cells(texts, separator=separator, known=known, where=where)
        return replace(self, cells=pyarrow.array(lists, names).take(coded.indices)), used

    def numbers(self) -> NDArray[np.float64]:
        """Return numbers, nan where a cell is empty."""
        from pyarrow import float64

        try:
            found = self.without_blanks().cells.cast(float64(), safe=False)
            return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.float64)
        except Exception:  # every kind of cell has an error of its own
            raise InputError(
                f"{self.where} has something that is not a number in column {self.name!r}"
            ) from None


def is_text(kind: Any) -> bool:
    """Return whether a type of Arrow is that of texts."""
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind))


def is_list(kind: Any) -> bool:
    """Return whether a type of Arrow is that of lists."""
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def holds_names(kind: Any, *, numbers: bool = False) -> bool:
    """Return whether a type is of texts or of lists of texts, or, with ``numbers``, of lists of whole numbers."""
    from pyarrow import types

    inner = kind.value_type if is_list(kind) else kind
    inner = inner.value_type if types.is_dictionary(inner) else inner
    return is_text(inner) or types.is_null(inner) or (numbers and is_list(kind) and types.is_integer(inner))


@dataclass(frozen=True, eq=False)
class Tags:
    """The labels of a table, 0 or 1, and which are known (None: all), ``[n, K]``; and what separates them in texts."""

    classes: tuple[str, ...]
    labels: Labels
    known: NDArray[np.bool_] | None
    separator: str | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Return what a plan records of how the labels were read."""
        return {} if self.separator in (None, SEPARATOR) else {"separator": self.separator}


def read_tags(
    table: Any,
    column: str | None,
    *,
    where: str,
    annotated: str | None = None,
    separator: str | None = None,
    classes: Sequence[str] | None = None,
) -> Tags:
    """Return the labels of a table.

    ``column`` holds lists of names, texts such as ``a|b|c`` (`split_cells`), or lists of class numbers. The names of
    numbered classes are those that Hugging Face writes into the schema, or else the numbers themselves. A row without a
    list (null) was not annotated. Without such a column, those whose names start with ``label_`` hold 0 and 1, or
    nothing where it is not known.

    ``annotated`` is the column of the labels that a row was annotated for; a row without a list was for all. Without
    a ``separator`` it is found. Without ``classes`` they are those that are met, sorted.
    """
    if column is None:
        return one_hot(table, [name for name in table.column_names if name.startswith(LABEL_PREFIX)], where)
    tags = Column.of(table, column, where)
    if not holds_names(tags.cells.type, numbers=True):
        row = int(np.asarray(tags.cells.is_valid()).argmax()) if len(tags.cells) else 0
        value = str(tags.cells[row].as_py() if len(tags.cells) else tags.cells.type)[:60]
        raise InputError(
            f"{where} has {value!r} in row {row + 1} of column {column!r}, but a list of names or of class numbers, "
            "or a text a|b|c, was expected"
        )
    tags, used = tags.split(separator, classes or ())
    numbered = _numbered(table, column)
    seen = None if annotated is None else Column.of(table, annotated, where).without_blanks()
    seen = None if seen is None else seen.split(separator or used)[0]
    pairs, listed, cells = tag_pairs(_named(tags, numbered), seen, null_is_empty=True)
    names = list(classes or numbered or sorted(listed))
    if len(names) > MAX_CLASSES:
        raise InputError(f"{where} has {len(names)} classes, but at most {MAX_CLASSES} were expected")
    place = {name: k for k, name in enumerate(names)}
    for number, name in enumerate(listed):
        if name not in place:
            rows, numbers = pairs if cells is None else map(np.concatenate, zip(pairs, cells, strict=True))
            row = int(rows[(numbers == number).argmax()])
            raise InputError(
                f"{where} has the unknown label {name!r} in row {row + 1}.{nearest(name, names)}"
            )
    order = np.array([place[name] for name in listed], np.int64)
    labels = np.zeros((table.num_rows, len(names)), np.uint8)
    labels[pairs[0], order[pairs[1]]] = 1
    done = tags.cells.is_valid().to_numpy(zero_copy_only=False)
    known = None if done.all() and cells is None else np.repeat(done.reshape(-1, 1), len(names), axis=1)
    if known is not None and cells is not None:
        rows, numbers = (part[cells[1] >= 0] for part in cells)
        known[cells[0]] = False
        known[rows, order[numbers]] = done[rows]
    return Tags(tuple(names), labels, known, used)


def _named(tags: Column, known: list[str] | None) -> Column:
    """Return lists of class numbers as lists of names."""
    import pyarrow
    from pyarrow import compute, types

    if not types.is_integer(tags.cells.type.value_type):
        return tags
    numbers = tags.cells.flatten()
    limits = compute.min_max(numbers).as_py() if len(numbers) else {}
    low, top = limits.get("min") or 0, limits.get("max") or 0
    known = known or [str(k) for k in range(min(top + 1, MAX_CLASSES))]
    if low < 0 or top >= len(known):
        raise InputError(
            f"{tags.where} has class numbers in {tags.name!r} that are not in 0 to {len(known) - 1}"
        )
    names = pyarrow.array(known, pyarrow.string()).take(numbers)
    offsets = pyarrow.array(np.concatenate([[0], np.cumsum(tags.lengths())]), pyarrow.int32())
    found = pyarrow.ListArray.from_arrays(offsets, names)
    if tags.cells.null_count:
        found = compute.if_else(tags.cells.is_valid(), found, None)
    return replace(tags, cells=found)


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
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return None
    return names if len(set(names)) == len(names) else None


def one_hot(table: Any, names: Sequence[str], where: str) -> Tags:
    """Return the labels in columns of 0 and 1; an empty cell is not known."""
    if not names:
        raise InputError(
            f"{where} has no column of labels: 'labels' (lists, or a|b|c), or columns {LABEL_PREFIX}... "
            f"of 0 and 1, were expected; it has {', '.join(table.column_names)[:200]}"
        )
    matrix = np.stack([Column.of(table, name, where).numbers() for name in names], axis=1)
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
    from pyarrow import ArrowInvalid, float64, types

    def is_number(name: str) -> bool:
        kind = table.schema.field(name).type
        if not is_text(kind):
            return bool(types.is_integer(kind) or types.is_floating(kind))
        try:
            return table.column(name).slice(0, 100).cast(float64()) is not None
        except ArrowInvalid:
            return False

    names = [name for name in table.column_names if name not in leave and not name.startswith(LABEL_PREFIX)]
    return [name for name in names if is_number(name)]


def vectors_of(column: Column, width: int | None = None) -> NDArray[Any]:
    """Return lists of numbers as ``[n, D]``; each must be finite, and no larger than `mlcl.errors.LARGEST`.

    ``width`` is the length expected of every list; that of the first one by default.
    """
    column.refuse_nulls("a vector")
    lengths = column.lengths()
    if width is None:
        width = int(lengths[0]) if len(lengths) else 0
    if (lengths != width).any():
        row = int((lengths != width).argmax())
        raise column.refused(row, f"a vector of length {lengths[row]}", str(width))
    values = column.cells.flatten()
    if values.null_count:
        row, place = divmod(int(np.asarray(values.is_null()).argmax()), width)
        raise column.refused(row, "no number", "finite numbers", place)
    found = values.to_numpy(zero_copy_only=False).reshape(len(lengths), width)
    unfit = first_unfit(found) if found.dtype.kind == "f" else None
    if unfit is not None:
        row, place = divmod(unfit[0], width)
        raise column.refused(row, unfit[1], unfit[2], place)
    return np.asarray(found)


def names_of(column: Column, *, null_is_empty: bool = False) -> tuple[Pairs, list[str]]:
    """Return a row and the number of a name for each name in a column of lists, and the names.

    An empty cell (null) is refused, unless ``null_is_empty``.
    """
    import pyarrow
    from pyarrow import compute, types

    cells = column.cells
    if not null_is_empty:
        column.refuse_nulls("a list of names")
    elif cells.null_count and types.is_fixed_size_list(cells.type):
        column = replace(column, cells=cells.cast(pyarrow.list_(cells.type.value_type)))
    rows = np.repeat(np.arange(len(cells)), column.lengths())
    flat = column.cells.flatten()
    if flat.null_count:
        raise column.refused(int(rows[np.asarray(flat.is_null()).argmax()]), "no name (null)", "names")
    flat = flat.dictionary_decode() if types.is_dictionary(flat.type) else flat
    flat = flat.cast(pyarrow.string()) if types.is_null(flat.type) else flat
    trimmed = compute.utf8_trim_whitespace(flat)
    some = np.asarray(compute.not_equal(trimmed, ""))
    if not some.all():
        if not column.cut:
            raise column.refused(int(rows[some.argmin()]), "a blank name", "names")
        rows, trimmed = rows[some], trimmed.filter(pyarrow.array(some))
    coded = (trimmed if column.cut else flat).dictionary_encode()
    numbers = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return (rows, numbers), coded.dictionary.to_pylist()


def tag_pairs(
    tags: Column, annotated: Column | None = None, *, null_is_empty: bool = False
) -> tuple[Pairs, list[str], Pairs | None]:
    """Return the tags of rows, the names of all labels, and which rows were annotated for which labels.

    A row that was annotated for no label has the number -1 there; one with an empty cell was annotated for all and is
    not listed. The tags of a row must be among the labels that it was annotated for.
    """
    pairs, names = names_of(tags, null_is_empty=null_is_empty)
    if annotated is None:
        return pairs, names, None
    seen, more = names_of(annotated, null_is_empty=True)
    place = {name: k for k, name in enumerate(dict.fromkeys([*names, *more]))}
    numbers = np.array([place[name] for name in more], np.int64)[seen[1]]
    all_labels = np.asarray(annotated.cells.is_null())
    listed = np.isin(pairs[0] * len(place) + pairs[1], seen[0] * len(place) + numbers)
    missing = np.flatnonzero(~listed & ~all_labels[pairs[0]])
    if len(missing):
        row, label = (int(part[missing[0]]) for part in pairs)
        raise InputError(
            f"{tags.where} has the tag {names[label]!r} in row {tags.start + row}, which column {annotated.name!r} "
            f"does not list there; expected the tags of a row among the labels it was annotated for"
        )
    none = np.setdiff1d(np.flatnonzero(~all_labels), seen[0])  # rows with an empty list
    rows = np.concatenate([seen[0], none])
    return pairs, list(place), (rows, np.concatenate([numbers, np.full(len(none), -1)]))


def _image_bytes(value: Any, name: str) -> bytes:
    """Return the encoded image in a cell: bytes, or Hugging Face's struct of bytes and path."""
    data = value.get("bytes") if isinstance(value, dict) else value
    if not isinstance(data, bytes):
        raise InputError(f"{name} holds no bytes of an image")
    return data


@dataclass(frozen=True, eq=False)
class ParquetImages:
    """Images in Parquet files: for each row its file, its row group and its place in the group."""

    files: tuple[Path, ...]
    column: str
    places: Ints

    @classmethod
    def of(cls, files: Sequence[Path], column: str) -> ParquetImages:
        """Index the rows of some files."""
        parts = [np.zeros((0, 3), dtype=np.int64)]
        for f, path in enumerate(files):
            info = open_parquet(path, where=str(path)).metadata
            for g in range(info.num_row_groups):
                rows = np.arange(info.row_group(g).num_rows)
                parts.append(np.stack([np.full_like(rows, f), np.full_like(rows, g), rows], axis=1))
        return cls(tuple(files), column, np.concatenate(parts))

    def __len__(self) -> int:
        return len(self.places)

    def name(self, row: int) -> str:
        """Return the file and the row."""
        file, group, place = self.places[row].tolist()
        return f"{self.files[file]}, row group {group}, row {place},"

    def size(self, row: int) -> int | None:
        """Return the size of the whole file: that of one image is not known before it is read."""
        return self.files[int(self.places[row, 0])].stat().st_size

    def read(self, row: int) -> bytes:
        """Return one image; its row group stays in memory until another one is needed."""
        file, group, place = self.places[row].tolist()
        path = self.files[file]
        column = _group(path, path.stat().st_mtime_ns, self.column, group)
        return _image_bytes(column[place].as_py(), self.name(row))

    def take(self, rows: Ints) -> ParquetImages:
        """Return some of the images."""
        return replace(self, places=self.places[rows])


@functools.lru_cache(maxsize=1)
def _group(path: Path, _: int, column: str, group: int) -> Any:
    file = open_parquet(path, where=str(path), read=[column], groups=[group])
    with parsing(f"{path} cannot be read"):
        found = file.read_row_group(group, columns=[column], use_threads=False).column(0)
    return found


@dataclass(frozen=True, eq=False)
class ArrowImages:
    """Images in a column of an Arrow table, which is memory-mapped."""

    label: str
    column: Any
    rows: Ints

    def __len__(self) -> int:
        return len(self.rows)

    def name(self, row: int) -> str:
        """Return the dataset and the row."""
        return f"row {self.rows[row]} of {self.label}"

    def size(self, row: int) -> int | None:
        """Return the size of the encoded image in bytes, or None if its cell is empty."""
        cell = self.column[int(self.rows[row])]
        value = cell["bytes"] if hasattr(cell, "keys") and cell.is_valid else cell
        return value.as_buffer().size if value.is_valid else None

    def read(self, row: int) -> bytes:
        """Return the encoded image."""
        return _image_bytes(self.column[int(self.rows[row])].as_py(), self.name(row))

    def take(self, rows: Ints) -> ArrowImages:
        """Return some of the images."""
        return replace(self, rows=self.rows[rows])
