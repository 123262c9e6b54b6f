"""Writing a store: resumable, never half-written, never done twice.

The work is done in ``OUT.partial``, a folder that one process claims, and which gets its name when it is complete.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import re
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import PIL
from numpy.typing import NDArray

from mlcl import files
from mlcl.datasets.base import Dataset, joined_known
from mlcl.datasets.images import DEFAULT_SIZE, BadImage, pixels
from mlcl.datasets.plan import DatasetPlan, EncodedImages, make_plan
from mlcl.datasets.store import (
    ENCODER,
    FEATURES,
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
)
from mlcl.engines.cores import cores
from mlcl.engines.pool import EngineFailure, LocalWorkers, Lost, ThisProcess
from mlcl.errors import InputError, check_int, reason

MAX_SIZE = 4096
PROGRESS = "progress.json"
_FILES = (INPUTS, LABELS, KNOWN, IDS, ENCODER, MANIFEST, PROGRESS)
_OWN = re.compile(rf"({'|'.join(map(re.escape, _FILES))})(\.tmp)?")
"""The names of the files of a store; an older mlcl wrote them by way of the name and .tmp."""
_MAX_BYTES = 512 * 2**20
CHUNK = 128
"""Rows that one worker decodes and writes at a time; also the grain of resuming."""
_SAVE_SECONDS = 2.0
_FEW = 256  # below this many images a pool costs more than it saves

Chunk = tuple[int, int]
"""The first row of a range, and the one after the last."""
Bad = list[tuple[int, str]]
"""Rows that could not be decoded, each with the reason."""
Skipped = list[list[str]]
Progress = Callable[[int, int], None]
Compute = Callable[[Sequence[Chunk]], Iterator[tuple[Chunk, NDArray[Any]]]]
"""Takes ranges of rows and yields each with its inputs, in any order."""


def plan_bytes(plan: DatasetPlan, *, size: int | None = None) -> int:
    """Return how much disk space a store of ``plan`` will need, in bytes, manifest and ids included."""
    return _need(plan, *_shape(plan, _checked_size(plan, size)))


def _need(plan: DatasetPlan, shape: Sequence[int], dtype: np.dtype[Any]) -> int:
    ids = sum(len(name.encode()) + 5 for name in plan.ids)
    labels = plan.labels.size * (1 if plan.known is None else 2)
    return math.prod(shape) * dtype.itemsize + labels + ids + 65536


def _shape(plan: DatasetPlan, size: int | None) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and dtype of the inputs in the store."""
    if isinstance(plan.inputs, np.ndarray):
        return plan.inputs.shape, plan.inputs.dtype
    side = size or DEFAULT_SIZE
    return (len(plan.ids), 3, side, side), np.dtype(np.uint8)


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

    After an interruption or a kill, the next call with the same plan continues. On bad input nothing is left behind.

    Args:
        plan: the result of a source.
        out: the folder to make.
        size: images become ``size`` x ``size`` (224 if not given); ready arrays and features take none.
        overwrite: make the store again even if it exists, and replace a store of other content.
        skip_bad: leave out, and count, images that are absent or cannot be decoded.
        jobs: number of processes; one per core if not given.
        progress: called with rows done and rows in all.
    """
    size = _checked_size(plan, size)
    if jobs is not None:
        check_int("jobs", jobs, 1)
    present, skipped = _without_missing(plan, skip_bad=skip_bad)

    def fill(ledger: Ledger) -> tuple[DatasetPlan, Skipped]:
        inputs = present.inputs
        if isinstance(inputs, np.ndarray):
            compute = one_after_the_other(lambda start, stop: inputs[start:stop])
            _write_computed(compute, ledger, *_row_type(present), step=4096)
            return present, skipped
        _write_images(inputs, ledger, size or DEFAULT_SIZE, skip_bad, jobs)
        if not ledger.bad:
            return present, skipped
        rest, unread = _without_bad(present, ledger)
        return rest, skipped + unread

    need = plan_bytes(present, size=size)
    return _made(present, Path(out), size, fill, need=need, overwrite=overwrite, progress=progress)


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

    ``origin`` is all that determines the features (data, model, weights); it is written into the manifest. So is
    ``also``, which follows from it: a store that was made before that was recorded is not made again. Rows are
    computed by steps of at least ``step``; the other options are those of `prepare`.
    """
    plan = features_plan(data, ids, width, origin)

    def fill(ledger: Ledger) -> tuple[DatasetPlan, Skipped]:
        _write_computed(compute, ledger, *_row_type(plan), step=step)
        written = np.load(ledger.inputs, mmap_mode="r", allow_pickle=False)
        return replace(plan, inputs=written, options={**origin, **(also or {})}), []

    need = _need(plan, (len(ids), width), np.dtype(np.float32))
    return _made(
        plan, Path(out), None, fill, need=need, overwrite=overwrite, progress=progress, keep_when_full=True
    )


