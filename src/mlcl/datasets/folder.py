"""Images of your own: a folder (or archive) of images, in subfolders or not, and a CSV of labels."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets.arrow import ANNOTATED_COLUMNS, LABEL_COLUMNS, one_hot
from mlcl.datasets.images import IMAGE_SUFFIXES
from mlcl.datasets.plan import SOURCES, DatasetPlan, ImageFiles, choose_split, make_plan
from mlcl.datasets.table import FILE_COLUMNS, csv_table
from mlcl.datasets.trees import Tree, clean_name, decoded_text, open_tree
from mlcl.errors import InputError

_MAX_CSV_BYTES = 2**30


@SOURCES.register(
    "folder", summary="A folder of images and a CSV: columns of 0 and 1, or one column of tags."
)
def read_folder(
    root: Path,
    *,
    table: str | None = None,
    encoding: str = "utf-8",
    separator: str | None = None,
    test_fraction: float = 1 / 3,
    split_seed: int = 0,
) -> DatasetPlan:
    """Plan a store of a folder of images.

    The CSV has a header; its cells are separated by a comma, a semicolon, a tab or ``|``, whichever separates the names
    of the header. The column ``file`` (or filename, image, path) holds the path of an image, relative to the CSV. An
    image that is not there is looked for by its name, with or without its extension, in all subfolders. Labels are
    either in one column ``labels`` (or label, tags, classes) as `split_cells` reads it, beside which only a column
    ``annotated`` is read, of the labels that an image was annotated for (empty: all); or in all other columns, one per
    class, as 0 and 1. A file ``classes.txt`` in the folder of the CSV, one name per line, fixes the classes of a
    ``labels`` column and their order; without it they are the names found, sorted. A column ``split`` with train, val
    and test splits the data; without it a seeded part is held out.

    Args:
        root: the folder, or an archive of it.
        table: path of the CSV in the folder; only needed where there are several.
        encoding: encoding of the CSV and of ``classes.txt``.
        separator: text between the labels in a ``labels`` column; found if not given (| ; or a comma).
        test_fraction: fraction of the rows that is held out for testing where there is no column ``split``.
        split_seed: seed of that choice.
    """
    tree = open_tree(root)
    path = _find(tree, table)
    base = "".join(path.rpartition("/")[:2])  # the folder of the CSV with its slash, or an empty string
    where = tree.where(path)
    lines = enumerate(io.StringIO(_text(tree, path, encoding), newline=""), 1)
    cells = csv_table(lines, Path(where))
    if not len(cells):
        raise InputError(f"{where} has no rows; expected at least one")
    header: list[str] = cells.data.column_names
    lower = {name.lower(): name for name in reversed(header)}
    file, split, labels, annotated = (
        next((lower[name] for name in names if name in lower), None)
        for names in (FILE_COLUMNS, ("split",), LABEL_COLUMNS, ANNOTATED_COLUMNS)
    )
    if file is None:
        raise InputError(
            f"{where} has the columns {', '.join(header)[:200]!r}, but one named 'file' was expected"
        )
    if labels is None:
        found = one_hot(cells.data, [name for name in header if name not in (file, split)], where)
    else:
        names = _class_list(tree, base, encoding)
        found = cells.tags(labels, annotated=annotated, separator=separator, classes=names)
    files = [name.strip() for name in cells.cells(file)]
    splits = None if split is None else cells.cells(split)
    train, keep, options = choose_split(
        splits, len(cells), fraction=test_fraction, seed=split_seed, where=where
    )
    return make_plan(
        source="folder",
        root=root,
        classes=found.classes,
        ids=files,
        train=train,
        labels=found.labels,
        known=found.known,
        inputs=ImageFiles(tree, locate(tree, base, files, keep)),
        options=options | found.options,
        drop={"validation rows": ~keep},
    )


def _find(tree: Tree, table: str | None) -> str:
    if table is not None:
        if tree.size(table) is None:
            raise InputError(f"{tree.where(table)} was looked for and does not exist")
        return table
    found = [name for name in tree.names() if name.lower().endswith((".csv", ".tsv"))]
    if len(found) != 1:
        listed = f": {', '.join(found[:5])}; say which with the option table" if found else ""
        raise InputError(f"{tree.label} has {len(found)} .csv files, but one was expected{listed}")
    return found[0]


def _text(tree: Tree, path: str, encoding: str) -> str:
    return decoded_text(tree.read(path, limit=_MAX_CSV_BYTES), encoding, where=tree.where(path))


def _class_list(tree: Tree, base: str, encoding: str) -> list[str] | None:
    """Return the names in ``classes.txt``, one per line, or None if there is no such file."""
    path = f"{base}classes.txt"
    if tree.size(path) is None:
        return None
    return [line.strip() for line in _text(tree, path, encoding).splitlines() if line.strip()]


def locate(tree: Tree, base: str, files: Sequence[str], keep: NDArray[np.bool_]) -> list[str]:
    """Return the path of each file in the tree: as the table has it, or else found by its name in all subfolders.

    A file that is nowhere keeps its path, so that whoever reads it says so; two that fit are an `InputError`.
    """
    paths = [base + name for name in files]
    absent = [
        place for place in np.flatnonzero(keep).tolist() if files[place] and tree.size(paths[place]) is None
    ]
    by_stem: dict[str, list[str]] = {}
    for path in tree.walk() if absent else ():
        if path.lower().endswith(IMAGE_SUFFIXES):
            by_stem.setdefault(PurePosixPath(path).stem, []).append(path)
    for place in absent:
        wanted = clean_name(files[place], where=tree.label)
        name = PurePosixPath(wanted).name
        stems = dict.fromkeys([name, PurePosixPath(name).stem])
        candidates = [path for stem in stems for path in by_stem.get(stem, [])]
        fits = [path for path in candidates if f"/{path}".endswith(f"/{wanted}")]
        fits = fits or [path for path in candidates if f"/{path}".rpartition(".")[0].endswith(f"/{wanted}")]
        if len(fits) > 1:
            raise InputError(
                f"{tree.label} has {fits[0]!r} and {fits[1]!r} for the file {files[place]!r}, but one was expected"
            )
        paths[place] = (fits or [paths[place]])[0]
    return paths
