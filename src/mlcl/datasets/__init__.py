"""Data sets: raw layouts of many kinds become one kind of store, and a store becomes a `Dataset`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mlcl.datasets import coco, nuswide, thumbs, voc  # noqa: F401 - each registers itself
from mlcl.datasets.base import Dataset, Split, cache_dir
from mlcl.datasets.images import DEFAULT_SIZE, decode_image
from mlcl.datasets.inspect import StoreReport, describe_store
from mlcl.datasets.plan import SOURCES, Plan
from mlcl.datasets.prepare import plan_bytes, prepare
from mlcl.datasets.store import StoreInfo, open_store, read_ids
from mlcl.errors import InputError, nearest

__all__ = [
    "DEFAULT_SIZE",
    "SOURCES",
    "Dataset",
    "Plan",
    "Split",
    "StoreInfo",
    "StoreReport",
    "cache_dir",
    "decode_image",
    "describe_store",
    "load_dataset",
    "open_store",
    "plan_bytes",
    "plan_source",
    "prepare",
    "prepare_source",
    "read_ids",
    "store_path",
]


def plan_source(kind: str, root: str | Path, *, name: str | None = None, **options: Any) -> Plan:
    """Read the raw metadata of a source, and no picture."""
    from dataclasses import replace

    plan: Plan = SOURCES.build(kind, Path(root).expanduser(), **options)
    return plan if name is None else replace(plan, name=name)


def store_path(plan: Plan, size: int | None = None) -> Path:
    """Return where the store of a plan goes if nothing is said."""
    import numpy as np

    name = plan.name if isinstance(plan.inputs, np.ndarray) else f"{plan.name}-{size or DEFAULT_SIZE}"
    return cache_dir() / "stores" / name


def prepare_source(
    kind: str,
    root: str | Path,
    *,
    out: str | Path | None = None,
    size: int | None = None,
    overwrite: bool = False,
    skip_bad: bool = False,
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> StoreInfo:
    plan = plan_source(kind, root, **options)
    return prepare(
        plan,
        store_path(plan, size) if out is None else out,
        size=size,
        overwrite=overwrite,
        skip_bad=skip_bad,
        jobs=jobs,
        progress=progress,
    )