def _row_type(plan: DatasetPlan) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and type of a row of ready or computed inputs."""
    inputs = cast("NDArray[Any]", plan.inputs)
    return inputs.shape[1:], inputs.dtype


def features_plan(data: Dataset, ids: list[str], width: int, origin: Mapping[str, Any]) -> DatasetPlan:
    """Return the plan of a store of features, without inputs: what they will be follows from ``origin``."""
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


def _made(
    plan: DatasetPlan,
    out: Path,
    size: int | None,
    fill: Callable[[Ledger], tuple[DatasetPlan, Skipped]],
    *,
    need: int,
    overwrite: bool,
    progress: Progress | None,
    keep_when_full: bool = False,
) -> StoreInfo:
    """Make a store unless it is there; ``fill`` writes its inputs, and returns what it holds in the end."""
    began = time.monotonic()
    out = out.resolve() if out.is_symlink() else out  # what the link names is replaced, and not the link
    fingerprint = plan.fingerprint(size)
    there = _is_prepared(out, fingerprint, overwrite=overwrite)
    if not there:
        partial = out.with_name(out.name + ".partial")
        try:
            with _working_folder(partial, need=need, keep_when_full=keep_when_full):
                ledger = Ledger.open(partial, fingerprint, len(plan.ids), progress)
                _write_manifest(*fill(ledger), partial, fingerprint, size)
                _publish(partial, out)
        except (PermissionError, NotADirectoryError, FileExistsError) as error:
            raise InputError(f"{error.filename or out} could not be written: {reason(error)}") from None
    return _store_info(out, already_there=there, seconds=time.monotonic() - began)


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


def _without_missing(plan: DatasetPlan, *, skip_bad: bool) -> tuple[DatasetPlan, Skipped]:
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
    return _readable(plan, np.flatnonzero(~absent)), [[plan.ids[row], text] for row in np.flatnonzero(absent)]


def _readable(plan: DatasetPlan, rows: NDArray[np.int64]) -> DatasetPlan:
    """Return the plan of the rows that can be read; a split that has lost all of its rows is refused."""
    rest = plan.take(rows)
    if not rest.train < len(rest.ids) or (plan.train and not rest.train):
        raise InputError(f"{plan.root} has no readable training images, or no readable test images, left")
    return rest


def _without_bad(plan: DatasetPlan, ledger: Ledger) -> tuple[DatasetPlan, Skipped]:
    """Leave out what could not be decoded: return the plan of the rest, and what was left out."""
    bad = dict(ledger.bad)
    good = np.setdiff1d(np.arange(len(plan.ids)), list(bad))
    rest = _readable(plan, good)
    _close_gaps(ledger, good)
    return rest, [[plan.ids[row], bad[row]] for row in sorted(bad)]


def _is_prepared(out: Path, fingerprint: str, *, overwrite: bool) -> bool:
    """Return whether ``out`` is this store already; refuse to touch anything else."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    if not is_store(out):
        raise InputError(f"{out} exists and is not a store, so it is left alone; choose another place")
    if overwrite:
        if other := files.foreign_names(out, _OWN):
            raise InputError(f"{out} holds more than a store, such as {other[0]}; move that elsewhere")
        return False
    if read_manifest(out).plan != fingerprint:
        raise InputError(f"{out} is a store of other content; choose another place, or --overwrite it")
    return True


