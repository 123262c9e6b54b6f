"""The output of ``mlcl theory``: tables for the terminal, the lines below them, JSON and CSV for programs, a figure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.labels import LabelCounts
from mlcl.reports.drawing import INK, Panel, ReportFigure, colour, count_axis, plain_log, ticks
from mlcl.reports.rendering import PrintedTable
from mlcl.texts import csv_text
from mlcl.theory import REMARK, Diagnosis, DirectionCheck, TaskDiagnosis

Floats = NDArray[np.float64]

FORMAT = 1
_TERMS = ("complexity", "complexity_equal", "complexity_best", "complexity_lipschitz", "deviation")


def headline(found: Diagnosis) -> str:
    """Return benchmark, seed and memory in one line."""
    held = f"memory {found.memory} holds {found.stored} of {found.size}" if found.stored else "no memory"
    return f"{found.benchmark}, seed {found.seed}: {held}"


def terms_table(found: Diagnosis) -> PrintedTable:
    """Return the imbalance terms of each task and of its stored samples."""
    rows = []
    heads = ["rows", "stored", "least tau", "term 1", "term 1, rho = 1", "term 2", "term 1 / √n"]
    if not found.stored:
        heads = [head for head in heads if head not in ("stored", "term 1 / √n")]
    for task in found.tasks:
        cells = [str(task.counts.total)]
        if found.stored:
            cells.append(str(task.stored.total))
        for name in ("tau", "complexity", "complexity_lipschitz", "deviation"):
            cells.append(_pair(task, name) if found.stored else _data(task, name))
        if found.stored:
            cells.append(f"x {_number(task.memory.rate() / task.data.rate())}")
        rows.append([str(task.task + 1), *cells])
    return PrintedTable(f"Imbalance terms of Theorem 1: {headline(found)}", ["task", *heads], rows)


def distance_table(found: Diagnosis) -> PrintedTable:
    """Return the distance of the stored samples from each task."""
    rows = []
    heads = ["task", "classes", "lost", "(random)", "WRU gap", "share gap", "(random)", "ratio by counts"]
    if found.trained:
        heads += ["risk ratio", "own weights"]
    for task in found.tasks:
        cells = [str(task.task + 1), str(int(task.counts.defined.sum()))]
        cells += [str(int(task.lost.sum())), f"({task.random.lost:.2f})", _number(task.gap)]
        cells += [_number(task.gap_prevalence), f"({_number(task.random.gap_prevalence)})"]
        cells.append(_span(task.ratio_counts))
        if found.trained:
            cells += [_span(task.ratio), _span(task.ratio_own)]
        rows.append(cells)
    return PrintedTable("How far the memory is from its task", heads, rows)


def diagnosis_classes(found: Diagnosis) -> PrintedTable:
    """Return a table with one row per class."""
    columns = {
        "task": "task",
        "class": "class",
        "P": "positive",
        "N": "negative",
        "margin": "margin",
        "tau": "tau",
    }
    if found.stored:
        columns |= {"stored P": "stored_positive", "stored N": "stored_negative", "stored tau": "stored_tau"}
        columns |= {"ratio by counts": "ratio_counts"}
    if found.trained:
        columns |= {"risk ratio": "risk_ratio"}
    cells = ((row[key] for key in columns.values()) for row in _classes(found))
    rows = [[_number(cell) if isinstance(cell, float) else str(cell) for cell in row] for row in cells]
    heads = list(columns)
    return PrintedTable("Classes, in the order of the tasks", heads, rows, left=("class",))


def lines(found: Diagnosis) -> Iterator[str]:
    """Yield the lines below the tables: how to read them, Proposition 1, and the limits of the theory."""
    chosen = found.settings
    count = "P_k" if chosen.margin_count == "positive" else "min(P_k, N_k)"
    yield f"Margins D_k = {chosen.margin:g} / {count}^{chosen.power:g}, base loss {chosen.base}." + (
        "" if found.loss in ("rldam", "margin") else f" (Loss {found.loss!r} has none; these are RLDAM's.)"
    )
    yield (
        "Term 1: (1/K) sum_k sqrt(1/tau_k) (rho+ + rho-) with rho = 1/D_k, or 1; term 2: sqrt((1/K) sum_k 1/tau_k); "
        "tau_k = min(P_k, N_k)/n."
    )
    if found.stored:
        yield (
            "Task → memory; the last column is the factor by which term 1 / √n, as in the bound, grows. "
            "∞: the memory has no positives or no negatives of a class (lost); in brackets: without lost classes."
        )
        yield (
            "WRU gap: sum_k |P_k/N_k - ratio in memory|; share gap: sum_k |P_k/n - share in memory|; (random): the "
            "expected value for as many random rows."
        )
        yield (
            "Ratio: minimum, median and maximum over classes of the risk that the memory estimates with stored "
            "constants, divided by the full risk; 1 is exact. By counts: if all samples had the same loss."
        )
        if found.trained:
            yield "Risk ratio: by the trained network. Own weights: counted in the memory instead of stored."
    yield proposition_line(found)
    if found.directions is not None:
        yield direction_line(found.directions)
    elif found.unchecked:
        yield f"Exact learner: its closed form was not checked, because {found.unchecked}."
    yield REMARK


def proposition_line(found: Diagnosis) -> str:
    """Return how closely the closed form of Proposition 1 agrees with the numeric optimum."""
    checks = [task.proposition for task in found.tasks if task.proposition is not None]
    if not checks:
        return "Proposition 1: no class has positives and negatives, so there is nothing to check."
    off = max(check.difference for check in checks)
    within = max(abs(side - 1) for check in checks for side in check.within)
    gains = [100 * (1 - check.value / check.equal_value) for check in checks]
    return (
        f"Proposition 1, by a numeric optimiser, task by task: margins differ from P_k^(-1/4) by at "
        f"most {off:.1g} (relative), D+ and D- of a class by {within:.1g}; against equal margins of the same sum "
        f"they lower sum_k 1/(D_k sqrt(P_k)) by {min(gains):.1f} to {max(gains):.1f} %."
    )


def direction_line(found: DirectionCheck) -> str:
    """Return how closely the exact learner's closed form agrees with numeric minimisers."""
    return (
        "Exact learner, by a numeric optimiser, task by task: the direction (S+ + S-)^-1 (mu+ - mu-) is that of the "
        f"least squared loss over all pairs up to 1 - cosine {found.pairwise:.1g}, and of the reweighted squared loss "
        f"with a margin up to {found.reweighted:.1g}; linear discriminant analysis differs by up to {found.pooled:.2g}."
    )


