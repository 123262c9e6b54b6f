"""The files of a sweep's report: tables, figure and page, written into its folder."""

from __future__ import annotations

from pathlib import Path

from mlcl.files import write_bytes
from mlcl.reports.drawing import to_file
from mlcl.reports.formats import classes_csv, runs_csv, table_csv, table_latex, table_markdown
from mlcl.reports.gather import sections
from mlcl.reports.page import render_page
from mlcl.reports.panels import table_figure
from mlcl.reports.tables import summarise


def write_files(out: Path) -> list[str]:
    """Write table, runs, figure and page of a sweep into its folder and return their names.

    The same runs give the same bytes.
    """
    found = sections([out])
    section = found[0]
    lines = summarise(section)
    figure = table_figure(section, lines)
    contents = {
        "table.csv": table_csv(section, lines).encode(),
        "runs.csv": runs_csv(section).encode(),
        "classes.csv": classes_csv(section).encode(),
        "table.md": table_markdown(section, lines).encode(),
        "table.tex": table_latex(section, lines).encode(),
        "figure.svg": to_file(figure, "svg"),
        "figure.pdf": to_file(figure, "pdf"),
        "report.html": render_page(found).encode(),
    }
    for name, content in contents.items():
        write_bytes(out / name, content)
    return list(contents)
