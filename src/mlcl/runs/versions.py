"""Versions of a run: a chain of run folders, one of which is current.

A run folder is version 1 of itself. Later versions lie in its folder ``versions``, each a whole run folder that names
its parent and the parent's fingerprint (``extends.json``). ``current.json`` says which version is in use and how that
came about; without it, version 1 is. Rolling back moves the pointer.

Nothing is deleted but by `prune`. Several processes may work on one run. A version is made in its own folder, whose
number belongs to the process that made it; the run itself is locked only for the moment in which ``current.json`` is
read and replaced.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcl.engines.launching import rank
from mlcl.errors import InputError, check_int
from mlcl.files import LOCK, FolderLock, lock_state, own_folder, refuse_link
from mlcl.runs import folder as files
from mlcl.runs.result import Result

MAX_VERSIONS = 100_000


@dataclass(frozen=True)
class Version:
    """One version of a run.

    Attributes:
        parent: the number of the version that it began from; None for the first, and where that is not known.
        intact: whether the parent is still what this version began from; None without a parent.
        kind: ``run``, ``update``, ``extend``, ``forget`` or ``rename``.
        gate: whether it passed its gate; None if there was none. One that came too late did not.
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
    result: Result | None


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
    found = refuse_linked(version_folder(folder, current_number(folder)))
    if found != folder and not files.is_run(found):
        raise InputError(
            f"{folder / files.CURRENT} names version {found.name}, but {found} holds no run; "
            f"choose another with: mlcl rollback {folder} --to N"
        )
    return found


def refuse_linked(folder: Path) -> Path:
    """Return the folder of a version, unless it or the folder of versions is a link: nothing is written there."""
    if root_of(folder) != folder:
        refuse_link(folder.parent)
        refuse_link(folder)
    return folder


def numbers(root: Path) -> list[int]:
    """Return the numbers of all versions there are, in order."""
    return [1, *(number for number in _taken(root) if version_folder(root, number).is_dir())]


def _taken(root: Path) -> list[int]:
    """Return the numbers that names in the folder of versions have, in order; a name such as 20261118 is no number."""
    place = root / files.VERSIONS
    names = [path.name for path in place.iterdir()] if place.is_dir() else []
    # The length first: a name of thousands of digits is no number for Python.
    found = [int(name) for name in names if name.isdecimal() and len(name) <= 6 and name == str(int(name))]
    return sorted(number for number in found if 1 < number <= MAX_VERSIONS)


def next_folder(folder: Path) -> Path:
    """Return the folder of the version to come; numbers are never used again."""
    root = root_of(folder)
    number = max([1, *_taken(root)]) + 1
    if number > MAX_VERSIONS:
        raise InputError(
            f"{root} has a version {number - 1}; expected numbers below {MAX_VERSIONS} in {root / files.VERSIONS}."
        )
    return version_folder(root, number)


@contextlib.contextmanager
def claimed(folder: Path, out: Path | None = None) -> Iterator[Path]:
    """Make the folder of the version to come, which no other process then takes, and remove it if it stays empty.

    With ``out``, a folder of the user's, nothing is made. Of several processes the first one makes it.
    """
    if out is not None or rank():
        yield out or next_folder(folder)
        return
    path = _claim(folder)
    try:
        yield path
    finally:
        for made in (path, path.parent):  # nothing came of it: what was asked for was refused
            with contextlib.suppress(OSError):
                made.rmdir()


def _claim(folder: Path) -> Path:
    files.require_finished(root_of(folder))
    while True:
        path = next_folder(folder)
        own_folder(path.parent)
        try:
            path.mkdir()
        except FileExistsError:  # another process was quicker
            continue
        return path


def versions(folder: str | Path) -> list[Version]:
    """Return all versions of a run, the first one first; ``folder`` may be any of them."""
    root = root_of(Path(folder))
    files.require_finished(root)
    now = current_number(root)
    prints = {number: _print_of(version_folder(root, number)) for number in numbers(root)}
    return [_version(root, number, now, prints) for number in prints]


def _print_of(path: Path) -> str:
    return files.fingerprint(path) if files.is_run(path) and files.is_finished(path) else ""


def _version(root: Path, number: int, now: int, prints: dict[int, str]) -> Version:
    path, own = version_folder(root, number), prints[number]
    extends, parent, gate = files.read_extends(path), parent_number(path), files.read_gate(path)
    if extends is None:
        kind = "run"
    else:
        kind = "update" if extends.known else "extend"
        receipt = files.read_receipt(path)
        if receipt is not None:
            kind = "rename" if receipt.get("what") == "names" else "forget"
    return Version(
        number=number,
        folder=path,
        current=number == now,
        finished=bool(own),
        parent=parent,
        intact=None if extends is None or parent is None else prints[parent] == extends.fingerprint,
        fingerprint=own,
        kind=kind,
        gate=None if gate is None else bool(gate.get("passed")),
        result=files.read_result(path) if own else None,
    )


def parent_number(path: Path) -> int | None:
    """Return the number of the version that one began from; None for the first, and where that is not known."""
    extends, root = files.read_extends(path), root_of(path)
    if extends is None:
        return None
    places = {os.path.realpath(version_folder(root, number)): number for number in numbers(root)}
    return places.get(os.path.realpath(extends.run))


