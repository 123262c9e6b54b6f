"""What is wrong with a run folder and its versions, and what of it can be mended: ``mlcl check``.

Every file is read as those who use it read it, so what is refused there is found here. Only what follows from other
files is mended: ``current.json``, and what an interrupted command left behind. Nothing that a user made is deleted.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shlex
import stat
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from mlcl.config.values import load_yaml
from mlcl.errors import InputError, one_line
from mlcl.files import LOCK, TEMPORARY, FolderLock, lock_state, read_bounded, write_bytes
from mlcl.runs import folder as files
from mlcl.runs.checkpoints import newest_checkpoint
from mlcl.runs.versions import current_folder, now_text, numbers, version_folder

_GONE = "removed it"
_LEFT = re.compile(
    rf"({'|'.join(map(re.escape, (*files.FILES, files.CURRENT, files.TRACKERS)))}|\d+\.\w+)\.tmp"
)
"""What a killed write leaves: the name of a file of ours and .tmp."""
_OWN = (*files.FILES, files.METRICS, files.TRACKERS, files.CURRENT, files.CHECKPOINTS, files.VERSIONS, LOCK)


@dataclass(frozen=True)
class Finding:
    """Something that is wrong.

    Attributes:
        path: where.
        what: in words.
        remedy: what a person can do about it.
        mend: puts it right and says how; None where only a person can.
        mended: what was done.
        wrong: whether something is wrong; else there is only something to know.
    """

    path: Path
    what: str
    remedy: str = ""
    mend: Callable[[], str] | None = None
    mended: str = ""
    wrong: bool = True


def looks_like_run(path: Path) -> bool:
    """Return whether a folder is a run, even one whose settings are gone."""
    return any((path / name).exists() for name in (files.CONFIG, files.RESULT, files.VERSIONS, files.CURRENT))


def check_run(root: Path, *, repair: bool = False) -> list[Finding]:
    """Return what is wrong with a run and all its versions.

    Args:
        root: the folder of the run.
        repair: mend what can be mended; what another process works on is left alone.
    """
    found = []
    for number in numbers(root)[1:]:
        found += in_turn(version_folder(root, number), check_version, repair=repair)
    return found + in_turn(root, lambda folder: [*check_version(folder), *_chain(folder)], repair=repair)


def in_turn(folder: Path, look: Callable[[Path], Iterable[Finding]], *, repair: bool) -> list[Finding]:
    """Look at a folder that no process works on, and mend it while none can; one that is worked on is left alone."""
    state = lock_state(folder)
    if state == "held":
        return [Finding(folder, "is in use by another process, and was left alone", wrong=False)]
    stale = [Finding(folder / LOCK, "is the lock of a process that is gone", mend=lambda: _GONE)] * bool(
        state
    )
    if not repair:
        return stale + list(look(folder))
    lock = FolderLock(folder)  # takes the old one over
    try:
        return [_mended(finding) for finding in (*stale, *look(folder))]
    finally:
        lock.release()


def _mended(finding: Finding) -> Finding:
    return finding if finding.mend is None else replace(finding, mended=finding.mend())


def check_version(folder: Path) -> Iterator[Finding]:
    """Yield what is wrong with one run folder, whatever its versions are."""
    if {path.name for path in folder.iterdir()} <= {LOCK}:
        yield Finding(
            folder, "is empty: a command was stopped before it began", mend=partial(_remove_empty, folder)
        )
        return
    yield from strange_entries(folder, _OWN)
    yield from left_behind(folder)
    if files.has_result(folder):
        yield from _damaged(folder)
        yield from _parent(folder)
    else:
        yield from read_or_say(folder / files.CONFIG, partial(_settings, folder / files.CONFIG))
        if files.is_run(folder):
            yield from _unfinished(folder)


def _settings(path: Path) -> dict[str, Any]:
    """Return settings, a mapping; whether the parts they name are there is not looked at: none is loaded."""
    content = read_bounded(path, limit=files.MAX_RECORD_BYTES, expected="the settings of a run")
    found = load_yaml(content, str(path))
    if not isinstance(found, dict):
        raise InputError(f"{path}: holds no settings.")
    return found


def strange_entries(folder: Path, names: tuple[str, ...]) -> Iterator[Finding]:
    """Yield entries with names of ours that are links, pipes, devices or sockets."""
    for name in names:
        with contextlib.suppress(OSError):
            mode = (folder / name).lstat().st_mode
            if stat.S_ISLNK(mode):
                remedy = "put what it points to here, or make the whole folder a link"
                yield Finding(
                    folder / name, "is a link, and mlcl writes and deletes nothing through one", remedy
                )
            elif not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                yield Finding(folder / name, "is no file", "remove it")


def left_behind(folder: Path, names: re.Pattern[str] = _LEFT) -> Iterator[Finding]:
    """Yield temporary files that killed writes have left."""
    for path in sorted(folder.iterdir()):
        ours = names.fullmatch(path.name) or TEMPORARY.fullmatch(path.name)
        if ours and stat.S_ISREG(path.lstat().st_mode):
            yield Finding(path, "was left by a write that was killed", mend=partial(_remove, path))
    if (folder / files.CHECKPOINTS).is_dir() and not (folder / files.CHECKPOINTS).is_symlink():
        yield from left_behind(folder / files.CHECKPOINTS, names)


def _remove(path: Path) -> str:
    path.unlink(missing_ok=True)
    return _GONE


def _remove_empty(folder: Path) -> str:
    (folder / LOCK).unlink(missing_ok=True)
    folder.rmdir()  # fails if there is something in it after all
    return _GONE


def _unfinished(folder: Path) -> Iterator[Finding]:
    if (folder / files.RECEIPT).exists():
        yield Finding(folder, "was to forget and was stopped", "delete it, and forget again")
        return
    yield Finding(folder, "is not finished", f"go on with: mlcl resume {shlex.quote(str(folder))}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield from read_or_say(
            folder / files.CHECKPOINTS, lambda: newest_checkpoint(folder / files.CHECKPOINTS)
        )
    for warning in caught:
        yield Finding(folder / files.CHECKPOINTS, str(warning.message))


def _damaged(folder: Path) -> Iterator[Finding]:
    """Yield what those who read a finished run would refuse."""
    try:
        files.is_finished(folder)
        result = files.read_result(folder)
    except InputError as error:
        yield _of(folder / files.RESULT, error)
        return
    for name, read in (
        (files.CONFIG, lambda: files.check_settings(folder, _settings(folder / files.CONFIG), result)),
        (files.WEIGHTS, partial(files.read_weights, folder, result)),
        (files.MEMORY, partial(files.read_memory, folder, result)),
        (files.CALIBRATION, partial(files.read_calibration, folder, result)),
        (files.THRESHOLDS, partial(files.read_thresholds, folder, result)),
        (files.HELD_OUT, partial(files.read_held_out, folder, result)),
        (files.ENCODER, partial(files.read_encoder, folder, result)),
        (files.RECEIPT, partial(files.read_receipt, folder)),
        (files.EXTENDS, partial(files.read_extends, folder)),
        (files.GATE, partial(files.read_gate, folder)),
        (files.ENVIRONMENT, partial(files.read_environment, folder)),
    ):
        yield from read_or_say(folder / name, read)


def read_or_say(path: Path, read: Callable[[], Any]) -> Iterator[Finding]:
    """Yield why a file cannot be read, if so."""
    try:
        read()
    except InputError as error:
        yield _of(path, error)


def _of(path: Path, error: InputError) -> Finding:
    """Return what a reader refused, with its sentence; the file is named once."""
    text = one_line(error, limit=1000)
    what, _, remedy = text.removeprefix(str(path)).removeprefix(":").strip().partition("; ")
    return Finding(path, what, remedy or "restore it from a copy")


def _parent(folder: Path) -> Iterator[Finding]:
    """Yield whether the version that one began from is still what it was."""
    with contextlib.suppress(InputError, OSError):  # damaged: found elsewhere
        extends = files.read_extends(folder)
        there = extends is not None and files.has_result(extends.run)
        if extends is not None and there and files.fingerprint(extends.run) != extends.fingerprint:
            yield Finding(folder, f"began from {extends.run}, whose weights or memory were others then")


def _chain(root: Path) -> Iterator[Finding]:
    """Yield what is wrong with the versions together."""
    place, known = root / files.VERSIONS, {str(number) for number in numbers(root)}
    for path in sorted(place.iterdir()) if place.is_dir() and not place.is_symlink() else []:
        if path.name not in known:
            yield Finding(path, "is no version: versions are folders with numbers", "move it elsewhere")
        else:
            yield from strange_entries(place, (path.name,))
    yield from _current(root)


def _current(root: Path) -> Iterator[Finding]:
    path = root / files.CURRENT
    if not path.exists():
        yield from _lost(root)
        return
    try:
        files.require_finished(current_folder(root))
        if not isinstance((files.read_current(root) or {}).get("history"), list):
            raise InputError(f"{path}: has no history.")
    except InputError as error:
        again = f"mlcl check {shlex.quote(str(root))} --repair"
        yield replace(_of(path, error), remedy=again, mend=partial(_renew, root))


def _lost(root: Path) -> Iterator[Finding]:
    """Yield a version that passed everything, and was never taken into use: or the record of it is lost."""
    best = _best(root)
    if best > 1:
        yield Finding(
            root / files.CURRENT,
            f"is missing, so version 1 is in use; version {best} is finished and nothing refused it",
            f"to use it: mlcl rollback {shlex.quote(str(root))} --to {best}",
        )


def _best(root: Path) -> int:
    """Return the newest version that is sound and that nothing refused; 1 without any."""
    return max([1, *(number for number in numbers(root)[1:] if _may_be_used(version_folder(root, number)))])


def _may_be_used(folder: Path) -> bool:
    if not _is_sound(folder):
        return False
    extends, gate = files.read_extends(folder), files.read_gate(folder)
    if gate is not None:
        return bool(gate.get("passed"))
    return extends is None or extends.gate is None


def _renew(root: Path) -> str:
    """Write ``current.json`` anew: what can still be read of it, or what the versions themselves say."""
    path = root / files.CURRENT
    names = (path.with_name(f"{files.CURRENT}.damaged{n or ''}") for n in itertools.count())
    kept = next(name for name in names if not os.path.lexists(name))
    write_bytes(kept, read_bounded(path, limit=files.MAX_RESULT_BYTES, expected="a record"))
    record = _readable(path)
    before, past = record.get("version"), record.get("history")
    named = type(before) is int and before in numbers(root) and _is_sound(version_folder(root, before))
    number = before if named else _best(root)
    entry = {"time": now_text(), "from": before if named else None, "to": number, "why": "repair"}
    history = [*(past if isinstance(past, list) else []), entry]
    files.write_current(root, {"version": number, "history": history})
    how = "which it named" if named else "the newest that is sound and that nothing refused"
    return f"wrote it anew: version {number} is in use, {how}; the old file is {kept.name}"


def _is_sound(folder: Path) -> bool:
    return files.is_run(folder) and files.has_result(folder) and not any(_damaged(folder))


def _sound(folder: Path) -> bool:
    return files.is_run(folder) and not any(_damaged(folder)) and files.has_result(folder)


def _readable(path: Path) -> dict[str, Any]:
    """Return the object that a file begins with, if it does; an older mlcl could write one over the other."""
    with contextlib.suppress(InputError, ValueError, RecursionError):
        text = read_bounded(path, limit=files.MAX_RECORD_BYTES, expected="").decode()
        found, _ = json.JSONDecoder().raw_decode(text)
        if isinstance(found, dict):
            return found
    return {}
