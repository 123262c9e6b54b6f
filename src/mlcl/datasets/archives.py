"""Archives read in place: .zip, .tar, .tar.gz, .tar.bz2, .tar.xz.

Nothing is unpacked into folders. Names inside archives and inside lists are untrusted: absolute paths,
``..``, links, encrypted or repeated members are refused, and no member is read beyond a bound.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
import stat
import struct
import tarfile
import tempfile
import weakref
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from mlcl.errors import InputError, one_line

MAX_FILE_BYTES = 256 * 2**20
"""The largest file that is read whole unless a source sets another limit: no photograph is larger."""
MAX_UNPACKED_BYTES = 1 << 40
"""The largest .tar inside a .tar.gz, .tar.bz2 or .tar.xz: one terabyte."""

ARCHIVE = re.compile(r"\.(zip|tar|tgz|tar\.(gz|bz2|xz))$", re.IGNORECASE)


def clean_name(name: str, *, where: str) -> str:
    """Return a relative path with ``/``, or refuse what could lead out of the tree.

    >>> clean_name("./VOCdevkit//VOC2012/a.jpg", where="x.tar")
    'VOCdevkit/VOC2012/a.jpg'
    >>> clean_name("../secret", where="x.tar")
    Traceback (most recent call last):
    ...
    mlcl.errors.InputError: x.tar has the file name '../secret', but a relative path without '..' was expected
    """
    parts = name.replace("\\", "/").split("/")
    try:
        name.encode()  # half a surrogate pair is no file name and cannot be printed
    except UnicodeEncodeError:
        parts = [".."]
    if not name.strip() or name[0] in "/\\" or re.match(r"[A-Za-z]:", name) or ".." in parts or "\0" in name:
        raise InputError(f"{where} has the file name {name!r}, but a relative path without '..' was expected")
    return "/".join(part for part in parts if part not in ("", "."))


@dataclass(frozen=True)
class _Member:
    """Where a member's bytes lie in its archive. ``packed`` is None where they are stored as they are."""

    offset: int
    size: int
    packed: int | None = None
    crc: int | None = None


class _ArchiveTree:
    """What .zip and .tar share: an index, and reads that open the file each time, so that workers may share it."""

    def __init__(self, path: Path) -> None:
        self.label = str(path)
        self._path = path
        self._members: dict[str, _Member] = {}

    def _add(self, name: str, member: _Member) -> None:
        name = clean_name(name, where=self.label)
        if name in self._members:
            raise InputError(f"{self.label} has the member {name!r} twice, but distinct names were expected")
        self._members[name] = member

    def walk(self) -> list[str]:
        """Return the names of all files, sorted."""
        return self.names()

    def names(self) -> list[str]:
        """Return the names of all files, sorted."""
        return sorted(self._members)

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes, or None if there is no such file."""
        member = self._members.get(clean_name(name, where=self.label))
        return None if member is None else member.size

    def where(self, name: str) -> str:
        """Return the name of a file for error messages."""
        return f"{on_one_line(name)} in {self.label}"

    def _member(self, name: str, limit: int) -> _Member:
        member = self._members.get(clean_name(name, where=self.label))
        if member is None:
            raise InputError(f"{self.where(name)} was looked for and does not exist")
        check_size(self.where(name), member.size, limit)
        return member


class ZipTree(_ArchiveTree):
    """A .zip archive, stored or deflated."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            with zipfile.ZipFile(path) as archive:
                infos = archive.infolist()
        except Exception as error:  # the parser of an untrusted file: whatever it trips over, the file is bad
            raise InputError(f"{path} is not a readable .zip archive: {reason(error)}") from None
        for info in infos:
            if info.is_dir():
                clean_name(info.filename, where=self.label)
                continue
            if stat.S_ISLNK(info.external_attr >> 16):
                raise InputError(
                    f"{path} has the link {info.filename!r}, but only files and folders are allowed"
                )
            if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise InputError(
                    f"{path} has {info.filename!r} encrypted or packed by method {info.compress_type}, "
                    f"but stored or deflated members were expected"
                )
            packed = info.compress_size if info.compress_type == zipfile.ZIP_DEFLATED else None
            self._add(info.filename, _Member(info.header_offset, info.file_size, packed, info.CRC))

    def read(self, name: str, *, limit: int = MAX_FILE_BYTES) -> bytes:
        """Return the content of a member, its checksum verified."""
        member = self._member(name, limit)
        try:
            with self._path.open("rb", buffering=0) as file:
                file.seek(member.offset)
                header = file.read(30)
                if header[:4] != b"PK\3\4":
                    raise ValueError("its local header is missing")
                file.seek(sum(struct.unpack("<HH", header[26:30])), os.SEEK_CUR)
                data = file.read(member.size if member.packed is None else member.packed)
            if member.packed is not None:
                # One byte over the promised size is enough to know that the promise was false.
                data = zlib.decompressobj(-15).decompress(data, member.size + 1)
            if len(data) != member.size or zlib.crc32(data) != member.crc:
                raise ValueError("its size or checksum is wrong")
        except (OSError, ValueError, struct.error, zlib.error, OverflowError) as error:
            raise InputError(f"{self.where(name)} cannot be read: {reason(error)}") from None
        return data


