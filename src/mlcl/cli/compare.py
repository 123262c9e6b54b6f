"""``mlcl compare``: runs and sweeps of one benchmark in a table."""

from __future__ import annotations

import sys
from pathlib import Path

from mlcl.cli.options import verb_parser
from mlcl.cli.terminal import make_console
from mlcl.reports.formats import rich_table
from mlcl.reports.gather import Section, one_table, sections
from mlcl.reports.tables import footnotes, summarise


def main(arguments: list[str]) -> int:
    """Compare: ``mlcl compare DIR...``."""
    parser = verb_parser("compare", "Compare finished runs and sweeps of one benchmark in a table.")
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="folders of runs or sweeps")
    given = parser.parse_args(arguments)
    print_section(one_table(sections(given.folders)))
    return 0


def print_section(section: Section) -> None:
    """Print the table of a section of a report, and its footnotes."""
    lines = summarise(section)
    console = make_console(sys.stdout)
    console.print(rich_table(section, lines, width=console.width))
    for note in footnotes(section, lines):
        console.print(note)
