"""Tables of texts: a CSV, JSON lines or Parquet file with columns of text and of tags, made vectors by an encoder."""

from __future__ import annotations

import bz2
import csv
import gzip
import hashlib
import json
import lzma
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets.cells import split_cells
from mlcl.datasets.folder import DELIMITERS, FILE_COLUMNS
from mlcl.datasets.plan import SOURCES, DatasetPlan, make_plan, read_splits, split_rows
from mlcl.datasets.tables import FEATURE_COLUMNS, IMAGE_COLUMNS, LABEL_COLUMNS, find_column
from mlcl.datasets.tags import label_matrix
from mlcl.encoders import Encoder, chosen_encoder, from_bytes, to_bytes
from mlcl.errors import InputError, one_line
from mlcl.files import open_regular, slug
from mlcl.labels import Labels

TEXT_COLUMNS = (
    "text",
    "title",
    "subject",
    "summary",
    "description",
    "abstract",
    "body",
    "content",
    "message",
)
ANNOTATED_COLUMNS = ("annotated",)
ID_COLUMNS = ("id", "key", "name", "package")
ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
_PACKED: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_LINE, _TOTAL = 2**27, 2**34
"""A line has at most so many bytes, and a file so many when it is unpacked."""
BATCH = 1024


@dataclass(frozen=True, eq=False)
class Table:
    """The rows of a table.

    Attributes:
        path: the file.
        columns: the cells by the name of their column: texts, lists, numbers, or None.
        lines: the line of the file where each row begins.
    """

    path: Path
    columns: dict[str, list[Any]]
    lines: list[int]

    def texts(self, names: Sequence[str]) -> list[str]:
        """Return the text of each row: its cells in some columns, one below the other."""
        cells = [self._text_cells(name) for name in names]
        return ["\n".join(part for part in row if part) for row in zip(*cells, strict=True)]

    def _text_cells(self, name: str) -> list[str]:
        found = ["" if value is None else value for value in self.columns[name]]
        for line, value in zip(self.lines, found, strict=True):
            if not isinstance(value, str) or _is_binary(value):
                what = "binary data" if isinstance(value, str | bytes) else f"a {type(value).__name__}"
                raise InputError(f"{self.path} has {what} in column {name!r} of line {line}; expected a text")
        return [value.strip() for value in found]

    def tags(self, name: str, separator: str | None) -> tuple[list[list[str]], str | None]:
        """Return the tags of each row, and what separates them where they are texts."""
        values = self.columns[name]
        texts = [row for row, value in enumerate(values) if isinstance(value, str)]
        where = f"column {name!r} of {self.path}"
        lists, used = split_cells([values[row] for row in texts], separator=separator, where=where)
        found: list[Any] = [[] if value is None else value for value in values]
        for row, names in zip(texts, lists, strict=True):
            found[row] = names
        for line, value in zip(self.lines, found, strict=True):
            if not isinstance(value, list) or not all(isinstance(tag, str) for tag in value):
                raise InputError(
                    f"{where} has {str(value)[:60]!r} in line {line}; expected a list of names, or a text such as a|b"
                )
        return found, used if texts else None


@dataclass(frozen=True)
class Columns:
    """Which columns are read.

    Attributes:
        text: those of the text, in order.
        tags: that of the tags.
        id: that of the names of the rows, if there is one.
    """

    text: tuple[str, ...]
    tags: str | None
    id: str | None

    def __str__(self) -> str:
        tags = "" if self.tags is None else f"; tags: {self.tags}"
        return f"text: {', '.join(self.text)}{tags}; id: {self.id or 'the number of the row'}"