class TarTree(_ArchiveTree):
    """A .tar archive; a packed one is unpacked once into a temporary file, which is removed with this object."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        if path.suffix.lower() != ".tar":
            self._path = _unpacked(path)
            weakref.finalize(self, _remove, self._path, os.getpid())
        try:
            with tarfile.open(self._path, "r:", errors="replace") as archive:
                for info in archive:
                    if info.isdir():
                        clean_name(info.name, where=self.label)
                    elif not info.isreg() or info.issparse():
                        raise InputError(
                            f"{path} has the link or special file {info.name!r}, "
                            f"but only files and folders are allowed"
                        )
                    else:
                        self._add(info.name, _Member(info.offset_data, info.size))
        except InputError:
            raise
        except Exception as error:  # the parser of an untrusted file: whatever it trips over, the file is bad
            raise InputError(f"{path} is not a readable .tar archive: {reason(error)}") from None

    def read(self, name: str, *, limit: int = MAX_FILE_BYTES) -> bytes:
        """Return the content of a member."""
        member = self._member(name, limit)
        try:
            with self._path.open("rb", buffering=0) as file:
                file.seek(member.offset)
                data = file.read(member.size)
        except OSError as error:
            raise InputError(f"{self.where(name)} cannot be read: {reason(error)}") from None
        if len(data) != member.size:
            raise InputError(f"{self.where(name)} cannot be read: the archive is cut off")
        return data


def _unpacked(path: Path) -> Path:
    """Unpack a .tar.gz and its like into a temporary file, bounded, and return its path."""
    handle, name = tempfile.mkstemp(suffix=".tar", prefix="mlcl-")
    total = 0
    try:
        with os.fdopen(handle, "wb") as target, open_packed(path) as source:
            while block := source.read(1 << 20):
                total += len(block)
                if total > MAX_UNPACKED_BYTES:
                    raise ValueError(f"it unpacks to more than {MAX_UNPACKED_BYTES} bytes")
                target.write(block)
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
        Path(name).unlink()
        raise InputError(f"{path} cannot be unpacked into {name}: {reason(error)}") from None
    except BaseException:
        Path(name).unlink()
        raise
    return Path(name)


def _remove(path: Path, owner: int) -> None:
    """Remove a temporary file, but only in the process that made it: a forked worker shares it."""
    if os.getpid() == owner:
        path.unlink(missing_ok=True)


def open_packed(path: Path) -> IO[bytes]:
    """Open a file for reading, through gzip, bzip2 or xz if its name ends in their suffix."""
    suffix = path.suffix.lower()
    if suffix in (".gz", ".tgz"):
        return cast(IO[bytes], gzip.open(path))
    if suffix == ".bz2":
        return cast(IO[bytes], bz2.open(path))
    if suffix == ".xz":
        return cast(IO[bytes], lzma.open(path))
    return path.open("rb")


def on_one_line(name: str) -> str:
    """Return a file name without the line breaks and other controls that it may hold."""
    return re.sub(r"[\x00-\x1f\x7f]", "?", name)


def check_size(name: str, size: int, limit: int) -> None:
    """Refuse a file of more than ``limit`` bytes."""
    if size > limit:
        raise InputError(f"{on_one_line(name)} has {size} bytes, but at most {limit} are allowed")


def reason(error: BaseException) -> str:
    """Return what an error says in one line, without the path that the sentence has already."""
    return one_line(error.strerror if isinstance(error, OSError) and error.strerror else error)
