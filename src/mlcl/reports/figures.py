"""The figures of a report: panels over the rows of a section or over one run, and the figure of a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.memories import TaskSamples
from mlcl.memories.wru import wru_gap
from mlcl.metrics import mean_std, session_means
from mlcl.metrics.columns import column_means, mean_defined
from mlcl.metrics.sessions import MEASURES
from mlcl.reports.drawing import (
    INK,
    QUIET,
    Panel,
    ReportFigure,
    colour,
    count_axis,
    legend,
    legend_height,
    marker,
    plain_log,
    shown,
    ticks,
    value_list,
)
from mlcl.reports.gather import RunGroup, Section
from mlcl.reports.records import Run
from mlcl.reports.rendering import decimals
from mlcl.reports.tables import NAMES, Line

Floats = NDArray[np.float64]
_SHADED = 4  # the largest number of rows with a shade for the standard deviation
_HEAT = ("#eef4f1", "#a9d3c6", "#5fb0a8", "#2b8390", "#1d5570", "#1a3550")
_BARS = "Error bars: sample standard deviation over seeds."
NAMED = 24
"""The largest number of classes that a figure names; of more it names those that are worst."""
WORDS = {"map": "mAP", "fpr": "False-positive rate"}
"""Measures of sessions that are drawn, and their names."""
HEADS = ("Session", "Classes", "mAP", "CF1", "OF1", "CP", "CR", "OP", "OR", "FPR", "mean F1")


def mean_and_spread(group: RunGroup, of: Callable[[Run], Floats]) -> tuple[Floats, Floats]:
    """Return mean and sample standard deviation over seeds; rows of another length than the first are left out."""
    rows = [of(run) for run in group.runs]
    stack = np.array([row for row in rows if len(row) == len(rows[0])])
    none = np.full(stack.shape[1:], np.nan)
    return stack.mean(axis=0), stack.std(axis=0, ddof=1) if len(stack) > 1 else none


def mean_of_known(rows: Sequence[Floats]) -> Floats:
    """Return the mean over seeds of the finite values, nan where there is none."""
    stack = np.array([row for row in rows if row.shape == rows[0].shape])
    return column_means(stack, np.isfinite(stack))


def class_means(runs: Sequence[Run]) -> tuple[Floats, Floats]:
    """Return P_k and the final AUC of each class, means over the seeds."""
    same = [run for run in runs if run.classes == runs[0].classes]
    positive = np.mean([run.positive for run in same], axis=0)
    return positive, mean_of_known([run.per_class[-1] for run in same])


def _stored(run: Run) -> list[TaskSamples]:
    return [samples for samples in (run.memory.tasks if run.memory else ()) if len(samples)]


def memory_shares(run: Run) -> tuple[Floats, Floats]:
    """Return the share of positives of each class in its task, and in the stored samples of that task."""
    stored = _stored(run)
    data = np.concatenate([samples.counts.positive / max(1, samples.counts.total) for samples in stored])
    return data, np.concatenate([samples.labels.mean(axis=0) for samples in stored])


def memory_gap(group: RunGroup) -> tuple[float, float]:
    """Return mean and standard deviation over seeds of the mean WRU gap of a run's tasks; nan without memories."""
    stored = [samples for run in group.runs if (samples := _stored(run))]
    gaps = [np.mean([wru_gap(task.counts, task.labels) for task in tasks]) for tasks in stored]
    return mean_std(gaps) if gaps else (math.nan, math.nan)


