"""The figure of ``mlcl theory``: margins, imbalance, terms of the bound, and the risk estimated from the memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.reports.drawing import INK, ReportFigure, colour, plain_log, ticks
from mlcl.reports.theory import headline
from mlcl.theory import Diagnosis, TaskDiagnosis

Floats = NDArray[np.float64]
Panel = tuple[Callable[[Any], None], str]


def diagnosis_figure(found: Diagnosis) -> ReportFigure:
    """Return the figure of a diagnosis: four panels, or two where there is no memory."""
    panels = [_margins(found), _terms(found)]
    if found.stored:
        panels = [panels[0], _imbalance(found), panels[1], _risks(found)]

    def draw(figure: Any) -> None:
        for axes, (panel, _) in zip(figure.subplots(len(panels) // 2, 2).flat, panels, strict=True):
            panel(axes)

    alt = " ".join([f"{headline(found)}.", *(text for _, text in panels)])
    return ReportFigure("Theory as a diagnostic", alt, draw, (7.6, 2.9 * (len(panels) // 2)))


def _margins(found: Diagnosis) -> Panel:
    counts = _classes(found, "positive")
    used = np.concatenate([task.margins for task in found.tasks])
    best = np.concatenate([_optimum(task) for task in found.tasks])

    def draw(axes: Any) -> None:
        axes.scatter(counts, used, s=18, lw=0, color=colour(0), label="margin in use")
        axes.scatter(
            counts, best, s=52, facecolors="none", edgecolors=INK, linewidths=0.8, label="numeric optimum"
        )
        _log_counts(axes, counts)
        axes.set_ylim(bottom=0)
        axes.set_ylabel("margin D_k")
        axes.set_title("Margins and Proposition 1")
        axes.legend()

    off = max((t.proposition.difference for t in found.tasks if t.proposition is not None), default=np.nan)
    words = f"the closed form and the numeric optimum of Proposition 1 differ by {off:.1g} at most"
    return draw, f"Margins: {_range(used)}; {words}."


def _imbalance(found: Diagnosis) -> Panel:
    data = _classes(found, "tau")
    held = np.concatenate([task.stored.tau for task in found.tasks])
    lost = np.concatenate([task.lost for task in found.tasks])
    there = np.concatenate([task.counts.defined & task.stored.defined for task in found.tasks])

    def draw(axes: Any) -> None:
        from matplotlib.ticker import LogLocator

        known = np.concatenate([data[there | lost], held[there]])
        low = 0.7 * float(known.min(initial=0.5))
        axes.plot([low, 0.5], [low, 0.5], color=INK, lw=0.7, ls=":")
        axes.scatter(data[there], held[there], s=18, lw=0, color=colour(0), label="class")
        if lost.any():
            at_edge = np.full(int(lost.sum()), low)
            axes.scatter(data[lost], at_edge, s=30, marker="x", color=colour(3), label="lost", clip_on=False)
            axes.legend()
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(low, 0.55)
        axes.set_ylim(low, 0.55)
        for axis in (axes.xaxis, axes.yaxis):
            plain_log(axis)
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.set_xlabel("tau in the task")
        axes.set_ylabel("tau in the memory")
        axes.set_title("Imbalance of each class")

    off = float(np.abs(data - held)[there].mean()) if there.any() else float("nan")
    return draw, (
        f"Tau of {int(there.sum())} classes in the memory against the task: they differ by {off:.3f} on average; "
        f"classes without stored positives or negatives: {int(lost.sum())}."
    )


def _terms(found: Diagnosis) -> Panel:
    tasks = np.arange(1, len(found.tasks) + 1)
    names = {"complexity": "term 1", "deviation": "term 2"}
    data = {name: np.array([task.data.rate(name) for task in found.tasks]) for name in names}
    # Without lost classes: with them the terms are infinite.
    held = {name: np.array([task.kept.rate(name) for task in found.tasks]) for name in names}

    def draw(axes: Any) -> None:
        for position, (name, label) in enumerate(names.items()):
            axes.plot(tasks, data[name], color=colour(position), marker="o", label=f"{label}, task")
            if found.stored:
                axes.plot(
                    tasks, held[name], color=colour(position), marker="s", ls="--", label=f"{label}, memory"
                )
        axes.set_yscale("log")
        plain_log(axes.yaxis)
        axes.set_xticks(ticks(len(tasks)))
        axes.set_xlabel("task")
        axes.set_ylabel("term / √n")
        axes.set_title("Imbalance terms, over √n")
        low, high = axes.get_ylim()
        axes.set_ylim(low * (low / high) ** 0.3, high)  # room for the legend
        axes.legend(ncols=2, loc="lower center")

    words = f"Term 1 over root n: {_range(data['complexity'])} for tasks"
    if found.stored:
        words += f", {_range(held['complexity'])} for the memory, lost classes left out"
    return draw, f"{words}."


def _risks(found: Diagnosis) -> Panel:
    counts = _classes(found, "positive")
    by_counts = np.concatenate([task.ratio_counts for task in found.tasks])
    risks = np.concatenate([task.ratio for task in found.tasks])

    def draw(axes: Any) -> None:
        axes.axhline(1, color=INK, lw=0.7, ls=":")
        axes.scatter(counts, by_counts, s=18, lw=0, color=colour(0), label="by label counts alone")
        if found.trained:
            axes.scatter(counts, risks, s=18, lw=0, marker="s", color=colour(1), label="by the network")
            axes.legend()
        _log_counts(axes, counts)
        known = np.concatenate([values[np.isfinite(values)] for values in (by_counts, risks)])
        if known.min(initial=1) > 0 and known.max(initial=1) > 20 * known.min(initial=1):
            axes.set_yscale("log")
            plain_log(axes.yaxis)
        else:
            axes.set_ylim(bottom=0)
        axes.set_ylabel("risk from memory / risk of task")
        axes.set_title("Risk of each class")

    words = f"Risk estimated from the memory over the full risk: {_range(by_counts)} by label counts alone"
    return draw, f"{words}, {_range(risks)} by the network." if found.trained else f"{words}."


def _range(values: Floats) -> str:
    """Return the range of the defined values as part of a sentence."""
    known = values[np.isfinite(values)]
    return f"{known.min():.3g} to {known.max():.3g}" if len(known) else "none"


def _classes(found: Diagnosis, name: str) -> Floats:
    return np.concatenate([getattr(task.counts, name) for task in found.tasks]).astype(np.float64)


def _optimum(task: TaskDiagnosis) -> Floats:
    """Return the numeric optimum, scaled to the sum of the margins in use, so that both can be compared."""
    out = np.full(len(task.classes), np.nan)
    if task.proposition is not None:
        share = task.proposition.numeric / task.proposition.total
        out[task.counts.defined] = share * np.nansum(task.margins)
    return out


def _log_counts(axes: Any, counts: Floats) -> None:
    # Only where a power of ten lies between them: the others have no label.
    if len(counts) and 0 < counts.min() < counts.max() / 10:
        axes.set_xscale("log")
        plain_log(axes.xaxis)
    axes.set_xlabel("positives in the task, P_k")
