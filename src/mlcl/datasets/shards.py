"""Parquet files as shards of one table of vectors and tags: found wherever they are, described by their footers, read
batch by batch. They are files of this machine, or of any place that fsspec reaches (``s3://``, ``memory://``, ...).
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from numpy.typing import NDArray

from mlcl.datasets.arrow import (
    ANNOTATED_COLUMNS,
    FEATURE_COLUMNS,
    LABEL_COLUMNS,
    Column,
    Pairs,
    find_column,
    find_image_column,
    holds_names,
    is_list,
    open_parquet,
    tag_pairs,
    vectors_of,
)
from mlcl.datasets.tags import SEPARATOR
from mlcl.errors import InputError, parsing
from mlcl.files import open_regular

SUFFIX = ".parquet"
MAX_FOOTER = 2**28
NUMBERS = 2**22
"""How many numbers of vectors a batch has at most."""
_BLOCK = 2**20


@dataclass(frozen=True)
class ShardColumns:
    """Which columns are read: of vectors of one length, of tags, and of the labels that a row was annotated for.

    Without the last, and where a cell is empty, that is all labels. The separator in texts is not guessed: the
    guess could differ from shard to shard.
    """

    vectors: str
    tags: str
    annotated: str | None = None
    separator: str = SEPARATOR

    @property
    def names(self) -> list[str]:
        """Return the names of all columns that are read."""
        return [name for name in (self.vectors, self.tags, self.annotated) if name is not None]


@dataclass(frozen=True)
class Shard:
    """What the footer of a file says of it.

    ``version`` changes when the file does, without its content being read; ``footer`` is a SHA-256, equal for files of
    equal content; ``kind`` is the type of the numbers, and ``width`` how many a vector has, if the type says so.
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
) -> ShardColumns:
    """Return the columns to read: those that are named, or else those with usual names."""
    with opened_shard(address) as file:
        names = open_parquet(file, where=address).schema_arrow.names

    def found(option: str, wanted: str | None, usual: Sequence[str]) -> str:
        name = find_column(names, wanted, usual, option=option, where=address)
        if name is None:
            raise InputError(
                f"{address} has no column {', '.join(usual)}; name the column of {option} by --{option}; "
                f"it has {', '.join(names)[:200]}"
            )
        return name

    if not separator:
        raise InputError("separator is empty; expected the text between two names, such as | or ,")
    seen = find_column(names, annotated, ANNOTATED_COLUMNS, option="annotated", where=address)
    chosen = found("vectors", vectors, FEATURE_COLUMNS), found("tags", tags, LABEL_COLUMNS)
    return ShardColumns(*chosen, seen, separator)


def has_images(address: str) -> bool:
    """Return whether a file has a column of encoded images, and so is no shard of vectors."""
    with opened_shard(address) as file:
        schema = open_parquet(file, where=address).schema_arrow
    return find_image_column(schema, None, where=address) is not None


def describe_shard(address: str, columns: ShardColumns) -> Shard:
    """Read the footer of a file; columns that are missing or have other types are an `InputError`."""
    with opened_shard(address) as file:
        size, digest = _footer(file, address)
        parsed = open_parquet(file, where=address)
        schema = parsed.schema_arrow
        for name in columns.names:
            if name not in schema.names:
                raise InputError(f"{address} has no column {name!r}; it has {', '.join(schema.names)[:200]}")
        kind, width = _vector_type(schema.field(columns.vectors).type, columns.vectors, address)
        for name in columns.names[1:]:
            if not holds_names(found := schema.field(name).type):
                raise InputError(
                    f"{address} has {found} in column {name!r}, but lists of names, or texts, were expected"
                )
        rows = parsed.metadata.num_rows
    return Shard(address, size, _version(address), digest, rows, kind, width)


