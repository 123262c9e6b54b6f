"""The table of a section: means and standard deviations over seeds, differences to a reference, published numbers.

`table_lines` computes it, and `grid` formats its cells, from which every printed format is made. CSV files of reports
are for looking at: text that a spreadsheet would take for a formula has an apostrophe before it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mlcl.metrics import Interval, mean_std
from mlcl.metrics.intervals import paired_by_seed
from mlcl.reports.gather import RunGroup, Section
from mlcl.reports.rendering import Cell, PrintedTable, as_cell, decimals, in_cell, interval
from mlcl.sweeps.experiment import LOWER_IS_BETTER, SESSION_METRICS
from mlcl.sweeps.record import TuningRecord
from mlcl.texts import csv_number, csv_text, visible

NAMES = {
    "macro_auc": "Macro-AUC",
    "forgetting": "Forgetting",
    "pooled_macro_auc": "Pooled Macro-AUC",
    "pooled_map": "Pooled mAP",
    "head": "Head",
    "medium": "Medium",
    "tail": "Tail",
    "map_avg": "mAP avg",
    "map_last": "mAP last",
    "cf1_avg": "CF1 avg",
    "cf1_last": "CF1 last",
    "of1_avg": "OF1 avg",
    "of1_last": "OF1 last",
    "fpr_avg": "FPR avg",
    "fpr_last": "FPR last",
    "map_forgetting": "mAP forgetting",
    "steps": "Steps",
    "rows": "Rows seen",
    "memory_bytes": "Bytes kept",
    "seconds": "Seconds",
}
UNDEFINED = (
    "A dash under Macro-AUC: it is undefined where no class has both positive and negative test rows in its task, as "
    "in tasks of one class without stream.negatives 'all'."
)
COSTS = ("steps", "rows", "memory_bytes", "seconds")
"""What a run costs, beside the metrics: equal epochs are not equal numbers of steps or rows."""

BRIEF = ("macro_auc", "forgetting", "pooled_macro_auc", "tail", *COSTS)
"""The metrics that fit the width of a terminal and of a paper."""

FULL = ("macro_auc", "forgetting", "pooled_macro_auc", "head", "tail", *COSTS)
"""The metrics that fit the width of a page; the others are in its figures and in the CSV files."""

SESSIONS = (*SESSION_METRICS[1:], "macro_auc", "pooled_macro_auc", *COSTS)
"""The metrics of a table that compares by one of the field's."""


@dataclass(frozen=True)
class Line:
    """One line of a table: by metric mean and sample standard deviation over seeds, and the paper's number.

    ``difference`` is the mean difference to the row ``reference`` in the table's metric, over the seeds that both have,
    with a 95 % t-interval (nan ends for one seed); None for the reference itself and without common seeds. ``best`` are
    the metrics in which this line is the best of those it is compared with.
    """

    label: str
    seeds: int
    mean: Mapping[str, float]
    std: Mapping[str, float]
    reference: str
    difference: Interval | None
    best: frozenset[str]
    published: Mapping[str, float]


def table_lines(section: Section) -> list[Line]:
    """Compute the lines of a section's table."""
    by_label = {group.label: group for group in section.groups}
    spread = {
        group.label: {metric: mean_std([run.values[metric] for run in group.runs]) for metric in NAMES}
        for group in section.groups
    }
    means = {label: {metric: value[0] for metric, value in found.items()} for label, found in spread.items()}
    best = _best(section.groups, means)
    return [
        Line(
            label=group.label,
            seeds=len(group.runs),
            mean=means[group.label],
            std={metric: value[1] for metric, value in spread[group.label].items()},
            reference=group.row.reference,
            difference=_difference(group, by_label.get(group.row.reference), section.metric),
            best=frozenset(metric for metric, labels in best.items() if group.label in labels),
            published=group.row.published,
        )
        for group in section.groups
    ]


def _difference(group: RunGroup, other: RunGroup | None, metric: str) -> Interval | None:
    """Compare two rows seed by seed, so that variation common to the runs of a seed cancels."""
    if other is None or other is group:
        return None
    mine, theirs = ({run.seed: run.values[metric] for run in each.runs} for each in (group, other))
    return paired_by_seed(mine, theirs)


def _best(groups: Sequence[RunGroup], means: Mapping[str, Mapping[str, float]]) -> dict[str, set[str]]:
    """Find the best rows by metric: at each value of the axis where rows share it, else over all rows."""
    shared = len({group.row.x for group in groups}) < len(groups)
    compared: dict[object, list[str]] = {}
    for group in groups:
        compared.setdefault(group.row.x if shared else None, []).append(group.label)
    best: dict[str, set[str]] = {metric: set() for metric in NAMES if metric not in COSTS}
    for metric, found in best.items():
        for labels in compared.values():
            known = {label: means[label][metric] for label in labels if math.isfinite(means[label][metric])}
            if len(known) > 1:
                top = (min if metric in LOWER_IS_BETTER else max)(known.values())
                found |= {label for label, value in known.items() if value == top}
    return best


def columns(section: Section, lines: Sequence[Line], *, full: bool) -> list[str]:
    """Return the metrics that the table shows: its own first, then those that any run has a value for."""
    wanted: Sequence[str] = FULL if full else BRIEF
    if section.metric in SESSION_METRICS:
        wanted = SESSIONS
    rest = [m for m in wanted if m != section.metric and any(math.isfinite(line.mean[m]) for line in lines)]
    return [section.metric, *rest]


