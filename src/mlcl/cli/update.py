"""``mlcl update``: a tagger learns from more data, behind a gate."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from mlcl.cli.helping import wants_help
from mlcl.cli.learn import add_data_options, as_store
from mlcl.cli.messages import fail, page
from mlcl.cli.options import RunCommand, parse_run
from mlcl.cli.progress import make_console
from mlcl.cli.run import follow
from mlcl.cli.verbs import VerbParser, verb_parser
from mlcl.engines.launching import rank
from mlcl.errors import InputError
from mlcl.reports.changes import change_lines, change_table
from mlcl.reports.rendering import points
from mlcl.runs.continuing import update
from mlcl.runs.folder import CONFIG, read_config, read_encoder, read_extends, read_result, require_finished
from mlcl.runs.versions import claimed, current_folder, parent_number, root_of
from mlcl.taggers.gate import ALLOW, Verdict, check_gate, release
from mlcl.training.portable import require_portable

DATA_HELP = """
Where DATA is no store:
  --tags COLUMN, --separator TEXT, --x NAME, --y NAME, --text COLUMNS, --id COLUMN, --group COLUMN,
  --annotated COLUMN    as in mlcl learn
"""
HELP = f"""usage: mlcl update DIR --data DATA [--gate DATA] [--allow POINTS] [--out DIR2] [--train.epochs N] ...

Learn from more data: more rows of labels that a tagger knows, new labels, or both. The result is a new
version of it, in DIR/versions, and becomes the current one: the one that `mlcl predict DIR`, `serve` and the other
commands use; if another version came into use meanwhile, it is kept and not taken into use (exit code 4). What DIR
holds stays as it is; `mlcl versions DIR` lists all versions and `mlcl rollback DIR` goes back.
Options of `mlcl run` that begin with --train or --checkpoint override those of the run.

  DIR            the folder of a tagger; an update begins from its current version
  --data DATA    what to learn from: a store, or anything that mlcl learn takes
  --gate DATA    compare the AUC of each label before and after on the test rows of this, or on all rows of a
                 table; the new version is not
                 taken into use (exit code 4) if a label lost more than allowed, beyond the noise of the test rows
  --allow POINTS points of AUC (x 100) that a label may lose (default: {ALLOW:g})
  --out DIR2     write a run folder of its own instead of a version of DIR; what is current does not change
  --overwrite    replace DIR2 if it holds a run
  --quiet        print the folder's path only
  --plugin FILE.py | package.module    load parts of your own first
{DATA_HELP}"""


def main(arguments: list[str]) -> int:
    """Update: ``mlcl update DIR --data DATA [--gate DATA] [--allow POINTS] [--out DIR2] ...``."""
    if wants_help(arguments):
        page(HELP)
        return 0
    parser = more_parser("update")
    parser.add_argument("--gate")
    parser.add_argument("--allow", type=float, default=ALLOW)
    more = parse_more(parser, arguments)
    if more is None:
        return 0
    folder, command, given = more
    gate = None
    if given.gate is not None:
        gate = check_gate(folder, _store(folder, given.gate, given, gate=True), allow=given.allow)
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


def more_parser(verb: str) -> VerbParser:
    """Return the parser of a verb that learns from more data."""
    parser = verb_parser(verb, "")
    parser.add_argument("--data", required=True)
    add_data_options(parser)
    return parser


def parse_more(
    parser: VerbParser, arguments: list[str]
) -> tuple[Path, RunCommand, argparse.Namespace] | None:
    """Parse ``DIR --data DATA`` and settings that override those of the run in DIR; None if help was asked for."""
    if not arguments or arguments[0].startswith("-"):
        raise InputError(
            f"{parser.prog}: the following arguments are required: DIR, the folder of a finished run."
        )
    folder = Path(arguments[0])
    given, rest = parser.parse_known_args(arguments[1:])
    now = current_folder(folder)
    require_finished(now)
    read_config(now)  # loads the plugins that the run was made with
    command = parse_run([str(now / CONFIG), "--data", str(_store(now, given.data, given)), *rest])
    if command is not None:
        require_portable(command.config.train)
    return None if command is None else (folder, command, given)


def _store(folder: Path, data: str, given: argparse.Namespace, *, gate: bool = False) -> Path:
    """Return the store that data are, or that is made of them, as the tagger takes them."""
    now = current_folder(folder)
    result = read_result(now)
    shape = result.input_shape or ()
    size = shape[-1] if len(shape) > 1 else None
    return as_store(data, vars(given), size=size, encoder=read_encoder(now, result), gate=gate)[1]


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
