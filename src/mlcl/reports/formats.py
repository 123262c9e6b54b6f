"""The formats of a table: for the terminal, CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from mlcl.metrics import Interval
from mlcl.reports.gather import Section
from mlcl.reports.tables import COSTS, NAMES, Cell, Line, footnotes, grid


def rich_table(section: Section, lines: Sequence[Line], *, width: int = 160) -> Table:
    """Return the table for a terminal; a narrow one omits columns, the least important first."""
    heads, body = grid(section, lines)
    kept = list(range(len(heads)))
    for name in [
        NAMES[m] for m in ("steps", "rows", "memory_bytes", "tail", "seconds", "pooled_macro_auc")
    ] + ["Seeds"]:
        if _width(heads, body, kept) > width and name in heads[3:] + heads[1:2]:
            kept.remove(heads.index(name))
    table = Table(title=section.headline, title_justify="left")
    fits = _width(heads, body, kept) <= width
    for position in kept:
        table.add_column(heads[position], justify="right" if position else "left", no_wrap=fits)
    for cells in body:
        shown = [cells[position] for position in kept]
        styles = ["bold" if cell.best else "dim" if cell.published else "" for cell in shown]
        table.add_row(*(Text(cell.text, style=style) for cell, style in zip(shown, styles, strict=True)))
    return table


def _width(heads: Sequence[str], body: Sequence[Sequence[Cell]], kept: Sequence[int]) -> int:
    """Return the width of a table with these columns, each with its padding and border."""
    return 1 + sum(3 + max(len(heads[n]), *(len(cells[n].text) for cells in body)) for n in kept)


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
    return _csv(heads, body)


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
    return _csv(heads, [[line[name] for name in heads] for line in lines])


def classes_csv(section: Section) -> str:
    """Return one line per run and class: its positives in training, and its AUC after the last task."""
    body = []
    for group in section.groups:
        for run in group.runs:
            task = {k: number for number, ids in enumerate(run.tasks) for k in ids}
            for k, name in enumerate(run.classes):
                auc = _plain(float(run.per_class[-1, k]))
                body.append([group.label, run.seed, name, task.get(k, ""), int(run.positive[k]), auc])
    return _csv(["label", "seed", "class", "task", "positive", "auc"], body)


def table_markdown(section: Section, lines: Sequence[Line]) -> str:
    """Return the table in Markdown."""
    heads, body = grid(section, lines)

    def plain(text: str) -> str:
        return re.sub(r"([|*_`\\<])", r"\\\1", text)

    def cell(value: Cell) -> str:
        return f"**{plain(value.text)}**" if value.best else plain(value.text)

    out = [f"| {' | '.join(map(plain, heads))} |", f"|{'---|' + '---:|' * (len(heads) - 1)}"]
    out += [f"| {' | '.join(cell(value) for value in cells)} |" for cells in body]
    return "\n".join([*out, "", *footnotes(section, lines), ""])


def table_latex(section: Section, lines: Sequence[Line]) -> str:
    """Return the table in LaTeX; it needs the package booktabs."""
    heads, body = grid(section, lines)

    def cell(value: Cell) -> str:
        text = _latex(value.text)
        return f"\\textbf{{{text}}}" if value.best else text

    out = [f"\\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}", "\\toprule"]
    out += [" & ".join(_latex(head) for head in heads) + " \\\\", "\\midrule"]
    out += [" & ".join(cell(value) for value in cells) + " \\\\" for cells in body]
    notes = [f"% {note}" for note in footnotes(section, lines)]
    return "\n".join([*notes, *out, "\\bottomrule", "\\end{tabular}", ""])


_LATEX = {"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "±": "$\\pm$"}


def _latex(text: str) -> str:
    """Escape text for LaTeX.

    >>> _latex("50 % of a_b ± 1")
    '50 \\\\% of a\\\\_b $\\\\pm$ 1'
    """
    escaped = "".join(_LATEX.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in text)
    return re.sub(r"(?<![\w-])-(?=\d)", "$-$", escaped)


def _plain(value: object) -> object:
    """Return a number with six decimals, and an empty string for an undefined value."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return round(value, 6) if isinstance(value, float) else value


def _csv(heads: Sequence[str], body: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows(body)
    return text.getvalue()