@SOURCES.register(
    "table", summary="A CSV, JSON lines or Parquet table of texts and tags, made vectors by an encoder."
)
def plan_texts(
    root: Path,
    *,
    text: str | None = None,
    labels: str | None = None,
    id: str | None = None,
    separator: str | None = None,
    group: str | None = None,
    annotated: str | None = None,
    encoder: str | bytes = "words",
    test_fraction: float = 1 / 3,
    split_seed: int = 0,
) -> DatasetPlan:
    """Plan a store of the vectors of texts; the texts themselves are not kept.

    The first line of a CSV names its columns; JSON lines are objects. A column ``split`` names the split of each row;
    without one a seeded part of the rows is held out.

    Args:
        root: a .csv, .tsv, .jsonl or .parquet file; all but the last may be packed (.gz, .bz2, .xz).
        text: names of the columns of text, with commas between them (default: those with a usual name, such as text,
            title, summary, description).
        labels: name of the column of tags (default: labels, label, tags or classes).
        id: name of the column that names the rows (default: id, key, name or package, if its cells differ).
        separator: text between the tags in a cell; found if not given (| ; or a comma).
        group: name of a column; rows with the same cell there, such as near copies, are in the same split.
        annotated: name of a column of the tags that a row was annotated for, where that is not all of the table's; an
            empty cell means all (default: annotated, if it is there).
        encoder: what makes vectors of texts: words, minilm, wordllama, a folder, or several, such as words+minilm;
            or the file of one that is fitted.
        test_fraction: fraction of the rows that is held out for testing where there is no split.
        split_seed: seed of that choice.
    """
    table = read_table(root)
    columns = find_columns(table, text=text, tags=labels, id=id)
    if columns.tags is None:
        raise InputError(
            f"{table.path} has no column of tags; expected one named {', '.join(LABEL_COLUMNS)}, or --tags"
        )
    texts, (tags, used) = table.texts(columns.text), table.tags(columns.tags, separator)
    done = [value is not None for value in table.columns[columns.tags]]
    asked = find_column(
        list(table.columns), annotated, ANNOTATED_COLUMNS, option="annotated", where=str(root)
    )
    train, keep, options = _split(table, group, test_fraction, split_seed)
    kept = np.array([k for k, one in enumerate(texts) if one and done[k] and keep[k]], np.int64)
    if not len(kept):
        raise InputError(f"{table.path} has no row with a text and tags; expected some")
    chosen = [texts[k] for k in kept]
    fitted = _encoder(encoder, [one for one, k in zip(chosen, kept, strict=True) if train[k]])
    classes, matrix, known = _labels(table, [tags[k] for k in kept], asked, kept, used or separator)
    rows = len(texts)
    dropped = {
        "rows without text": sum(not one for one in texts),
        "rows without annotation": done.count(False),
    }
    return make_plan(
        source="table",
        root=str(table.path),
        name=slug(table.path.name.partition(".")[0]),
        classes=classes,
        ids=[f"row-{k + 1}" for k in kept]
        if columns.id is None
        else [str(table.columns[columns.id][k]) for k in kept],
        train=train[kept],
        labels=matrix,
        inputs=vectors(fitted, chosen),
        known=known,
        options=options | {"text": list(columns.text)} | ({} if used is None else {"separator": used}),
        dropped={
            reason: n for reason, n in (*dropped.items(), ("validation rows", rows - int(keep.sum()))) if n
        },
        encoder=to_bytes(fitted),
    )


def _labels(
    table: Table, tags: list[list[str]], column: str | None, kept: NDArray[np.int64], separator: str | None
) -> tuple[tuple[str, ...], Labels, NDArray[np.bool_] | None]:
    """Return the names of the tags, their matrix, and which of them are known."""
    where = str(table.path)
    if column is None:
        return *label_matrix(tags, classes=None, where=where), None
    named = table.tags(column, separator)[0]
    some = [sorted({*named[k], *tags[row]}) for row, k in enumerate(kept)]
    classes, known = label_matrix(some, classes=None, where=where)
    marks = known.astype(np.bool_)
    marks[[not named[k] for k in kept]] = True
    return classes, label_matrix(tags, classes=classes, where=where)[1], marks


def _encoder(given: str | bytes, texts: Sequence[str]) -> Encoder:
    return from_bytes(given) if isinstance(given, bytes) else chosen_encoder(given, texts)


