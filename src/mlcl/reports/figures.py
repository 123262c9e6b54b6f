"""The figures of a report: each function takes a section or a row and returns a `ReportFigure`, or None."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.metrics import session_means
from mlcl.metrics.columns import mean_defined
from mlcl.metrics.sessions import MEASURES
from mlcl.reports.averages import class_means, mean_and_spread, mean_of_known, memory_gap, memory_shares
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
from mlcl.reports.gather import Group, Section
from mlcl.reports.records import Run
from mlcl.reports.rendering import decimals

Floats = NDArray[np.float64]
_SHADED = 4  # the largest number of rows with a shade for the standard deviation
_HEAT = ("#eef4f1", "#a9d3c6", "#5fb0a8", "#2b8390", "#1d5570", "#1a3550")


def over_tasks(section: Section) -> ReportFigure | None:
    """Draw the mean Macro-AUC over the tasks seen, after each task: the paper's figure of test results."""
    groups = [group for group in section.groups if not group.runs[0].joint]
    curves = [mean_and_spread([run.matrix.seen_means for run in group.runs]) for group in groups]
    if not groups or len(curves[0][0]) < 2:
        return None
    bounds = [group for group in section.groups if group.runs[0].joint]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for (mean, std), group in zip(curves, groups, strict=True):
            _line(axes, np.arange(1, len(mean) + 1), mean, std, section, group)
        for group in bounds:
            value = float(np.mean([run.matrix.overall for run in group.runs]))
            axes.axhline(value, color=_colour(section, group), ls="--", lw=1.2, label=shown(group.label))
        axes.set_xlabel("tasks learnt")
        axes.set_ylabel("Macro-AUC over tasks seen")
        axes.set_xticks(ticks(len(curves[0][0])))
        legend(figure, axes, _labels(section))

    ends = value_list([(group.label, mean[-1]) for group, (mean, _) in zip(groups, curves, strict=True)])
    alt = f"Lines of the mean Macro-AUC over the tasks seen. After the last task: {ends}."
    caption = "Shade: sample standard deviation over seeds." if _shaded(section) else "Means over seeds."
    return ReportFigure("Macro-AUC over tasks", alt, draw, _size(section), caption)


def forgetting_by_task(section: Section) -> ReportFigure | None:
    """Draw the forgetting of each task: its best earlier value minus its last."""
    groups = [group for group in section.groups if not group.runs[0].joint and group.runs[0].matrix.tasks > 1]
    if not groups:
        return None
    curves = [mean_and_spread([run.matrix.forgetting_per_task() for run in group.runs]) for group in groups]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.axhline(0, color=INK, lw=0.7)
        for (mean, std), group in zip(curves, groups, strict=True):
            _line(axes, np.arange(1, len(mean) + 1), mean, std, section, group)
        axes.set_xlabel("task")
        axes.set_ylabel("forgetting (points lost)")
        axes.set_xticks(ticks(len(curves[0][0])))
        legend(figure, axes, [group.label for group in groups])

    means = value_list(
        [(group.label, mean_defined(mean)) for group, (mean, _) in zip(groups, curves, strict=True)]
    )
    alt = f"Lines of the points that each task has lost after the last task; above zero is a loss. Means: {means}."
    return ReportFigure(
        "Forgetting by task",
        alt,
        draw,
        _size(section),
        "Best earlier Macro-AUC of a task minus its last; above zero is a loss.",
    )


def matrix_heat(group: Group, *, low: float, high: float) -> ReportFigure:
    """Draw A[t, i]: rows are the tasks learnt, columns the tasks evaluated; tasks not learnt yet are pale."""
    from matplotlib.colors import LinearSegmentedColormap

    values = mean_of_known([run.matrix.values for run in group.runs])
    evaluations, tasks = values.shape
    joint = group.runs[0].joint

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.grid(visible=False)
        palette = LinearSegmentedColormap.from_list("mlcl", _HEAT)
        for t, i in np.ndindex(evaluations, tasks):
            level = 0.0 if math.isnan(values[t, i]) else (values[t, i] - low) / max(high - low, 1e-9)
            learnt = joint or i <= t
            alpha = 1.0 if learnt else 0.3
            face = palette(min(max(level, 0.0), 1.0))
            axes.add_patch(_box(i, t, face, alpha))
            if tasks <= 12:
                ink = INK if not learnt else "#ffffff" if level > 0.45 else "#16181c"
                text = (
                    "-"
                    if math.isnan(values[t, i])
                    else f"{values[t, i]:.0f}"
                    if tasks > 6
                    else f"{values[t, i]:.1f}"
                )
                axes.text(
                    i, t, text, ha="center", va="center", fontsize=8, color=ink, alpha=1.0 if learnt else 0.75
                )
        axes.set_xlim(-0.5, tasks - 0.5)
        axes.set_ylim(evaluations - 0.5, -0.5)
        axes.set_xticks(range(tasks), [str(i + 1) for i in range(tasks)])
        axes.set_yticks(range(evaluations), ["all" if joint else str(t + 1) for t in range(evaluations)])
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.set_xlabel("evaluated on task")
        axes.set_ylabel("learnt up to task")
        axes.set_title(shown(group.label))

    last = ", ".join(f"{value:.1f}" for value in values[-1])
    alt = f"Heat map of Macro-AUC, {evaluations} by {tasks}, for {group.label}. After the last task: {last}."
    return ReportFigure(
        f"Result matrix of {group.label}", alt, draw, (3.2, 0.8 + 2.1 * min(1.0, max(evaluations, 2) / tasks))
    )


