"""``mlcl versions``: the versions of a tagger, which one is in use, and room for more."""

from __future__ import annotations

import sys
from pathlib import Path

from mlcl.cli.messages import note
from mlcl.cli.progress import make_console
from mlcl.cli.verbs import verb_parser
from mlcl.reports.rendering import PrintedTable
from mlcl.runs.versions import Version, prune, versions


def main(arguments: list[str]) -> int:
    """List: ``mlcl versions DIR [--keep N]``."""
    parser = verb_parser(
        "versions", "List the versions of a tagger: which one is in use, and which passed a gate."
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder of the tagger")
    parser.add_argument(
        "--keep",
        type=int,
        metavar="N",
        help="delete all but the newest N; the first and the one in use stay. What was learnt in a deleted version is "
        "not lost, but its rows cannot be forgotten by their ids any more",
    )
    given = parser.parse_args(arguments)
    if given.keep is not None:
        gone = prune(given.folder, given.keep)
        note(f"deleted: {', '.join(map(str, gone)) or 'no version'}")
    make_console(sys.stdout).print(version_table(versions(given.folder)))
    return 0


def version_table(found: list[Version]) -> PrintedTable:
    """Return one line per version."""
    heads = ("version", "in use", "from", "by", "labels", "Macro-AUC", "gate", "fingerprint")
    left = ("in use", "by", "gate", "fingerprint")
    return PrintedTable(
        f"versions of {found[0].folder}", heads, [_cells(version) for version in found], left=left
    )


def _cells(version: Version) -> list[str]:
    result = version.result
    parent = "-" if version.parent is None else str(version.parent)
    return [
        str(version.number),
        "*" if version.current else "",
        parent + (" (changed since)" if version.intact is False else ""),
        version.kind,
        "-" if result is None else str(len(result.classes)),
        "unfinished" if result is None else f"{result.values['macro_auc']:.2f}",
        {None: "-", True: "passed", False: "refused"}[version.gate],
        version.fingerprint,
    ]
