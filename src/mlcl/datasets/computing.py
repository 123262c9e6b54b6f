"""A store whose inputs are computed from those of another: resumable and never half-written, like any other."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mlcl.datasets.base import Dataset, joined_known
from mlcl.datasets.partial import Ledger, publish, store_place, working_folder
from mlcl.datasets.plan import DatasetPlan, make_plan
from mlcl.datasets.preparing import is_prepared, store_info, write_manifest
from mlcl.datasets.store import FEATURES, INPUTS, StoreInfo
from mlcl.datasets.writing import Compute, Progress, write_computed
from mlcl.errors import InputError


def prepare_features(
    data: Dataset,
    ids: list[str],
    out: Path,
    compute: Compute,
    *,
    width: int,
    origin: Mapping[str, Any],
    also: Mapping[str, Any] | None = None,
    step: int = 128,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> StoreInfo:
    """Write a store with the rows, labels and split of ``data``, and computed feature vectors as inputs.

    The work is done in ``OUT.partial``; interrupted or killed, the next call with the same origin continues.

    Args:
        data: the dataset that the features are computed from.
        ids: names of its rows, training rows first.
        out: the folder to make.
        compute: yields ranges of rows with their features, float32 ``[n, width]``.
        width: number of features per row.
        origin: all that determines the features (data, model, weights); it is written into the manifest.
        also: what else is written there. It follows from ``origin``, so it does not decide whether a store is the same:
            one that was made before it was recorded is not made again.
        step: rows computed before they are written.
        overwrite: make the store again even if it exists, and replace a store of other content.
        progress: called with rows done and rows in all.
    """
    began, out = time.monotonic(), store_place(out)
    plan = _plan(data, ids, width, origin)
    fingerprint = plan.fingerprint(None)
    if is_prepared(out, fingerprint, overwrite=overwrite):
        return store_info(out, already_there=True, seconds=time.monotonic() - began)
    partial = out.with_name(out.name + ".partial")
    need = 4 * width * len(ids) + plan.labels.size + sum(len(name.encode()) + 5 for name in ids) + 65536
    try:
        with working_folder(partial, need=need, costly=True):
            ledger = Ledger.open(partial, fingerprint, len(ids))
            write_computed(compute, ledger, width, step, progress)
            written = np.load(partial / INPUTS, mmap_mode="r", allow_pickle=False)
            options = {**origin, **(also or {})}
            write_manifest(replace(plan, inputs=written, options=options), partial, fingerprint, None, [])
            del written
            publish(partial, out)
    except (PermissionError, NotADirectoryError, FileExistsError) as error:
        raise InputError(f"{error.filename or out} could not be written: {error.strerror}") from None
    return store_info(out, already_there=False, seconds=time.monotonic() - began)


def _plan(data: Dataset, ids: list[str], width: int, origin: Mapping[str, Any]) -> DatasetPlan:
    """Return the plan of the store, without inputs: what they will be follows from ``origin``."""
    rows = len(data.train) + len(data.test)
    plan = make_plan(
        source=FEATURES,
        root=data.name,
        name=data.name,
        classes=data.classes,
        ids=ids,
        train=np.arange(rows) < len(data.train),
        labels=np.concatenate([data.train.labels, data.test.labels]),
        known=joined_known(data.train, data.test),
        inputs=np.empty((rows, 0), np.float32),
        options=origin,
    )
    return replace(plan, inputs=np.empty((0, width), np.float32))