def vectors(encoder: Encoder, texts: Sequence[str]) -> NDArray[np.float32]:
    """Return a dense row for each text."""
    found = np.zeros((len(texts), encoder.width), np.float32)
    for start in range(0, len(texts), BATCH):
        rows = encoder.encode(texts[start : start + BATCH])
        found[start : start + BATCH] = rows.toarray() if hasattr(rows, "toarray") else rows
    return found


def _split(
    table: Table, group: str | None, fraction: float, seed: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
    """Return which rows train, which are kept, and the options that this depends on."""
    n, every = len(table.lines), np.ones(len(table.lines), np.bool_)
    if "split" in table.columns and group is None:
        values = [str(value) for value in table.columns["split"]]
        return *read_splits(values, where=f"column 'split' of {table.path}"), {}
    options: dict[str, Any] = {"test_fraction": fraction, "split_seed": seed}
    if group is None:
        return split_rows(n, fraction=fraction, seed=seed), every, options
    find_column(list(table.columns), group, (), option="group", where=str(table.path))
    names, places = np.unique([str(value) for value in table.columns[group]], return_inverse=True)
    # By its name, so that a group stays in its split when others join.
    shares = [
        int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:7]) / 2**56 for name in names
    ]
    return (np.array(shares) >= fraction)[places], every, options | {"group": group}


def find_columns(
    table: Table, *, text: str | None = None, tags: str | None = None, id: str | None = None
) -> Columns:
    """Return the columns that options name, or else those with usual names."""
    names, where = list(table.columns), str(table.path)
    if text is None:
        found = tuple(
            name for name in names if name.strip().lower() in TEXT_COLUMNS and _holds_texts(table, name)
        )
    else:
        found = tuple(name.strip() for name in text.split(",")) if text not in names else (text,)
        for name in found:
            find_column(names, name, (), option="text", where=where)
    if not found:
        raise InputError(
            f"{where} has no column of text with a usual name; name it with --text; it has {', '.join(names)[:200]}"
        )
    label = find_column(names, tags, LABEL_COLUMNS, option="tags", where=where)
    if id is None:
        usual = [name for name in names if name.strip().lower() in ID_COLUMNS and name not in (*found, label)]
        key = next((name for name in usual if _are_names(table.columns[name])), None)
    else:
        key = find_column(names, id, (), option="id", where=where)
    return Columns(found, label, key)


def _holds_texts(table: Table, name: str) -> bool:
    return any(isinstance(value, str) for value in table.columns[name][:100])


def _are_names(values: Sequence[Any]) -> bool:
    return all(str(value).strip() for value in values) and len({str(value) for value in values}) == len(
        values
    )


def has_texts(path: Path) -> bool:
    """Return whether a table is one of texts, from the names of its columns: of no files, images or vectors."""
    names = [name.strip().lower() for name in _first_names(path)]
    others = {*FILE_COLUMNS, *IMAGE_COLUMNS, *FEATURE_COLUMNS}
    return bool(set(names) & set(TEXT_COLUMNS)) and not set(names) & others


def _first_names(path: Path) -> list[str]:
    kind = _ending(path)
    if kind == ".parquet":
        return list(_parquet(path).schema_arrow.names)
    first = next(numbered_lines(path), (1, ""))[1]
    return (
        next(csv.reader([first], delimiter=_delimiter(first)), [])
        if kind in (".csv", ".tsv")
        else list(_object(path, 1, first))
    )


def is_table(path: Path) -> bool:
    """Return whether a file may be a table, by its ending."""
    return _ending(path) in ENDINGS


