"""The page of one run: its values, its classes by name, and how the AUC of each class went over the tasks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from mlcl.reports.drawing import INK, QUIET, ReportFigure, colour, plain_log, shown, ticks, value_list
from mlcl.reports.gather import Section
from mlcl.reports.records import Run
from mlcl.reports.rendering import decimals, signed
from mlcl.reports.tables import COSTS, NAMES, abbreviated

NAMED = 24
"""The largest number of classes that a figure names; of more it names those that are worst."""
CLASS_HEADS = ("Class", "Task", "Positives", "AUC after its task", "AUC at the end", "Change")


def single(section: Section) -> Run | None:
    """Return the run of a section that has one run only: there is nothing to compare."""
    return section.runs[0] if len(section.runs) == 1 and section.record is None else None


def values(run: Run) -> list[tuple[str, str]]:
    """Return the name and the value of each measure of a run; a dash where it is undefined."""
    found = {name: run.values[name] for name in NAMES if name in run.values}
    whole = {name: f"{value:,.0f}" for name, value in found.items() if name in COSTS and math.isfinite(value)}
    if "seconds" in whole and found["seconds"] < 10:
        whole["seconds"] = abbreviated(found["seconds"])
    return [(NAMES[name], whole.get(name) or decimals(value)) for name, value in found.items()]


def class_rows(run: Run) -> list[list[str]]:
    """Return the cells of each class, in the order of the tasks."""
    rows = []
    for number, ids in enumerate(run.tasks):
        for k in ids:
            end = float(run.per_class[-1, k])
            own = end if len(run.per_class) == 1 else float(run.per_class[number, k])
            rows.append(
                [
                    shown(run.classes[k], 60),
                    str(number + 1),
                    str(run.positive[k]),
                    decimals(own),
                    decimals(end),
                    signed(end - own),
                ]
            )
    return rows


def named_scatter(run: Run) -> ReportFigure:
    """Draw the final AUC of each class against P_k, with the names of the classes."""
    counts, finals = run.positive.astype(float), run.per_class[-1]
    worst = [k for k in np.argsort(finals, kind="stable") if math.isfinite(finals[k])]
    named = sorted(worst[:NAMED])

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.axhline(50, color=INK, lw=0.7, ls=":")
        axes.scatter(counts, finals, s=20, lw=0, alpha=0.9, color=colour(0))
        for k in named:
            axes.annotate(
                shown(run.classes[k], 18),
                (counts[k], finals[k]),
                xytext=(3, 3),
                textcoords="offset points",
                fontsize=6.5,
                color=INK,
            )
        if len(counts) and (counts > 0).all() and counts.max() > 10 * counts.min():
            axes.set_xscale("log")
            plain_log(axes.xaxis)
        axes.margins(x=0.12)
        axes.set_xlabel("positives in training, P_k")
        axes.set_ylabel("AUC of the class, at the end")

    found = value_list([(run.classes[k], float(finals[k])) for k in worst[:3]])
    alt = f"Final AUC of each class against its number of positives, each with its name. Lowest: {found}."
    few = "" if len(worst) <= NAMED else f" The {NAMED} lowest are named; the table has all."
    return ReportFigure("Classes by frequency", alt, draw, (6.4, 3.8), f"Dotted: chance.{few}")


def class_curves(run: Run) -> ReportFigure | None:
    """Draw the AUC of each class after each task, from the task on that it was learnt in; None without tasks."""
    steps = len(run.per_class)
    if steps < 2:
        return None
    lost = {}
    for number, ids in enumerate(run.tasks):
        for k in ids:
            change = float(run.per_class[-1, k] - run.per_class[number, k])
            lost[k] = change if math.isfinite(change) else math.inf
    order = sorted(lost, key=lambda k: lost[k])
    bright = set(order) if len(order) <= NAMED else set(order[: NAMED // 2])

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.axhline(50, color=INK, lw=0.7, ls=":")
        for number, ids in enumerate(run.tasks):
            x = np.arange(number + 1, steps + 1)
            for k in ids:
                y = run.per_class[number:, k]
                hue, width = (colour(number), 1.2) if k in bright else (QUIET, 0.5)
                axes.plot(x, y, color=hue, lw=width, marker="o", ms=2.5 if k in bright else 0)
        named = [k for k in bright if math.isfinite(run.per_class[-1, k])]
        ends = {k: float(run.per_class[-1, k]) for k in named}
        drawn = np.concatenate([run.per_class[t:, list(ids)].ravel() for t, ids in enumerate(run.tasks)])
        low = min([50.0, *drawn[np.isfinite(drawn)].tolist()]) - 2
        room = 0.07 * (steps - 1)
        for k, height in spread_labels(ends, gap=(102 - low) / 30).items():
            axes.plot([steps, steps + room], [ends[k], height], color=QUIET, lw=0.4)
            axes.text(
                steps + 1.2 * room, height, shown(run.classes[k], 18), fontsize=6.5, color=INK, va="center"
            )
        axes.set_ylim(low, 102)
        axes.set_xlim(0.9, steps + 0.3 * (steps - 1))
        axes.set_xticks(ticks(steps))
        axes.set_xlabel("tasks learnt")
        axes.set_ylabel("AUC of the class")

    worst = value_list([(run.classes[k], lost[k]) for k in order[:3]])
    alt = f"Lines of the AUC of each class after each task, from its own task on. Largest changes: {worst}."
    few = "" if len(order) <= NAMED else f" In colour and named: the {NAMED // 2} that lost the most."
    caption = f"One line per class, from its own task on; one colour per task.{few}"
    return ReportFigure("AUC per class over the tasks", alt, draw, (6.4, 3.8), caption)


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
