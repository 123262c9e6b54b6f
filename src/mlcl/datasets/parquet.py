"""Parquet: images as bytes or features as numbers, with labels; one file or several (needs pyarrow)."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets.archives import reason
from mlcl.datasets.plan import SOURCES, DatasetPlan, EncodedImages, choose_split, make_plan
from mlcl.datasets.tables import (
    FEATURE_COLUMNS,
    LABEL_COLUMNS,
    find_column,
    find_image_column,
    image_bytes,
    read_features,
    read_labels,
)
from mlcl.errors import InputError
from mlcl.files import slug

_SPLIT_FILE = re.compile(r"(train|validation|valid|val|test)\b.*\.parquet", re.IGNORECASE)


@SOURCES.register(
    "parquet", summary="Parquet files with an image column or features, and labels (needs mlcl[parquet])."
)
def read_parquet(
    root: Path,
    *,
    image: str | None = None,
    features: str | None = None,
    labels: str | None = None,
    separator: str | None = None,
    test_fraction: float = 1 / 3,
    split_seed: int = 0,
) -> DatasetPlan:
    """Plan a store of Parquet files.

    Images are in a column of bytes (or of Hugging Face's struct) named image, img, jpg or picture. Without one,
    features are in a column of lists (features, embedding, vector, x), or else in all columns of numbers. Labels
    are in a column (labels, label, tags, classes) of lists of names, of class numbers, or of texts such as
    ``a|b|c``, or in columns ``label_...`` of 0 and 1. A column ``id`` names the rows. The split is taken from the
    names of the files in a folder (``train-00000-of-00002.parquet``, ``test.parquet``), or from a column ``split``;
    without either a seeded part of the rows is held out.

    Args:
        root: a .parquet file, or a folder of them.
        image: name of the column of images.
        features: name of the column of feature lists.
        labels: name of the column of labels.
        separator: text between the labels in a column of texts; found if not given (| ; or a comma).
        test_fraction: fraction of the rows that is held out for testing where there is no split.
        split_seed: seed of that choice.
    """
    files = _find(root)
    schema = _open(files[0], str(root)).schema_arrow
    where = str(root)
    image_column = find_image_column(schema, image, where=where)
    table, counts = _read(files, [name for name in schema.names if name != image_column], where)
    splits = [name for path, count in zip(files, counts, strict=True) for name in [_split_of(path)] * count]
    images = None if image_column is None else ParquetImages.of(files, image_column)
    return plan_table(
        table,
        splits if len(set(splits)) > 1 and "" not in splits else None,
        source="parquet",
        root=root,
        images=images,
        features=features,
        labels=labels,
        separator=separator,
        test_fraction=test_fraction,
        split_seed=split_seed,
    )


def plan_table(
    table: Any,
    splits: Sequence[str] | None,
    *,
    source: str,
    root: Path,
    images: EncodedImages | None,
    features: str | None,
    labels: str | None,
    separator: str | None,
    test_fraction: float,
    split_seed: int,
) -> DatasetPlan:
    """Plan a store of an Arrow table; its images, if it has any, are given separately."""
    where, names = str(root), table.column_names
    label = find_column(names, labels, LABEL_COLUMNS, option="labels", where=where)
    classes, matrix = read_labels(table, label, where=where, separator=separator)
    if table.num_rows == 0:
        raise InputError(f"{root} has no rows, but at least one was expected")
    if splits is None and "split" in names:
        splits = [str(value) for value in table.column("split").to_pylist()]
    train, keep, options = choose_split(
        splits, table.num_rows, fraction=test_fraction, seed=split_seed, where=where
    )
    kept = np.flatnonzero(keep)
    inputs: EncodedImages | NDArray[Any]
    if images is None:
        vector = find_column(names, features, FEATURE_COLUMNS, option="features", where=where)
        inputs = read_features(table, vector, leave=(label, "split", "id"), where=where)[kept]
    else:
        inputs = images.take(kept)
    ids = (
        [str(v) for v in table.column("id").to_pylist()]
        if "id" in names
        else [f"row-{i}" for i in range(len(keep))]
    )
    return make_plan(
        source=source,
        root=str(root),
        name=slug(root.absolute().name.removesuffix(".parquet")),
        classes=classes,
        ids=[ids[row] for row in kept],
        train=train[kept],
        labels=matrix[kept],
        inputs=inputs,
        options=options,
        dropped={"validation rows": len(keep) - len(kept)} if len(kept) < len(keep) else {},
    )


@dataclass(frozen=True, eq=False)
class ParquetImages:
    """Images in Parquet files: for each row its file, its row group and its place in the group."""

    files: tuple[Path, ...]
    column: str
    places: NDArray[np.int64]

    @classmethod
    def of(cls, files: Sequence[Path], column: str) -> ParquetImages:
        """Index the rows of some files."""
        parts = [np.zeros((0, 3), dtype=np.int64)]
        for f, path in enumerate(files):
            info = _open(path, str(path)).metadata
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
        return image_bytes(column[place].as_py(), name=self.name(row))

    def take(self, rows: NDArray[np.int64]) -> ParquetImages:
        """Return some of the images."""
        return ParquetImages(self.files, self.column, self.places[rows])


@functools.lru_cache(maxsize=1)
def _group(path: Path, _: int, column: str, group: int) -> Any:
    try:
        return _open(path, str(path)).read_row_group(group, columns=[column], use_threads=False).column(0)
    except Exception as error:  # the parser of an untrusted file: whatever it trips over, the file is bad
        raise InputError(f"{path} cannot be read: {reason(error)}") from None


def _find(root: Path) -> list[Path]:
    if not root.exists():
        raise InputError(
            f"{root} was looked for and does not exist; a .parquet file or a folder was expected"
        )
    found = sorted(root.glob("*.parquet")) if root.is_dir() else [root]
    if not found:
        raise InputError(f"{root} has no .parquet files, but at least one was expected")
    return found


def _split_of(path: Path) -> str:
    match = _SPLIT_FILE.match(path.name)
    return match[1].lower() if match is not None else ""


def _open(path: Path, where: str) -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise InputError("the source 'parquet' needs pyarrow: pip install 'mlcl[parquet]'") from None
    try:
        return pyarrow.parquet.ParquetFile(path)
    except Exception as error:  # the parser of an untrusted file: whatever it trips over, the file is bad
        raise InputError(f"{where} is not a readable Parquet file: {reason(error)}") from None


def _read(files: Sequence[Path], columns: list[str], where: str) -> tuple[Any, list[int]]:
    """Return the named columns of all files as one table, and the number of rows of each file."""
    import pyarrow

    tables = []
    try:
        for path in files:
            tables.append(_open(path, str(path)).read(columns=columns, use_threads=False))
        return pyarrow.concat_tables(tables), [part.num_rows for part in tables]
    except InputError:
        raise
    except Exception as error:  # files of different columns, or broken ones
        raise InputError(f"{where} cannot be read as one table: {reason(error)}") from None