def thirds(section: Section) -> ReportFigure:
    """Draw the final Macro-AUC of the frequent, the medium and the rare third of the classes."""
    parts = ("head", "medium", "tail")
    curves = [
        mean_and_spread([np.array([run.values[part] for part in parts]) for run in group.runs])
        for group in section.groups
    ]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for (mean, std), group in zip(curves, section.groups, strict=True):
            _line(axes, np.arange(3), mean, std, section, group)
        axes.set_xticks(range(3), ["head (frequent)", "medium", "tail (rare)"])
        axes.set_xlim(-0.25, 2.25)
        axes.set_ylabel("Macro-AUC of the third")
        legend(figure, axes, _labels(section))

    tails = value_list(
        [(group.label, mean[2]) for group, (mean, _) in zip(section.groups, curves, strict=True)]
    )
    alt = f"Macro-AUC of the head, medium and tail third of the classes by frequency. Tail: {tails}."
    size = (3.9, 2.5 + legend_height(_labels(section), 3.9))
    return ReportFigure(
        "Head, medium and tail", alt, draw, size, "Thirds of the classes by P_k, after the last task."
    )


def class_scatters(section: Section, reference: Group) -> list[ReportFigure]:
    """Draw the final AUC of each class against P_k, one figure per row, with the reference row in grey."""
    known = [class_means(group.runs)[1] for group in section.groups]
    low = min(
        (float(values.min()) for part in known if (values := part[np.isfinite(part)]).size), default=50.0
    )
    return [_class_scatter(group, reference, section, min(low, 50.0) - 2) for group in section.groups]


def _class_scatter(group: Group, reference: Group, section: Section, low: float) -> ReportFigure:
    counts, values = class_means(group.runs)
    other_counts, others = class_means(reference.runs)

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.axhline(50, color=INK, lw=0.7, ls=":")
        if reference is not group:
            axes.scatter(
                other_counts,
                others,
                s=16,
                color=QUIET,
                alpha=0.55,
                marker="o",
                lw=0,
                label=shown(reference.label),
            )
        axes.scatter(
            counts, values, s=20, lw=0, alpha=0.9, color=_colour(section, group),
            marker=_marker(section, group), label=shown(group.label),
        )  # fmt: skip
        _count_axis(axes, np.concatenate([counts, other_counts]))
        axes.set_ylim(low, 101)
        axes.set_ylabel("AUC of the class")
        axes.set_title(shown(group.label))

    order = np.argsort(counts)
    worst = value_list(
        [
            (shown(group.runs[0].classes[k]), values[k])
            for k in order[: min(3, len(order))]
            if math.isfinite(values[k])
        ]
    )
    alt = f"Final AUC of each class against its number of positives, for {group.label}. Rarest: {worst}."
    return ReportFigure(f"Classes of {group.label}", alt, draw, (3.2, 2.6))


def memory_scatter(group: Group, section: Section) -> ReportFigure | None:
    """Draw, for each class, its share of positives in the memory against that in its task."""
    runs = [run for run in group.runs if run.memory is not None]
    if not runs:
        return None
    data, kept = (np.concatenate(part) for part in zip(*[memory_shares(run) for run in runs], strict=True))
    gap, gap_std = memory_gap(group)

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        low = max(1e-4, 0.7 * min(v[v > 0].min() if (v > 0).any() else 1e-3 for v in (data, kept)))
        axes.plot([low, 1], [low, 1], color=INK, lw=0.7, ls=":")
        axes.scatter(
            data.clip(low), kept.clip(low), s=18, lw=0, alpha=0.85, color=_colour(section, group),
            marker=_marker(section, group),
        )  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        plain_log(axes.xaxis)
        plain_log(axes.yaxis)
        axes.set_xlabel("share of positives in the task")
        axes.set_ylabel("share in the memory")
        axes.set_title(f"{shown(group.label, 24)}: gap {gap:.2f}")

    spread = f" (standard deviation {gap_std:.2f})" if math.isfinite(gap_std) else ""
    off = float(np.mean(np.abs(data - kept)))
    alt = (
        f"Share of positives of each class in the memory against its task, for {group.label}. "
        f"WRU gap {gap:.2f}{spread}; the shares differ by {off:.3f} on average."
    )
    return ReportFigure(f"Memory of {group.label}", alt, draw, (3.2, 2.8))