def to_json(found: Diagnosis) -> dict[str, Any]:
    """Return the whole diagnosis for programs; infinite and undefined values become null."""
    return {
        "format": FORMAT,
        "remark": REMARK,
        "benchmark": found.benchmark,
        "seed": found.seed,
        "loss": {"kind": found.loss, **asdict(found.settings)},
        "memory": {"kind": found.memory, "size": found.size, "stored": found.stored},
        "network": "trained" if found.trained else None,
        "tasks": [_task(task) | {"proposition": _proposition(task)} for task in found.tasks],
        "classes": list(_classes(found)),
        "directions": None if found.directions is None else found.directions._asdict(),
    }


def tasks_csv(found: Diagnosis) -> str:
    """Return one line per task, in full precision."""
    return _csv([_task(task) for task in found.tasks])


def diagnosis_csv(found: Diagnosis) -> str:
    """Return one line per class, in full precision."""
    return _csv(list(_classes(found)))


def _task(task: TaskDiagnosis) -> dict[str, Any]:
    values: dict[str, Any] = {
        "task": task.task + 1,
        "rows": task.counts.total,
        "stored": task.stored.total,
        "classes": len(task.classes),
        "lost": int(task.lost.sum()),
        "lost_random": task.random.lost,
    }
    for prefix, terms in (("data", task.data), ("memory", task.memory), ("kept", task.kept)):
        values |= {f"{prefix}_{name}": getattr(terms, name) for name in _TERMS}
        values |= {f"{prefix}_{name}_rate": terms.rate(name) for name in ("complexity", "deviation")}
    values |= {"gap": task.gap, "gap_prevalence": task.gap_prevalence, "gap_random": task.random.gap}
    values["gap_prevalence_random"] = task.random.gap_prevalence
    ratios = {"ratio_counts": task.ratio_counts, "risk_ratio": task.ratio, "risk_ratio_own": task.ratio_own}
    for name, ratio in ratios.items():
        values |= dict(zip((f"{name}_least", f"{name}_median", f"{name}_largest"), _ends(ratio), strict=True))
    return values


