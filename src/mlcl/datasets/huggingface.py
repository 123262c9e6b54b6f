"""Hugging Face data sets that were saved with ``save_to_disk`` (needs the package datasets)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets.archives import reason
from mlcl.datasets.parquet import plan_table
from mlcl.datasets.plan import SOURCES, Plan
from mlcl.datasets.tables import IMAGE_COLUMNS, find_column, image_bytes, is_image
from mlcl.errors import InputError


@SOURCES.register(
    "huggingface", summary="A Hugging Face data set saved with save_to_disk (needs mlcl[huggingface])."
)
def read_huggingface(
    root: Path,
    *,
    image: str | None = None,
    features: str | None = None,
    labels: str | None = None,
    test_fraction: float = 1 / 3,
    split_seed: int = 0,
) -> Plan:
    """Plan a store of a data set on disk; nothing is downloaded. Columns are as in the source ``parquet``.

    Args:
        root: the folder that ``save_to_disk`` wrote: a DatasetDict with train and test, or one Dataset.
        image: the column of pictures.
        features: the column of feature lists.
        labels: the column of labels.
        test_fraction: the part that is held out where there is no split.
        split_seed: of that choice.
    """
    try:
        import pyarrow

        from datasets import DatasetDict, load_from_disk
    except ImportError:
        raise InputError(
            "the source 'huggingface' needs the package datasets: pip install 'mlcl[huggingface]'"
        ) from None
    try:
        found = load_from_disk(str(root))
        parts = dict(found) if isinstance(found, DatasetDict) else {"": found}
        tables = {split: part.with_format("arrow")[:] for split, part in parts.items()}
        table = pyarrow.concat_tables(list(tables.values()))
    except Exception as error:  # the parser of untrusted files: whatever it trips over, they are bad
        raise InputError(f"{root} is not a data set that save_to_disk wrote: {reason(error)}") from None
    where = str(root)
    picture = find_column(table.column_names, image, IMAGE_COLUMNS, option="image", where=where)
    if picture is not None and not is_image(table.schema.field(picture).type):
        if image is not None:
            raise InputError(
                f"{root} has no bytes in the column {picture!r}, but encoded pictures were expected"
            )
        picture = None
    return plan_table(
        table if picture is None else table.drop_columns([picture]),
        [split for split, part in tables.items() for _ in range(part.num_rows)] if len(tables) > 1 else None,
        source="huggingface",
        root=root,
        pictures=None
        if picture is None
        else ArrowPictures(where, table.column(picture), np.arange(table.num_rows)),
        features=features,
        labels=labels,
        test_fraction=test_fraction,
        split_seed=split_seed,
    )


@dataclass(frozen=True, eq=False)
class ArrowPictures:
    """Pictures in a column of an Arrow table, which is mapped from disk."""

    label: str
    column: Any
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def name(self, row: int) -> str:
        """Return the data set and the row."""
        return f"row {self.rows[row]} of {self.label}"

    def size(self, row: int) -> int | None:
        """Return the bytes of the picture, or None if its cell is empty."""
        cell = self.column[int(self.rows[row])]
        value = cell["bytes"] if hasattr(cell, "keys") and cell.is_valid else cell
        return value.as_buffer().size if value.is_valid else None

    def read(self, row: int) -> bytes:
        """Return the encoded picture."""
        return image_bytes(self.column[int(self.rows[row])].as_py(), name=self.name(row))

    def take(self, rows: NDArray[np.int64]) -> ArrowPictures:
        """Return some of the pictures."""
        return ArrowPictures(self.label, self.column, self.rows[rows])
