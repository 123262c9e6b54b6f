"""``mlcl extend``: train a finished run on labels that nobody knew when it began."""

from __future__ import annotations

from pathlib import Path

from mlcl.cli.helping import wants_help
from mlcl.cli.messages import page
from mlcl.cli.options import RunCommand, parse_run
from mlcl.cli.run import follow
from mlcl.errors import InputError
from mlcl.runs.continuing import update
from mlcl.runs.folder import CONFIG, free_folder, read_config, require_finished
from mlcl.runs.versions import current_folder
from mlcl.training.portable import require_portable

HELP = """usage: mlcl extend DIR --data STORE [--out DIR2] [--overwrite] [--quiet] [--train.epochs N] ...

Train a finished run on the classes of a store that it does not know yet, as one more task. DIR stays as it is; weights,
stored samples and constants come from it. Options of `mlcl run` that begin with --train or --checkpoint override those
of the run. `mlcl update` learns more rows of known labels too, and keeps versions.

  DIR          the folder of a finished run
  --data STORE the store with the new labels, by folder or name
  --out DIR2   folder to write (default: DIR-extended)
  --overwrite  replace DIR2 if it holds a run
  --quiet      print the folder's path only
  --plugin FILE.py | package.module    load parts of your own first
"""


def main(arguments: list[str]) -> int:
    """Extend: ``mlcl extend DIR --data STORE [--out DIR2] [--train.epochs N] ...``."""
    if wants_help(arguments):
        page(HELP)
        return 0
    more = parse_more("extend", arguments)
    if more is None:
        return 0
    folder, command = more
    out = command.out or free_folder(folder.with_name(f"{folder.name}-extended"))
    return follow(
        lambda callback: update(
            folder,
            out=out,
            config=command.config,
            known=False,
            overwrite=command.overwrite,
            callback=callback,
        ),
        out,
        quiet=command.quiet,
    )


def parse_more(verb: str, arguments: list[str]) -> tuple[Path, RunCommand] | None:
    """Parse ``DIR --data STORE`` and settings that override those of the run in DIR; None if help was asked for."""
    if not arguments or arguments[0].startswith("-"):
        raise InputError(
            f"mlcl {verb}: the following arguments are required: DIR, the folder of a finished run."
        )
    folder, rest = Path(arguments[0]), arguments[1:]
    if not any(word.split("=")[0] == "--data" for word in rest):
        raise InputError(
            f"mlcl {verb}: the following arguments are required: --data, the store to learn from."
        )
    now = current_folder(folder)
    require_finished(now)
    read_config(now)  # loads the plugins that the run was made with
    command = parse_run([str(now / CONFIG), *rest])
    if command is not None:
        require_portable(command.config.train)
    return None if command is None else (folder, command)