@contextlib.contextmanager
def locked(root: Path) -> Iterator[None]:
    """Hold a run while the version in use is changed; others wait, since this takes a moment."""
    lock = FolderLock(root, wait=True)
    try:
        yield
    finally:
        lock.release()


def use_version(root: Path, number: int, *, why: str) -> None:
    """Use a version from now on, for one who holds the lock; ``why`` goes into the history beside the time."""
    _require(root, number)
    entry = {"time": now_text(), "from": current_number(root), "to": number, "why": why}
    record = files.read_current(root) or {}
    files.write_current(root, record | {"version": number, "history": [*history(root), entry]})


def _require(root: Path, number: int) -> None:
    """Refuse the number of a version that is not there, or not finished."""
    path = version_folder(root, number)
    if number not in numbers(root) or not files.is_run(path):
        raise InputError(
            f"version {number} of {root} does not exist; there are: {', '.join(map(str, numbers(root)))}."
        )
    files.require_finished(path)


def baseline_number(root: Path) -> int:
    """Return the number of the version that gates compare with besides the parent: the first, or a pinned one."""
    number = (files.read_current(root) or {}).get("baseline", 1)
    return number if type(number) is int and number in numbers(root) else 1


def pin(folder: str | Path, number: int) -> None:
    """Let gates compare with a version from now on, besides the parent of the new one.

    Args:
        folder: the run, or one of its versions.
        number: of a finished version.
    """
    root = root_of(Path(folder))
    files.require_finished(root)
    with locked(root):
        _require(root, number)
        record = files.read_current(root) or {"version": 1, "history": []}
        files.write_current(root, record | {"baseline": number})


def history(root: Path) -> list[Any]:
    """Return how the version in use came about, the oldest change first."""
    found = (files.read_current(root) or {}).get("history")
    return found if isinstance(found, list) else []


def rollback(folder: str | Path, to: int | None = None) -> Version:
    """Use an earlier version again: the parent of the current one, or version ``to``; nothing is deleted.

    Args:
        to: the number of the version; it may also be a later one, such as one that a gate refused.
    """
    root = root_of(Path(folder))
    files.require_finished(root)
    with locked(root):
        now = current_number(root)
        if to is None and (to := parent_number(version_folder(root, now))) is None:
            raise InputError(f"{root} has no version before the current one; give --to N.")
        if to == now:
            raise InputError(f"version {to} of {root} is current already.")
        use_version(root, to, why="rollback")
    near = {number for number in (to, parent_number(version_folder(root, to))) if number is not None}
    return _version(root, to, to, {number: _print_of(version_folder(root, number)) for number in near})


def prune(folder: str | Path, keep: int) -> list[int]:
    """Delete all but the newest versions of a run, and return the numbers of those that are gone.

    The first version stays, the one in use, the one that gates compare with, and those that a process works on or that
    hold somebody else's files. A version whose parent is gone is used as before; but rows that were learnt in a version
    that is gone cannot be forgotten by their ids any more, and its test rows are not found again.

    Args:
        keep: how many of the newest versions stay, at least 1: no number is given twice.
    """
    check_int("--keep", keep, 1)
    root = root_of(Path(folder))
    files.require_finished(root)
    with locked(root):
        there = numbers(root)
        stays = {1, *there[max(len(there) - keep, 0) :], current_number(root), baseline_number(root)}
        return [number for number in there if number not in stays and _delete(version_folder(root, number))]


def _delete(path: Path) -> bool:
    """Delete a version, and return whether it is gone; one that is in use, or holds what is not ours, stays whole."""
    refuse_linked(path)
    if lock_state(path) == "held" or files.strangers(path):
        return False
    files.clear_folder(path)
    for name in (LOCK, files.TRACKERS):
        (path / name).unlink(missing_ok=True)
    path.rmdir()
    return True


def every_version(folder: Path) -> list[Path]:
    """Return the folders of all finished versions of a run with versions; any other folder as it is."""
    if not (folder / files.VERSIONS).is_dir() or not files.has_result(folder):
        return [folder]
    found = [version_folder(folder, number) for number in numbers(folder)]
    return [path for path in found if files.has_result(path)]


def of_one_chain(folders: Sequence[Path]) -> bool:
    """Return whether runs began from one another, or from one run, and at least one of them did."""
    first = {os.path.realpath([*chain(folder)][-1]) for folder in folders}
    return len(first) == 1 and any(files.is_run(path) and files.read_extends(path) for path in folders)


def chain(folder: Path) -> Iterator[Path]:
    """Iterate over a run, the one that it began from, and so on; one that names itself is an `InputError`."""
    seen: set[str] = set()
    path: Path | None = folder
    while path is not None:
        place = os.path.realpath(path)  # a name from a file: not resolved strictly
        if place in seen:
            raise InputError(f"{folder}: its chain of versions runs in a circle.")
        seen.add(place)
        yield path
        extends = files.read_extends(path)
        path = None if extends is None else extends.run


def now_text() -> str:
    """Return the time, UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