def _lines(
    section: Section,
    groups: Sequence[RunGroup],
    of: Callable[[Run], Floats],
    *,
    title: str,
    alt: str,
    axis: tuple[str, str],
    caption: str,
    summary: Callable[[Floats], Any] = lambda mean: mean[-1],
    start: int = 1,
    more: Callable[[Any], None] = lambda _: None,
    bars: bool = False,
    **options: Any,
) -> Panel:
    """Draw a line per row through the means over seeds, dashed for one value (joint training) among several.

    The standard deviation is drawn as ``bars``, or as a shade if the rows are few.
    """
    curves = [(group, *mean_and_spread(group, of)) for group in groups]
    longest = max(len(mean) for _, mean, _ in curves)

    def draw(axes: Any) -> None:
        for group, mean, std in curves:
            x, style = (
                np.arange(start, start + len(mean)),
                _style(section, group) | {"label": shown(group.label)},
            )
            if len(mean) == 1 < longest:
                axes.axhline(mean[0], ls="--", lw=1.2, **style | {"marker": None})
            elif bars:
                _bars(axes, x, mean, std, lw=1.2, ms=4, **style)
            else:
                axes.plot(x, mean, **style)
                if np.isfinite(std).any() and len(section.groups) <= _SHADED:
                    axes.fill_between(x, mean - std, mean + std, color=style["color"], alpha=0.13, lw=0)
        axes.set(xlabel=axis[0], ylabel=axis[1], xticks=ticks(longest))
        more(axes)

    values = value_list([(group.label, float(summary(mean))) for group, mean, _ in curves])
    labels = [group.label for group in groups]
    return Panel(title, f"{alt}: {values}.", draw, caption, **{"labels": labels} | options)


def over_tasks(section: Section) -> Panel | None:
    """Draw the mean Macro-AUC over the tasks seen, after each task: the paper's figure of test results."""
    if all(len(group.runs[0].matrix) < 2 for group in section.groups):
        return None
    shaded = len(section.groups) <= _SHADED and any(len(group.runs) > 1 for group in section.groups)
    return _lines(
        section,
        section.groups,
        lambda run: run.summary.seen_means,
        title="Macro-AUC over tasks",
        alt="Lines of the mean Macro-AUC over the tasks seen. After the last task",
        axis=("tasks learnt", "Macro-AUC over tasks seen"),
        caption="Shade: sample standard deviation over seeds." if shaded else "Means over seeds.",
    )


def forgetting_by_task(section: Section) -> Panel | None:
    """Draw the forgetting of each task: its best earlier value minus its last."""
    groups = [
        group for group in section.groups if not group.runs[0].joint and group.runs[0].summary.tasks > 1
    ]
    if not groups:
        return None
    return _lines(
        section,
        groups,
        lambda run: run.summary.forgetting_per_task(),
        title="Forgetting by task",
        alt="Lines of the points that each task has lost after the last task; above zero is a loss. Means",
        axis=("task", "forgetting (points lost)"),
        caption="Best earlier Macro-AUC of a task minus its last; above zero is a loss.",
        summary=mean_defined,
        more=lambda axes: axes.axhline(0, color=INK, lw=0.7, zorder=1.9),
    )


def thirds(section: Section) -> Panel:
    """Draw the final Macro-AUC of the frequent, the medium and the rare third of the classes."""

    def name(axes: Any) -> None:
        axes.set_xticks(range(3), ["head (frequent)", "medium", "tail (rare)"])
        axes.set_xlim(-0.25, 2.25)

    return _lines(
        section,
        section.groups,
        lambda run: np.array([run.values[part] for part in ("head", "medium", "tail")]),
        title="Head, medium and tail",
        alt="Macro-AUC of the head, medium and tail third of the classes by frequency. Tail",
        axis=("", "Macro-AUC of the third"),
        caption="Thirds of the classes by P_k, after the last task.",
        start=0,
        more=name,
        size=(3.9, 2.5),
    )


def time_by_task(section: Section) -> Panel:
    """Draw the seconds of each task, evaluation included."""
    return _lines(
        section,
        section.groups,
        lambda run: run.task_seconds,
        title="Time per task",
        alt="Seconds per task. In total",
        axis=("task", "seconds"),
        caption="Runs at the same time on one machine slow each other down.",
        summary=np.nansum,
        more=lambda axes: axes.set_ylim(bottom=0),
    )