def training_curves(section: Section) -> ReportFigure | None:
    """Draw the mean training loss of each epoch, task after task."""
    groups = [group for group in section.groups if len(group.runs[0].losses)]
    if not groups:
        return None
    curves = [mean_and_spread([run.losses for run in group.runs]) for group in groups]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for (mean, _), group in zip(curves, groups, strict=True):
            x = np.arange(1, len(mean) + 1) / (len(mean) / len(group.runs[0].matrix.values))
            style = {"marker": _marker(section, group), "ms": 3} if len(mean) < 12 else {}
            axes.plot(x, mean, color=_colour(section, group), lw=1.3, label=shown(group.label), **style)
        axes.set_xlabel("tasks learnt")
        axes.set_ylabel("training loss")
        legend(figure, axes, [group.label for group in groups])

    ends = value_list([(group.label, mean[-1]) for group, (mean, _) in zip(groups, curves, strict=True)])
    alt = f"Lines of the mean training loss of each epoch, task after task. At the end: {ends}."
    caption = "Different losses have different scales; compare shapes, not values."
    return ReportFigure("Training loss", alt, draw, _size(section), caption)


def time_by_task(section: Section) -> ReportFigure:
    """Draw the seconds of each task, evaluation included."""
    curves = [mean_and_spread([run.task_seconds for run in group.runs]) for group in section.groups]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for (mean, std), group in zip(curves, section.groups, strict=True):
            _line(axes, np.arange(1, len(mean) + 1), mean, std, section, group)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("task")
        axes.set_ylabel("seconds")
        axes.set_xticks(ticks(max(len(mean) for mean, _ in curves)))
        legend(figure, axes, _labels(section))

    sums = value_list(
        [
            (group.label, float(np.nansum(mean)))
            for group, (mean, _) in zip(section.groups, curves, strict=True)
        ]
    )
    alt = f"Seconds per task. In total: {sums}."
    return ReportFigure(
        "Time per task",
        alt,
        draw,
        _size(section),
        "Runs at the same time on one machine slow each other down.",
    )


def _line(
    axes: Any, x: Floats | NDArray[np.int64], mean: Floats, std: Floats, section: Section, group: Group
) -> None:
    hue = _colour(section, group)
    axes.plot(x, mean, color=hue, marker=_marker(section, group), label=shown(group.label))
    if np.isfinite(std).any() and len(section.groups) <= _SHADED:
        axes.fill_between(x, mean - std, mean + std, color=hue, alpha=0.13, lw=0)


def _shaded(section: Section) -> bool:
    return len(section.groups) <= _SHADED and any(len(group.runs) > 1 for group in section.groups)


def _box(i: int, t: int, face: Any, alpha: float) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((i - 0.47, t - 0.47), 0.94, 0.94, facecolor=face, alpha=alpha, lw=0)


def _count_axis(axes: Any, counts: Floats) -> None:
    if (counts > 0).all() and counts.max() > 10 * counts.min():
        axes.set_xscale("log")
        plain_log(axes.xaxis)
    axes.set_xlabel("positives in training, P_k")


def _position(section: Section, group: Group) -> int:
    return section.groups.index(group)


def _colour(section: Section, group: Group) -> str:
    return colour(_position(section, group))


def _marker(section: Section, group: Group) -> str:
    return marker(_position(section, group))


def _labels(section: Section) -> list[str]:
    return [group.label for group in section.groups]


def _size(section: Section) -> tuple[float, float]:
    return 4.6, 2.7 + legend_height(_labels(section), 4.6)


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

    ends = value_list([(group.label, float(curves[number][0][-1])) for number, group in groups])
    alt = f"Lines of the {WORDS[measure]} after each session. After the last: {ends}."
    title = f"{WORDS[measure]} over the sessions"
    return ReportFigure(title, alt, draw, (_WIDTH, _HEIGHT + legend_height(labels, _WIDTH)))
