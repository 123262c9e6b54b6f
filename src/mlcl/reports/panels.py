"""The figure of a table: panels, side by side in a file for a paper and one by one in the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlcl.reports.averages import mean_and_spread
from mlcl.reports.drawing import (
    INK,
    QUIET,
    ReportFigure,
    colour,
    legend,
    legend_height,
    marker,
    plain_log,
    shown,
    ticks,
    value_list,
)
from mlcl.reports.gather import Section
from mlcl.reports.records import Run
from mlcl.reports.tables import NAMES, Line

_WIDTH = 3.9


@dataclass(frozen=True)
class Panel:
    """One part of the figure.

    Attributes:
        title: short name.
        alt: alternative text: what it shows, in numbers.
        caption: text below it.
        draw: draws it on axes of matplotlib.
        height: height of the axes, in inches.
        labels: names in its legend.
        listed: whether its vertical axis lists the rows.
    """

    title: str
    alt: str
    caption: str
    draw: Callable[[Any], None]
    height: float = 2.5
    labels: tuple[str, ...] = ()
    listed: bool = False


def panel_figures(section: Section, lines: Sequence[Line]) -> list[ReportFigure]:
    """Return the panels of a section's figure one by one, for the page, which has curves of its own."""
    if section.figure == "curves":
        return [_single(panel) for panel in _points(section, lines)]
    return [_single(panel) for panel in _panels(section, lines)]


def table_figure(section: Section, lines: Sequence[Line]) -> ReportFigure:
    """Return the whole figure of a section's table, of the kind that its experiment names."""
    panels = _panels(section, lines)
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
    height = max(panel.height for panel in top) + sum(panel.height for panel in wide)
    alt = " ".join(panel.alt for panel in panels)
    return ReportFigure(section.title, alt, draw, (width, height + legend_height(labels, width)))


def _panels(section: Section, lines: Sequence[Line]) -> list[Panel]:
    kinds = {"points": _points, "lines": _lines, "curves": _curves, "imbalance": _imbalance}
    return kinds[section.figure](section, lines)


def _single(panel: Panel) -> ReportFigure:
    def draw(figure: Any) -> None:
        axes = figure.subplots()
        panel.draw(axes)
        legend(figure, axes, panel.labels)

    size = (_WIDTH, panel.height + legend_height(panel.labels, _WIDTH))
    return ReportFigure(panel.title, panel.alt, draw, size, panel.caption)


def _points(section: Section, lines: Sequence[Line]) -> list[Panel]:
    """Draw each row as a point with its standard deviation; the paper's numbers are hollow diamonds."""
    metrics = [section.metric]
    if section.metric != "forgetting" and any(math.isfinite(line.mean["forgetting"]) for line in lines):
        metrics.append("forgetting")
    return [_metric_points(section, lines, metric) for metric in metrics]


def _metric_points(section: Section, lines: Sequence[Line], metric: str) -> Panel:
    published = any(metric in line.published for line in lines)
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

    values = value_list([(line.label, line.mean[metric]) for line in lines])
    alt = f"{NAMES[metric]} on {section.benchmark}: {values}."
    caption = "Error bars: sample standard deviation over seeds."
    if published:
        known = value_list(
            [(line.label, line.published[metric]) for line in lines if metric in line.published]
        )
        alt, caption = f"{alt} Published: {known}.", f"{caption} Hollow: numbers published in the paper."
    return Panel(
        f"{NAMES[metric]} by row", alt, caption, draw, max(1.7, 0.7 + 0.24 * len(lines)), listed=True
    )


def _lines(section: Section, lines: Sequence[Line]) -> list[Panel]:
    """Draw the metric, and the Macro-AUC over all test rows, along the axis, one line per series."""
    metrics = dict.fromkeys((section.metric, "pooled_macro_auc"))
    known = [metric for metric in metrics if any(math.isfinite(line.mean[metric]) for line in lines)]
    return [_along(section, lines, metric) for metric in known or [section.metric]]


