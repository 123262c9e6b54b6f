"""``mlcl update``: a finished run learns from one more store, behind a gate."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from mlcl.cli.extend import parse_more
from mlcl.cli.helping import wants_help
from mlcl.cli.messages import fail, page
from mlcl.cli.progress import make_console
from mlcl.cli.run import follow
from mlcl.cli.verbs import verb_parser
from mlcl.engines.launching import rank
from mlcl.reports.changes import change_lines, change_table, points
from mlcl.runs.continuing import update
from mlcl.runs.folder import read_extends
from mlcl.runs.versions import claimed, parent_number, root_of
from mlcl.taggers.gate import ALLOW, Verdict, check_gate, release

HELP = f"""usage: mlcl update DIR --data STORE [--gate STORE] [--allow POINTS] [--out DIR2] [--train.epochs N] ...

Train a finished run on one more store: more rows of labels that it knows, new labels, or both. The result is a new
version of the run, in DIR/versions, and becomes the current one: the one that `mlcl predict DIR`, `serve` and the other
commands use; if another version came into use meanwhile, it is kept and not taken into use (exit code 4). What DIR
holds stays as it is; `mlcl versions DIR` lists all versions and `mlcl rollback DIR` goes back.
Options of `mlcl run` that begin with --train or --checkpoint override those of the run.

  DIR            the folder of a finished run; an update begins from its current version
  --data STORE   the store to learn from, by folder or name
  --gate STORE   compare the AUC of each label before and after on the test rows of this store; the new version is not
                 taken into use (exit code 4) if a label lost more than allowed, beyond the noise of the test rows
  --allow POINTS points of AUC (x 100) that a label may lose (default: {ALLOW:g})
  --out DIR2     write a run folder of its own instead of a version of DIR; what is current does not change
  --overwrite    replace DIR2 if it holds a run
  --quiet        print the folder's path only
  --plugin FILE.py | package.module    load parts of your own first
"""


def main(arguments: list[str]) -> int:
    """Update: ``mlcl update DIR --data STORE [--gate STORE] [--allow POINTS] [--out DIR2] ...``."""
    if wants_help(arguments):
        page(HELP)
        return 0
    parser = verb_parser("update", "")
    parser.add_argument("--gate")
    parser.add_argument("--allow", type=float, default=ALLOW)
    given, rest = parser.parse_known_args(arguments)
    more = parse_more("update", rest)
    if more is None:
        return 0
    folder, command = more
    gate = None if given.gate is None else check_gate(folder, given.gate, allow=given.allow)
    with claimed(folder, command.out) as out:
        code = follow(
            lambda callback: update(
                folder,
                out=out,
                config=command.config,
                gate=gate,
                overwrite=command.overwrite,
                callback=callback,
            ),
            out,
            quiet=command.quiet,
        )
    return code or finish(out, quiet=command.quiet)


def finish(out: Path, *, quiet: bool = False) -> int:
    """Take a finished version into use, unless its gate or a newer version refuses it, and return the exit code."""
    if rank():
        return 0
    done = release(out)
    if done.verdict is not None and not quiet:
        show(done.verdict)
    if done.newer is not None:
        return too_late(out, done.newer)
    return 0 if done.verdict is None or done.verdict.passed else refused(done.verdict, out)


def show(verdict: Verdict) -> None:
    """Print how the labels changed, on stderr: the last line of stdout is the folder."""
    console = make_console(sys.stderr)
    console.print(change_table(verdict))
    for line in change_lines(verdict):
        console.print(line)


def refused(verdict: Verdict, out: Path) -> int:
    """Say what the gate refused and what is in use, and return the exit code 4."""
    lost = ", ".join(verdict.lost[:10]) + ", ..." * (len(verdict.lost) > 10)
    root, extends = root_of(out), read_extends(out)
    stays = root if root != out or extends is None else extends.run
    use = "" if root == out else f"; to use it nevertheless: {_use(out)}"
    return fail(
        f"the gate refused {out}: more than {points(verdict.allow)} lost on {lost}; {stays} stays in use{use}",
        4,
    )


def too_late(out: Path, newer: int) -> int:
    """Say that another version came into use meanwhile and what to do, and return the exit code 4."""
    return fail(
        f"{out} is kept, but not in use: it began from version {parent_number(out) or 'unknown'}, and version {newer} "
        f"came into use meanwhile; give the same command again to begin from version {newer}, or use this one "
        f"instead of it: {_use(out)}",
        4,
    )


def _use(out: Path) -> str:
    return f"mlcl rollback {shlex.quote(str(root_of(out)))} --to {out.name}"