def training_curves(section: Section) -> Panel | None:
    """Draw the mean training loss of each epoch, task after task."""
    groups = [group for group in section.groups if len(group.runs[0].losses)]
    if not groups:
        return None
    curves = [(group, mean_and_spread(group, lambda run: run.losses)[0]) for group in groups]

    def draw(axes: Any) -> None:
        for group, mean in curves:
            x = np.arange(1, len(mean) + 1) / (len(mean) / len(group.runs[0].matrix))
            few = {"ms": 3} if len(mean) < 12 else {"marker": None}
            axes.plot(x, mean, label=shown(group.label), lw=1.3, **_style(section, group) | few)
        axes.set(xlabel="tasks learnt", ylabel="training loss")

    ends = value_list([(group.label, mean[-1]) for group, mean in curves])
    alt = f"Lines of the mean training loss of each epoch, task after task. At the end: {ends}."
    caption = "Different losses have different scales; compare shapes, not values."
    return Panel("Training loss", alt, draw, caption, labels=[group.label for group in groups])


def matrix_heats(section: Section) -> list[Panel]:
    """Draw A[t, i] of each row: rows are tasks learnt, columns tasks evaluated; tasks not learnt yet are pale."""
    values = [value for run in section.runs for value in run.matrix.ravel() if math.isfinite(value)]
    low, high = min([50.0, *values]), max([50.0, *values])
    return [_matrix_heat(group, low, high) for group in section.groups]


def _matrix_heat(group: RunGroup, low: float, high: float) -> Panel:
    from matplotlib.colors import LinearSegmentedColormap

    values = mean_of_known([run.matrix for run in group.runs])
    evaluations, tasks = values.shape
    joint = group.runs[0].joint

    def draw(axes: Any) -> None:
        axes.grid(visible=False)
        palette = LinearSegmentedColormap.from_list("mlcl", _HEAT)
        for t, i in np.ndindex(evaluations, tasks):
            value = float(values[t, i])
            level = 0.0 if math.isnan(value) else (value - low) / max(high - low, 1e-9)
            _heat_cell(axes, t, i, value, palette(level), level, learnt=joint or i <= t, tasks=tasks)
        axes.set(xlim=(-0.5, tasks - 0.5), ylim=(evaluations - 0.5, -0.5))
        axes.set_xticks(range(tasks), [str(i + 1) for i in range(tasks)])
        axes.set_yticks(range(evaluations), ["all" if joint else str(t + 1) for t in range(evaluations)])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set(xlabel="evaluated on task", ylabel="learnt up to task", title=shown(group.label))

    last = ", ".join(f"{value:.1f}" for value in values[-1])
    alt = f"Heat map of Macro-AUC, {evaluations} by {tasks}, for {group.label}. After the last task: {last}."
    size = (3.2, 0.8 + 2.1 * min(1.0, max(evaluations, 2) / tasks))
    return Panel(f"Result matrix of {group.label}", alt, draw, size=size)


def _heat_cell(
    axes: Any, t: int, i: int, value: float, face: Any, level: float, *, learnt: bool, tasks: int
) -> None:
    from matplotlib.patches import Rectangle

    alpha = 1.0 if learnt else 0.3
    axes.add_patch(Rectangle((i - 0.47, t - 0.47), 0.94, 0.94, facecolor=face, alpha=alpha, lw=0))
    if tasks <= 12:
        ink = INK if not learnt else "#ffffff" if level > 0.45 else "#16181c"
        style = {"ha": "center", "va": "center", "color": ink, "alpha": 1.0 if learnt else 0.75}
        axes.text(i, t, decimals(value, 0 if tasks > 6 else 1), fontsize=8, **style)


def class_scatters(section: Section, reference: RunGroup) -> list[Panel]:
    """Draw the final AUC of each class against P_k, one figure per row, with the reference row in grey."""
    found = [(group, *class_means(group.runs)) for group in section.groups]
    least = min([50.0, *(value for *_, auc in found for value in auc[np.isfinite(auc)])])
    other = class_means(reference.runs)
    return [_class_scatter(section, *each, reference, other, least - 2) for each in found]


