"""Read-only trees of raw files, all read in the same way: a folder, an archive, or a folder of archives.

Archives (.zip, .tar, .tar.gz, .tar.bz2, .tar.xz) are read in place. Names inside archives and inside lists are
untrusted: absolute paths, ``..``, links, encrypted or repeated members are refused. No member is read beyond a bound.
"""

from __future__ import annotations

import bz2
import contextlib
import functools
import gzip
import lzma
import os
import re
import stat
import tarfile
import tempfile
import weakref
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, TypeAlias

from mlcl.errors import InputError, parsing, reason
from mlcl.files import open_regular, unpacked_limit

MAX_FILE_BYTES = 256 * 2**20
"""The largest file that is read whole unless a source sets another limit: no photograph is larger."""
MAX_UNPACKED_BYTES = 1 << 40
"""The largest .tar inside a .tar.gz, .tar.bz2 or .tar.xz: one terabyte."""
MAX_FILES = 10_000_000
"""The most files that a folder is searched for."""
UNREADABLE = (OSError, EOFError, zlib.error, lzma.LZMAError)
"""What reading a packed file may fail with."""
_ARCHIVE = re.compile(r"\.(zip|tar|tgz|tar\.(gz|bz2|xz))$", re.IGNORECASE)
_OPENERS: dict[str, Any] = {".gz": gzip.open, ".tgz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
PACKED = (".gz", ".bz2", ".xz")


_Place = tuple[int, int]
"""Where a file of a .tar begins, and its size."""
_Members = Iterator[tuple[str, zipfile.ZipInfo | _Place | None]]
"""Names with what they stand for; None for a folder."""


class Archive:
    """A .zip or .tar; a packed .tar is unpacked once into a temporary file, which is removed with this object.

    It holds no open file, so that workers may share it.
    """

    def __init__(self, path: Path) -> None:
        self.label, self._path = str(path), path
        kind = ".zip" if path.suffix.lower() == ".zip" else ".tar"
        if path.suffix.lower() != kind:
            self._path = _unpacked(path)
            weakref.finalize(self, _remove, self._path, os.getpid())
        self._members: dict[str, zipfile.ZipInfo | _Place] = {}
        with parsing(f"{path} is not a readable {kind} archive"):
            for name, member in (_zipped if kind == ".zip" else _tarred)(self._path, self.label):
                name = clean_name(name, where=self.label)
                if member is not None and name in self._members:
                    raise InputError(
                        f"{path} has the member {name!r} twice, but distinct names were expected"
                    )
                if member is not None:
                    self._members[name] = member

    def names(self) -> list[str]:
        """Return the names of all files, sorted."""
        return sorted(self._members)

    walk = names

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes, or None if there is no such file."""
        member = self._members.get(clean_name(name, where=self.label))
        return member.file_size if isinstance(member, zipfile.ZipInfo) else member and member[1]

    def where(self, name: str) -> str:
        """Return the name of a file for error messages."""
        return f"{_on_one_line(name)} in {self.label}"

    def read(self, name: str, *, limit: int = MAX_FILE_BYTES) -> bytes:
        """Return the content of a file, its checksum verified if there is one."""
        where, size = self.where(name), self.size(name)
        if size is None:
            raise InputError(f"{where} was looked for and does not exist")
        _check_size(where, size, limit)
        member = self._members[clean_name(name, where=self.label)]
        with parsing(f"{where} cannot be read"):
            if isinstance(member, zipfile.ZipInfo):
                data = _opened_zip(self._path, self._path.stat().st_mtime_ns, os.getpid()).read(member)
            else:
                with self._path.open("rb", buffering=0) as file:
                    file.seek(member[0])
                    data = file.read(size)
            if len(data) != size:
                raise ValueError("it is cut off")
        return data


@functools.lru_cache(maxsize=16)
def _opened_zip(path: Path, _modified: int, _process: int) -> zipfile.ZipFile:
    """Return an archive with its directory, which is read once per process."""
    return zipfile.ZipFile(path)


def _zipped(path: Path, where: str) -> _Members:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if stat.S_ISLNK(info.external_attr >> 16):
                raise InputError(
                    f"{where} has the link {info.filename!r}, but only files and folders are allowed"
                )
            if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise InputError(
                    f"{where} has {info.filename!r} encrypted or packed by method {info.compress_type}, "
                    f"but stored or deflated members were expected"
                )
            yield info.filename, None if info.is_dir() else info


def _tarred(path: Path, where: str) -> _Members:
    with tarfile.open(path, "r:", errors="replace") as archive:
        for info in archive:
            if not info.isdir() and (not info.isreg() or info.issparse()):
                raise InputError(
                    f"{where} has the link or special file {info.name!r}, but only files and folders are allowed"
                )
            yield info.name, None if info.isdir() else (info.offset_data, info.size)


def _unpacked(path: Path) -> Path:
    """Unpack a .tar.gz and its like into a temporary file, bounded, and return its path."""
    handle, name = tempfile.mkstemp(suffix=".tar", prefix="mlcl-")
    total = 0
    try:
        with (
            os.fdopen(handle, "wb") as target,
            parsing(f"{path} cannot be unpacked into {name}"),
            open_packed(path) as source,
        ):
            while block := source.read(1 << 20):
                total += len(block)
                if total > MAX_UNPACKED_BYTES:
                    raise ValueError(f"it unpacks to more than {MAX_UNPACKED_BYTES} bytes")
                target.write(block)
    except BaseException:
        Path(name).unlink()
        raise
    return Path(name)


def _remove(path: Path, owner: int) -> None:
    """Remove a temporary file, but only in the process that made it: a forked worker shares it."""
    if os.getpid() == owner:
        path.unlink(missing_ok=True)


class FolderTree:
    """A folder, and behind it the archives that lie directly in it, opened when a file is first missing."""

    def __init__(self, root: Path) -> None:
        self.label = str(root)
        self._root = root
        self._archives: list[Archive] | None = None

    def names(self) -> list[str]:
        """Return the names of the files at the top level, sorted."""
        return sorted(entry.name for entry in self._root.iterdir() if entry.is_file())

    def walk(self) -> list[str]:
        """Return the names of all files below the folder, and of those in its archives, sorted."""
        found = [name for tree in self._behind_all() for name in tree.names()]
        for folder, _, files in os.walk(self._root):
            below = Path(folder).relative_to(self._root)
            found += [(below / name).as_posix() for name in files]
            if len(found) > MAX_FILES:
                raise InputError(f"{self.label} has more than {MAX_FILES} files below it; expected fewer")
        return sorted(set(found))

    def _path(self, name: str) -> Path:
        return self._root / clean_name(name, where=self.label)

    def where(self, name: str) -> str:
        """Return the name of a file for error messages: its path, or its name and the archive that holds it."""
        path = self._path(name)
        tree = None if path.exists() else self._behind(name)
        return _on_one_line(str(path)) if tree is None else tree.where(name)

    def _behind(self, name: str) -> Archive | None:
        """Find the archive that holds ``name``; with two of them the choice would be a guess, so that is refused."""
        holders = [tree for tree in self._behind_all() if tree.size(name) is not None]
        if len(holders) > 1:
            raise InputError(
                f"{self.label} has {name!r} in both {holders[0].label} and {holders[1].label}, "
                f"but one archive was expected to hold it; move one of them away"
            )
        return holders[0] if holders else None

    def _behind_all(self) -> list[Archive]:
        if self._archives is None:
            self._archives = [Archive(self._root / name) for name in self.names() if _ARCHIVE.search(name)]
        return self._archives

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes, or None if there is no such file."""
        with contextlib.suppress(OSError):
            status = self._path(name).stat()  # follows links: the folder is the user's own
            if stat.S_ISREG(status.st_mode):
                return status.st_size
        tree = self._behind(name)
        return None if tree is None else tree.size(name)

    def read(self, name: str, *, limit: int = MAX_FILE_BYTES) -> bytes:
        """Return the content of a file; absent, broken or over ``limit`` bytes is an `InputError`."""
        path = self._path(name)
        try:
            with path.open("rb", buffering=0) as file:
                _check_size(str(path), os.fstat(file.fileno()).st_size, limit)
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            tree = self._behind(name)
            if tree is None:
                raise InputError(f"{self.where(name)} was looked for and does not exist") from None
            return tree.read(name, limit=limit)
        except OSError as error:
            raise InputError(f"{self.where(name)} cannot be read: {reason(error)}") from None


Tree: TypeAlias = FolderTree | Archive
"""What sources read. ``label`` names it in error messages."""


def open_tree(root: Path) -> Tree:
    """Open a folder or an archive; a file that a folder does not have is looked for in the archives in the folder."""
    if not root.exists():
        raise InputError(f"{root} was looked for and does not exist; a folder or an archive was expected")
    if root.is_dir():
        return FolderTree(root)
    if not _ARCHIVE.search(root.name):
        raise InputError(
            f"{root} is a file, but a folder, .zip, .tar, .tar.gz, .tar.bz2 or .tar.xz was expected"
        )
    return Archive(root)


@contextlib.contextmanager
def open_packed(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading, through gzip, bzip2 or xz if its name ends in their suffix, and then within bounds."""
    opener = _OPENERS.get(path.suffix.lower())
    with open_regular(path) as plain:
        yield plain if opener is None else _Unpacking(opener(plain), path)  # type: ignore[misc]


class _Unpacking:
    """A packed file, read until it is far larger than its bytes on the disk let expect."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file, self._path, self._limit = file, path, unpacked_limit(path.stat().st_size)

    def read(self, size: int = -1) -> bytes:
        return self._checked(self._file.read(self._room(size)))

    def readline(self, size: int = -1) -> bytes:
        return self._checked(self._file.readline(self._room(size)))

    def _room(self, size: int) -> int:
        left = self._limit + 1 - self._file.tell()
        return left if size < 0 else min(size, left)

    def _checked(self, data: bytes) -> bytes:
        if self._file.tell() > self._limit:
            raise InputError(
                f"{self._path} has more than {self._limit} bytes when it is unpacked; at most 256 times as many as it "
                "has now were expected: if it shall be read, unpack it first"
            )
        return data


def read_packed(path: Path, *, limit: int) -> bytes:
    """Return the content of a file, unpacked if its name ends in .gz, .bz2 or .xz, up to ``limit`` bytes."""
    try:
        with open_packed(path) as file:
            data = file.read(limit + 1)
    except FileNotFoundError:
        raise InputError(f"{path} was looked for and does not exist") from None
    except UNREADABLE as error:
        raise InputError(f"{path} cannot be read: {reason(error)}") from None
    if len(data) > limit:
        raise InputError(f"{path} has more than the allowed {limit} bytes")
    return data


def decoded_text(data: bytes, encoding: str, *, where: str) -> str:
    """Return the text in some bytes, without the byte order mark that spreadsheets write."""
    try:
        return data.decode(encoding).removeprefix("\ufeff")
    except LookupError:
        raise InputError(
            f"encoding is {encoding!r}, which is not known; utf-8 or latin-1 are examples"
        ) from None
    except UnicodeError as error:
        raise InputError(f"{where} is not {encoding}: {error}; name another encoding") from None


def read_lines(tree: Tree, path: str) -> list[str]:
    """Return the lines of a list that are not blank; a list without any is an `InputError`."""
    try:
        text = tree.read(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{tree.where(path)} is not UTF-8 text") from None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise InputError(f"{tree.where(path)} is empty, but one entry per line was expected")
    return lines


def clean_name(name: str, *, where: str) -> str:
    """Return a relative path with ``/``, or refuse what could lead out of the tree."""
    parts = name.replace("\\", "/").split("/")
    try:
        name.encode()  # half a surrogate pair is no file name and cannot be printed
    except UnicodeEncodeError:
        parts = [".."]
    if not name.strip() or name[0] in "/\\" or re.match(r"[A-Za-z]:", name) or ".." in parts or "\0" in name:
        raise InputError(f"{where} has the file name {name!r}, but a relative path without '..' was expected")
    return "/".join(part for part in parts if part not in ("", "."))


def _on_one_line(name: str) -> str:
    return re.sub(r"[\x00-\x1f\x7f]", "?", name)


def _check_size(name: str, size: int, limit: int) -> None:
    if size > limit:
        raise InputError(f"{_on_one_line(name)} has {size} bytes, but at most {limit} are allowed")