def grid(section: Section, lines: Sequence[Line], *, full: bool = False) -> PrintedTable:
    """Return the table with formatted cells, from which every printed format is made."""
    shown = columns(section, lines, full=full)
    published = [metric for metric in NAMES if any(metric in line.published for line in lines)]
    compared = any(line.difference for line in lines)
    heads = ["", "Seeds", NAMES[shown[0]], *([_versus(lines)] if compared else [])]
    heads += [NAMES[metric] for metric in shown[1:]] + [
        f"{NAMES[metric]} (published)" for metric in published
    ]
    rows = [_cells(line, shown, published, compared=compared) for line in lines]
    return PrintedTable(section.headline, heads, rows, left=heads[:1])


def _versus(lines: Sequence[Line]) -> str:
    """Return the head of the column of differences: the reference, or the series of references along an axis."""
    references = {line.reference for line in lines}
    first = min(references)
    return f"vs {first}" if len(references) == 1 else f"vs {first.rpartition(', ')[0] or first}"


def _cells(line: Line, shown: Sequence[str], published: Sequence[str], *, compared: bool) -> list[Cell]:
    difference = [Cell(interval(line.difference))] if compared else []
    own = [_value(line, metric) for metric in shown]
    others = [Cell(decimals(line.published.get(metric, math.nan)), pale=True) for metric in published]
    return [Cell(line.label), Cell(str(line.seeds)), own[0], *difference, *own[1:], *others]


def _value(line: Line, metric: str) -> Cell:
    mean, std = line.mean[metric], line.std[metric]
    if metric in COSTS:
        return Cell(abbreviated(mean))
    text = decimals(mean) + (f" ± {std:.2f}" if math.isfinite(std) else "")
    return Cell(text, best=metric in line.best)


def abbreviated(value: float) -> str:
    """Return a number of steps, rows, bytes or seconds in few characters.

    >>> [abbreviated(value) for value in (4.25, 812.0, 5728.0, 183_000.0, 1.2e7, 0.032)]
    ['4.2', '812', '5.7k', '183k', '12.0M', '0.03']
    """
    if not math.isfinite(value):
        return "-"
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            scaled = value / size
            return f"{scaled:.0f}{letter}" if scaled >= 100 else f"{scaled:.1f}{letter}"
    if 0 < value < 0.05:
        return f"{value:.1g}"
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def footnotes(section: Section, lines: Sequence[Line]) -> list[str]:
    """Return the sentences below the table that explain its numbers."""
    notes = ["Points (x 100); mean ± sample standard deviation over seeds; best in bold."]
    if any(line.difference for line in lines):
        notes.append(
            f"Differences in {NAMES[section.metric]} are paired by seed, "
            "with a 95 % t-interval for two or more seeds."
        )
    if any(math.isfinite(line.mean["memory_bytes"]) for line in lines):
        notes.append(
            "Bytes kept: stored rows, sums and the regulariser's state between tasks; the copy of the old network that "
            "distillation makes while it learns is not counted."
        )
    if any(line.published for line in lines):
        notes.append(
            "Published: numbers of the paper, from its own protocol; they are context, not a target."
        )
    if any(math.isnan(line.mean["macro_auc"]) for line in lines):
        notes.append(UNDEFINED)
    if section.record and section.record.tuning:
        notes.append(_tuning_note(section.record.tuning))
    if any(run.settings.get("validate") for run in section.runs):
        notes.append("Measured on a validation split of the training data, not on test data.")
    commits = sorted({run.commit for run in section.runs if run.commit})
    if len(commits) > 1:
        notes.append(
            f"Runs were made by {len(commits)} commits ({', '.join(commits)}); defaults of settings may have "
            "changed between them."
        )
    if section.record and section.record.failed:
        names = ", ".join(f"{label} seed {seed}" for label, seed, _ in section.record.failed)
        notes.append(f"Failed and left out: {names}.")
    return notes


def _tuning_note(tuning: TuningRecord) -> str:
    """Return what was chosen for each row, and how."""
    chosen = [
        f"{label}: {', '.join(f'{name} {value}' for name, value in values.items())}"
        for label, values in tuning.chosen.items()
        if values
    ]
    fixed = [label for label, values in tuning.chosen.items() if not values]
    own = f" Not tuned, for want of these settings: {', '.join(fixed)}." if fixed else ""
    return (
        f"Each row at its own best {' and '.join(tuning.settings)}: the best mean {NAMES[tuning.metric]} on training "
        f"rows that were held out, at {len(tuning.seeds)} seeds that the table does not have "
        f"({', '.join(map(str, tuning.seeds))}; tuning.csv). {'; '.join(chosen)}.{own}"
    )


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
        values: list[object] = [line.label, group.row.series, csv_number(group.row.x), line.seeds]
        for metric in metrics:
            values += [csv_number(line.mean[metric]), csv_number(line.std[metric])]
        ends = line.difference or Interval(math.nan, math.nan, math.nan, 0.95)
        values += [
            section.metric,
            line.reference,
            csv_number(ends.estimate),
            csv_number(ends.low),
            csv_number(ends.high),
        ]
        values += [csv_number(line.published.get(metric)) for metric in metrics if metric not in COSTS]
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
            line |= {metric: csv_number(run.values[metric]) for metric in NAMES}
            line |= chosen.get(group.label, {})
            line |= {
                "version": run.version,
                "settings": run.settings_hash,
                "commit": run.commit,
            }
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
                auc = csv_number(float(run.per_class[-1, k]))
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
