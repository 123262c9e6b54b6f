"""Links, pipes, devices and sockets in place of every file and folder of a run, and every command on it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from torture.faults import Outcome
from torture.scenes import Scene, command, complaint

KINDS = ("link", "folder link", "pipe", "device", "socket")
ALSO = (".lock", "checkpoints", "versions", "model-card.md", "result.json.tmp", "trackers.json", "parts")
SECONDS = 60
"""After which a command is taken to wait for ever."""


class Late(BaseException):
    """Waiting has no end; no ``except`` of a reader may take it for the fault of a file."""


def attack(scene: Scene, root: Path, *, kinds: tuple[str, ...] = KINDS, every: int = 1) -> Iterator[Outcome]:
    """Put each kind of strange entry in place of each file that the command reads or writes, one at a time."""
    scene.begin(root)
    names = {str(path.relative_to(root)) for path in root.rglob("*")} if root.exists() else set()
    scene.run(root)
    names |= {str(path.relative_to(root)) for path in root.rglob("*")} | set(ALSO)
    both = [(name, kind) for name in sorted(names) for kind in kinds]
    for name, kind in both[::every]:
        yield Outcome(scene.name, kind, name, place(scene, root, name, kind))


def place(scene: Scene, root: Path, name: str, kind: str) -> str:
    """Put something in place of a file, run the command, and return what is wrong."""
    docs = root.parent / "docs"
    docs.mkdir(exist_ok=True)
    for mine in ("thesis.tex", "000001.json", f"{'0' * 32}.safetensors"):
        (docs / mine).write_text("years of work")
    before = {path.name: path.read_bytes() for path in docs.iterdir()}
    scene.begin(root)
    root.mkdir(exist_ok=True)
    if not (root / name).parent.is_dir():
        return ""  # made by the command itself: in a folder that nobody else has seen
    _put(root / name, kind, docs)
    previous = signal.signal(signal.SIGALRM, _late)
    signal.alarm(SECONDS)
    try:
        code, said = scene.run(root)
        wrong = complaint(code, said) or complaint(*command("check", root))
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
    if {path.name: path.read_bytes() for path in docs.iterdir()} != before:
        return "somebody's files were changed"
    return wrong


def _late(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    raise Late(f"it waits for more than {SECONDS} seconds")


def _put(path: Path, kind: str, docs: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    if kind == "link":
        path.symlink_to(docs / "thesis.tex")
    elif kind == "folder link":
        path.symlink_to(docs)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        here = Path.cwd()
        os.chdir(path.parent)  # the name of a socket is short
        try:
            with socket.socket(socket.AF_UNIX) as here_it_is:
                here_it_is.bind(path.name)
        finally:
            os.chdir(here)