def _class_scatter(
    section: Section,
    group: RunGroup,
    counts: Floats,
    values: Floats,
    reference: RunGroup,
    other: tuple[Floats, Floats],
    low: float,
) -> Panel:
    def draw(axes: Any) -> None:
        axes.axhline(50, color=INK, lw=0.7, ls=":")
        if reference is not group:
            style = {"color": QUIET, "marker": "o", "label": shown(reference.label)}
            axes.scatter(*other, s=16, lw=0, alpha=0.55, **style)
        axes.scatter(
            counts, values, s=20, lw=0, alpha=0.9, label=shown(group.label), **_style(section, group)
        )
        count_axis(axes, np.concatenate([counts, other[0]]), "positives in training, P_k")
        axes.set(ylim=(low, 101), ylabel="AUC of the class", title=shown(group.label))

    worst = value_list([(group.runs[0].classes[k], values[k]) for k in np.argsort(counts)[:3]])
    alt = f"Final AUC of each class against its number of positives, for {group.label}. Rarest: {worst}."
    return Panel(f"Classes of {group.label}", alt, draw, size=(3.2, 2.6))


def memory_scatter(group: RunGroup, section: Section) -> Panel | None:
    """Draw, for each class, its share of positives in the memory against that in its task."""
    shares = [memory_shares(run) for run in group.runs if run.memory is not None]
    if not shares:
        return None
    data, kept = (np.concatenate(part) for part in zip(*shares, strict=True))
    gap, gap_std = memory_gap(group)

    def draw(axes: Any) -> None:
        low = max(1e-4, 0.7 * min(v[v > 0].min() if (v > 0).any() else 1e-3 for v in (data, kept)))
        axes.plot([low, 1], [low, 1], color=INK, lw=0.7, ls=":")
        axes.scatter(data.clip(low), kept.clip(low), s=18, lw=0, alpha=0.85, **_style(section, group))
        axes.set(xscale="log", yscale="log")
        plain_log(axes.xaxis)
        plain_log(axes.yaxis)
        axes.set(
            xlabel="share of positives in the task",
            ylabel="share in the memory",
            title=f"{shown(group.label, 24)}: gap {gap:.2f}",
        )

    spread = f" (standard deviation {gap_std:.2f})" if math.isfinite(gap_std) else ""
    off = float(np.mean(np.abs(data - kept)))
    alt = (
        f"Share of positives of each class in the memory against its task, for {group.label}. "
        f"WRU gap {gap:.2f}{spread}; the shares differ by {off:.3f} on average."
    )
    return Panel(f"Memory of {group.label}", alt, draw, size=(3.2, 2.8))


def session_rows(run: Run) -> list[list[str]]:
    """Return the cells of each session of a run, and of their mean; nothing for a run with a single session."""
    if len(run.sessions) < 2:
        return []
    seen = np.cumsum([len(task) for task in run.tasks])
    heads = [[str(number), str(count)] for number, count in enumerate(seen[: len(run.sessions)], 1)]
    pairs = zip([*heads, ["avg", ""]], [*run.sessions, session_means(run.sessions)], strict=True)
    return [[*head, *(decimals(session[name]) for name in MEASURES)] for head, session in pairs]


def over_sessions(section: Section, measure: str) -> Panel | None:
    """Draw a measure of `WORDS` after each session, over the classes seen so far; joint training is dashed."""
    groups = [group for group in section.groups if all(run.sessions for run in group.runs)]
    if all(len(group.runs[0].sessions) < 2 for group in groups):
        return None
    return _lines(
        section,
        groups,
        lambda run: np.array([each[measure] for each in run.sessions]),
        title=f"{WORDS[measure]} over the sessions",
        alt=f"Lines of the {WORDS[measure]} after each session. After the last",
        axis=("sessions", f"{WORDS[measure]} of all classes so far"),
        caption="",
        size=(4.6, 2.6),
        bars=True,
    )


def _style(section: Section, group: RunGroup) -> dict[str, Any]:
    position = section.groups.index(group)
    return {"color": colour(position), "marker": marker(position)}