def _proposition(task: TaskDiagnosis) -> dict[str, Any] | None:
    check = task.proposition
    if check is None:
        return None
    names = [name for name, both in zip(task.classes, task.counts.defined, strict=True) if both]
    return {"classes": names, **{name: value for name, value in vars(check).items() if name != "total"}}


def _classes(found: Diagnosis) -> Iterator[dict[str, Any]]:
    for task in found.tasks:
        columns: dict[str, Any] = {
            "id": task.class_ids,
            "class": task.classes,
            "positive": task.counts.positive,
            "negative": task.counts.negative,
            "margin": task.margins,
            "tau": task.counts.tau,
            "stored_positive": task.stored.positive,
            "stored_negative": task.stored.negative,
            "stored_tau": task.stored.tau if task.stored.total else np.full(len(task.classes), np.nan),
            "lost": task.lost,
            "risk": task.risk,
            "risk_memory": task.risk_memory,
            "risk_own": task.risk_own,
            "ratio_counts": task.ratio_counts,
            "risk_ratio": task.ratio,
            "risk_ratio_own": task.ratio_own,
        }
        values = (column if isinstance(column, tuple) else column.tolist() for column in columns.values())
        for row in zip(*values, strict=True):
            yield {"task": task.task + 1, **dict(zip(columns, row, strict=True))}


def _pair(task: TaskDiagnosis, name: str) -> str:
    """Return the value of the task and of the memory; where that is infinite, also without lost classes."""
    if not task.stored.total:
        return f"{_data(task, name)} → -"
    if name == "tau":
        return f"{_data(task, name)} → {_least_tau(task.stored, task)}"
    text = f"{_data(task, name)} → {_number(getattr(task.memory, name))}"
    return f"{text} [{_number(getattr(task.kept, name))}]" if task.memory.lost else text


def _data(task: TaskDiagnosis, name: str) -> str:
    return _least_tau(task.counts, task) if name == "tau" else _number(getattr(task.data, name))


def _least_tau(counts: LabelCounts, task: TaskDiagnosis) -> str:
    return _number(float(counts.tau[task.counts.defined].min(initial=math.inf)))


def _ends(values: Any) -> tuple[float, float, float]:
    """Return minimum, median and maximum of the defined values."""
    known = values[np.isfinite(values)]
    if not len(known):
        return math.nan, math.nan, math.nan
    return float(known.min()), float(np.median(known)), float(known.max())


def _span(values: Any) -> str:
    return "  ".join("-" if math.isnan(v) else f"{v:.2f}" if v >= 0.1 else f"{v:.2g}" for v in _ends(values))


def _number(value: float) -> str:
    """Return a number with three significant digits.

    >>> _number(0.01234), _number(1234.5), _number(math.inf), _number(math.nan)
    ('0.0123', '1234', '∞', '-')
    """
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "∞"
    if value == 0 or abs(value) < 0.0005:
        return "0" if value == 0 else f"{value:.1g}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as CSV, empty where a value is undefined; a spreadsheet takes no name for a formula."""
    cells = [["" if isinstance(v, float) and math.isnan(v) else v for v in row.values()] for row in rows]
    return csv_text(list(rows[0]), cells, spreadsheet=True)