@dataclass
class Ledger:
    """The rows of a store that are done, kept in ``progress.json`` in the folder of the unfinished files.

    ``plan`` is the fingerprint of the plan: work on another one is not continued. ``done`` says for each chunk of rows
    whether it is written, and ``bad`` lists rows that could not be decoded.
    """

    folder: Path
    plan: str
    rows: int
    progress: Progress | None
    done: NDArray[np.bool_]
    bad: Bad = field(default_factory=list)
    saved: float = 0.0

    @classmethod
    def open(cls, folder: Path, plan: str, rows: int, progress: Progress | None) -> Ledger:
        """Continue the ledger of the same plan, or clear the folder and begin a new one."""
        chunks = -(-rows // CHUNK)
        try:
            found = files.read_object(folder / PROGRESS, limit=_MAX_BYTES)
            packed = np.frombuffer(bytes.fromhex(found["done"]), dtype=np.uint8)
            done = np.unpackbits(packed, count=chunks).astype(np.bool_)
            bad = [(int(row), str(why)) for row, why in found["bad"]]
            if found["plan"] == plan and found["rows"] == rows and found["chunk"] == CHUNK:
                return cls(folder, plan, rows, progress, done, bad)
        except (OSError, ValueError, KeyError, TypeError):
            pass  # there is none, or a crash cut it off: begin a new one
        files.remove_own(folder, _OWN, keep=True)  # the folder itself is locked
        ledger = cls(folder, plan, rows, progress, np.zeros(chunks, dtype=np.bool_))
        ledger.save()
        return ledger

    @property
    def inputs(self) -> Path:
        """Return the file of the inputs."""
        return self.folder / INPUTS

    def left(self) -> list[Chunk]:
        """Return the chunks that are still to do."""
        return [(int(c) * CHUNK, min((int(c) + 1) * CHUNK, self.rows)) for c in np.flatnonzero(~self.done)]

    def report(self) -> None:
        """Call ``progress`` with rows done and rows in all."""
        if self.progress is not None:
            sizes = np.diff([*range(0, self.rows, CHUNK), self.rows])
            self.progress(int(sizes[self.done].sum()), self.rows)

    def record(self, chunk: Chunk, bad: Bad) -> None:
        """Note that rows are written; the file is rewritten every two seconds."""
        self.done[chunk[0] // CHUNK : -(-chunk[1] // CHUNK)] = True
        self.bad += bad
        if time.monotonic() - self.saved > _SAVE_SECONDS:
            self.save()

    def save(self, *, restart: bool = False) -> None:
        """Write the ledger, after the rows that it lists as done; with ``restart`` they will all be done again."""
        if files.is_there(self.inputs):
            files.sync_file(self.inputs)
        content: dict[str, Any] = {
            "plan": "" if restart else self.plan,
            "rows": self.rows,
            "chunk": CHUNK,
            "done": np.packbits(self.done).tobytes().hex(),
            "bad": self.bad,
        }
        files.write_text(self.folder / PROGRESS, json.dumps(content))
        self.saved = time.monotonic()


@contextlib.contextmanager
def _working_folder(partial: Path, *, need: int, keep_when_full: bool) -> Iterator[None]:
    """Claim ``partial`` for this process while the block runs; bad input in the block removes it.

    After any other exception, such as an interruption, it stays, and the next call continues the work. When the disk is
    full, costly work is kept, too; what is quickly done again would be in the way.
    """
    if (other := files.foreign_names(partial, _OWN)) or (
        _is_filled(partial) and not files.is_there(partial / PROGRESS)
    ):
        what = f"{partial} is in the way and was not made by this program"
        raise InputError(f"{what}{f' alone: it holds {other[0]}' if other else ''}; move it away")
    partial.parent.mkdir(parents=True, exist_ok=True)
    files.own_folder(partial)
    with _locked(partial):
        try:
            held = sum(_on_disk(entry) for entry in partial.iterdir())
            free = shutil.disk_usage(partial).free
            if need - held > free:
                raise InputError(f"{partial} needs {need - held} bytes of disk, but only {free} are free")
            yield
        except InputError:
            files.remove_own(partial, _OWN)
            raise
        except OSError as error:
            if keep_when_full or not files.disk_is_full(error):
                raise
            files.remove_own(partial, _OWN)
            raise InputError(f"{partial} could not be written: {reason(error)}") from None


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a lock on a folder, which the system releases when the process ends, in whatever way.

    The folder itself is locked, not a file in it (`mlcl.files.FolderLock`): all files in it become the store.
    """
    if sys.platform == "win32":
        yield
        return
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise InputError(f"{folder} is being written by another process; wait for it to end") from None
    finally:
        os.close(handle)


def _publish(partial: Path, out: Path) -> None:
    """Give a finished folder its name; a store that had the name is removed only after that."""
    for entry in partial.iterdir():
        files.sync_file(entry)
    files.sync_folder(partial)
    old = out.with_name(f".{out.name}.mlcl-old")
    files.remove_own(old, _OWN)  # what a killed process left
    if _is_filled(out):
        out.rename(old)
    partial.rename(out)
    (out / PROGRESS).unlink()
    files.sync_folder(out.parent)
    files.remove_own(old, _OWN)


def _is_filled(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def _on_disk(path: Path) -> int:
    """Return the bytes that a file takes on the disk: a file with holes takes less than its length."""
    status = path.stat()
    return min(status.st_size, getattr(status, "st_blocks", 0) * 512)


def _header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """Return the header of an .npy file; its length stays the same when the number of rows changes."""
    buffer = io.BytesIO()
    descr = np.lib.format.dtype_to_descr(dtype)
    fields = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, fields)
    return buffer.getvalue()


@contextlib.contextmanager
def _begun_file(ledger: Ledger, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Iterator[int]:
    """Make the file of the inputs unless it is there, and yield where its first row lies; what is done is saved."""
    header = _header((ledger.rows, *shape), dtype)
    if not files.is_there(ledger.inputs):
        size = len(header) + ledger.rows * math.prod(shape) * dtype.itemsize
        files.new_file(ledger.inputs, header, size=size)
    try:
        yield len(header)
    finally:
        ledger.save()


def one_after_the_other(compute: Callable[[int, int], NDArray[Any]]) -> Compute:
    """Return what computes ranges in this process, by a function of the first row and the one after the last."""
    return lambda ranges: ((chunk, compute(*chunk)) for chunk in ranges)


def _write_computed(
    compute: Compute, ledger: Ledger, shape: tuple[int, ...], dtype: np.dtype[Any], *, step: int
) -> None:
    """Compute the rows that are left, at least ``step`` at a time."""
    ranges: list[Chunk] = []
    for start, stop in ledger.left():
        if ranges and ranges[-1][1] == start and start - ranges[-1][0] < step:
            ranges[-1] = (ranges[-1][0], stop)
        else:
            ranges.append((start, stop))
    with _begun_file(ledger, shape, dtype) as offset:
        for chunk, found in compute(ranges):
            block = np.ascontiguousarray(found, dtype)
            files.write_at(ledger.inputs, offset + chunk[0] * block[0].nbytes, block.tobytes())
            ledger.record(chunk, [])
            ledger.report()


def _write_images(images: EncodedImages, ledger: Ledger, size: int, skip_bad: bool, jobs: int | None) -> None:
    """Decode the rows that are left.

    By processes, not threads: for thumbnails two threads are no faster than one (decoding a small image is mostly
    Python), two processes are.
    """

    def check() -> None:
        if ledger.bad and not skip_bad:
            row, why = min(ledger.bad)
            raise InputError(f"{images.name(row)} {why} (--skip-bad would leave such images out)")
        ledger.report()

    left = ledger.left()
    few = sum(stop - start for start, stop in left) < _FEW
    workers = 1 if few else jobs or cores()
    engine = ThisProcess() if workers <= 1 else LocalWorkers(workers)
    check()
    with (
        _begun_file(ledger, (3, size, size), np.dtype(np.uint8)) as offset,
        warnings.catch_warnings(),
        contextlib.closing(engine.each(Decoder(images, size, ledger.inputs, offset), left)) as stream,
    ):
        warnings.simplefilter("ignore")  # Pillow warns of odd files
        for chunk, bad in stream:
            if isinstance(bad, Lost):
                raise EngineFailure(f"images could not be decoded: {bad.reason}")
            ledger.record(chunk, bad)
            check()


@dataclass(frozen=True)
class Decoder:
    """Decodes rows of ``images`` into a file: row ``i`` lies at ``offset + i * 3 * size * size``."""

    images: EncodedImages
    size: int
    path: Path
    offset: int

    def __call__(self, chunk: Chunk) -> Bad:
        """Decode a range of rows; bad ones stay zero and are reported."""
        start, stop = chunk
        block = np.zeros((stop - start, 3, self.size, self.size), dtype=np.uint8)
        bad: Bad = []
        for row in range(start, stop):
            try:
                block[row - start] = pixels(self.images.read(row), self.size)
            except BadImage as error:
                bad.append((row, str(error)))
            except InputError as error:
                bad.append((row, str(error).removeprefix(self.images.name(row)).strip()))
        # Written, not mapped: a full disk is then an error with a name, and not a bus error.
        files.write_at(self.path, self.offset + start * block[0].nbytes, block.tobytes())
        return bad


def _close_gaps(ledger: Ledger, good: NDArray[np.int64]) -> None:
    """Keep only the rows ``good`` of the file, ascending: undecodable images have left gaps in it."""
    ledger.save(restart=True)  # half moved, the rows could not be trusted
    files.refuse_link(ledger.inputs)
    stored = np.load(ledger.inputs, mmap_mode="r+", allow_pickle=False)
    row_bytes = stored[0].nbytes
    for start in range(0, len(good), 1024):
        rows = good[start : start + 1024]
        stored[start : start + len(rows)] = stored[rows]  # rows move towards the front, never past each other
    stored.flush()
    header = _header((len(good), *stored.shape[1:]), stored.dtype)
    del stored
    files.write_at(ledger.inputs, 0, header)
    files.cut_file(ledger.inputs, len(header) + len(good) * row_bytes)


def _write_manifest(
    plan: DatasetPlan, skipped: Skipped, folder: Path, fingerprint: str, size: int | None
) -> None:
    """Write labels and ids and, at the end, the manifest, which makes the folder a store."""
    arrays = {LABELS: plan.labels} | ({} if plan.known is None else {KNOWN: plan.known})
    for name, array in arrays.items():
        buffer = io.BytesIO()
        np.save(buffer, np.ascontiguousarray(array), allow_pickle=False)
        files.write_bytes(folder / name, buffer.getvalue())
    files.write_text(folder / IDS, json.dumps(plan.ids, ensure_ascii=False, indent=0))
    if plan.encoder is not None:
        files.write_bytes(folder / ENCODER, plan.encoder)
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
            name: {"bytes": (folder / name).stat().st_size, "sha256": files.file_sha256(folder / name)}
            for name in (INPUTS, *arrays, IDS, *([] if plan.encoder is None else [ENCODER]))
        },
    )
    files.write_text(folder / MANIFEST, manifest.dumps())


def _store_info(out: Path, *, already_there: bool, seconds: float) -> StoreInfo:
    """Return what was done, from the manifest of a finished store."""
    manifest = read_manifest(out)
    unread = {"unreadable": len(manifest.skipped)} if manifest.skipped else {}
    return StoreInfo(
        path=out,
        name=manifest.name,
        rows=manifest.shape[0],
        classes=tuple(manifest.classes),
        dropped=manifest.dropped | unread,
        skipped=tuple((name, why) for name, why in manifest.skipped),
        bytes=sum(entry["bytes"] for entry in manifest.files.values()) + (out / MANIFEST).stat().st_size,
        already_there=already_there,
        seconds=seconds,
    )
