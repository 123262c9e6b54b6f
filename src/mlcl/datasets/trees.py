"""Read-only file trees: a folder, an archive, or a folder of archives, all read in the same way."""

from __future__ import annotations

import lzma
import os
import stat
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from mlcl.datasets.archives import (
    ARCHIVE,
    MAX_FILE_BYTES,
    TarTree,
    ZipTree,
    check_size,
    clean_name,
    on_one_line,
    open_packed,
    reason,
)
from mlcl.errors import InputError

MAX_FILES = 10_000_000
"""The most files that a folder is searched for."""


class Tree(Protocol):
    """What a source may do with its raw files. ``label`` names the tree in error messages."""

    @property
    def label(self) -> str:
        """Return the path of the folder or archive."""

    def where(self, name: str) -> str:
        """Return the name of a file for error messages."""

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes, or None if there is no such file."""

    def read(self, name: str, *, limit: int = MAX_FILE_BYTES) -> bytes:
        """Return a file's content; absent, broken or over ``limit`` bytes is an `InputError`."""

    def names(self) -> Iterable[str]:
        """Return the names of the files, sorted; of a folder, of the files at its top level."""

    def walk(self) -> Iterable[str]:
        """Return the names of all files, in subfolders and in the archives of a folder too, sorted."""


def open_tree(root: Path) -> Tree:
    """Open a folder or an archive; a file that a folder does not have is looked for in the archives in the folder.

    >>> import tempfile, zipfile
    >>> place = tempfile.TemporaryDirectory()
    >>> folder = Path(place.name)
    >>> with zipfile.ZipFile(folder / "annotations.zip", "w") as z:
    ...     z.writestr("annotations/a.json", "{}")
    >>> open_tree(folder).read("annotations/a.json"), open_tree(folder / "annotations.zip").names()
    (b'{}', ['annotations/a.json'])
    >>> place.cleanup()
    """
    if not root.exists():
        raise InputError(f"{root} was looked for and does not exist; a folder or an archive was expected")
    if root.is_dir():
        return FolderTree(root)
    if not ARCHIVE.search(root.name):
        raise InputError(
            f"{root} is a file, but a folder, .zip, .tar, .tar.gz, .tar.bz2 or .tar.xz was expected"
        )
    return ZipTree(root) if root.suffix.lower() == ".zip" else TarTree(root)


def read_packed(path: Path, *, limit: int) -> bytes:
    """Return the content of a file, unpacked if its name ends in .gz, .bz2 or .xz, up to ``limit`` bytes."""
    try:
        with open_packed(path) as file:
            data = file.read(limit + 1)
    except FileNotFoundError:
        raise InputError(f"{path} was looked for and does not exist") from None
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(f"{path} cannot be read: {reason(error)}") from None
    if len(data) > limit:
        raise InputError(f"{path} has more than the allowed {limit} bytes")
    return data


class FolderTree:
    """A folder, and behind it the archives that lie directly in it, opened when a file is first missing."""

    def __init__(self, root: Path) -> None:
        self.label = str(root)
        self._root = root
        self._archives: list[Tree] | None = None

    def names(self) -> list[str]:
        """Return the names of the files at the top level, sorted."""
        return sorted(entry.name for entry in self._root.iterdir() if entry.is_file())

    def walk(self) -> list[str]:
        """Return the names of all files below the folder, and of those in its archives, sorted."""
        found = [name for tree in self._behind_all() for name in tree.walk()]
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
        return on_one_line(str(path)) if tree is None else tree.where(name)

    def _behind(self, name: str) -> Tree | None:
        """Find the archive that holds ``name``; with two of them the choice would be a guess, so that is refused."""
        holders = [tree for tree in self._behind_all() if tree.size(name) is not None]
        if len(holders) > 1:
            raise InputError(
                f"{self.label} has {name!r} in both {holders[0].label} and {holders[1].label}, "
                f"but one archive was expected to hold it; move one of them away"
            )
        return holders[0] if holders else None

    def _behind_all(self) -> list[Tree]:
        """Return the archives that lie directly in the folder, opened the first time."""
        if self._archives is None:
            found = [n for n in self.names() if ARCHIVE.search(n)]
            self._archives = [open_tree(self._root / n) for n in found]
        return self._archives

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes, or None if there is no such file."""
        try:
            status = self._path(name).stat()  # follows links: the folder is the user's own
            if stat.S_ISREG(status.st_mode):
                return status.st_size
        except OSError:
            pass
        tree = self._behind(name)
        return None if tree is None else tree.size(name)

    def read(self, name: str, *, limit: int = MAX_FILE_BYTES) -> bytes:
        """Return the content of a file."""
        path = self._path(name)
        try:
            with path.open("rb", buffering=0) as file:
                check_size(str(path), os.fstat(file.fileno()).st_size, limit)
                data = file.read()
        except (FileNotFoundError, NotADirectoryError):
            tree = self._behind(name)
            if tree is None:
                raise InputError(f"{self.where(name)} was looked for and does not exist") from None
            return tree.read(name, limit=limit)
        except OSError as error:
            raise InputError(f"{self.where(name)} cannot be read: {reason(error)}") from None
        return data
