"""``mlcl versions``: the versions of a run, and which one is in use."""

from __future__ import annotations

import sys
from pathlib import Path

from mlcl.cli.progress import make_console
from mlcl.cli.verbs import verb_parser
from mlcl.reports.rendering import PrintedTable
from mlcl.runs.versions import Version, versions


def main(arguments: list[str]) -> int:
    """List: ``mlcl versions DIR``."""
    parser = verb_parser(
        "versions", "List the versions of a run: which one is in use, and which passed a gate."
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder of the run")
    found = versions(parser.parse_args(arguments).folder)
    make_console(sys.stdout).print(version_table(found))
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
