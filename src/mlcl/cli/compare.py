"""``mlcl compare``: runs and sweeps of one benchmark in a table, or the labels of versions side by side."""

from __future__ import annotations

import sys
from pathlib import Path

from mlcl.cli.progress import make_console
from mlcl.cli.verbs import verb_parser
from mlcl.reports.changes import aucs_on, measured_aucs
from mlcl.reports.gather import Section, one_table, sections
from mlcl.reports.tables import fitted, footnotes, grid, table_lines
from mlcl.runs.versions import every_version, of_one_chain


def main(arguments: list[str]) -> int:
    """Compare: ``mlcl compare DIR... [--on STORE]``."""
    parser = verb_parser(
        "compare",
        "Compare finished runs and sweeps of one benchmark in a table. Versions of one run, whose labels may differ, "
        "are compared label by label; a folder with versions stands for all of them.",
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="folders of runs or sweeps")
    parser.add_argument(
        "--on",
        metavar="STORE",
        help="measure every label on the test rows of this store, with intervals of the changes against the first run",
    )
    given = parser.parse_args(arguments)
    named = [version for folder in given.folders for version in every_version(folder)]
    folders = list({folder.resolve(): folder for folder in named}.values())  # each once, in the order given
    if given.on is not None or (len(folders) > 1 and of_one_chain(folders)):
        found = measured_aucs(folders) if given.on is None else aucs_on(folders, given.on)
        make_console(sys.stdout).print(found)
    else:
        print_section(one_table(sections(folders)))
    return 0


def print_section(section: Section) -> None:
    """Print the table of a section of a report, and its footnotes."""
    lines = table_lines(section)
    console = make_console(sys.stdout)
    console.print(fitted(grid(section, lines), console.width))
    for note in footnotes(section, lines):
        console.print(note)
