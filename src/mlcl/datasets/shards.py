"""Parquet files as shards of one table of vectors and tags: described by their footers, read batch by batch."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from numpy.typing import NDArray

from mlcl.datasets.addresses import opened, version
from mlcl.datasets.archives import reason
from mlcl.datasets.arrow import (
    ANNOTATED_COLUMNS,
    FEATURE_COLUMNS,
    LABEL_COLUMNS,
    Pairs,
    annotated_pairs,
    find_column,
    find_image_column,
    names_of,
    open_parquet,
    separated,
    vectors_of,
    whole,
)
from mlcl.errors import InputError

SEPARATOR = "|"
"""Between names in a text. It is not guessed here: the guess could differ from shard to shard."""
MAX_FOOTER = 2**28
NUMBERS = 2**22
"""How many numbers of vectors a batch has at most."""


@dataclass(frozen=True)
class Columns:
    """Which columns are read.

    Attributes:
        vectors: of lists of numbers, all of one length.
        tags: of lists of names, or of texts with a separator.
        annotated: of lists of the names that a row was annotated for, or of such texts; None where every row was
            annotated for all labels. An empty cell (null) means all labels, too.
        separator: between the names in a text.
    """

    vectors: str
    tags: str
    annotated: str | None = None
    separator: str = SEPARATOR


@dataclass(frozen=True)
class Shard:
    """What the footer of a file says of it.

    Attributes:
        address: of the file.
        size: in bytes.
        version: changes when the file does, without its content being read (`mlcl.datasets.addresses.version`).
        footer: SHA-256 of the footer; files of equal content have equal footers.
        rows: number of rows.
        kind: the type of the numbers.
        width: how many a vector has; None if the type of the column does not say.
    """

    address: str
    size: int
    version: int
    footer: str
    rows: int
    kind: str
    width: int | None


@dataclass(frozen=True, eq=False)
class Batch:
    """Some rows of a shard.

    Attributes:
        rows: vectors, ``[n, D]``, finite.
        tags: a row and the number of a label for each tag.
        names: of the labels, by number.
        annotated: rows that were annotated for some labels only, and these labels; -1 where there is none.
    """

    rows: NDArray[Any]
    tags: Pairs
    names: list[str]
    annotated: Pairs | None


def choose_columns(
    address: str,
    *,
    vectors: str | None = None,
    tags: str | None = None,
    annotated: str | None = None,
    separator: str = SEPARATOR,
) -> Columns:
    """Return the columns to read: those that are named, or else those with usual names."""
    with opened(address) as file:
        names = open_parquet(file, where=address).schema_arrow.names
    found = {
        option: find_column(names, wanted, usual, option=option, where=address)
        for option, wanted, usual in (
            ("vectors", vectors, FEATURE_COLUMNS),
            ("tags", tags, LABEL_COLUMNS),
            ("annotated", annotated, ANNOTATED_COLUMNS),
        )
    }
    for option, usual in (("vectors", FEATURE_COLUMNS), ("tags", LABEL_COLUMNS)):
        if found[option] is None:
            raise InputError(
                f"{address} has no column {', '.join(usual)}; name the column of {option} by --{option}; "
                f"it has {', '.join(names)[:200]}"
            )
    if not separator:
        raise InputError("separator is empty; expected the text between two names, such as | or ,")
    return Columns(str(found["vectors"]), str(found["tags"]), found["annotated"], separator)


def has_images(address: str) -> bool:
    """Return whether a file has a column of encoded images, and so is no shard of vectors."""
    with opened(address) as file:
        schema = open_parquet(file, where=address).schema_arrow
    return find_image_column(schema, None, where=address) is not None


def describe(address: str, columns: Columns) -> Shard:
    """Read the footer of a file; columns that are missing or have other types are an `InputError`."""
    with opened(address) as file:
        size, digest = _footer(file, address)
        parsed = open_parquet(file, where=address)
        schema = parsed.schema_arrow
        for name in (columns.vectors, columns.tags, columns.annotated):
            if name is not None and name not in schema.names:
                raise InputError(f"{address} has no column {name!r}; it has {', '.join(schema.names)[:200]}")
        kind, width = _vector_type(schema.field(columns.vectors).type, columns.vectors, address)
        for name in (columns.tags, columns.annotated):
            if name is not None:
                _check_names_type(schema.field(name).type, name, address)
        rows = parsed.metadata.num_rows
    return Shard(address, size, version(address), digest, rows, kind, width)


def read_batches(path: Path, columns: Columns, *, address: str, width: int | None = None) -> Iterator[Batch]:
    """Yield the rows of a local file, some thousands at a time.

    Args:
        path: the file.
        columns: which columns to read.
        address: what to call it in errors.
        width: the length of a vector; that of the first one if not given.
    """
    wanted = [name for name in (columns.vectors, columns.tags, columns.annotated) if name is not None]
    start = 0
    with opened(str(path)) as file:
        step = max(1, NUMBERS // (width or 1024))
        batches = open_parquet(file, where=address).iter_batches(
            batch_size=step, columns=wanted, use_threads=False
        )
        while True:
            try:
                found = next(batches, None)
            except Exception as error:  # the parser of an untrusted file
                raise InputError(f"{address} cannot be read: {reason(error)}") from None
            if found is None:
                return
            vectors = vectors_of(found.column(columns.vectors), width, columns.vectors, address, start)
            width = vectors.shape[1]
            yield Batch(vectors, *_tags(found, columns, address, start))
            start += len(vectors)


def _tags(batch: Any, columns: Columns, address: str, start: int) -> tuple[Pairs, list[str], Pairs | None]:
    """Return the tags of a batch, the names of labels, and which rows were annotated for which of them."""
    lists, blanks = separated(whole(batch, columns.tags), columns.separator)
    tags, names = names_of(lists, columns.tags, address, start, blanks=blanks)
    if columns.annotated is None:
        return tags, names, None
    lists, blanks = separated(whole(batch, columns.annotated), columns.separator)
    seen, names = annotated_pairs(lists, columns.annotated, tags, names, address, start, blanks=blanks)
    return tags, names, seen


def _footer(file: BinaryIO, address: str) -> tuple[int, str]:
    """Return the size of a file, and the SHA-256 of its footer."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - 8, 0))
    end = file.read(8)
    length = int.from_bytes(end[:4], "little")
    if len(end) < 8 or end[4:] != b"PAR1" or not 0 < length <= min(size - 12, MAX_FOOTER):
        raise InputError(f"{address} is not a readable Parquet file: it has no footer")
    file.seek(size - 8 - length)
    return size, hashlib.sha256(file.read(length)).hexdigest()


def _vector_type(kind: Any, column: str, address: str) -> tuple[str, int | None]:
    """Return the type of the numbers of a column of vectors, and their length if it is fixed."""
    from pyarrow import types

    kind = getattr(kind, "storage_type", kind)
    fixed = types.is_fixed_size_list(kind)
    if fixed or types.is_list(kind) or types.is_large_list(kind):
        value = kind.value_type
        if types.is_floating(value) or types.is_integer(value):
            return str(value), kind.list_size if fixed else None
    raise InputError(f"{address} has {kind} in column {column!r}, but lists of numbers were expected")


def _check_names_type(kind: Any, column: str, address: str) -> None:
    from pyarrow import types

    def is_text(one: Any) -> bool:
        one = one.value_type if types.is_dictionary(one) else one
        return bool(types.is_string(one) or types.is_large_string(one))

    lists = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    if not is_text(kind.value_type if lists else kind):
        raise InputError(
            f"{address} has {kind} in column {column!r}, but lists of names, or texts, were expected"
        )
