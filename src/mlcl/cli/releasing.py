"""The end of a command that makes a version: take it into use, unless its gate or a newer version refuses it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from mlcl.cli.messages import fail
from mlcl.cli.progress import make_console
from mlcl.engines.launching import rank
from mlcl.reports.changes import change_lines, change_table
from mlcl.reports.rendering import points
from mlcl.runs.folder import read_extends
from mlcl.runs.versions import parent_number, root_of
from mlcl.taggers.gate import Verdict, release


def finish(out: Path, *, quiet: bool = False) -> int:
    """Take a finished version into use, unless that is refused, and return the exit code."""
    if rank():
        return 0
    done = release(out)
    if done.verdict is not None and not quiet:
        console = make_console(sys.stderr)  # the last line of stdout is the folder
        console.print(change_table(done.verdict))
        for line in change_lines(done.verdict):
            console.print(line)
    if done.newer is not None:
        return _too_late(out, done.newer)
    return 0 if done.verdict is None or done.verdict.passed else _refused(done.verdict, out)


def _refused(verdict: Verdict, out: Path) -> int:
    """Say what the gate refused and what is in use."""
    root, extends = root_of(out), read_extends(out)
    stays = root if root != out or extends is None else extends.run
    use = "" if root == out else f"; to use it nevertheless: {_use(out)}"
    what = f"more than {points(verdict.allow)} lost on {'; '.join(verdict.reasons)}"
    return fail(f"the gate refused {out}: {what}; {stays} stays in use{use}", 4)


def _too_late(out: Path, newer: int) -> int:
    """Say that another version came into use meanwhile and what to do."""
    if newer == parent_number(out):
        return fail(
            f"{out} is kept, but not in use: thresholds of version {newer}, from which it began, were chosen anew "
            f"meanwhile; give the same command again, or use this one with the thresholds of before: {_use(out)}",
            4,
        )
    return fail(
        f"{out} is kept, but not in use: it began from version {parent_number(out) or 'unknown'}, and version {newer} "
        f"came into use meanwhile; give the same command again to begin from version {newer}, or use this one "
        f"instead of it: {_use(out)}",
        4,
    )


def _use(out: Path) -> str:
    return f"mlcl rollback {shlex.quote(str(root_of(out)))} --to {out.name}"
