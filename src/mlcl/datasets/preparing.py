"""From a plan to a finished store: resumable, never half-written, never done twice."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import PIL

from mlcl.datasets.archives import reason
from mlcl.datasets.images import DEFAULT_SIZE
from mlcl.datasets.partial import OWN, Ledger, publish, store_place, working_folder
from mlcl.datasets.plan import DatasetPlan
from mlcl.datasets.store import (
    ENCODER,
    FORMAT,
    IDS,
    INPUTS,
    KNOWN,
    LABELS,
    MANIFEST,
    VERSION,
    Manifest,
    StoreInfo,
    is_store,
    read_manifest,
    sha256_of,
)
from mlcl.datasets.writing import Progress, close_gaps, write_array, write_images
from mlcl.errors import InputError, check_int
from mlcl.files import foreign_names, write_bytes, write_text

MAX_SIZE = 4096


def plan_bytes(plan: DatasetPlan, *, size: int | None = None) -> int:
    """Return how much disk space a store of ``plan`` will need, in bytes, manifest and ids included."""
    shape, dtype = _shape(plan, _checked_size(plan, size))
    ids = sum(len(name.encode()) + 5 for name in plan.ids)
    labels = plan.labels.size * (1 if plan.known is None else 2)
    return int(np.prod(shape, dtype=np.int64)) * dtype.itemsize + labels + ids + 65536


def prepare(
    plan: DatasetPlan,
    out: str | Path,
    *,
    size: int | None = None,
    overwrite: bool = False,
    skip_bad: bool = False,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> StoreInfo:
    """Write the store of a plan.

    The work is done in ``OUT.partial``, in the same folder as ``out``, which is renamed when it is complete. After an
    interruption or a kill, the next call with the same plan continues. On bad input nothing is left behind.

    Args:
        plan: the result of a source.
        out: the folder to make.
        size: images become ``size`` x ``size`` (224 if not given); ready arrays and features take none.
        overwrite: make the store again even if it exists, and replace a store of other content.
        skip_bad: leave out, and count, images that are absent or cannot be decoded.
        jobs: number of processes; one per core if not given.
        progress: called with rows done and rows in all.
    """
    began, out = time.monotonic(), store_place(Path(out))
    size = _checked_size(plan, size)
    if jobs is not None:
        check_int("jobs", jobs, 1)
    plan, skipped = _without_missing(plan, skip_bad=skip_bad)
    fingerprint = plan.fingerprint(size)
    if is_prepared(out, fingerprint, overwrite=overwrite):
        return store_info(out, already_there=True, seconds=time.monotonic() - began)
    partial = out.with_name(out.name + ".partial")
    try:
        with working_folder(partial, need=plan_bytes(plan, size=size)):
            ledger = Ledger.open(partial, fingerprint, len(plan.ids))
            if isinstance(plan.inputs, np.ndarray):
                write_array(partial / INPUTS, plan.inputs, progress)
            else:
                write_images(plan.inputs, ledger, size or DEFAULT_SIZE, skip_bad, jobs, progress)
                if ledger.bad:
                    plan, unread = _without_bad(plan, ledger)
                    skipped += unread
            write_manifest(plan, partial, fingerprint, size, skipped)
            publish(partial, out)
    except OSError as error:
        if not isinstance(error, (PermissionError, NotADirectoryError, FileExistsError)):
            raise
        raise InputError(f"{error.filename or out} could not be written: {reason(error)}") from None
    return store_info(out, already_there=False, seconds=time.monotonic() - began)


def _shape(plan: DatasetPlan, size: int | None) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and dtype of the inputs in the store."""
    if isinstance(plan.inputs, np.ndarray):
        return plan.inputs.shape, plan.inputs.dtype
    side = size or DEFAULT_SIZE
    return (len(plan.ids), 3, side, side), np.dtype(np.uint8)


def _checked_size(plan: DatasetPlan, size: int | None) -> int | None:
    """Return the side of the images in the store, or None for ready arrays."""
    if isinstance(plan.inputs, np.ndarray):
        if size is not None:
            raise InputError(f"size is {size}, but {plan.root} holds ready arrays, which are not resized")
        return None
    size = DEFAULT_SIZE if size is None else size
    if not 1 <= size <= MAX_SIZE:
        raise InputError(f"size is {size}; expected a whole number from 1 to {MAX_SIZE}")
    return size


