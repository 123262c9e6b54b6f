"""Tables: CSV, JSON lines, Parquet and Hugging Face datasets, of texts, vectors or images, read one way.

Whatever the file, its columns become those of an Arrow table, and `mlcl.datasets.arrow` makes arrays of them.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets.arrow import (
    ANNOTATED_COLUMNS,
    FEATURE_COLUMNS,
    IMAGE_COLUMNS,
    LABEL_COLUMNS,
    ArrowImages,
    Column,
    ParquetImages,
    Tags,
    find_column,
    find_image_column,
    number_columns,
    open_parquet,
    read_tags,
    vectors_of,
)
from mlcl.datasets.base import as_inputs
from mlcl.datasets.plan import SOURCES, DatasetPlan, EncodedImages, choose_split, make_plan, split_options
from mlcl.datasets.trees import PACKED, UNREADABLE, open_packed
from mlcl.encoders import Encoder, Join, chosen_encoder, from_bytes, to_bytes, weighed
from mlcl.errors import InputError, one_line, parsing

TEXT_COLUMNS = [
    "text",
    "title",
    "subject",
    "summary",
    "description",
    "abstract",
    "body",
    "content",
    "message",
]
FILE_COLUMNS = ("file", "filename", "file_name", "image", "path")
DELIMITERS = (",", ";", "\t", "|")
ID_COLUMNS = ("id", "key", "name", "package")
ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
_LINE, _TOTAL = 2**27, 2**34
"""A line has at most so many bytes, and a file so many when it is unpacked."""
BATCH = 1024
_SPLIT_FILE = re.compile(r"(train|validation|valid|val|test)\b.*\.parquet", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Table:
    """The rows of a file or folder: an Arrow table of all columns but that of images, which stand beside it.

    ``lines`` are those where rows begin in a file of text, else the numbers of the rows, from 1. ``splits`` are of
    rows whose files or folders name them. ``source`` is what stores record.
    """

    path: Path
    data: Any
    lines: Sequence[int]
    images: EncodedImages | None = None
    splits: Sequence[str] | None = None
    source: str = "table"

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def columns(self) -> list[str]:
        """Return the names of the columns."""
        return list(self.data.column_names)

    def cells(self, name: str) -> list[Any]:
        """Return the cells of a column: texts, lists, numbers, or None."""
        found: list[Any] = self.data.column(name).to_pylist()
        return found

    def names(self, column: str | None) -> list[str]:
        """Return the names of the rows: the cells of a column, or their numbers, from 1."""
        return [str(name) for name in (range(1, len(self) + 1) if column is None else self.cells(column))]

    def texts(self, names: Sequence[str]) -> list[str]:
        """Return the text of each row: its cells in some columns, one below the other."""
        cells = [self._text_cells(name) for name in names]
        return ["\n".join(part for part in row if part) for row in zip(*cells, strict=True)]

    def _text_cells(self, name: str) -> list[str]:
        found = ["" if value is None else value for value in self.cells(name)]
        for line, value in zip(self.lines, found, strict=True):
            if not isinstance(value, str) or _is_binary(value):
                what = "binary data" if isinstance(value, str | bytes) else f"a {type(value).__name__}"
                raise InputError(f"{self.path} has {what} in column {name!r} of line {line}; expected a text")
        return [value.strip() for value in found]

    def tags(self, name: str | None, **options: Any) -> Tags:
        """Return the labels of the rows, and which are known; the options are those of `read_tags`."""
        return read_tags(self.data, name, where=str(self.path), **options)

    def vectors(self, name: str | None, *, leave: Sequence[str | None] = ()) -> NDArray[np.float32]:
        """Return float32 ``[N, D]`` from a column of equally long lists, or from the columns of numbers but some."""
        where = str(self.path)
        if name is not None:
            found = vectors_of(Column.of(self.data, name, where))
            return as_inputs(found, name=f"column {name!r} of {where}")
        names = number_columns(self.data, leave)
        if not names:
            raise InputError(
                f"{where} has no column of texts, vectors or images with a usual name, and none of numbers; name one "
                f"with --text, --features or --image; it has {', '.join(self.data.column_names)[:200]}"
            )
        columns = [Column.of(self.data, name, where).numbers() for name in names]
        return as_inputs(np.stack(columns, axis=1), name=where)


@dataclass(frozen=True)
class TableColumns:
    """Which columns of a table are read: no text where rows are vectors or images; no tags where ``label_...`` are."""

    text: tuple[str, ...]
    tags: str | None
    id: str | None
    vectors: str | None = None
    annotated: str | None = None

    def __str__(self) -> str:
        tags = "" if self.tags is None else f"; tags: {self.tags}"
        return f"text: {', '.join(self.text)}{tags}; id: {self.id or 'the number of the row'}"

    def others(self) -> tuple[str | None, ...]:
        """Return the columns that are no features, whatever they hold."""
        return (self.tags, self.annotated, self.id, "split", "id")


@SOURCES.register(
    "huggingface", summary="A Hugging Face dataset saved with save_to_disk (needs mlcl[huggingface])."
)
@SOURCES.register("parquet", summary="Parquet files with an image column, features or texts, and labels.")
@SOURCES.register(
    "table", summary="A CSV, JSON lines or Parquet table of texts, vectors or images, and their labels."
)
def plan_table(
    root: Path,
    *,
    image: str | None = None,
    features: str | None = None,
    text: str | None = None,
    labels: str | None = None,
    annotated: str | None = None,
    id: str | None = None,
    separator: str | None = None,
    group: str | None = None,
    encoder: str | bytes = "words",
    test_fraction: float = 1 / 3,
    split_seed: int = 0,
) -> DatasetPlan:
    """Plan a store of a table; nothing is downloaded. Texts become vectors, and are not kept.

    Images are in a column of bytes (or of Hugging Face's struct) named image, img, jpg or picture; vectors in a column
    of lists (features, embedding, vector, x); texts in columns such as text, title or description. Without any of these
    all columns of numbers are features. Labels are in a column (labels, label, tags, classes) of lists of names, of
    class numbers, or of texts such as ``a|b|c``, or in columns ``label_...`` of 0 and 1. A row without labels (an empty
    cell in a list or in ``label_...``) is not a negative: they are not known. A column ``annotated`` lists the labels
    that a row was annotated for, and all others are not known. The split is taken from the names of Parquet files
    in a folder (``train-00000-of-00002.parquet``, ``test.parquet``) or of a DatasetDict, or from a column ``split``;
    without either a seeded part of the rows is held out.

    Args:
        root: a .csv, .tsv, .jsonl or .parquet file, of which all but the last may be packed (.gz, .bz2, .xz); a folder
            of Parquet files; or a folder that ``save_to_disk`` of the package datasets wrote.
        image: name of the column of images.
        features: name of the column of vectors.
        text: names of the columns of text, with commas between them.
        labels: name of the column of labels.
        annotated: name of the column of the labels that a row was annotated for (default: annotated, if there is one).
        id: name of the column that names the rows (default: id, key, name or package, if its cells differ).
        separator: text between the labels in a cell; found if not given (| ; or a comma).
        group: name of a column; rows with the same cell there, such as near copies, are in the same split.
        encoder: what makes vectors of texts: words, minilm, wordllama, a folder, or several, such as words+minilm; or
            the file of one that is fitted.
        test_fraction: fraction of the rows that is held out for testing where there is no split; 1: all.
        split_seed: seed of that choice.
    """
    table = read_table(root, image=image)
    columns = find_columns(
        table, text=text, tags=labels, id=id, vectors=features, annotated=annotated, needs_text=False
    )
    found = table.tags(columns.tags, annotated=columns.annotated, separator=separator)
    train, keep, options = _split(table, group, test_fraction, split_seed)
    every = np.ones(len(table), np.bool_)
    texts = table.texts(columns.text) if columns.text else None
    written = every if texts is None else np.array([bool(one) for one in texts])
    done = every if found.known is None else found.known.any(axis=1)
    kept = np.flatnonzero(written & done & keep)
    if not len(kept):
        raise InputError(
            f"{table.path} has no row with {'a text and ' if columns.text else ''}labels; expected some"
        )
    inputs: EncodedImages | NDArray[np.float32]
    file = None
    if texts is not None:
        fitted = _encoder(encoder, texts, found, kept[train[kept]], table.cells(group) if group else None)
        if isinstance(fitted, Join):
            options = options | {"weights": list(fitted.weights)}
        inputs, file = np.zeros((len(texts), fitted.width), np.float32), to_bytes(fitted)
        inputs[kept] = vectors(fitted, [texts[k] for k in kept])
    elif table.images is not None and columns.vectors is None:
        inputs = table.images
    else:
        inputs = table.vectors(columns.vectors, leave=columns.others())
    names = table.names(columns.id)
    return make_plan(
        source=table.source,
        root=table.path,
        classes=found.classes,
        ids=names if columns.id else [f"row-{name}" for name in names],
        train=train,
        labels=found.labels,
        known=found.known,
        inputs=inputs,
        options=options | ({"text": list(columns.text)} if columns.text else {}) | found.options,
        drop={"rows without text": ~written, "rows without annotation": ~done, "validation rows": ~keep},
        encoder=file,
    )


def _encoder(
    given: str | bytes, texts: list[str], tags: Tags, rows: NDArray[np.int64], groups: list[Any] | None
) -> Encoder:
    """Return the encoder that is fitted already, or fit it to some rows; of several, their weights, too."""
    if isinstance(given, bytes):
        return from_bytes(given)
    first = [texts[k] for k in rows]
    fitted = chosen_encoder(given, first)
    if not isinstance(fitted, Join):
        return fitted
    known = None if tags.known is None else tags.known[rows]
    return weighed(fitted, first, tags.labels[rows], known, groups=groups and [groups[k] for k in rows])


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
    where, splits = str(table.path), table.splits
    if splits is None and "split" in table.data.column_names:
        splits, where = [str(value) for value in table.cells("split")], f"column 'split' of {where}"
    if group is None:
        return choose_split(splits, len(table), fraction=fraction, seed=seed, where=where)
    find_column(table.data.column_names, group, (), option="group", where=where)
    names, places = np.unique([str(value) for value in table.cells(group)], return_inverse=True)
    # By its name, so that a group stays in its split when others join.
    digests = (hashlib.sha256(f"{seed} {name}".encode()).digest() for name in names)
    shares = np.array([int.from_bytes(digest[:7]) / 2**56 for digest in digests])
    options = split_options(fraction, seed) | {"group": group}
    return (shares >= fraction)[places], np.ones(len(table), np.bool_), options


def find_columns(
    table: Table,
    *,
    text: str | None = None,
    tags: str | None = None,
    id: str | None = None,
    vectors: str | None = None,
    annotated: str | None = None,
    needs_text: bool = True,
) -> TableColumns:
    """Return the columns that options name (those of text with commas between them), or else those with usual names.

    A table without texts is refused if ``needs_text``; otherwise its images, vectors or numbers are read.
    """
    names, where = list(table.data.column_names), str(table.path)

    def find(wanted: str | None, usual: Sequence[str], option: str) -> str | None:
        return find_column(names, wanted, usual, option=option, where=where)

    label, seen = find(tags, LABEL_COLUMNS, "labels"), find(annotated, ANNOTATED_COLUMNS, "annotated")
    column = None if text else find(vectors, FEATURE_COLUMNS, "features")
    found: list[str] = []
    if text is not None:
        found = [text] if text in names else [name.strip() for name in text.split(",")]
        for name in found:
            find(name, (), "text")
    elif needs_text or (column is None and table.images is None):
        found = [name for name in names if _is_usual(name, TEXT_COLUMNS) and _holds_texts(table, name)]
    if needs_text and not found:
        raise InputError(
            f"{where} has no column of text with a usual name; name it with --text; it has {', '.join(names)[:200]}"
        )
    taken = (*found, label, column)
    free = [name for name in names if _is_usual(name, ID_COLUMNS) and name not in taken]
    named = next((name for name in free if _are_names(table.cells(name))), None) if id is None else id
    return TableColumns(tuple(found), label, find(named, (), "id"), None if found else column, seen)


def _is_usual(name: str, usual: Sequence[str]) -> bool:
    return name.strip().lower() in usual


def _holds_texts(table: Table, name: str) -> bool:
    return any(isinstance(value, str) for value in table.data.column(name).slice(0, 100).to_pylist())


def _are_names(values: Sequence[Any]) -> bool:
    names = {str(value).strip() for value in values}
    return "" not in names and len(names) == len(values)


def has_texts(path: Path) -> bool:
    """Return whether a table is one of texts, from the names of its columns: of no files, images or vectors."""
    names, others = _first_names(path), (*FILE_COLUMNS, *IMAGE_COLUMNS, *FEATURE_COLUMNS)
    return any(_is_usual(name, TEXT_COLUMNS) for name in names) and not any(
        _is_usual(name, others) for name in names
    )


def names_files(path: Path) -> bool:
    """Return whether a table has a column of the files of images, from the names of its columns."""
    return any(_is_usual(name, FILE_COLUMNS) for name in _first_names(path))


def _first_names(path: Path) -> list[str]:
    kind = _ending(path)
    if kind == ".parquet":
        return list(open_parquet(path, where=str(path)).schema_arrow.names)
    first = next(numbered_lines(path), (1, ""))[1]
    if kind in (".csv", ".tsv"):
        return next(csv.reader([first], delimiter=_delimiter(first)), [])
    return list(_object(path, 1, first))


def is_table(path: Path) -> bool:
    """Return whether a file may be a table, by its ending."""
    return _ending(path) in ENDINGS


def _ending(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in PACKED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def read_table(path: Path, *, image: str | None = None) -> Table:
    """Read a file, a folder of Parquet files, or one that ``save_to_disk`` wrote; ``image`` names a column."""
    if not path.exists():
        raise InputError(f"{path} was looked for and does not exist; a table was expected")
    kind = _ending(path)
    if path.is_dir():
        saved = any((path / name).is_file() for name in ("dataset_dict.json", "dataset_info.json"))
        found = _read_saved(path, image) if saved else _read_parquet(path, image)
    elif kind not in ENDINGS:
        raise InputError(f"{path} ends in {kind!r}; expected one of {', '.join(ENDINGS)}")
    elif kind == ".parquet":
        found = _read_parquet(path, image)
    else:
        found = _read_json(path) if kind in (".jsonl", ".ndjson") else csv_table(numbered_lines(path), path)
    if not len(found):
        raise InputError(f"{path} has no rows; expected at least one")
    return found


def csv_table(source: Iterator[tuple[int, str]], path: Path) -> Table:
    """Return the table in the lines of a CSV, each with its number; all cells are texts."""
    before = csv.field_size_limit(_LINE)
    try:
        header, rows, lines = _cells(source, str(path))
    finally:
        csv.field_size_limit(before)
    return Table(path, _arrow({name: [row[k] for row in rows] for k, name in enumerate(header)}), lines)


def _cells(source: Iterator[tuple[int, str]], where: str) -> tuple[list[str], list[list[str]], list[int]]:
    """Return the header of a CSV, its rows, all of that length, and the line where each begins."""
    number, first = next(source, (1, ""))
    mark = _delimiter(first)
    header = [name.strip() for name in next(csv.reader([first], delimiter=mark), [])]
    if not header or len(set(header)) < len(header):
        raise InputError(f"{where} has {header} in line 1; expected the names of its columns, each once")
    rows: list[list[str]] = []
    lines: list[int] = []
    reader = csv.reader((line for _, line in source), strict=True, delimiter=mark)
    while True:
        start = number + reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise InputError(
                f"{where} cannot be read from line {start} on: {error}; expected quotes to be "
                "closed, and doubled inside a cell"
            ) from None
        if row is None:
            return header, rows, lines
        if len(row) not in (0, len(header)):
            raise InputError(
                f"{where} has {len(row)} cells in line {start}, but its first line has {len(header)} (a cell with "
                f"{mark!r} or a line break in it must be quoted)"
            )
        if row:
            rows.append(row)
            lines.append(start)


def _delimiter(line: str) -> str:
    """Return what separates the names of columns."""
    return max(DELIMITERS, key=line.count)


def _read_json(path: Path) -> Table:
    found = [(number, _object(path, number, line)) for number, line in numbered_lines(path) if line.strip()]
    lines = [number for number, _ in found]
    names = dict.fromkeys(name for _, row in found for name in row)
    columns = {name: [row.get(name) for _, row in found] for name in names}
    for name, values in columns.items():
        kinds = {bool: bool, int: float, float: float}  # whole and other numbers may be mixed
        met = [kinds.get(type(value), type(value)) for value in values]
        first = next((kind for kind in met if kind is not type(None)), None)
        odd = next((k for k, kind in enumerate(met) if kind not in (first, type(None))), None)
        if odd is not None:
            raise InputError(
                f"{path} has a {type(values[odd]).__name__} in column {name!r} of line {lines[odd]}; expected one kind "
                "of value in a column"
            )
    return Table(path, _arrow(columns, str(path)), lines)


def _arrow(columns: dict[str, list[Any]], where: str = "") -> Any:
    import pyarrow

    found = {}
    for name, values in columns.items():
        texts = any(isinstance(value, str) for value in values[:1])
        with parsing(f"{where} has values of several kinds in column {name!r}"):
            found[name] = pyarrow.array(values, pyarrow.large_string() if texts else None)
    return pyarrow.table(found)


def _object(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InputError(f"{path} has no JSON object in line {number}; expected one in every line")
    return value


def _read_parquet(path: Path, image: str | None) -> Table:
    """Read a file, or a folder of files that are one table; images stay where they are."""
    import pyarrow

    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise InputError(f"{path} has no .parquet files, but at least one was expected")
    schema = open_parquet(files[0], where=str(path)).schema_arrow
    column = find_image_column(schema, image, where=str(path))
    parts, counts, others = [], [], [name for name in schema.names if name != column]
    for file in files:
        opened = open_parquet(file, where=str(file), read=others)
        counts.append(opened.metadata.num_rows)
        with parsing(f"{file} cannot be read"):
            parts.append(opened.read(columns=others, use_threads=False))
    with parsing(f"{path} cannot be read as one table"):
        data = pyarrow.concat_tables(parts)
    matches = [_SPLIT_FILE.match(file.name) for file in files]
    named = [match[1].lower() if match else "" for match in matches]
    splits = [name for name, count in zip(named, counts, strict=True) for _ in range(count)]
    return Table(
        path,
        data,
        range(1, len(splits) + 1),
        None if column is None else ParquetImages.of(files, column),
        splits if len(set(splits)) > 1 and "" not in splits else None,
        "parquet",
    )


def _read_saved(path: Path, image: str | None) -> Table:
    """Read what ``save_to_disk`` of the package datasets wrote."""
    try:
        import pyarrow

        from datasets import DatasetDict, load_from_disk
    except ImportError:
        raise InputError(
            f"{path} is of the package datasets, which is needed: pip install 'mlcl[huggingface]'"
        ) from None
    with parsing(f"{path} is not a dataset that save_to_disk wrote"):
        found = load_from_disk(str(path))
        parts = dict(found) if isinstance(found, DatasetDict) else {"": found}
        tables = {split: part.with_format("arrow")[:] for split, part in parts.items()}
        data = pyarrow.concat_tables(list(tables.values()))
    column, rows = find_image_column(data.schema, image, where=str(path)), np.arange(data.num_rows)
    return Table(
        path,
        data if column is None else data.drop_columns([column]),
        range(1, data.num_rows + 1),
        None if column is None else ArrowImages(str(path), data.column(column), rows),
        [split for split, part in tables.items() for _ in range(part.num_rows)] if len(tables) > 1 else None,
        "huggingface",
    )


def numbered_lines(source: Path | IO[bytes]) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file of UTF-8, which may be packed, or of a stream, each with its number."""
    if not isinstance(source, Path):
        yield from _decoded_lines("standard input", source)
        return
    try:
        with open_packed(source) as file:
            yield from _decoded_lines(str(source), file)
    except UNREADABLE as error:
        raise InputError(f"{source} cannot be read: {one_line(error)}") from None


def _decoded_lines(where: str, file: IO[bytes]) -> Iterator[tuple[int, str]]:
    total = number = 0
    while line := file.readline(_LINE):
        number, total = number + 1, total + len(line)
        if len(line) == _LINE or total > _TOTAL:
            raise InputError(f"{where} has more than {_LINE} bytes in line {number}, or {_TOTAL} in all")
        if number == 1:
            if line.startswith((b"\xff\xfe", b"\xfe\xff")):
                raise InputError(f"{where} is UTF-16; expected UTF-8: save it as that")
            line = line.removeprefix(b"\xef\xbb\xbf")
        try:
            yield number, line.decode()
        except UnicodeDecodeError as error:
            raise InputError(
                f"{where} is not UTF-8 in line {number}, byte {error.start + 1} (0x{line[error.start]:02x}); "
                "save it as UTF-8"
            ) from None


def _is_binary(text: str) -> bool:
    """Return whether a cell holds no text: zero bytes, or mostly control characters."""
    start = text[:1000]
    strange = sum(ord(c) < 32 and c not in "\t\n\r\f\x1b" for c in start)
    return "\0" in text or strange > max(2, len(start) // 10)
