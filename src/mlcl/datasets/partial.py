"""The working folder of an unfinished store: claimed by one process, resumable, removed on bad input."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets.archives import reason
from mlcl.datasets.decoding import Bad, Chunk
from mlcl.datasets.store import ENCODER, IDS, INPUTS, KNOWN, LABELS, MANIFEST
from mlcl.errors import InputError
from mlcl.files import (
    disk_is_full,
    foreign_names,
    is_there,
    own_folder,
    read_object,
    remove_own,
    sync_file,
    sync_folder,
    write_text,
)

PROGRESS = "progress.json"
_FILES = (INPUTS, LABELS, KNOWN, IDS, ENCODER, MANIFEST, PROGRESS)
OWN = re.compile(rf"({'|'.join(map(re.escape, _FILES))})(\.tmp)?")
"""The names of the files of a store; an older mlcl wrote them by way of the name and .tmp."""
_MAX_BYTES = 512 * 2**20
CHUNK = 128
"""Rows that one worker decodes and writes at a time; also the grain of resuming."""
_SAVE_SECONDS = 2.0


@dataclass
class Ledger:
    """The rows of a store that are done, kept in ``progress.json`` in the folder of the unfinished files.

    Attributes:
        folder: the working folder.
        plan: the fingerprint of the plan; work on another plan is not continued.
        rows: the number of rows.
        done: for each chunk of rows whether it is written.
        bad: rows that could not be decoded, each with the reason.
    """

    folder: Path
    plan: str
    rows: int
    done: NDArray[np.bool_]
    bad: Bad = field(default_factory=list)
    saved: float = 0.0

    @classmethod
    def open(cls, folder: Path, plan: str, rows: int) -> Ledger:
        """Continue the ledger of the same plan, or clear the folder and begin a new one."""
        chunks = -(-rows // CHUNK)
        try:
            found = read_object(folder / PROGRESS, limit=_MAX_BYTES)
            packed = np.frombuffer(bytes.fromhex(found["done"]), dtype=np.uint8)
            done = np.unpackbits(packed, count=chunks).astype(np.bool_)
            bad = [(int(row), str(why)) for row, why in found["bad"]]
            if found["plan"] == plan and found["rows"] == rows and found["chunk"] == CHUNK:
                return cls(folder, plan, rows, done, bad)
        except (OSError, ValueError, KeyError, TypeError):
            pass  # there is none, or a crash cut it off: begin a new one
        remove_own(folder, OWN, keep=True)  # the folder itself is locked
        ledger = cls(folder, plan, rows, np.zeros(chunks, dtype=np.bool_))
        ledger.save()
        return ledger

    def left(self) -> list[Chunk]:
        """Return the chunks that are still to do, as first row and row after the last."""
        return [(int(c) * CHUNK, min((int(c) + 1) * CHUNK, self.rows)) for c in np.flatnonzero(~self.done)]

    def record(self, chunk: Chunk, bad: Bad) -> None:
        """Note that a chunk is written; the file is rewritten every two seconds."""
        self.done[chunk[0] // CHUNK] = True
        self.bad += bad
        if time.monotonic() - self.saved > _SAVE_SECONDS:
            self.save()

    def save(self, *, restart: bool = False) -> None:
        """Write the ledger, after the rows that it lists as done; with ``restart`` they will all be done again."""
        if is_there(self.folder / INPUTS):
            sync_file(self.folder / INPUTS)
        content: dict[str, Any] = {
            "plan": "" if restart else self.plan,
            "rows": self.rows,
            "chunk": CHUNK,
            "done": np.packbits(self.done).tobytes().hex(),
            "bad": self.bad,
        }
        write_text(self.folder / PROGRESS, json.dumps(content))
        self.saved = time.monotonic()


@contextlib.contextmanager
def working_folder(partial: Path, *, need: int, costly: bool = False) -> Iterator[None]:
    """Claim ``partial`` for this process while the block runs; bad input in the block removes it.

    After any other exception, such as an interruption, it stays, and the next call continues the work.

    Args:
        partial: the folder.
        need: bytes that the finished store takes.
        costly: whether the work is kept when the disk is full, too; what is quickly done again would be in the way.
    """
    if (other := foreign_names(partial, OWN)) or (_is_filled(partial) and not is_there(partial / PROGRESS)):
        what = f"{partial} is in the way and was not made by this program"
        raise InputError(f"{what}{f' alone: it holds {other[0]}' if other else ''}; move it away")
    partial.parent.mkdir(parents=True, exist_ok=True)
    own_folder(partial)
    with _locked(partial):
        try:
            held = sum(_on_disk(entry) for entry in partial.iterdir())
            free = shutil.disk_usage(partial).free
            if need - held > free:
                raise InputError(f"{partial} needs {need - held} bytes of disk, but only {free} are free")
            yield
        except InputError:
            remove_own(partial, OWN)
            raise
        except OSError as error:
            if costly or not disk_is_full(error):
                raise
            remove_own(partial, OWN)
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
    except BlockingIOError:
        os.close(handle)
        raise InputError(f"{folder} is being written by another process; wait for it to end") from None
    try:
        yield
    finally:
        os.close(handle)


def store_place(out: Path) -> Path:
    """Return the folder of a store to make; of a link to one, what it names: that is replaced, and not the link."""
    return out.resolve() if out.is_symlink() else out


def publish(partial: Path, out: Path) -> None:
    """Give a finished folder its name; a store that had the name is removed only after that."""
    for entry in partial.iterdir():
        sync_file(entry)
    sync_folder(partial)
    old = out.with_name(f".{out.name}.mlcl-old")
    remove_own(old, OWN)  # what a killed process left
    if _is_filled(out):
        out.rename(old)
    partial.rename(out)
    (out / PROGRESS).unlink()
    sync_folder(out.parent)
    remove_own(old, OWN)


def _is_filled(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def _on_disk(path: Path) -> int:
    """Return the bytes that a file takes on the disk: a file with holes takes less than its length."""
    status = path.stat()
    return min(status.st_size, getattr(status, "st_blocks", 0) * 512)
