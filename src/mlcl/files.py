"""Files: written whole or not at all, read within bounds, and used by one process at a time.

Everything that the package writes, appends to, cuts, locks or deletes goes through here, and nothing of that goes
through a link inside a folder of ours: what a link names may be somebody's only copy. The folder itself may be a link;
that was the choice of whoever named it. What is read is a regular file, or a link to one.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import math
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mlcl.errors import InputError

try:
    import fcntl
except ImportError:  # no such locks outside POSIX; there two processes on one folder are not noticed
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"
TEMPORARY = re.compile(r"\.mlcl-[0-9a-f]{32}\.tmp")
"""The names of files that are being written; a killed process leaves them."""
# What is absent from a system needs no guard there: Windows has no pipes among its files.
_CAREFULLY = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))


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
    r"""Write text, whole or not at all; what is no Unicode, as in some names of files, is spelled out: ``\udcff``.

    JSON and YAML read that back as it was.
    """
    write_bytes(path, text.encode(errors="backslashreplace"))


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Write a file through a temporary one and a rename, so that no reader ever sees half of it.

    The file and its name are on the disk when this returns. A failure leaves the old file, and no temporary one. A
    link that had the name is replaced; what it points to stays.
    """
    temporary = path.with_name(f".mlcl-{secrets.token_hex(16)}.tmp")
    try:
        with opened(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as number:
            write_all(number, content)
            os.fsync(number)
        os.replace(temporary, path)  # noqa: PTH105  (Path.replace would hide the name from tests that make it fail)
        sync_folder(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):  # it does not know its file; whoever reads the sentence must
            raise OSError(error.errno, error.strerror or str(error), str(path)) from error
        raise


@contextlib.contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    """Open a regular file to write in it where it is; a link, pipe, device or socket of the name is refused."""
    try:
        number = os.open(path, flags | _CAREFULLY, 0o666)
    except OSError as error:
        refuse_link(path)
        if _kind(path):  # a pipe that nobody reads, a socket
            raise InputError(f"{path} is {_kind(path)}; expected a file, remove it.") from None
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    try:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise InputError(f"{path} is {_kind(path)}; expected a file, remove it.")
        yield number
    finally:
        os.close(number)


def write_all(number: int, content: bytes | memoryview) -> None:
    """Write bytes to an open file, all of them: the system may take some at a time."""
    left = memoryview(content).cast("B")
    while left:
        left = left[os.write(number, left) :]


def append_bytes(path: Path, content: bytes) -> None:
    """Append to a file; one that is not there is made."""
    with opened(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) as number:
        write_all(number, content)


def new_file(path: Path, head: bytes, *, size: int) -> None:
    """Make a file of a size that begins with some bytes, to be filled in; the rest takes no room yet."""
    with opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as number:
        write_all(number, head)
        os.ftruncate(number, size)


def write_at(path: Path, place: int, content: bytes | memoryview) -> None:
    """Write into a file that is there."""
    with opened(path, os.O_WRONLY) as number:
        os.lseek(number, place, os.SEEK_SET)
        write_all(number, content)


def sync_file(path: Path) -> int:
    """Bring a file to the disk and return its size; one that is not there is made."""
    with opened(path, os.O_RDWR | os.O_CREAT) as number:
        os.fsync(number)
        return os.fstat(number).st_size


def cut_file(path: Path, size: int) -> None:
    """Cut a file to a size; one that is not there is made."""
    with opened(path, os.O_WRONLY | os.O_CREAT) as number:
        os.ftruncate(number, size)


def refuse_link(path: Path) -> None:
    """Refuse a link where something of ours is to be written or deleted."""
    if path.is_symlink():
        raise InputError(
            f"{path} is a link, and mlcl writes and deletes nothing through a link inside its folders; put what it "
            "points to in its place, or make the whole folder a link."
        )


def own_folder(path: Path) -> Path:
    """Make a folder inside one of ours, unless it is there; a link of its name is refused."""
    with contextlib.suppress(FileExistsError):
        path.mkdir()
    refuse_link(path)
    if not path.is_dir():
        raise InputError(f"{path} is no folder; expected one of mlcl, remove it.")
    return path


def foreign_names(folder: Path, ours: re.Pattern[str]) -> list[str]:
    """Return what a folder inside one of ours holds besides our files; a link of its name is refused."""
    refuse_link(folder)
    if not os.path.lexists(folder):
        return []
    if not folder.is_dir():
        return [folder.name]
    return [
        f"{folder.name}/{path.name}"
        for path in sorted(folder.iterdir())
        if not _is_ours(path.name, ours) or (path.is_dir() and not path.is_symlink())
    ]


def remove_own(folder: Path, ours: re.Pattern[str], *, keep: bool = False) -> None:
    """Remove our files from a folder inside one of ours, and unless ``keep`` the folder, if nothing else is in it."""
    refuse_link(folder)
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        if _is_ours(path.name, ours) and (path.is_symlink() or not path.is_dir()):
            path.unlink(missing_ok=True)
    if not keep:
        with contextlib.suppress(OSError):
            folder.rmdir()


def remove_temporary(folder: Path) -> None:
    """Remove what killed writes left in a folder that no other process works on."""
    for path in folder.glob(".mlcl-*.tmp"):
        if TEMPORARY.fullmatch(path.name):
            path.unlink(missing_ok=True)


def _is_ours(name: str, ours: re.Pattern[str]) -> bool:
    return bool(ours.fullmatch(name) or TEMPORARY.fullmatch(name))


def _kind(path: Path) -> str:
    """Return in words what a name stands for; nothing for a file, for a folder, and for nothing."""
    with contextlib.suppress(OSError):
        mode = path.stat().st_mode
        return next((what for test, what in _KINDS if test(mode)), "")
    return ""


_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


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


def is_there(file: Path) -> bool:
    """Return whether there is something of a name, even a pipe or a link to nothing: who reads it refuses that."""
    return os.path.lexists(file)


def open_regular(path: Path) -> io.BufferedReader:
    """Open a file to read; a pipe, device or socket is an `InputError` at once, and not waited for."""
    if kind := _kind(path):  # before it is opened: that alone does something to some devices
        raise InputError(f"{path}: is {kind}; expected a file.")
    number = os.open(path, os.O_RDONLY | (_CAREFULLY & ~getattr(os, "O_NOFOLLOW", 0)))
    try:
        mode = os.fstat(number).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise InputError(f"{path}: is no regular file; expected one.")
        return os.fdopen(number, "rb")
    except BaseException:
        os.close(number)
        raise


def check_regular(path: Path) -> None:
    """Refuse a pipe, device or socket, for a reader that opens the file by its name."""
    with open_regular(path):
        pass


def unpacked_limit(packed: int) -> int:
    """Return up to how many bytes some packed ones are unpacked: numbers and texts are rarely packed as much.

    >>> unpacked_limit(1000) // 2**30, unpacked_limit(2**30) // 2**30
    (1, 256)
    """
    return max(2**30, 256 * packed)


def read_bounded(path: Path, *, limit: int, expected: str) -> bytes:
    """Read a file of at most ``limit`` bytes; ``expected`` says in the `InputError` what it should have been."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            content = file.read(size) if size <= limit else b""
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; expected {expected}.") from None
    if size > limit:
        raise InputError(f"{path}: larger than {limit} bytes; expected {expected}.")
    return content


def file_sha256(*paths: Path) -> str:
    """Return the SHA-256 of the contents of files, one after the other, of which a piece at a time is in memory."""
    digest = hashlib.sha256()
    for path in paths:
        try:
            with open_regular(path) as file:
                while piece := file.read(1 << 20):
                    digest.update(piece)
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}; expected a file.") from None
    return digest.hexdigest()


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
        self._held = contextlib.ExitStack()
        while self.number < 0:
            with contextlib.ExitStack() as stack:
                number = stack.enter_context(opened(self.path, os.O_RDWR | os.O_CREAT))
                try:
                    if fcntl is not None:
                        fcntl.flock(number, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
                except BlockingIOError:
                    owner = os.read(number, 20).decode(errors="replace").strip() or "unknown"
                    raise InputError(
                        f"{folder} is in use by another process (number {owner}); wait for it, or stop it first."
                    ) from None
                # The owner removes the file when it is done: a lock on a file that is gone would hold nothing.
                if not self._is_current(number):
                    continue
                if not re.fullmatch(rb"\d*\n?", os.pread(number, 20, 0)):
                    raise InputError(f"{self.path} is no lock of mlcl; expected none there, move it away.")
                os.ftruncate(number, 0)
                os.pwrite(number, f"{os.getpid()}\n".encode(), 0)
                self.number, self._held = number, stack.pop_all()

    def _is_current(self, number: int) -> bool:
        try:
            return os.path.samestat(os.fstat(number), self.path.lstat())
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Let the folder go."""
        if self.number >= 0:
            with contextlib.suppress(OSError):
                self.path.unlink(missing_ok=True)
            self._held.close()
            self.number = -1


def lock_state(folder: Path) -> str:
    """Return ``held`` if a process holds a folder, ``stale`` if one that is gone left its lock, else an empty text."""
    if fcntl is None or (folder / LOCK).is_symlink() or not (folder / LOCK).is_file():
        return ""
    with opened(folder / LOCK, os.O_RDWR) as number:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return "held"
    return "stale"