def read_batches(
    path: Path, columns: ShardColumns, *, address: str, width: int | None = None
) -> Iterator[Batch]:
    """Yield the rows of a local file, some thousands at a time; ``width`` is that of the first vector by default."""
    start = 0
    with opened_shard(str(path)) as file:
        parsed = open_parquet(file, where=address, read=columns.names)
        step = max(1, NUMBERS // (width or _mean_width(parsed.metadata, columns.vectors)))
        batches = parsed.iter_batches(batch_size=step, columns=columns.names, use_threads=False)
        while True:
            with parsing(f"{address} cannot be read"):
                batch = next(batches, None)
            if batch is None:
                return
            read, tags, *seen = (Column.of(batch, name, address, start) for name in columns.names)
            vectors = vectors_of(read, width)
            width = vectors.shape[1]
            annotated = [column.without_blanks().separated(columns.separator) for column in seen]
            yield Batch(vectors, *tag_pairs(tags.separated(columns.separator), *annotated))
            start += len(vectors)


def _mean_width(footer: Any, name: str) -> int:
    """Return how many numbers the rows of a column have, by the footer."""
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    columns = (group.column(k) for group in groups for k in range(footer.num_columns))
    total: int = sum(
        column.num_values for column in columns if column.path_in_schema.partition(".")[0] == name
    )
    return max(1, int(total // max(1, footer.num_rows)))


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
    if is_list(kind):
        value = kind.value_type
        if types.is_floating(value) or types.is_integer(value):
            return str(value), kind.list_size if types.is_fixed_size_list(kind) else None
    raise InputError(f"{address} has {kind} in column {column!r}, but lists of numbers were expected")


def expand(given: Sequence[str]) -> list[str]:
    """Return the files that addresses, folders and globs stand for, sorted, each once.

    Local files get absolute paths, so that a file has one address wherever the command is started.
    """
    found: set[str] = set()
    for pattern in given:
        more = _remote(pattern) if _is_remote(pattern) else _local(pattern)
        if not more:
            raise InputError(
                f"{pattern} has no files, but a {SUFFIX} file, a folder of them, or a glob was expected"
            )
        found |= set(more)
    return sorted(found)


def _is_remote(address: str) -> bool:
    return "://" in address


def _local(pattern: str) -> list[str]:
    path = Path(pattern).expanduser()
    if path.is_dir():
        names = [str(one) for one in path.glob(f"*{SUFFIX}")]
    else:
        names = [str(path)] if path.exists() else glob.glob(str(path), recursive=True)  # noqa: PTH207  (absolute, with **)
    return [os.path.abspath(name) for name in names if Path(name).is_file()]  # noqa: PTH100  (resolve follows links)


def _remote(pattern: str) -> list[str]:
    files, path = _filesystem(pattern)
    with parsing(f"{pattern} cannot be listed"):
        if files.isdir(path):
            path = f"{path.rstrip('/')}/*{SUFFIX}"
        names = files.glob(path) if glob.has_magic(path) else [path] if files.exists(path) else []
    return [str(files.unstrip_protocol(name)) for name in names]


def _filesystem(address: str) -> tuple[Any, str]:
    import fsspec.core  # torch needs it

    with parsing(f"{address} cannot be opened"):  # a protocol that needs another package, or an unknown one
        files, path = fsspec.core.url_to_fs(address)
    return files, str(path)


@contextlib.contextmanager
def opened_shard(address: str) -> Iterator[BinaryIO]:
    """Open a file for reading at any place; that it cannot be opened is an `InputError`."""
    with parsing(f"{address} cannot be read"):
        if _is_remote(address):
            files, path = _filesystem(address)
            file = files.open(path, "rb")
        else:
            file = open_regular(Path(address))
    with file:
        yield file


def _version(address: str) -> int:
    """Return a number that changes when a file does: when it was modified, or what its place says of it."""
    if not _is_remote(address):
        return Path(address).stat().st_mtime_ns
    files, path = _filesystem(address)
    with parsing(f"{address} cannot be read"):
        found = int(files.checksum(path))
    return found


@contextlib.contextmanager
def fetched(address: str) -> Iterator[tuple[Path, str]]:
    """Bring a file to this machine for the block, if it is elsewhere; yield its path and its SHA-256.

    A local file is read through once, so that what reads it next finds it in the system's cache.
    """
    if not _is_remote(address):
        yield Path(address), shard_sha256(address)
        return
    with tempfile.TemporaryDirectory(prefix="mlcl-") as folder:
        path = Path(folder) / "file"
        with path.open("wb") as copy:
            digest = shard_sha256(address, copy)
        yield path, digest


def shard_sha256(address: str, copy: BinaryIO | None = None) -> str:
    """Return the SHA-256 of a file's bytes, and copy them."""
    digest = hashlib.sha256()
    with opened_shard(address) as file:
        while True:
            with parsing(f"{address} cannot be read"):
                block = file.read(_BLOCK)
            if not block:
                return digest.hexdigest()
            digest.update(block)
            if copy is not None:
                copy.write(block)