def _bars(axes: Any, x: Any, mean: Any, spread: Any, **style: Any) -> None:
    axes.errorbar(x, mean, yerr=spread if np.isfinite(spread).all() else None, capsize=2, **style)


# The page of one run: its classes by name.


def named_scatter(run: Run) -> Panel:
    """Draw the final AUC of each class against P_k, with the names of the classes."""
    counts, finals = run.positive.astype(float), run.per_class[-1]
    worst = [k for k in np.argsort(finals, kind="stable") if math.isfinite(finals[k])]

    def draw(axes: Any) -> None:
        axes.axhline(50, color=INK, lw=0.7, ls=":")
        axes.scatter(counts, finals, s=20, lw=0, alpha=0.9, color=colour(0))
        style = {"xytext": (3, 3), "textcoords": "offset points", "fontsize": 6.5, "color": INK}
        for k in sorted(worst[:NAMED]):
            axes.annotate(shown(run.classes[k], 18), (counts[k], finals[k]), **style)
        count_axis(axes, counts, "positives in training, P_k")
        axes.margins(x=0.12)
        axes.set_ylabel("AUC of the class, at the end")

    found = value_list([(run.classes[k], float(finals[k])) for k in worst[:3]])
    alt = f"Final AUC of each class against its number of positives, each with its name. Lowest: {found}."
    few = "" if len(worst) <= NAMED else f" The {NAMED} lowest are named; the table has all."
    return Panel("Classes by frequency", alt, draw, f"Dotted: chance.{few}", (6.4, 3.8))


