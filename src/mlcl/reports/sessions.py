"""The measures of class-incremental papers, session by session: a table of one run, and curves of several rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlcl.metrics import session_means
from mlcl.metrics.sessions import MEASURES
from mlcl.reports.averages import mean_and_spread
from mlcl.reports.drawing import ReportFigure, colour, legend, legend_height, listing, marker, shown, ticks
from mlcl.reports.gather import Section
from mlcl.reports.records import Run
from mlcl.reports.rendering import decimals

WORDS = {"map": "mAP", "fpr": "False-positive rate"}
"""Measures that are drawn, and their names."""
HEADS = ("Session", "Classes", "mAP", "CF1", "OF1", "CP", "CR", "OP", "OR", "FPR", "mean F1")
_WIDTH, _HEIGHT = 4.6, 2.6


def session_rows(run: Run) -> list[list[str]]:
    """Return the cells of each session of a run, and of their mean; nothing for a run with a single session."""
    if len(run.sessions) < 2:
        return []
    seen = np.cumsum([len(task) for task in run.tasks])
    found = [
        [str(number + 1), str(seen[number]), *(decimals(session[name]) for name in MEASURES)]
        for number, session in enumerate(run.sessions)
    ]
    means = session_means(run.sessions)
    return [*found, ["avg", "", *(decimals(means[name]) for name in MEASURES)]]


def over_sessions(section: Section, measure: str) -> ReportFigure | None:
    """Draw a measure after each session, over the classes seen so far; joint training is a dashed line.

    Args:
        section: the runs.
        measure: one of `WORDS`.
    """
    groups = [
        (number, group)
        for number, group in enumerate(section.groups)
        if all(run.sessions for run in group.runs)
    ]
    curves = {
        number: mean_and_spread([np.array([each[measure] for each in run.sessions]) for run in group.runs])
        for number, group in groups
    }
    longest = max((len(mean) for mean, _ in curves.values()), default=0)
    if longest < 2:
        return None
    labels = tuple(group.label for _, group in groups)

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for number, group in groups:
            mean, spread = curves[number]
            if len(mean) == 1:
                axes.axhline(mean[0], color=colour(number), ls="--", lw=1.2, label=shown(group.label))
                continue
            bars = spread if np.isfinite(spread).all() else None
            style = {"color": colour(number), "marker": marker(number), "label": shown(group.label), "ms": 4}
            axes.errorbar(np.arange(1, len(mean) + 1), mean, yerr=bars, capsize=2, lw=1.2, **style)
        axes.set_xticks(ticks(longest))
        axes.set_xlabel("sessions")
        axes.set_ylabel(f"{WORDS[measure]} of all classes so far")
        legend(figure, axes, labels)

    ends = listing([(group.label, float(curves[number][0][-1])) for number, group in groups])
    alt = f"Lines of the {WORDS[measure]} after each session. After the last: {ends}."
    title = f"{WORDS[measure]} over the sessions"
    return ReportFigure(title, alt, draw, (_WIDTH, _HEIGHT + legend_height(labels, _WIDTH)))