def _without_missing(plan: DatasetPlan, *, skip_bad: bool) -> tuple[DatasetPlan, list[list[str]]]:
    """Find absent images before anything is written."""
    if isinstance(plan.inputs, np.ndarray):
        return plan, []
    absent = np.asarray([plan.inputs.size(row) is None for row in range(len(plan.inputs))], dtype=np.bool_)
    if not absent.any():
        return plan, []
    text = "was looked for and does not exist"
    if not skip_bad:
        raise InputError(
            f"{plan.inputs.name(int(absent.argmax()))} {text} ({int(absent.sum())} of {len(absent)} images "
            f"are absent; --skip-bad would leave them out)"
        )
    skipped = [[plan.ids[row], text] for row in np.flatnonzero(absent)]
    return _with_both_splits(plan.take(np.flatnonzero(~absent)), wanted=plan.train > 0), skipped


def _with_both_splits(plan: DatasetPlan, *, wanted: bool) -> DatasetPlan:
    if not plan.train < len(plan.ids) or (wanted and not plan.train):
        raise InputError(f"{plan.root} has no readable training images, or no readable test images, left")
    return plan


def _without_bad(plan: DatasetPlan, ledger: Ledger) -> tuple[DatasetPlan, list[list[str]]]:
    """Leave out what could not be decoded; return the plan of the rest, and what was left out."""
    bad = dict(ledger.bad)
    good = np.setdiff1d(np.arange(len(plan.ids)), list(bad))
    rest = _with_both_splits(plan.take(good), wanted=plan.train > 0)
    close_gaps(ledger, good)
    return rest, [[plan.ids[row], bad[row]] for row in sorted(bad)]


def is_prepared(out: Path, fingerprint: str, *, overwrite: bool) -> bool:
    """Return whether ``out`` is this store already; refuse to touch anything else."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    if not is_store(out):
        raise InputError(f"{out} exists and is not a store, so it is left alone; choose another place")
    if overwrite:
        if other := foreign_names(out, OWN):
            raise InputError(f"{out} holds more than a store, such as {other[0]}; move that elsewhere")
        return False
    if read_manifest(out).plan != fingerprint:
        raise InputError(f"{out} is a store of other content; choose another place, or --overwrite it")
    return True


def write_manifest(
    plan: DatasetPlan, folder: Path, fingerprint: str, size: int | None, skipped: list[list[str]]
) -> None:
    """Write labels and ids and, at the end, the manifest, which makes the folder a store."""
    arrays = {LABELS: plan.labels} | ({} if plan.known is None else {KNOWN: plan.known})
    for name, array in arrays.items():
        buffer = io.BytesIO()
        np.save(buffer, np.ascontiguousarray(array), allow_pickle=False)
        write_bytes(folder / name, buffer.getvalue())
    write_text(folder / IDS, json.dumps(plan.ids, ensure_ascii=False, indent=0))
    if plan.encoder is not None:
        write_bytes(folder / ENCODER, plan.encoder)
    shape, dtype = _shape(plan, size)
    how: dict[str, Any] = {"source": plan.source, "root": Path(plan.root).name, "options": dict(plan.options)}
    if not isinstance(plan.inputs, np.ndarray):
        how["resize"] = (
            f"EXIF orientation applied, squashed to {size} x {size}, bilinear, Pillow {PIL.__version__}"
        )
    manifest = Manifest(
        format=FORMAT,
        version=VERSION,
        name=plan.name,
        kind="images" if len(shape) == 4 else "features",
        dtype=dtype.name,
        shape=list(shape),
        classes=list(plan.classes),
        train=plan.train,
        test=len(plan.ids) - plan.train,
        dropped=dict(plan.dropped),
        skipped=skipped,
        provenance=how,
        plan=fingerprint,
        files={
            name: {"bytes": (folder / name).stat().st_size, "sha256": sha256_of(folder / name)}
            for name in (INPUTS, *arrays, IDS, *([] if plan.encoder is None else [ENCODER]))
        },
    )
    write_text(folder / MANIFEST, manifest.dumps())


def store_info(out: Path, *, already_there: bool, seconds: float) -> StoreInfo:
    """Return what was done, from the manifest of a finished store."""
    manifest = read_manifest(out)
    dropped = dict(manifest.dropped)
    if manifest.skipped:
        dropped["unreadable"] = len(manifest.skipped)
    total = sum(entry["bytes"] for entry in manifest.files.values()) + (out / MANIFEST).stat().st_size
    return StoreInfo(
        path=out,
        name=manifest.name,
        rows=manifest.shape[0],
        classes=tuple(manifest.classes),
        dropped=dropped,
        skipped=tuple((name, why) for name, why in manifest.skipped),
        bytes=total,
        already_there=already_there,
        seconds=seconds,
    )
