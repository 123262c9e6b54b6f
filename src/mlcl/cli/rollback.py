"""``mlcl rollback``: use an earlier version of a run again."""

from __future__ import annotations

from pathlib import Path

from mlcl.cli.messages import say
from mlcl.cli.verbs import verb_parser
from mlcl.runs.versions import rollback


def main(arguments: list[str]) -> int:
    """Roll back: ``mlcl rollback DIR [--to N]``."""
    parser = verb_parser(
        "rollback",
        "Use an earlier version of a run again: the one that the current version began from. "
        "Nothing is deleted; a service that runs must be started anew.",
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder of the run")
    parser.add_argument(
        "--to",
        type=int,
        metavar="N",
        help="the version to use instead; also a later one, or one that a gate refused",
    )
    given = parser.parse_args(arguments)
    found = rollback(given.folder, given.to)
    say(f"version {found.number} is in use: {found.folder}")
    return 0
