"""``mlcl check``: what is wrong with a folder of mlcl, and mending what can be mended."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from mlcl.arrays import ENDING
from mlcl.cli.messages import say
from mlcl.datasets import open_store, read_ids
from mlcl.datasets.store import MANIFEST
from mlcl.errors import InputError
from mlcl.sklearn.exact_saving import read_exact
from mlcl.sklearn.shard_folder import BEGUN, PARTS, TAGGER, read_begun, read_tagger
from mlcl.sklearn.shard_parts import read_part
from mlcl.sweeps.record import FILE, read_record
from mlcl.taggers.check import Finding, check_run, in_turn, left_behind, looks_like_run, read_or_say

_LEFT_BY_LEARN = re.compile(r"\w+\.safetensors\.tmp")


def check(path: Path, *, repair: bool = False) -> int:
    """Say what is wrong with the folder of a run and its versions, of a sweep, of a tagger, or of a store.

    Damaged and missing files, unfinished versions, an unreadable current.json, links, and what killed commands left.
    Exit code 0: all is sound; 2: something is wrong.

    Args:
        path (DIR): the folder, or the file of a tagger.
        repair: mend what follows from other files: current.json, and what killed commands left; all else stays.
    """
    found = _check(path, repair=repair)
    for finding in found:
        after = finding.mended or finding.remedy
        say(f"{finding.path}: {finding.what}{f'; {after}' if after else ''}")
    left = [finding for finding in found if finding.wrong and not finding.mended]
    if left:
        say(f"{path}: {len(left)} of {len(found)} to be put right")
        return 2
    say(f"{path} is sound")
    return 0


def _check(path: Path, *, repair: bool = False) -> list[Finding]:
    """Return what is wrong with whatever of mlcl is at a path."""
    if path.is_file():
        return list(read_or_say(path, partial(read_exact, path)))
    if (path / FILE).exists() or (path / "runs").is_dir():
        return _check_sweep(path, repair=repair)
    if (path / MANIFEST).exists():
        return list(_check_store(path))
    if (path / TAGGER).exists() or (path / BEGUN).exists():
        return in_turn(path, _check_learnt, repair=repair)
    if looks_like_run(path):
        return check_run(path, repair=repair)
    raise InputError(f"{path} holds no run, sweep, tagger or store of mlcl.")


def _check_sweep(path: Path, *, repair: bool) -> list[Finding]:
    runs = [folder for folder in sorted((path / "runs").glob("*")) if looks_like_run(folder)]
    found = [finding for folder in runs for finding in check_run(folder, repair=repair)]
    return found + in_turn(path, _check_record, repair=repair)


def _check_record(path: Path) -> Iterator[Finding]:
    yield from left_behind(path, re.compile(rf"{re.escape(FILE)}\.tmp"))
    yield from read_or_say(path / FILE, partial(read_record, path))


def _check_store(path: Path) -> Iterator[Finding]:
    yield from read_or_say(path, partial(open_store, path, check=True))
    yield from read_or_say(path, partial(read_ids, path))


def _check_learnt(path: Path) -> Iterator[Finding]:
    yield from left_behind(path, _LEFT_BY_LEARN)
    yield from read_or_say(path / BEGUN, partial(read_begun, path))
    yield from read_or_say(path / TAGGER, partial(read_tagger, path))
    if (path / PARTS).is_dir():
        yield from left_behind(path / PARTS, _LEFT_BY_LEARN)
    for part in sorted((path / PARTS).glob(f"*{ENDING}")):
        yield from read_or_say(part, partial(read_part, path / PARTS, part.stem))
