"""A self-contained HTML page of sections: table, figures, settings. It has no script and loads nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from mlcl._version import __version__
from mlcl.config.resolve import merge
from mlcl.config.schema import flat
from mlcl.models.provenance import describe_weights
from mlcl.reports import figures
from mlcl.reports import single as one
from mlcl.reports.drawing import ReportFigure, to_inline
from mlcl.reports.examine import Examined
from mlcl.reports.figures import HEADS, WORDS, over_sessions, session_rows
from mlcl.reports.gather import Section
from mlcl.reports.look import COUNT, render_look
from mlcl.reports.panels import panel_figures
from mlcl.reports.records import Run
from mlcl.reports.rendering import PrintedTable, decimals, page_template
from mlcl.reports.tables import UNDEFINED, footnotes, grid, table_lines
from mlcl.runs.durations import measured
from mlcl.runs.result import describe_solved
from mlcl.sweeps.experiment import SESSION_METRICS, nested

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


def render_page(
    found: Sequence[Section],
    *,
    title: str | None = None,
    examined: Examined | None = None,
    unseen: str = "",
    count: int = COUNT,
) -> str:
    """Return the page as HTML; the same runs give the same text.

    Args:
        found: the sections.
        title: of the page.
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
    names = list(dict.fromkeys(section.benchmark for section in found))
    if title is None:
        title = found[0].headline if len(found) == 1 else f"Runs on {', '.join(names)}"
    runs = sum(len(section.runs) for section in found)
    lead = f"{runs} run{'s' * (runs != 1)} of multi-label continual learning, evaluated by Macro-AUC."
    whole: str = page_template("page.html.jinja").render(
        title=title, lead=lead, sections=ready, version=__version__
    )
    return whole


def _section(section: Section, name: str, markup: Any) -> dict[str, Any]:
    lines = table_lines(section)
    table = replace(grid(section, lines, full=True), title=f"Comparison on {section.benchmark}")
    table = replace(table, heads=[head.replace("Macro-AUC", "Macro\u2011AUC") for head in table.heads])
    common, differences = _settings(section)
    numbered = iter(range(10**6))

    def ready(figure: ReportFigure, *, named: bool = True) -> dict[str, Any]:
        # matplotlib escapes the text of its SVG; everything else is escaped by the template.
        svg = markup(to_inline(figure, f"{name}-f{next(numbered)}"))
        return {"svg": svg, "title": figure.title, "caption": figure.caption, "named": named}

    run = one.single(section)
    rows = [_run_cells(group.label, each) for group in section.groups for each in group.runs]
    sessions = session_rows(run) if run is not None else []
    blocks = _blocks(section, panel_figures(section, lines)) if run is None else _single_blocks(section, run)
    return {
        "title": section.title,
        "headline": section.headline,
        "benchmark": section.benchmark,
        "claim": section.record.claim if section.record else "",
        "command": section.record.command if section.record else "",
        "facts": _facts(section),
        "single": run is not None,
        "values": one.values(run) if run is not None else [],
        "sessions": None if run is None or not sessions else PrintedTable("Sessions", HEADS, sessions).html(),
        "classes": None
        if run is None
        else PrintedTable("Classes", one.CLASS_HEADS, one.class_rows(run)).html(),
        "class_count": len(section.runs[0].classes),
        "folder": str(section.runs[0].folder),
        "comparison": table.html(),
        "look": "",
        "unseen": "",
        "notes": footnotes(section, lines),
        "undefined": UNDEFINED if run is not None and math.isnan(run.values["macro_auc"]) else "",
        "blocks": [
            (head, note, form, [ready(figure, named=form != "small") for figure in group])
            for head, note, form, group in blocks
        ],
        "differences": PrintedTable(
            "Settings in which rows differ", DIFFERENCES, differences, left=DIFFERENCES
        ).html(),
        "common": common,
        "environment": _environment(section),
        "runs": PrintedTable("All runs", RUN_HEADS, rows).html(),
        "run_count": len(rows),
    }


def _blocks(
    section: Section, first: Sequence[ReportFigure]
) -> list[tuple[str, str, str, list[ReportFigure]]]:
    """Return the figures of a section in blocks of name, note, layout and figures; empty blocks are left out."""
    values = [value for run in section.runs for value in run.matrix.values.ravel() if math.isfinite(value)]
    low, high = min([50.0, *values]), max([50.0, *values])
    reference = next((g for g in section.groups if g.label == g.row.reference), section.groups[0])
    against = f" Grey: {reference.label}." if len(section.groups) > 1 else ""
    over = [figures.over_tasks(section), figures.forgetting_by_task(section)]
    over += [figures.training_curves(section), figures.time_by_task(section)]
    scatters: list[ReportFigure | None] = list(figures.class_scatters(section, reference))
    heats = [figures.matrix_heat(group, low=low, high=high) for group in section.groups]
    memories = [figures.memory_scatter(group, section) for group in section.groups]
    blocks: list[tuple[str, str, str, Sequence[ReportFigure | None]]] = [
        ("", "", "three", [*first, figures.thirds(section)]),
        ("Over the tasks", "", "two", over),
        ("Over the sessions", _SESSIONS, "two", _of_sessions(section)),
        ("Result matrices", _MATRICES, "small", heats),
        ("AUC per class against its frequency", f"{_CLASSES}{against}", "small", scatters),
        ("Content of the memory", _MEMORIES, "small", memories),
    ]
    return _filled(blocks)


