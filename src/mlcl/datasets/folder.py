"""Your own images: a folder (or archive) of images and a CSV of labels."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets.plan import (
    SOURCES,
    DatasetPlan,
    ImageFiles,
    label_matrix,
    make_plan,
    read_splits,
    split_rows,
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

    The CSV has a header. The column ``file`` (or filename, image, path) is the path of an image, relative to
    the CSV. Labels are either one column ``labels`` (or label, tags, classes) with ``a|b|c``, other columns
    then being ignored, or all other columns, one a class, with 0 and 1. A file ``classes.txt`` beside the
    CSV, one name a line, fixes the classes of a ``labels`` column and their order; else they are the names
    found, sorted. A column ``split`` with train, val and test splits the data; without it a seeded part is
    held out.

    Args:
        root: the folder, or an archive of it.
        table: the path of the CSV in it; needed only where there are several.
        encoding: of the CSV and of ``classes.txt``.
        separator: between the labels of a ``labels`` column.
        test_fraction: the part that is held out where there is no ``split``.
        split_seed: of that choice.
    """
    if not separator:
        raise InputError("separator is empty, but a text between labels, such as '|', was expected")
    tree = open_tree(root)
    path = _find(tree, table)
    base = path.rpartition("/")[0]
    base = f"{base}/" if base else ""
    where = tree.where(path)
    header, rows = _read_table(_text(tree, path, encoding), where)
    lower = [name.lower() for name in header]
    file_at = _first(lower, FILE_COLUMNS)
    if file_at is None:
        raise InputError(
            f"{where} has the columns {', '.join(header)[:200]!r}, but one named 'file' was expected"
        )
    split_at, label_at = _first(lower, ("split",)), _first(lower, LABEL_COLUMNS)
    if label_at is None:
        used = [k for k in range(len(header)) if k not in (file_at, split_at)]
        classes, labels = tuple(header[k] for k in used), _one_hot(rows, header, used, where)
    else:
        lists = [[part.strip() for part in row[label_at].split(separator) if part.strip()] for row in rows]
        known = f"{base}classes.txt"
        names = None
        if tree.size(known) is not None:
            names = [line.strip() for line in _text(tree, known, encoding).splitlines() if line.strip()]
        classes, labels = label_matrix(lists, classes=names, where=where)
    files = [row[file_at].strip() for row in rows]
    if split_at is None:
        train = split_rows(len(rows), fraction=test_fraction, seed=split_seed)
        keep: NDArray[np.bool_] = np.ones(len(rows), dtype=np.bool_)
    else:
        train, keep = read_splits([row[split_at] for row in rows], where=where)
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
        options={} if split_at is not None else {"test_fraction": test_fraction, "split_seed": split_seed},
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


def _first(header: Sequence[str], names: Sequence[str]) -> int | None:
    return next((header.index(name) for name in names if name in header), None)


def _one_hot(rows: list[list[str]], header: list[str], used: list[int], where: str) -> Labels:
    """Return the columns ``used`` as a 0/1 matrix."""
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
    return matrix