def diagnosis_figure(found: Diagnosis) -> ReportFigure:
    """Return the figure of a diagnosis: four panels, or two where there is no memory."""
    panels = [_margins(found), _terms(found)]
    if found.stored:
        panels = [panels[0], _imbalance(found), panels[1], _risks(found)]

    def draw(figure: Any) -> None:
        for axes, panel in zip(figure.subplots(len(panels) // 2, 2).flat, panels, strict=True):
            panel.draw(axes)
            axes.set_title(panel.title)

    alt = " ".join([f"{headline(found)}.", *(panel.alt for panel in panels)])
    return ReportFigure("Theory as a diagnostic", alt, draw, (7.6, 2.9 * (len(panels) // 2)))


def _margins(found: Diagnosis) -> Panel:
    counts = _per_class(found, "positive")
    used = np.concatenate([task.margins for task in found.tasks])
    best = np.concatenate([_optimum(task) for task in found.tasks])

    def draw(axes: Any) -> None:
        axes.scatter(counts, used, s=18, lw=0, color=colour(0), label="margin in use")
        axes.scatter(
            counts, best, s=52, facecolors="none", edgecolors=INK, linewidths=0.8, label="numeric optimum"
        )
        count_axis(axes, counts, "positives in the task, P_k")
        axes.set_ylim(bottom=0)
        axes.set_ylabel("margin D_k")
        axes.legend()

    off = max((t.proposition.difference for t in found.tasks if t.proposition is not None), default=np.nan)
    words = f"the closed form and the numeric optimum of Proposition 1 differ by {off:.1g} at most"
    return Panel("Margins and Proposition 1", f"Margins: {_range(used)}; {words}.", draw)


def _imbalance(found: Diagnosis) -> Panel:
    data = _per_class(found, "tau")
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
        axes.set(xscale="log", yscale="log", xlim=(low, 0.55), ylim=(low, 0.55))
        for axis in (axes.xaxis, axes.yaxis):
            plain_log(axis)
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.set(xlabel="tau in the task", ylabel="tau in the memory")

    off = float(np.abs(data - held)[there].mean()) if there.any() else float("nan")
    alt = (
        f"Tau of {int(there.sum())} classes in the memory against the task: they differ by {off:.3f} on average; "
        f"classes without stored positives or negatives: {int(lost.sum())}."
    )
    return Panel("Imbalance of each class", alt, draw)


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
        axes.set(xticks=ticks(len(tasks)), xlabel="task", ylabel="term / √n")
        low, high = axes.get_ylim()
        axes.set_ylim(low * (low / high) ** 0.3, high)  # room for the legend
        axes.legend(ncols=2, loc="lower center")

    words = f"Term 1 over root n: {_range(data['complexity'])} for tasks"
    if found.stored:
        words += f", {_range(held['complexity'])} for the memory, lost classes left out"
    return Panel("Imbalance terms, over √n", f"{words}.", draw)


def _risks(found: Diagnosis) -> Panel:
    counts = _per_class(found, "positive")
    by_counts = np.concatenate([task.ratio_counts for task in found.tasks])
    risks = np.concatenate([task.ratio for task in found.tasks])

    def draw(axes: Any) -> None:
        axes.axhline(1, color=INK, lw=0.7, ls=":")
        axes.scatter(counts, by_counts, s=18, lw=0, color=colour(0), label="by label counts alone")
        if found.trained:
            axes.scatter(counts, risks, s=18, lw=0, marker="s", color=colour(1), label="by the network")
            axes.legend()
        count_axis(axes, counts, "positives in the task, P_k")
        known = np.concatenate([values[np.isfinite(values)] for values in (by_counts, risks)])
        if known.min(initial=1) > 0 and known.max(initial=1) > 20 * known.min(initial=1):
            axes.set_yscale("log")
            plain_log(axes.yaxis)
        else:
            axes.set_ylim(bottom=0)
        axes.set_ylabel("risk from memory / risk of task")

    words = f"Risk estimated from the memory over the full risk: {_range(by_counts)} by label counts alone"
    more = f", {_range(risks)} by the network" if found.trained else ""
    return Panel("Risk of each class", f"{words}{more}.", draw)


def _range(values: Floats) -> str:
    """Return the range of the defined values as part of a sentence."""
    known = values[np.isfinite(values)]
    return f"{known.min():.3g} to {known.max():.3g}" if len(known) else "none"


def _per_class(found: Diagnosis, name: str) -> Floats:
    return np.concatenate([getattr(task.counts, name) for task in found.tasks]).astype(np.float64)


def _optimum(task: TaskDiagnosis) -> Floats:
    """Return the numeric optimum, scaled to the sum of the margins in use, so that both can be compared."""
    out = np.full(len(task.classes), np.nan)
    if task.proposition is not None:
        share = task.proposition.numeric / task.proposition.total
        out[task.counts.defined] = share * np.nansum(task.margins)
    return out
