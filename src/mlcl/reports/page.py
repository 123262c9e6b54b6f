"""A self-contained HTML page of sections: table, figures, settings. It has no script and loads nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from mlcl._version import __version__
from mlcl.config.resolve import merge
from mlcl.config.schema import flat
from mlcl.files import write_bytes
from mlcl.reports import figures
from mlcl.reports.drawing import Panel, shown, to_file, to_inline
from mlcl.reports.examine import Examined
from mlcl.reports.gather import Section, differing, sections
from mlcl.reports.look import COUNT, render_look
from mlcl.reports.records import Run
from mlcl.reports.rendering import PrintedTable, decimals, page_template, plural, signed
from mlcl.reports.tables import (
    COSTS,
    NAMES,
    UNDEFINED,
    abbreviated,
    classes_csv,
    footnotes,
    grid,
    runs_csv,
    table_csv,
    table_latex,
    table_lines,
    table_markdown,
)
from mlcl.runs.durations import measured
from mlcl.runs.result import describe_solved
from mlcl.sweeps.experiment import SESSION_METRICS, nested

Block = tuple[str, str, str, Sequence[Panel | None]]
"""Heading, note, layout and figures of a part of a page."""

_SESSIONS = "The measures of class-incremental papers, on the test rows that have a class seen so far."
_MATRICES = (
    "Macro-AUC on each task (columns) after learning each task (rows), mean over seeds; pale: not learnt yet."
)
_CLASSES = "AUC of each class after the last task, mean over seeds; dotted: chance."
_MEMORIES = (
    "Share of positives of each class in the stored samples of its task; dotted: as in the data; "
    "at the bottom: none stored. Gap: sum over classes of |P/N - ratio in memory|, mean over tasks and seeds."
)

DIFFERENCES = ("Row", "Settings that differ between rows")
RUN_HEADS = ("Row", "Seed", "Macro-AUC", "Forgetting", "Pooled", "Seconds", "Commit", "Folder")
CLASS_HEADS = ("Class", "Task", "Positives", "AUC after its task", "AUC at the end", "Change")


def render_page(
    found: Sequence[Section],
    *,
    examined: Examined | None = None,
    unseen: str = "",
    count: int = COUNT,
) -> str:
    """Return the page as HTML; the same runs give the same text.

    Args:
        found: the sections.
        examined: the test rows of the run, on the page of one run.
        unseen: why there are none, in a sentence.
        count: rows that are shown per list of mistakes.
    """
    from markupsafe import Markup

    ready = [_section(section, f"s{number}", Markup) for number, section in enumerate(found, 1)]
    ready[0] |= {
        "look": "" if examined is None else render_look(examined, Markup, count=count),
        "unseen": unseen,
    }
    names = ", ".join(dict.fromkeys(section.benchmark for section in found))
    title = found[0].headline if len(found) == 1 else f"Runs on {names}"
    runs = plural(sum(len(section.runs) for section in found), "run")
    lead = f"{runs} of multi-label continual learning, evaluated by Macro-AUC."
    return page_template("page.html.jinja", title=title, lead=lead, sections=ready, version=__version__)


def _section(section: Section, name: str, markup: Any) -> dict[str, Any]:
    """Return what the template shows of a section; that of one run has its classes instead of a comparison."""
    run = single(section)
    common, differences = _settings(section)
    blocks = [
        block for block in (_blocks(section) if run is None else _run_blocks(section, run)) if any(block[3])
    ]
    numbers = iter(range(10**6))

    def ready(panel: Panel, form: str) -> dict[str, Any]:
        # matplotlib escapes the text of its SVG; everything else is escaped by the template.
        svg = markup(to_inline(panel.figure(), f"{name}-f{next(numbers)}"))
        return {"svg": svg, "title": panel.title, "caption": panel.caption, "named": form != "small"}

    return {
        "headline": section.headline,
        "claim": section.record.claim if section.record else "",
        "command": section.record.command if section.record else "",
        "facts": _facts(section),
        "class_count": len(section.runs[0].classes),
        "folder": str(section.runs[0].folder),
        "look": "",
        "unseen": "",
        "blocks": [
            (head, note, form, [ready(panel, form) for panel in panels if panel is not None])
            for head, note, form, panels in blocks
        ],
        "differences": PrintedTable(
            "Settings in which rows differ", DIFFERENCES, differences, left=DIFFERENCES
        ).html(),
        "common": common,
        "environment": _environment(section),
        **(_compared(section) if run is None else _single(run)),
    }


def single(section: Section) -> Run | None:
    """Return the run of a section that has one run only: there is nothing to compare."""
    return section.runs[0] if len(section.runs) == 1 and section.record is None else None


def _compared(section: Section) -> dict[str, Any]:
    lines = table_lines(section)
    table = replace(grid(section, lines, full=True), title=f"Comparison on {section.benchmark}")
    table = replace(table, heads=[head.replace("Macro-AUC", "Macro\u2011AUC") for head in table.heads])
    runs = [_run_cells(group.label, each) for group in section.groups for each in group.runs]
    return {
        "single": False,
        "comparison": table.html(),
        "notes": footnotes(section, lines),
        "runs": PrintedTable("All runs", RUN_HEADS, runs).html(),
        "run_count": len(runs),
        "sessions": None,
    }


def _single(run: Run) -> dict[str, Any]:
    sessions = figures.session_rows(run)
    return {
        "single": True,
        "values": _values(run),
        "undefined": UNDEFINED if math.isnan(run.values["macro_auc"]) else "",
        "sessions": PrintedTable("Sessions", figures.HEADS, sessions).html() if sessions else None,
        "classes": PrintedTable("Classes", CLASS_HEADS, list(_class_rows(run))).html(),
    }


def _values(run: Run) -> list[tuple[str, str]]:
    """Return the name and the value of each measure of a run; a dash where it is undefined."""
    found = {name: run.values[name] for name in NAMES if name in run.values}
    whole = {name: f"{value:,.0f}" for name, value in found.items() if name in COSTS and math.isfinite(value)}
    if "seconds" in whole and found["seconds"] < 10:
        whole["seconds"] = abbreviated(found["seconds"])
    return [(NAMES[name], whole.get(name) or decimals(value)) for name, value in found.items()]


def _class_rows(run: Run) -> Iterator[list[str]]:
    """Yield the cells of each class, in the order of the tasks."""
    for number, ids in enumerate(run.tasks):
        for k in ids:
            end = float(run.per_class[-1, k])
            own = end if len(run.per_class) == 1 else float(run.per_class[number, k])
            name, values = shown(run.classes[k], 60), [decimals(own), decimals(end), signed(end - own)]
            yield [name, str(number + 1), str(run.positive[k]), *values]


def _blocks(section: Section) -> list[Block]:
    """Return the figures that compare the rows of a section."""
    reference = next((g for g in section.groups if g.label == g.row.reference), section.groups[0])
    against = f" Grey: {reference.label}." if len(section.groups) > 1 else ""
    over = [figures.over_tasks(section), figures.forgetting_by_task(section)]
    over += [figures.training_curves(section), figures.time_by_task(section)]
    sessions = figures.WORDS if section.metric in SESSION_METRICS else ()
    panels = figures.table_panels(section, table_lines(section), page=True)
    scatters, heats = figures.class_scatters(section, reference), figures.matrix_heats(section)
    memories = [figures.memory_scatter(group, section) for group in section.groups]
    return [
        ("", "", "three", [*panels, figures.thirds(section)]),
        ("Over the tasks", "", "two", over),
        ("Over the sessions", _SESSIONS, "two", [figures.over_sessions(section, name) for name in sessions]),
        ("Result matrices", _MATRICES, "small", heats),
        ("AUC per class against its frequency", f"{_CLASSES}{against}", "small", scatters),
        ("Content of the memory", _MEMORIES, "small", memories),
    ]


def _run_blocks(section: Section, run: Run) -> list[Block]:
    """Return the figures of one run: classes by their names instead of rows side by side."""
    note = "AUC of each class on its own task's test rows."
    over = [figures.over_tasks(section), figures.forgetting_by_task(section)]
    sessions = [figures.over_sessions(section, name) for name in figures.WORDS]
    training = [figures.training_curves(section), figures.time_by_task(section)]
    return [
        ("Classes", note, "two", [figures.class_curves(run), figures.named_scatter(run)]),
        ("Over the tasks", "", "two", over),
        ("Over the sessions", _SESSIONS, "two", sessions),
        ("Training", "", "two", training),
        ("Result matrix", _MATRICES, "small", figures.matrix_heats(section)),
        ("Content of the memory", _MEMORIES, "small", [figures.memory_scatter(section.groups[0], section)]),
    ]


def _facts(section: Section) -> list[tuple[str, str]]:
    runs = section.runs
    first = runs[0]
    seeds = sorted({run.seed for run in runs})
    commits = sorted({run.commit for run in runs if run.commit})
    validate = any(run.settings.get("validate") for run in runs)
    return [
        ("Benchmark", section.benchmark + (", validation split" if validate else "")),
        (
            "Tasks and classes",
            f"{plural(first.summary.tasks, 'task')}, {len(first.classes)} classes",
        ),
        ("Seed", str(seeds[0])) if len(runs) == 1 else ("Runs", _counted(section, seeds)),
        ("Data fingerprint", _fingerprint(runs)),
        ("Commit", ", ".join(commits) or "not recorded"),
        *dict.fromkeys(fact for run in runs for fact in run.provenance),
        *([("Solved with", describe_solved(first.solved))] if len(runs) == 1 and first.solved else []),
        ("Computing time", _computing_time(runs)),
    ]


def _counted(section: Section, seeds: Sequence[int]) -> str:
    numbers = ", ".join(map(str, seeds))
    return (
        f"{len(section.runs)}: {plural(len(section.groups), 'row')}, seed{'s' * (len(seeds) != 1)} {numbers}"
    )


def _fingerprint(runs: Sequence[Run]) -> str:
    """Return the fingerprint of the data; validation splits have one per seed."""
    found = {run.fingerprint for run in runs if run.fingerprint}
    if len(found) == 1:
        return found.pop()
    return f"{len(found)} different" if found else "not recorded"


def _computing_time(runs: Sequence[Run]) -> str:
    """Return the time of all runs together, and the machine of the first."""
    seconds = [run.values["seconds"] for run in runs if math.isfinite(run.values["seconds"])]
    total = measured(sum(seconds)) if seconds else "not recorded"
    cores, device = runs[0].environment.get("cores"), runs[0].environment.get("device")
    return f"{total}; {cores} cores, {device}" if cores else total


def _settings(section: Section) -> tuple[str, list[tuple[str, str]]]:
    """Return the settings that all runs share, as YAML, and for each row those in which rows differ."""
    layers = [flat(group.runs[0].settings) for group in section.groups]
    keys = list(dict.fromkeys(key for layer in layers for key in layer if key != "seed"))
    own = differing(layers)
    common = merge(*(nested(key, layers[0][key]) for key in keys if key not in own))
    settings = [[f"{key} {layer[key]}" for key in keys if key in own and key in layer] for layer in layers]
    rows = [
        (group.label, ", ".join(those) or "none")
        for group, those in zip(section.groups, settings, strict=True)
    ]
    return yaml.safe_dump(common, sort_keys=False, default_flow_style=None, width=100), rows


def _environment(section: Section) -> str:
    """Return the distinct environments of the runs, without the fields that belong to a single run."""
    own = ("started", "command", "data", "run")
    seen = []
    for run in section.runs:
        kept = {key: value for key, value in run.environment.items() if key not in own}
        if kept not in seen:
            seen.append(kept)
    return yaml.safe_dump_all(seen, sort_keys=False, width=100) if seen else "not recorded"


def _run_cells(label: str, run: Run) -> list[str]:
    metrics = ("macro_auc", "forgetting", "pooled_macro_auc", "seconds")
    values = [decimals(run.values[metric]) for metric in metrics]
    return [label, str(run.seed), *values, run.commit or "-", str(run.folder)]


def write_files(out: Path) -> list[str]:
    """Write table, runs, figure and page of a sweep into its folder; return their names. Same runs, same bytes."""
    found = sections([out])
    section = found[0]
    lines = table_lines(section)
    figure = figures.table_figure(section, lines)
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