def _ending(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _PACKED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def read_table(path: Path) -> Table:
    """Read a table; whatever does not fit is an `InputError` that names the line."""
    kind = _ending(path)
    if kind not in ENDINGS:
        raise InputError(f"{path} ends in {kind!r}; expected one of {', '.join(ENDINGS)}")
    found = {".parquet": _read_parquet, ".jsonl": _read_json, ".ndjson": _read_json}.get(kind, _read_csv)(
        path
    )
    if not found.lines:
        raise InputError(f"{path} has no rows; expected at least one")
    return found


def _read_csv(path: Path) -> Table:
    before = csv.field_size_limit(_LINE)
    try:
        return _csv_table(path)
    finally:
        csv.field_size_limit(before)


def _csv_table(path: Path) -> Table:
    source = numbered_lines(path)
    number, first = next(source, (1, ""))
    mark = _delimiter(first)
    header = [name.strip() for name in next(csv.reader([first], delimiter=mark), [])]
    if not header or len(set(header)) < len(header):
        raise InputError(f"{path} has {header} in line 1; expected the names of its columns, each once")
    rows: list[list[str]] = []
    lines: list[int] = []
    reader = csv.reader((line for _, line in source), strict=True, delimiter=mark)
    while True:
        start = number + reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            raise InputError(
                f"{path} cannot be read from line {start} on: {error}; expected quotes to be "
                "closed, and doubled inside a cell"
            ) from None
        if len(row) not in (0, len(header)):
            raise InputError(
                f"{path} has {len(row)} cells in line {start}, but its first line has {len(header)} (a cell with "
                f"{mark!r} or a line break in it must be quoted)"
            )
        if row:
            rows.append(row)
            lines.append(start)
    return Table(path, {name: [row[k] for row in rows] for k, name in enumerate(header)}, lines)


def _delimiter(line: str) -> str:
    """Return what separates the names of columns.

    >>> _delimiter("id;text;tags"), _delimiter("text")
    (';', ',')
    """
    return max(DELIMITERS, key=line.count)


def _read_json(path: Path) -> Table:
    found = [(number, _object(path, number, line)) for number, line in numbered_lines(path) if line.strip()]
    names = dict.fromkeys(name for _, row in found for name in row)
    return Table(
        path, {name: [row.get(name) for _, row in found] for name in names}, [number for number, _ in found]
    )


def _object(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InputError(f"{path} has no JSON object in line {number}; expected one in every line")
    return value


def _parquet(path: Path) -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise InputError(f"{path} needs pyarrow; install it with: pip install 'mlcl[parquet]'") from None
    try:
        return pyarrow.parquet.ParquetFile(path)
    except Exception as error:  # the parser of an untrusted file may raise anything
        raise InputError(f"{path} is no readable Parquet file: {one_line(error)}") from None


def _read_parquet(path: Path) -> Table:
    file = _parquet(path)
    try:
        table = file.read()
    except Exception as error:
        raise InputError(f"{path} is no readable Parquet file: {one_line(error)}") from None
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    return Table(path, columns, list(range(1, table.num_rows + 1)))


def numbered_lines(source: Path | IO[bytes]) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file of UTF-8, which may be packed, or of a stream, each with its number."""
    if not isinstance(source, Path):
        yield from _decoded(Path("standard input"), source)
        return
    path, opener = source, _PACKED.get(source.suffix.lower())
    try:
        with open_regular(path) as plain:
            yield from _decoded(path, plain if opener is None else opener(plain, "rb"))
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(f"{path} cannot be read: {one_line(error)}") from None


def _decoded(path: Path, file: IO[bytes]) -> Iterator[tuple[int, str]]:
    total = number = 0
    while line := file.readline(_LINE):
        number, total = number + 1, total + len(line)
        if len(line) == _LINE or total > _TOTAL:
            raise InputError(f"{path} has more than {_LINE} bytes in line {number}, or {_TOTAL} in all")
        if number == 1:
            if line.startswith((b"\xff\xfe", b"\xfe\xff")):
                raise InputError(f"{path} is UTF-16; expected UTF-8: save it as that")
            line = line.removeprefix(b"\xef\xbb\xbf")
        try:
            yield number, line.decode()
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path} is not UTF-8 in line {number}, byte {error.start + 1} (0x{line[error.start]:02x}); "
                "save it as UTF-8"
            ) from None


def _is_binary(text: str) -> bool:
    """Return whether a cell holds no text: zero bytes, or mostly control characters.

    >>> _is_binary("a\\tb\\n"), _is_binary("PK\\x03\\x04\\x00")
    (False, True)
    """
    start = text[:1000]
    strange = sum(ord(c) < 32 and c not in "\t\n\r\f\x1b" for c in start)
    return "\0" in text or strange > max(2, len(start) // 10)
