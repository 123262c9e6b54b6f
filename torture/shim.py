"""The calls of the system by which mlcl reads and writes, and of C by which it allocates, with a fault at one."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import mlcl

KINDS = ("EIO", "ENOSPC", "short", "die", "memory")
DIED = 77
_BY_PATH = ("open", "replace", "rename", "unlink", "mkdir", "rmdir")
_BY_NUMBER = ("write", "pwrite", "fsync", "ftruncate")
_GROWING = ("write", "pwrite", "fsync", "ftruncate", "mkdir", "replace", "rename")


class Shim:
    """Counts the calls that touch a folder; the one of number ``at`` fails, is short, or is the last of the process.

    Attributes:
        calls: the names of the calls so far, with what they touched.
    """

    def __init__(
        self, root: Path, *, at: int = -1, kind: str = "", act: Callable[[], None] | None = None
    ) -> None:
        self.root, self.at, self.kind, self.act = os.path.realpath(root), at, kind, act
        self.calls: list[str] = []

    @contextmanager
    def installed(self) -> Iterator[Shim]:
        """Put it between the package and the system."""
        real = {name: getattr(os, name) for name in (*_BY_PATH, *_BY_NUMBER)}
        try:
            for name, call in real.items():
                setattr(os, name, self._wrapped(name, call))
            yield self
        finally:
            for name, call in real.items():
                setattr(os, name, call)

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            place = self._place(name, arguments[0])
            if not place.startswith(self.root):
                return real(*arguments, **options)
            grows = name in _GROWING or (name == "open" and bool(arguments[1] & os.O_CREAT))
            number = len(self.calls)
            self.calls.append(f"{name}{'+' * grows} {place.removeprefix(self.root)}")
            if number == self.at and self.act is not None:
                self.act()
            if self.kind == "EIO" and number == self.at:
                raise OSError(errno.EIO, os.strerror(errno.EIO), place)
            if self.kind == "ENOSPC" and number >= self.at >= 0 and grows:  # a disk that is full stays full
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), place)
            if self.kind in ("short", "die") and number == self.at and name in ("write", "pwrite"):
                content = memoryview(arguments[1])
                done = real(arguments[0], content[: (len(content) + 1) // 2], *arguments[2:])
                if self.kind == "short":
                    return done
            if self.kind == "die" and number == self.at:
                os._exit(DIED)
            return real(*arguments, **options)

        return call

    def _place(self, name: str, what: Any) -> str:
        try:
            if name in _BY_NUMBER:
                return str(Path(f"/proc/self/fd/{what}").readlink())
            path = Path(os.fspath(what))
            return str(path.parent.resolve() / path.name)
        except (OSError, TypeError, ValueError):
            return ""


class Allocations:
    """Counts the calls of C from functions of mlcl, the first of each function: number ``at`` finds no memory."""

    def __init__(self, at: int = -1) -> None:
        self.at = at
        self.calls: list[str] = []
        self._known: set[object] = set()
        self._package = str(Path(mlcl.__file__).parent)
        self._before = tuple(
            f"{self._package}/{name}" for name in ("cli/main", "cli/messages", "engines/cores")
        )

    @contextmanager
    def installed(self) -> Iterator[Allocations]:
        """Look at every call while the block runs."""
        sys.setprofile(self._look)
        try:
            yield self
        finally:
            sys.setprofile(None)

    def _look(self, frame: FrameType, event: str, called: object) -> None:
        code = frame.f_code
        if event != "c_call" or code in self._known or not code.co_filename.startswith(self._package):
            return
        if code.co_filename.startswith(self._before):  # the way in, and the sentence at the end
            return
        self._known.add(code)
        name = getattr(called, "__name__", "?")
        self.calls.append(f"{name} in {code.co_name}, {code.co_filename.removeprefix(self._package)}")
        if len(self.calls) - 1 == self.at:
            raise MemoryError


def places(calls: list[str], kind: str) -> list[int]:
    """Return at which calls a fault of a kind is possible."""
    if kind == "short":
        return [n for n, call in enumerate(calls) if call.startswith(("write", "pwrite"))]
    if kind == "ENOSPC":
        return [n for n, call in enumerate(calls) if call.partition(" ")[0].endswith("+")]
    return list(range(len(calls)))
