"""Hugging Face datasets that were saved with ``save_to_disk`` (needs the package datasets)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets.archives import reason
from mlcl.datasets.parquet import plan_table
from mlcl.datasets.plan import SOURCES, DatasetPlan
from mlcl.datasets.tables import find_image_column, image_bytes
from mlcl.errors import InputError


@SOURCES.register(
    "huggingface", summary="A Hugging Face dataset saved with save_to_disk (needs mlcl[huggingface])."
)
def read_huggingface(
    root: Path,
    *,
    image: str | None = None,
    features: str | None = None,
    labels: str | None = None,
    separator: str | None = None,
    test_fraction: float = 1 / 3,
    split_seed: int = 0,
) -> DatasetPlan:
    """Plan a store of a dataset on disk; nothing is downloaded. Columns are as in the source ``parquet``.

    Args:
        root: the folder that ``save_to_disk`` wrote: a DatasetDict with train and test, or one Dataset.
        image: name of the column of images.
        features: name of the column of feature lists.
        labels: name of the column of labels.
        separator: text between the labels in a column of texts; found if not given (| ; or a comma).
        test_fraction: fraction of the rows that is held out for testing where there is no split.
        split_seed: seed of that choice.
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
        raise InputError(f"{root} is not a dataset that save_to_disk wrote: {reason(error)}") from None
    where = str(root)
    image_column = find_image_column(table.schema, image, where=where)
    return plan_table(
        table if image_column is None else table.drop_columns([image_column]),
        [split for split, part in tables.items() for _ in range(part.num_rows)] if len(tables) > 1 else None,
        source="huggingface",
        root=root,
        images=None
        if image_column is None
        else ArrowImages(where, table.column(image_column), np.arange(table.num_rows)),
        features=features,
        labels=labels,
        separator=separator,
        test_fraction=test_fraction,
        split_seed=split_seed,
    )


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
