"""Files: written whole or not at all, read within bounds, and used by one process at a time."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlcl.errors import InputError

try:
    import fcntl
except ImportError:  # no such locks outside POSIX; there two processes on one folder are not noticed
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"


def cache_dir() -> Path:
    """Return the folder for files that can be made again: ``$MLCL_HOME``, or else ``~/.cache/mlcl``."""
    return Path(os.environ.get("MLCL_HOME") or "~/.cache/mlcl").expanduser()


def disk_is_full(error: OSError) -> bool:
    """Return whether a file could not be written for want of space; then the same command can go on later."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def slug(text: str) -> str:
    """Return a name that can be part of a folder's; an empty string if nothing of it can.

    >>> slug("My data (v2)"), slug("RU, mean / WRU")
    ('my-data-v2', 'ru-mean-wru')
    """
    return re.sub(r"[^\w.=-]+", "-", text.lower()).strip("-.")


def plain(value: Any) -> Any:
    """Turn arrays into lists, and numbers that JSON cannot express (nan, infinity) into null.

    >>> import numpy as np
    >>> plain({"matrix": np.array([[0.5, np.nan]]), "count": np.int64(2)})
    {'matrix': [[0.5, None]], 'count': 2}
    """
    if hasattr(value, "tolist"):  # arrays and numbers of numpy
        value = value.tolist()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def write_json(path: Path, value: Any) -> None:
    """Write JSON, whole or not at all."""
    write_text(path, json_text(value))


def json_text(value: Any) -> str:
    """Return what `write_json` writes."""
    return json.dumps(plain(value), indent=1, allow_nan=False) + "\n"


def json_digest(fields: Mapping[str, Any]) -> str:
    """Return the SHA-256 of plain JSON values, whatever the order of their names and the spaces in their file."""
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def write_text(path: Path, text: str) -> None:
    """Write text, whole or not at all."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file through a temporary one and a rename, so that no reader ever sees half of it.

    The file and its name are on the disk when this returns. A failure leaves the old file, and no temporary one.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)  # noqa: PTH105  (Path.replace would hide the name from tests that make it fail)
        sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        # A failed write does not know its file; whoever reads the sentence must.
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def sync_folder(path: Path) -> None:
    """Bring the names in a folder to the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def require_folder(path: Path) -> None:
    """Refuse a file to write whose folder does not exist.

    >>> require_folder(Path("absent/tagger.safetensors"))
    Traceback (most recent call last):
    ...
    mlcl.errors.InputError: absent/tagger.safetensors cannot be written: the folder absent does not exist.
    """
    if not path.parent.is_dir():
        raise InputError(f"{path} cannot be written: the folder {path.parent} does not exist.")


def read_bounded(path: Path, *, limit: int, expected: str) -> bytes:
    """Read a file of at most ``limit`` bytes; ``expected`` says in the `InputError` what it should have been."""
    try:
        size = path.stat().st_size
        content = path.read_bytes() if size <= limit else b""
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; expected {expected}.") from None
    if size > limit:
        raise InputError(f"{path}: larger than {limit} bytes; expected {expected}.")
    return content


def read_object(path: Path, *, limit: int, expected: str = "a file of a run") -> dict[str, Any]:
    """Read a JSON object from a file of bounded size; anything else is an `InputError`."""
    return parse_object(read_bounded(path, limit=limit, expected=expected), source=path, expected=expected)


def parse_object(content: bytes, *, source: Path, expected: str = "a file of a run") -> dict[str, Any]:
    """Parse a JSON object; anything else is an `InputError` that names the file it is from."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        raise InputError(f"{source}: is not valid JSON; expected {expected}.") from None
    if not isinstance(value, dict):
        raise InputError(f"{source}: holds a {type(value).__name__}; expected a JSON object.")
    return value


class FolderLock:
    """Holds a folder for this process until `release`, or until the process ends in whatever way.

    One that another process holds is refused; with ``wait`` the other's end is waited for.
    """

    def __init__(self, folder: Path, *, wait: bool = False) -> None:
        self.path = folder / LOCK
        self.number = -1
        while self.number < 0:
            number = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                if fcntl is not None:
                    fcntl.flock(number, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                owner = os.read(number, 20).decode(errors="replace").strip() or "unknown"
                os.close(number)
                raise InputError(
                    f"{folder} is in use by another process (number {owner}); wait for it, or stop it first."
                ) from None
            # The owner removes the file when it is done: a lock on a file that is gone would hold nothing.
            if self._is_current(number):
                self.number = number
            else:
                os.close(number)
        os.ftruncate(self.number, 0)
        os.write(self.number, f"{os.getpid()}\n".encode())

    def _is_current(self, number: int) -> bool:
        try:
            return os.path.samestat(os.fstat(number), self.path.stat())
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Let the folder go."""
        if self.number >= 0:
            with contextlib.suppress(OSError):
                self.path.unlink(missing_ok=True)
            os.close(self.number)
            self.number = -1


def lock_state(folder: Path) -> str:
    """Return ``held`` if a process holds a folder, ``stale`` if one that is gone left its lock, else an empty text."""
    if fcntl is None or (folder / LOCK).is_symlink() or not (folder / LOCK).is_file():
        return ""
    number = os.open(folder / LOCK, os.O_RDWR)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return "held"
    finally:
        os.close(number)
    return "stale"