def _along(section: Section, lines: Sequence[Line], metric: str) -> Panel:
    pairs = list(zip(section.groups, lines, strict=True))
    series = list(dict.fromkeys(group.row.series for group in section.groups))
    values = list(dict.fromkeys(group.row.x for group in section.groups))
    numeric = all(isinstance(value, int | float) for value in values)
    places = {value: float(value) if numeric else float(n) for n, value in enumerate(values)}  # type: ignore[arg-type]

    def draw(axes: Any) -> None:
        for number, name in enumerate(series):
            mine = [(places[group.row.x], line) for group, line in pairs if group.row.series == name]
            style = {"color": colour(number), "marker": marker(number)}
            spread = [line.std[metric] for _, line in mine]
            bars = spread if np.isfinite(spread).all() else None
            x, y = [place for place, _ in mine], [line.mean[metric] for _, line in mine]
            axes.errorbar(x, y, yerr=bars, capsize=2, label=shown(name), **style)
            known = [(place, line.published[metric]) for place, line in mine if metric in line.published]
            if known:
                label = f"{shown(name, 28)} (published)"
                axes.plot(*zip(*known, strict=True), ls="--", lw=1, mfc="none", label=label, **style)
        if numeric and _spread(list(places.values())):
            axes.set_xscale("log")
            plain_log(axes.xaxis)
        if not numeric:
            axes.set_xticks(range(len(values)), [shown(str(value)) for value in values])
        axes.set_xlabel(shown(section.axis))
        axes.set_ylabel(NAMES[metric])

    published = any(metric in line.published for line in lines)
    labels = [*series, *([f"{name} (published)" for name in series] if published else [])]
    alt = f"{NAMES[metric]} on {section.benchmark}: {value_list([(li.label, li.mean[metric]) for li in lines])}."
    caption = "Error bars: sample standard deviation over seeds." + (
        " Dashed: published." if published else ""
    )
    title = f"{NAMES[metric]} along {section.axis}"
    return Panel(title, alt, caption, draw, 2.8, labels=tuple(labels))


def _spread(values: Sequence[float]) -> bool:
    """Return whether values fit a logarithmic axis better, as learning rates do.

    >>> _spread([0.01, 0.1, 1.0]), _spread([200, 500, 2000]), _spread([0, 100, 5000])
    (True, False, False)
    """
    return min(values) > 0 and max(values) > 30 * min(values)


def _curves(section: Section, lines: Sequence[Line]) -> list[Panel]:
    """Draw the training loss of each epoch, and the mean Macro-AUC over the tasks seen after each task."""
    labels = tuple(group.label for group in section.groups)

    def losses(axes: Any) -> None:
        for number, group in enumerate(section.groups):
            mean, _ = mean_and_spread([run.losses for run in group.runs])
            if len(mean):
                x = np.arange(1, len(mean) + 1) / (len(mean) / len(group.runs[0].matrix.values))
                axes.plot(x, mean, color=colour(number), lw=1.3, label=shown(group.label))
        axes.set_xlabel("tasks learnt")
        axes.set_ylabel("training loss")

    def seen(axes: Any) -> None:
        for number, group in enumerate(section.groups):
            mean, spread = mean_and_spread([run.matrix.seen_means for run in group.runs])
            bars = spread if np.isfinite(spread).all() else None
            style = {"color": colour(number), "marker": marker(number), "label": shown(group.label)}
            axes.errorbar(np.arange(1, len(mean) + 1), mean, yerr=bars, capsize=2, **style)
            axes.set_xticks(ticks(len(mean)))
        axes.set_xlabel("tasks learnt")
        axes.set_ylabel("Macro-AUC over tasks seen")

    ends = value_list([(line.label, line.mean["macro_auc"]) for line in lines])
    loss_alt = "Lines of the mean training loss of each epoch, task after task."
    caption = "Different losses have different scales; compare shapes, not values."
    return [
        Panel("Training loss", loss_alt, caption, losses, labels=labels),
        Panel(
            "Test curves",
            f"Macro-AUC over the tasks seen; after the last task: {ends}.",
            "",
            seen,
            labels=labels,
        ),
    ]


def _imbalance(section: Section, lines: Sequence[Line]) -> list[Panel]:
    """Draw P_k of every class, task by task, at each value of the axis, and the rows' values."""
    first: dict[object, Run] = {}
    for group in section.groups:
        first.setdefault(group.row.x, group.runs[0])
    counts = [_counts(shown(f"{section.axis} {value}"), run) for value, run in first.items()]
    return [*counts, _metric_points(section, lines, section.metric)]


def _counts(name: str, run: Run) -> Panel:
    def draw(axes: Any) -> None:
        start = 0
        for number, task in enumerate(run.tasks):
            counts = np.sort(run.positive[list(task)])[::-1]
            axes.bar(np.arange(start, start + len(counts)), counts, color=colour(number % 2), width=0.85)
            start += len(counts) + 1
        axes.set_yscale("log")
        plain_log(axes.yaxis)
        axes.set_xticks([])
        axes.set_xlabel("classes, task by task")
        axes.set_ylabel("positives, P_k")
        axes.set_title(name)

    low, high = int(run.positive.min()), int(run.positive.max())
    alt = f"Bars of the positives of each class, task by task, {name}: {low} to {high}."
    return Panel(f"Positives per class, {name}", alt, f"Colours alternate by task (seed {run.seed}).", draw)