def _of_sessions(section: Section) -> list[ReportFigure | None]:
    """Return the curves of the sessions where the table is compared by one of their measures."""
    if section.metric not in SESSION_METRICS:
        return []
    return [over_sessions(section, name) for name in WORDS]


def _single_blocks(section: Section, run: Run) -> list[tuple[str, str, str, list[ReportFigure]]]:
    """Return the figures of one run: classes by their names instead of rows side by side."""
    values = [value for value in run.matrix.values.ravel() if math.isfinite(value)]
    low, high = min([50.0, *values]), max([50.0, *values])
    (group,) = section.groups
    return _filled(
        [
            (
                "Classes",
                "AUC of each class on its own task's test rows.",
                "two",
                [one.class_curves(run), one.named_scatter(run)],
            ),
            ("Over the tasks", "", "two", [figures.over_tasks(section), figures.forgetting_by_task(section)]),
            ("Over the sessions", _SESSIONS, "two", [over_sessions(section, name) for name in WORDS]),
            ("Training", "", "two", [figures.training_curves(section), figures.time_by_task(section)]),
            ("Result matrix", _MATRICES, "small", [figures.matrix_heat(group, low=low, high=high)]),
            ("Content of the memory", _MEMORIES, "small", [figures.memory_scatter(group, section)]),
        ]
    )


def _filled(
    blocks: Sequence[tuple[str, str, str, Sequence[ReportFigure | None]]],
) -> list[tuple[str, str, str, list[ReportFigure]]]:
    kept = [(name, note, form, [p for p in group if p is not None]) for name, note, form, group in blocks]
    return [block for block in kept if block[3]]


def _facts(section: Section) -> list[tuple[str, str]]:
    runs = section.runs
    first = runs[0]
    seeds = sorted({run.seed for run in runs})
    commits = sorted({run.commit for run in runs if run.commit})
    validate = any(run.config.get("validate") for run in runs)
    return [
        ("Benchmark", section.benchmark + (", validation split" if validate else "")),
        (
            "Tasks and classes",
            f"{first.matrix.tasks} {'task' if first.matrix.tasks == 1 else 'tasks'}, {len(first.classes)} classes",
        ),
        ("Seed", str(seeds[0])) if len(runs) == 1 else ("Runs", _counted(section, seeds)),
        ("Data fingerprint", _fingerprint(runs)),
        ("Commit", ", ".join(commits) or "not recorded"),
        *_provenance(runs),
        *([("Solved with", describe_solved(first.solved))] if len(runs) == 1 and first.solved else []),
        ("Computing time", _computing_time(runs)),
    ]


def _counted(section: Section, seeds: Sequence[int]) -> str:
    rows = f"{len(section.groups)} row{'s' * (len(section.groups) != 1)}"
    return f"{len(section.runs)}: {rows}, seed{'s' * (len(seeds) != 1)} {', '.join(map(str, seeds))}"


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


def _provenance(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Return the provenance of weights and features, each once, and warnings about it."""
    facts: list[tuple[str, str]] = []
    for name in ("weights", "encoder_weights", "features"):
        found = [record for run in runs if (record := getattr(run, name)) is not None]
        facts += [
            (name.capitalize().replace("_", " "), line)
            for line in dict.fromkeys(describe_weights(record, file=True) for record in found)
        ]
        leaks = dict.fromkeys(str(record["leak"]) for record in found if record.get("leak"))
        facts += [("Warning", text) for text in leaks]
    return facts


def _settings(section: Section) -> tuple[str, list[tuple[str, str]]]:
    """Return the settings that all runs share, as YAML, and for each row those in which rows differ."""
    layers = [flat(group.runs[0].config) for group in section.groups]
    keys = list(dict.fromkeys(key for layer in layers for key in layer if key != "seed"))
    shared = [key for key in keys if _equal(key, layers)]
    common = merge(*(nested(key, layers[0][key]) for key in shared))
    rows = [
        (group.label, ", ".join(f"{key} {layer[key]}" for key in keys if key in layer and key not in shared))
        for group, layer in zip(section.groups, layers, strict=True)
    ]
    text = yaml.safe_dump(common, sort_keys=False, default_flow_style=None, width=100)
    return text, [(label, settings or "none") for label, settings in rows]


def _equal(key: str, layers: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a setting has the same value in all layers."""
    return len({json.dumps(layer.get(key), sort_keys=True) for layer in layers}) == 1


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
