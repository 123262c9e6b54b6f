"""``mlcl update``: a finished run learns from one more store, behind a gate."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from mlcl.cli.extend import parse_more
from mlcl.cli.helping import wants_help
from mlcl.cli.messages import fail
from mlcl.cli.progress import make_console
from mlcl.cli.run import follow
from mlcl.cli.verbs import verb_parser
from mlcl.reports.changes import change_lines, change_table, points
from mlcl.runs.gate import ALLOW, Verdict, check_gate, release
from mlcl.runs.update import update
from mlcl.runs.versions import next_folder, root_of

HELP = f"""usage: mlcl update DIR --data STORE [--gate STORE] [--allow POINTS] [--out DIR2] [--train.epochs N] ...

Train a finished run on one more store: more rows of labels that it knows, new labels, or both. The result is a new
version of the run, in DIR/versions, and becomes the current one: the one that `mlcl predict DIR`, `serve` and the other
commands use. What DIR holds stays as it is; `mlcl versions DIR` lists all versions and `mlcl rollback DIR` goes back.
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
        sys.stdout.write(HELP)
        return 0
    parser = verb_parser("update", "")
    parser.add_argument("--gate")
    parser.add_argument("--allow", type=float, default=ALLOW)
    given, rest = parser.parse_known_args(arguments)
    more = parse_more("update", rest)
    if more is None:
        return 0
    folder, command = more
    if given.gate is not None:
        check_gate(folder, given.gate, allow=given.allow)
    out = command.out or next_folder(folder)
    code = follow(
        lambda callback: update(
            folder, out=out, config=command.config, overwrite=command.overwrite, callback=callback
        ),
        out,
        quiet=command.quiet,
    )
    if code:
        return code
    verdict = release(out, gate=given.gate, allow=given.allow)
    if verdict is None:
        return 0
    if not command.quiet:
        show(verdict)
    return 0 if verdict.passed else refused(verdict, out, folder)


def show(verdict: Verdict) -> None:
    """Print how the labels changed, on stderr: the last line of stdout is the folder."""
    console = make_console(sys.stderr)
    console.print(change_table(verdict))
    for line in change_lines(verdict):
        console.print(line)


def refused(verdict: Verdict, out: Path, folder: Path) -> int:
    """Say what the gate refused and what is in use, and return the exit code 4."""
    lost = ", ".join(verdict.lost[:10]) + ", ..." * (len(verdict.lost) > 10)
    root = root_of(out)
    use = (
        ""
        if root == out
        else f"; to use it nevertheless: mlcl rollback {shlex.quote(str(root))} --to {out.name}"
    )
    return fail(
        f"the gate refused {out}: more than {points(verdict.allow)} lost on {lost}; {folder} stays in use{use}",
        4,
    )
