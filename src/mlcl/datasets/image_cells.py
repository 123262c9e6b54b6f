"""Encoded images in the cells of tables: of Parquet files, row group by row group, or of a mapped Arrow table."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets.archives import reason
from mlcl.datasets.arrow import image_bytes, open_parquet
from mlcl.errors import InputError


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
        return image_bytes(column[place].as_py(), name=self.name(row))

    def take(self, rows: NDArray[np.int64]) -> ParquetImages:
        """Return some of the images."""
        return ParquetImages(self.files, self.column, self.places[rows])


@functools.lru_cache(maxsize=1)
def _group(path: Path, _: int, column: str, group: int) -> Any:
    try:
        return (
            open_parquet(path, where=str(path))
            .read_row_group(group, columns=[column], use_threads=False)
            .column(0)
        )
    except Exception as error:  # the parser of an untrusted file: whatever it trips over, the file is bad
        raise InputError(f"{path} cannot be read: {reason(error)}") from None


@dataclass(frozen=True, eq=False)
class ArrowImages:
    """Images in a column of an Arrow table, which is memory-mapped."""

    label: str
    column: Any
    rows: NDArray[np.int64]

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
        return image_bytes(self.column[int(self.rows[row])].as_py(), name=self.name(row))

    def take(self, rows: NDArray[np.int64]) -> ArrowImages:
        """Return some of the images."""
        return ArrowImages(self.label, self.column, self.rows[rows])
