"""Versions of a run: a chain of run folders, one of which is current.

A run folder is version 1 of itself. Later versions lie in its folder ``versions``, each a whole run folder that names
its parent and the parent's fingerprint (``extends.json``). ``current.json`` says which version is in use and how that
came about; without it, version 1 is. Nothing is ever deleted: rolling back moves the pointer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcl.errors import InputError
from mlcl.runs import folder as files
from mlcl.runs.result import SavedResult

MAX_VERSIONS = 100_000


@dataclass(frozen=True)
class Version:
    """One version of a run.

    Attributes:
        number: from 1.
        folder: its run folder.
        current: whether it is in use.
        finished: whether it has a result.
        parent: the number of the version that it began from; None for the first, and where that is not known.
        intact: whether the parent is still what this version began from; None without a parent.
        fingerprint: of its weights and memory; empty if it is not finished.
        kind: ``run``, ``update``, ``extend`` or ``forget``.
        gate: whether it passed its gate; None if there was none.
        result: what it measured; None if it is not finished.
    """

    number: int
    folder: Path
    current: bool
    finished: bool
    parent: int | None
    intact: bool | None
    fingerprint: str
    kind: str
    gate: bool | None
    result: SavedResult | None


def root_of(folder: Path) -> Path:
    """Return the first version's folder, for that folder or one of its versions.

    >>> root_of(Path("runs/tagger/versions/2")).as_posix(), root_of(Path("runs/tagger")).as_posix()
    ('runs/tagger', 'runs/tagger')
    """
    inside = folder.parent.name == files.VERSIONS and folder.name.isdecimal()
    return folder.parent.parent if inside else folder


def version_folder(root: Path, number: int) -> Path:
    """Return the folder of a version, whether or not it exists."""
    return root if number == 1 else root / files.VERSIONS / str(number)


def current_number(root: Path) -> int:
    """Return the number of the version in use."""
    record = files.read_current(root)
    number = 1 if record is None else record.get("version")
    if type(number) is not int or not 1 <= number <= MAX_VERSIONS:
        raise InputError(
            f"{root / files.CURRENT}: version is {str(number)[:40]!r}; expected a number from 1 on."
        )
    return number


def current_folder(folder: Path) -> Path:
    """Return the folder of the version in use; a folder without versions, or a version itself, is returned as it is."""
    found = version_folder(folder, current_number(folder))
    if found != folder and not files.is_run(found):
        raise InputError(
            f"{folder / files.CURRENT} names version {found.name}, but {found} holds no run; "
            f"choose another with: mlcl rollback {folder} --to N"
        )
    return found


def numbers(root: Path) -> list[int]:
    """Return the numbers of all versions there are, in order."""
    place = root / files.VERSIONS
    names = [path.name for path in place.iterdir() if path.is_dir()] if place.is_dir() else []
    later = sorted(
        int(name) for name in names if name.isdecimal() and name == str(int(name)) and int(name) > 1
    )
    return [1, *later]


def next_folder(folder: Path) -> Path:
    """Return the folder of the version to come; numbers are never used again."""
    root = root_of(folder)
    return version_folder(root, numbers(root)[-1] + 1)


def versions(folder: str | Path) -> list[Version]:
    """Return all versions of a run, the first one first; ``folder`` may be any of them."""
    root = root_of(Path(folder))
    files.require_finished(root)
    now = current_number(root)
    known = {version_folder(root, number).resolve(): number for number in numbers(root)}
    prints = {
        path: files.fingerprint(path) if files.is_run(path) and files.is_finished(path) else ""
        for path in known
    }
    return [_version(root, number, now, known, prints) for number in known.values()]


def _version(root: Path, number: int, now: int, known: dict[Path, int], prints: dict[Path, str]) -> Version:
    path = version_folder(root, number)
    extends = files.read_extends(path)
    parent = None if extends is None else extends.run.resolve()
    gate = files.read_gate(path)
    own = prints[path.resolve()]
    if extends is None or parent is None:
        kind, intact = "run", None
    else:
        kind = "update" if extends.known else "extend"
        kind = "forget" if files.read_receipt(path) is not None else kind
        intact = prints.get(parent) == extends.fingerprint if parent in prints else None
    return Version(
        number=number,
        folder=path,
        current=number == now,
        finished=bool(own),
        parent=None if parent is None else known.get(parent),
        intact=intact,
        fingerprint=own,
        kind=kind,
        gate=None if gate is None else bool(gate.get("passed")),
        result=files.read_result(path) if own else None,
    )


def make_current(root: Path, number: int, *, why: str) -> None:
    """Use a version from now on; ``why`` goes into the history beside the time."""
    path = version_folder(root, number)
    if number not in numbers(root) or not files.is_run(path):
        raise InputError(
            f"version {number} of {root} does not exist; there are: {', '.join(map(str, numbers(root)))}."
        )
    files.require_finished(path)
    record = files.read_current(root) or {}
    history: list[Any] = record["history"] if isinstance(record.get("history"), list) else []
    before = record.get("version", 1)
    entry = {"time": now_text(), "from": before, "to": number, "why": why}
    files.write_current(root, {"version": number, "history": [*history, entry]})


def rollback(folder: str | Path, to: int | None = None) -> Version:
    """Use an earlier version again: the parent of the current one, or version ``to``; nothing is deleted.

    Args:
        folder: the run.
        to: the number of the version; it may also be a later one, such as one that a gate refused.
    """
    root = root_of(Path(folder))
    found = versions(root)
    now = next((version for version in found if version.current), None)
    if to is None:
        if now is None or now.parent is None:
            raise InputError(f"{root} has no version before the current one; give --to N.")
        to = now.parent
    elif now is not None and to == now.number:
        raise InputError(f"version {to} of {root} is current already.")
    make_current(root, to, why="rollback")
    return next(version for version in versions(root) if version.number == to)


def every_version(folder: Path) -> list[Path]:
    """Return the folders of all finished versions of a run with versions; any other folder as it is."""
    if not (folder / files.VERSIONS).is_dir() or not files.has_result(folder):
        return [folder]
    found = [version_folder(folder, number) for number in numbers(folder)]
    return [path for path in found if files.has_result(path)]


def of_one_chain(folders: Sequence[Path]) -> bool:
    """Return whether runs began from one another, or from one run, and at least one of them did."""
    first = {_ancestor(folder) for folder in folders}
    return len(first) == 1 and any(files.is_run(path) and files.read_extends(path) for path in folders)


def _ancestor(folder: Path) -> Path:
    """Return the run that a chain begins with; a folder that is gone ends it."""
    seen = {folder.resolve()}
    path = folder.resolve()
    while (extends := files.read_extends(path)) is not None:
        path = Path(os.path.realpath(extends.run))  # a name from a file: not resolved strictly
        if path in seen:
            raise InputError(f"{folder}: its chain of versions runs in a circle.")
        seen.add(path)
    return path


def now_text() -> str:
    """Return the time, UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
