"""Images of your own: a folder (or archive) of images and a CSV of labels."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mlcl.datasets.plan import (
    SOURCES,
    DatasetPlan,
    ImageFiles,
    choose_split,
    label_matrix,
    make_plan,
)
from mlcl.datasets.trees import Tree, open_tree
from mlcl.errors import InputError
from mlcl.files import slug
from mlcl.labels import Labels

FILE_COLUMNS = ("file", "filename", "file_name", "image", "path")
LABEL_COLUMNS = ("labels", "label", "tags", "classes")
_MAX_CSV_BYTES = 2**30
_CELLS = {"0": 0, "1": 1, "0.0": 0, "1.0": 1}


@SOURCES.register(
    "folder", summary="A folder of images and a CSV: columns of 0 and 1, or one column with a|b|c."
)
def read_folder(
    root: Path,
    *,
    table: str | None = None,
    encoding: str = "utf-8",
    separator: str = "|",
    test_fraction: float = 1 / 3,
    split_seed: int = 0,
) -> DatasetPlan:
    """Plan a store of a folder of images.

    The CSV has a header. The column ``file`` (or filename, image, path) holds the path of an image, relative to the
    CSV. Labels are either in one column ``labels`` (or label, tags, classes) as ``a|b|c``, and other columns are
    ignored, or in all other columns, one per class, as 0 and 1. A file ``classes.txt`` in the folder of the CSV, one
    name per line, fixes the classes of a ``labels`` column and their order; without it they are the names found,
    sorted. A column ``split`` with train, val and test splits the data; without it a seeded part is held out.

    Args:
        root: the folder, or an archive of it.
        table: path of the CSV in the folder; only needed where there are several.
        encoding: encoding of the CSV and of ``classes.txt``.
        separator: text between the labels in a ``labels`` column.
        test_fraction: fraction of the rows that is held out for testing where there is no column ``split``.
        split_seed: seed of that choice.
    """
    if not separator:
        raise InputError("separator is empty, but a text between labels, such as '|', was expected")
    tree = open_tree(root)
    path = _find(tree, table)
    base = "".join(path.rpartition("/")[:2])  # the folder of the CSV with its slash, or an empty string
    where = tree.where(path)
    header, rows = _read_table(_text(tree, path, encoding), where)
    columns = _find_columns(header, where)
    if columns.labels is None:
        classes, labels = _one_hot(rows, header, columns, where)
    else:
        lists = [_split_cell(row[columns.labels], separator) for row in rows]
        classes, labels = label_matrix(lists, classes=_class_list(tree, base, encoding), where=where)
    files = [row[columns.file].strip() for row in rows]
    splits = None if columns.split is None else [row[columns.split] for row in rows]
    train, keep, options = choose_split(
        splits, len(rows), fraction=test_fraction, seed=split_seed, where=where
    )
    kept = np.flatnonzero(keep)
    return make_plan(
        source="folder",
        root=str(root),
        name=slug(root.absolute().name.split(".")[0]),
        classes=classes,
        ids=[files[row] for row in kept],
        train=train[kept],
        labels=labels[kept],
        inputs=ImageFiles(tree, [base + files[row] for row in kept]),
        options=options,
        dropped={"validation rows": len(rows) - len(kept)} if len(kept) < len(rows) else {},
    )


def _find(tree: Tree, table: str | None) -> str:
    if table is not None:
        if tree.size(table) is None:
            raise InputError(f"{tree.where(table)} was looked for and does not exist")
        return table
    found = [name for name in tree.names() if name.lower().endswith(".csv")]
    if len(found) != 1:
        listed = f": {', '.join(found[:5])}; say which with the option table" if found else ""
        raise InputError(f"{tree.label} has {len(found)} .csv files, but one was expected{listed}")
    return found[0]


def _text(tree: Tree, path: str, encoding: str) -> str:
    try:
        # A byte order mark, as spreadsheets write it, is no part of the first column's name.
        return tree.read(path, limit=_MAX_CSV_BYTES).decode(encoding).removeprefix("\ufeff")
    except LookupError:
        raise InputError(
            f"encoding is {encoding!r}, which is not known; utf-8 or latin-1 are examples"
        ) from None
    except UnicodeError as error:
        raise InputError(f"{tree.where(path)} is not {encoding}: {error}; name another encoding") from None


def _read_table(text: str, where: str) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a CSV, all of the same length."""
    try:
        lines = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    except csv.Error as error:
        raise InputError(f"{where} is not a readable CSV: {error}") from None
    if len(lines) < 2:
        raise InputError(f"{where} has {len(lines)} lines, but a header and at least one row were expected")
    header = [name.strip() for name in lines[0]]
    for number, row in enumerate(lines[1:], 2):
        if len(row) != len(header):
            raise InputError(
                f"{where} has {len(row)} cells in row {number}, but its header has {len(header)}"
            )
    return header, lines[1:]


@dataclass(frozen=True)
class _Columns:
    """Which column of the CSV is which; None for those that it does not have."""

    file: int
    split: int | None
    labels: int | None


def _find_columns(header: list[str], where: str) -> _Columns:
    """Find the columns by their usual names, in any case."""
    lower = [name.lower() for name in header]
    file, split, labels = (
        next((lower.index(name) for name in names if name in lower), None)
        for names in (FILE_COLUMNS, ("split",), LABEL_COLUMNS)
    )
    if file is None:
        raise InputError(
            f"{where} has the columns {', '.join(header)[:200]!r}, but one named 'file' was expected"
        )
    return _Columns(file, split, labels)


def _split_cell(cell: str, separator: str) -> list[str]:
    """Return the labels in a cell ``a|b|c``."""
    return [part.strip() for part in cell.split(separator) if part.strip()]


def _class_list(tree: Tree, base: str, encoding: str) -> list[str] | None:
    """Return the names in ``classes.txt``, one per line, or None if there is no such file."""
    path = f"{base}classes.txt"
    if tree.size(path) is None:
        return None
    return [line.strip() for line in _text(tree, path, encoding).splitlines() if line.strip()]


def _one_hot(
    rows: list[list[str]], header: list[str], columns: _Columns, where: str
) -> tuple[tuple[str, ...], Labels]:
    """Return the names of all columns that are neither file nor split, and their 0/1 matrix."""
    used = [k for k in range(len(header)) if k not in (columns.file, columns.split)]
    matrix = np.zeros((len(rows), len(used)), dtype=np.uint8)
    for column, k in enumerate(used):
        for number, row in enumerate(rows):
            value = _CELLS.get(row[k].strip())
            if value is None:
                raise InputError(
                    f"{where} has {row[k][:40]!r} in row {number + 2}, column {header[k]!r}, "
                    f"but 0 or 1 was expected"
                )
            matrix[number, column] = value
    return tuple(header[k] for k in used), matrix