def class_curves(run: Run) -> Panel | None:
    """Draw the AUC of each class after each task, from the task on that it was learnt in; None without tasks."""
    steps = len(run.per_class)
    if steps < 2:
        return None
    first = {k: number for number, ids in enumerate(run.tasks) for k in ids}
    change = {k: float(run.per_class[-1, k] - run.per_class[number, k]) for k, number in first.items()}
    lost = {k: value if math.isfinite(value) else math.inf for k, value in change.items()}
    order = sorted(lost, key=lambda k: lost[k])
    bright = set(order) if len(order) <= NAMED else set(order[: NAMED // 2])

    def draw(axes: Any) -> None:
        axes.axhline(50, color=INK, lw=0.7, ls=":")
        curves = {k: run.per_class[number:, k] for k, number in first.items()}
        for k, y in curves.items():
            hue, width, size = (colour(first[k]), 1.2, 2.5) if k in bright else (QUIET, 0.5, 0)
            axes.plot(np.arange(first[k] + 1, steps + 1), y, color=hue, lw=width, marker="o", ms=size)
        drawn = np.concatenate(list(curves.values()))
        low = min([50.0, *drawn[np.isfinite(drawn)].tolist()]) - 2
        ends = {k: float(curves[k][-1]) for k in bright if math.isfinite(curves[k][-1])}
        room = 0.07 * (steps - 1)
        for k, height in spread_labels(ends, gap=(102 - low) / 30).items():
            axes.plot([steps, steps + room], [ends[k], height], color=QUIET, lw=0.4)
            style = {"fontsize": 6.5, "color": INK, "va": "center"}
            axes.text(steps + 1.2 * room, height, shown(run.classes[k], 18), **style)
        axes.set(
            ylim=(low, 102),
            xlim=(0.9, steps + 0.3 * (steps - 1)),
            xticks=ticks(steps),
            xlabel="tasks learnt",
            ylabel="AUC of the class",
        )

    worst = value_list([(run.classes[k], lost[k]) for k in order[:3]])
    alt = f"Lines of the AUC of each class after each task, from its own task on. Largest changes: {worst}."
    few = "" if len(order) <= NAMED else f" In colour and named: the {NAMED // 2} that lost the most."
    caption = f"One line per class, from its own task on; one colour per task.{few}"
    return Panel("AUC per class over the tasks", alt, draw, caption, (6.4, 3.8))


def spread_labels(ends: Mapping[int, float], *, gap: float) -> dict[int, float]:
    """Return heights for labels at these values, moved down where they would be closer than ``gap``.

    >>> spread_labels({0: 90.0, 1: 99.0, 2: 98.9}, gap=2.0)
    {1: 99.0, 2: 97.0, 0: 90.0}
    """
    found: dict[int, float] = {}
    last = math.inf
    for key in sorted(ends, key=lambda key: -ends[key]):
        found[key] = last = min(ends[key], last - gap)
    return found


# The figure of a table: panels, side by side in a file for a paper and one by one in the page.


def table_figure(section: Section, lines: Sequence[Line]) -> ReportFigure:
    """Return the whole figure of a section's table, of the kind that its experiment names."""
    panels = table_panels(section, lines)
    listed = [panel for panel in panels if panel.listed]
    # Beside other panels, those that list the rows are placed below, over the whole width.
    wide = listed if len(listed) < len(panels) and len(panels) > 2 else []
    top = [panel for panel in panels if panel not in wide]
    named = max(range(len(top)), key=lambda n: (len(top[n].labels), n))  # of which the legend is
    labels = top[named].labels

    def draw(figure: Any) -> None:
        rows = figure.subfigures(1 + len(wide), 1, squeeze=False, height_ratios=[1.0, *(0.7 for _ in wide)])
        axes = rows[0, 0].subplots(1, len(top), squeeze=False)[0]
        for place, panel in zip(axes, top, strict=True):
            panel.draw(place)
        for place in axes[1:]:
            if len(listed) == len(panels):  # the first panel names the rows
                place.set_yticklabels([])
        for row, panel in zip(rows[1:, 0], wide, strict=True):
            panel.draw(row.subplots())
        legend(figure, axes[named], labels)

    width = 3.4 * len(top) + (0.6 if listed else 0.0) if len(top) > 1 else 4.8
    height = max(panel.size[1] for panel in top) + sum(panel.size[1] for panel in wide)
    alt = " ".join(panel.alt for panel in panels)
    return ReportFigure(section.title, alt, draw, (width, height + legend_height(labels, width)))


def table_panels(section: Section, lines: Sequence[Line], *, page: bool = False) -> list[Panel]:
    """Return the panels of a section's figure; a page has curves of its own."""
    if section.figure == "curves" and not page:
        return [panel for panel in (training_curves(section), over_tasks(section)) if panel is not None]
    if section.figure == "lines":
        metrics = dict.fromkeys((section.metric, "pooled_macro_auc"))
        known = [metric for metric in metrics if any(math.isfinite(line.mean[metric]) for line in lines)]
        return [_along(section, lines, metric) for metric in known or [section.metric]]
    if section.figure == "imbalance":
        first = {group.row.x: group.runs[0] for group in reversed(section.groups)}
        values = dict.fromkeys(group.row.x for group in section.groups)
        counts = [_counts(shown(f"{section.axis} {value}"), first[value]) for value in values]
        return [*counts, _points(section, lines, section.metric)]
    return [_points(section, lines, metric) for metric in _pointed(section, lines)]


def _pointed(section: Section, lines: Sequence[Line]) -> Iterator[str]:
    yield section.metric
    if section.metric != "forgetting" and any(math.isfinite(line.mean["forgetting"]) for line in lines):
        yield "forgetting"


def _points(section: Section, lines: Sequence[Line], metric: str) -> Panel:
    """Draw each row as a point with its standard deviation; the paper's numbers are hollow diamonds."""
    hollow = {"marker": "D", "ms": 5, "mfc": "none", "mec": QUIET, "ls": "none"}

    def draw(axes: Any) -> None:
        for position, line in enumerate(lines):
            spread = line.std[metric] if math.isfinite(line.std[metric]) else None
            style = {"color": colour(position), "marker": marker(position), "ms": 6, "capsize": 2.5}
            axes.errorbar([line.mean[metric]], [position], xerr=spread, elinewidth=1.2, ls="none", **style)
            axes.axhline(position, color=INK, lw=0.5, alpha=0.12, zorder=0)
            if metric in line.published:
                axes.plot(line.published[metric], position, **hollow)
        axes.set_xlabel(NAMES[metric])
        axes.set_yticks(range(len(lines)), [shown(line.label, 30) for line in lines])
        axes.set_ylim(len(lines) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")

    alt, caption = _metric_alt(section, lines, metric), _BARS
    if any(metric in line.published for line in lines):
        known = [(line.label, line.published[metric]) for line in lines if metric in line.published]
        alt += f" Published: {value_list(known)}."
        caption += " Hollow: numbers published in the paper."
    size = (3.9, max(1.7, 0.7 + 0.24 * len(lines)))
    return Panel(f"{NAMES[metric]} by row", alt, draw, caption, size, listed=True)


def _metric_alt(section: Section, lines: Sequence[Line], metric: str) -> str:
    values = value_list([(line.label, line.mean[metric]) for line in lines])
    return f"{NAMES[metric]} on {section.benchmark}: {values}."


def _along(section: Section, lines: Sequence[Line], metric: str) -> Panel:
    """Draw a metric along the axis, one line per series."""
    pairs = list(zip(section.groups, lines, strict=True))
    series = list(dict.fromkeys(group.row.series for group in section.groups))
    values = list(dict.fromkeys(group.row.x for group in section.groups))
    numeric = all(isinstance(value, int | float) for value in values)
    places = {value: float(value) if numeric else float(n) for n, value in enumerate(values)}  # type: ignore[arg-type]

    def draw(axes: Any) -> None:
        for number, name in enumerate(series):
            mine = [(places[group.row.x], line) for group, line in pairs if group.row.series == name]
            style = {"color": colour(number), "marker": marker(number)}
            x, y = [place for place, _ in mine], [line.mean[metric] for _, line in mine]
            _bars(axes, x, y, [line.std[metric] for _, line in mine], label=shown(name), **style)
            known = [(place, line.published[metric]) for place, line in mine if metric in line.published]
            if known:
                label = f"{shown(name, 28)} (published)"
                axes.plot(*zip(*known, strict=True), ls="--", lw=1, mfc="none", label=label, **style)
        if numeric and _wide(list(places.values())):
            axes.set_xscale("log")
            plain_log(axes.xaxis)
        if not numeric:
            axes.set_xticks(range(len(values)), [shown(str(value)) for value in values])
        axes.set(xlabel=shown(section.axis), ylabel=NAMES[metric])

    published = any(metric in line.published for line in lines)
    labels = [*series, *([f"{name} (published)" for name in series] if published else [])]
    caption = _BARS + (" Dashed: published." if published else "")
    title, alt = f"{NAMES[metric]} along {section.axis}", _metric_alt(section, lines, metric)
    return Panel(title, alt, draw, caption, (3.9, 2.8), labels)


def _wide(values: Sequence[float]) -> bool:
    """Return whether values fit a logarithmic axis better, as learning rates do.

    >>> _wide([0.01, 0.1, 1.0]), _wide([200, 500, 2000]), _wide([0, 100, 5000])
    (True, False, False)
    """
    return min(values) > 0 and max(values) > 30 * min(values)


def _counts(name: str, run: Run) -> Panel:
    """Draw P_k of every class, task by task."""

    def draw(axes: Any) -> None:
        start = 0
        for number, task in enumerate(run.tasks):
            counts = np.sort(run.positive[list(task)])[::-1]
            axes.bar(np.arange(start, start + len(counts)), counts, color=colour(number % 2), width=0.85)
            start += len(counts) + 1
        axes.set_yscale("log")
        plain_log(axes.yaxis)
        axes.set(xticks=[], xlabel="classes, task by task", ylabel="positives, P_k", title=name)

    low, high = int(run.positive.min()), int(run.positive.max())
    alt = f"Bars of the positives of each class, task by task, {name}: {low} to {high}."
    caption = f"Colours alternate by task (seed {run.seed})."
    return Panel(f"Positives per class, {name}", alt, draw, caption, (3.9, 2.5))
