"""``mlcl extend``: train a finished run on labels that nobody knew when it began."""

from __future__ import annotations

from mlcl.cli.helping import wants_help
from mlcl.cli.messages import page
from mlcl.cli.run import follow
from mlcl.cli.update import DATA_HELP, more_parser, parse_more
from mlcl.runs.continuing import update
from mlcl.runs.folder import free_folder

HELP = f"""usage: mlcl extend DIR --data DATA [--out DIR2] [--overwrite] [--quiet] [--train.epochs N] ...

Train a finished run on the classes of data that it does not know yet, as one more task. DIR stays as it is; weights,
stored samples and constants come from it. Options of `mlcl run` that begin with --train or --checkpoint override those
of the run. `mlcl update` learns more rows of known labels too, and keeps versions.

  DIR          the folder of a finished run
  --data DATA  what has the new labels: a store, or anything that mlcl learn takes
  --out DIR2   folder to write (default: DIR-extended)
  --overwrite  replace DIR2 if it holds a run
  --quiet      print the folder's path only
  --plugin FILE.py | package.module    load parts of your own first
{DATA_HELP}"""


def main(arguments: list[str]) -> int:
    """Extend: ``mlcl extend DIR --data DATA [--out DIR2] [--train.epochs N] ...``."""
    if wants_help(arguments):
        page(HELP)
        return 0
    more = parse_more(more_parser("extend"), arguments)
    if more is None:
        return 0
    folder, command, _ = more
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
