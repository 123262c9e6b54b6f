"""The formats of the table of a section: for the terminal, CSV, Markdown and LaTeX.

CSV files of reports are for looking at: text that a spreadsheet would take for a formula has an apostrophe before it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mlcl.files import write_bytes
from mlcl.metrics import Interval
from mlcl.reports.drawing import to_file
from mlcl.reports.gather import Section, sections
from mlcl.reports.page import render_page
from mlcl.reports.panels import table_figure
from mlcl.reports.rendering import PrintedTable, as_cell, in_cell
from mlcl.reports.tables import COSTS, NAMES, Line, footnotes, grid, table_lines
from mlcl.texts import csv_text, visible


def fitted(table: PrintedTable, width: int) -> PrintedTable:
    """Return the table for a terminal of some width; a narrow one omits columns, the least important first."""
    kept = list(range(len(table.heads)))
    for name in [
        NAMES[m] for m in ("steps", "rows", "memory_bytes", "tail", "seconds", "pooled_macro_auc")
    ] + ["Seeds"]:
        if _width(table, kept) > width and name in (*table.heads[3:], table.heads[1]):
            kept.remove(table.heads.index(name))
    heads = [table.heads[place] for place in kept]
    rows = [[cells[place] for place in kept] for cells in table.rows]
    return replace(table, heads=heads, rows=rows, whole=_width(table, kept) <= width)


def _width(table: PrintedTable, kept: Sequence[int]) -> int:
    """Return the width of a table with these columns, each with its padding and border."""
    lines = [[as_cell(cell).text for cell in cells] for cells in (table.heads, *table.rows)]
    return 1 + sum(3 + max(len(visible(texts[place])) for texts in lines) for place in kept)


def table_csv(section: Section, lines: Sequence[Line]) -> str:
    """Return one line per row, in full precision, for programs."""
    metrics = list(NAMES)
    heads = ["label", "series", "x", "seeds"]
    for metric in metrics:
        heads += [f"{metric}_mean", f"{metric}_std"]
    heads += ["metric", "reference", "difference", "low", "high"]
    heads += [f"published_{metric}" for metric in metrics if metric not in COSTS]
    body = []
    for group, line in zip(section.groups, lines, strict=True):
        values: list[object] = [line.label, group.row.series, _plain(group.row.x), line.seeds]
        for metric in metrics:
            values += [_plain(line.mean[metric]), _plain(line.std[metric])]
        ends = line.difference or Interval(math.nan, math.nan, math.nan, 0.95)
        values += [section.metric, line.reference, _plain(ends.estimate), _plain(ends.low), _plain(ends.high)]
        values += [_plain(line.published.get(metric)) for metric in metrics if metric not in COSTS]
        body.append(values)
    return csv_text(heads, body, spreadsheet=True)


def runs_csv(section: Section) -> str:
    """Return one line per run, in full precision, with what made it: version, commit, tuned settings, all, and data.

    Tables from before version and hash of the settings were recorded are written without these columns.
    """
    base = None if section.record is None else "runs"
    tuning = section.record.tuning if section.record else None
    tuned, chosen = (tuning.settings, tuning.chosen) if tuning else ((), {})
    lines = []
    for group in section.groups:
        for run in group.runs:
            folder = f"{base}/{run.folder.name}" if base else str(run.folder)
            line: dict[str, object] = {"label": group.label, "seed": run.seed, **dict.fromkeys(tuned, "")}
            line |= {metric: _plain(run.values[metric]) for metric in NAMES}
            line |= chosen.get(group.label, {})
            line |= {"version": run.version, "settings": run.settings_hash, "commit": run.commit}
            lines.append(line | {"fingerprint": run.fingerprint, "folder": folder})
    recorded = [name for name in ("version", "settings") if any(line[name] for line in lines)]
    heads = ["label", "seed", *tuned, *NAMES, *recorded, "commit", "fingerprint", "folder"]
    rows = [[line[name] for name in heads] for line in lines]
    return csv_text(heads, rows, spreadsheet=True)


def classes_csv(section: Section) -> str:
    """Return one line per run and class: its positives in training, and its AUC after the last task."""
    body = []
    for group in section.groups:
        for run in group.runs:
            task = {k: number for number, ids in enumerate(run.tasks) for k in ids}
            for k, name in enumerate(run.classes):
                auc = _plain(float(run.per_class[-1, k]))
                body.append([group.label, run.seed, name, task.get(k, ""), int(run.positive[k]), auc])
    return csv_text(["label", "seed", "class", "task", "positive", "auc"], body, spreadsheet=True)


def table_markdown(section: Section, lines: Sequence[Line]) -> str:
    """Return the table in Markdown, with its footnotes."""
    notes = [in_cell(note) for note in footnotes(section, lines)]
    return "\n".join([grid(section, lines).markdown(), "", *notes, ""])


def table_latex(section: Section, lines: Sequence[Line]) -> str:
    """Return the table in LaTeX, below its footnotes; it needs the package booktabs."""
    notes = [f"% {visible(note)}" for note in footnotes(section, lines)]
    return "\n".join([*notes, grid(section, lines).latex(), ""])


def _plain(value: object) -> object:
    """Return a number with six decimals, and an empty string for an undefined value."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return round(value, 6) if isinstance(value, float) else value


def write_files(out: Path) -> list[str]:
    """Write table, runs, figure and page of a sweep into its folder and return their names.

    The same runs give the same bytes.
    """
    found = sections([out])
    section = found[0]
    lines = table_lines(section)
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
