"""Draw images/quality.svg, the README's figure, and fixed-features.svg: ``python tools/regime.py`` (``make results``).

Macro-AUC of the methods on fixed features, in-task and pooled (``results/fixed-*/runs.csv``), against seconds and, for
memories and sums of several sizes, against bytes kept (``results/bytes-*/runs.csv``). Tables are made on machines that
are busy with other runs, so seconds are measured apart: ``python tools/regime.py --measure`` runs the first seed of
every row alone, one thread, one after the other, and writes ``results/seconds.csv``.
"""

from __future__ import annotations

import csv
import io
import sys
import warnings
from pathlib import Path

import matplotlib as mpl
from beyond import mean
from ledger import ROOT, Sweep, write
from matplotlib.axes import Axes
from matplotlib.figure import Figure

SHOWN = {
    "er": ("ER", "#7f7f7f", "o"),
    "rldam-wru": ("RLDAM + WRU (the paper)", "#d95f02", "s"),
    "distilled-replay": ("distilled replay", "#7570b3", "D"),
    "committee": ("committee", "#e7298a", "v"),
    "taught-committee": ("taught committee", "#a6761d", "^"),
    "exact, u 0": ("exact, u 0", "#66c2a5", "*"),
    "exact, u 0.1": ("exact, u 0.1", "#1b9e77", "*"),
    "exact, u 1": ("exact, u 1", "#00441b", "*"),
    "joint + BCE": ("joint training (BCE)", "#000000", "P"),
}
"""Label of a row, and its name, colour and marker in the figure."""

OTHERS = ("ft", "ft-rldam", "er-rs", "prs", "ocdm", "ewc", "lwf")
"""Rows that are drawn alike: fine-tuning, other memories, regularisers."""

SECONDS = ROOT / "results" / "seconds.csv"

NAMES = {"c-voc-features": "VOC 2012", "c-coco-features": "COCO 2017"}

SERIES = {
    "er": "er",
    "rldam-wru": "rldam-wru",
    "distilled-replay": "distilled-replay",
    "exact": "exact, u 0.1",
}
"""First word of the labels of the table of bytes, and the row of the table of methods whose colour it has."""

FIVE = {
    "er": ("replay of random rows (ER)", (8, -4), "left"),
    "rldam-wru": ("RLDAM + WRU (the paper)", (8, 4), "left"),
    "distilled-replay": ("distilled replay", (8, -3), "left"),
    "exact, u 0.1": ("exact learner: stores no row", (8, -3), "left"),
    "taught-committee": ("committee of network and exact learner", (6, 9), "right"),
}
"""Rows of the README's figure: name, where it stands beside the point, and the side on which it begins."""

Sizes = dict[str, list[tuple[float, float, float]]]
"""Series to bytes kept, in-task and pooled Macro-AUC of each of its sizes."""


def points(sweep: Sweep) -> Sizes:
    """Return what each row keeps and reaches, by series, in the order of bytes."""
    found: Sizes = {}
    for row in sweep.record["rows"]:
        label = row["label"]
        seeds = sorted(sweep.values("macro_auc").get(label, {}))
        values = [
            mean(sweep.values(name), label, seeds)
            for name in ("memory_bytes", "macro_auc", "pooled_macro_auc")
        ]
        if None not in values:
            found.setdefault(label.split(",")[0], []).append((values[0], values[1], values[2]))  # type: ignore[arg-type]
    return {series: sorted(sizes) for series, sizes in found.items()}


def measure() -> None:
    """Run the first seed of every row of `fixed`, one after the other, and write how long each took."""
    from mlcl.runs.environment import source_commit  # drawing needs no torch
    from mlcl.runs.run import run
    from mlcl.sweeps import load_experiment
    from mlcl.sweeps.plan import plan_runs

    lines, commit = [["benchmark", "label", "seconds", "commit"]], source_commit()
    warnings.simplefilter("ignore", UserWarning)
    for name in NAMES:
        _, runs = plan_runs(load_experiment("fixed"), benchmark=name, seeds=1, out=Path())
        run(runs[0].config)  # what is loaded once is loaded now
        for planned in runs:
            lines.append([name, planned.label, f"{run(planned.config).seconds:.3f}", str(commit)[:7]])
            sys.stderr.write(f"{', '.join(lines[-1][:3])}\n")
    with SECONDS.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(lines)


def measured(benchmark: str) -> dict[str, float]:
    """Return the seconds of each row of a benchmark."""
    with SECONDS.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["benchmark"] == benchmark]
    return {row["label"]: float(row["seconds"]) for row in rows}


def by_seconds(axis: Axes, sweep: Sweep) -> None:
    """Draw one mark per method: pooled filled, in-task hollow."""
    seconds = measured(sweep.record["benchmark"])
    grey = dict.fromkeys(OTHERS, ("fine-tuning, other memories, EWC, LwF", "#bdbdbd", "."))
    for label, (shown, colour, marker) in (grey | SHOWN).items():
        seeds = sorted(sweep.values("macro_auc").get(label, {}))
        values = [mean(sweep.values(name), label, seeds) for name in ("macro_auc", "pooled_macro_auc")]
        x, (inside, pooled) = seconds.get(label), values
        if x is None or inside is None or pooled is None:
            continue
        shown = f"_{shown}" if label in OTHERS[1:] else shown  # one entry of the legend for all of them
        size = 110 if marker == "*" else 45
        axis.plot([x, x], [inside, pooled], color=colour, linewidth=0.8, alpha=0.5)
        axis.scatter([x], [pooled], s=size, color=colour, marker=marker, label=shown, zorder=3)
        axis.scatter([x], [inside], s=size, facecolors="none", edgecolors=colour, marker=marker, zorder=3)


def by_bytes(axis: Axes, sizes: Sizes) -> None:
    """Draw one line per series: pooled solid, in-task dashed."""
    for series, label in SERIES.items():
        _, colour, marker = SHOWN[label]
        kept, inside, pooled = zip(*sizes[series], strict=True)
        large = 9 if marker == "*" else 5
        axis.plot(kept, pooled, color=colour, marker=marker, markersize=large, linewidth=1)
        axis.plot(kept, inside, "--", color=colour, marker=marker, markersize=large, lw=1, mfc="none")


def simple(sweep: Sweep) -> str:
    """Return the README's figure: pooled Macro-AUC against seconds, five points with their names."""
    seconds, pooled = measured(sweep.record["benchmark"]), sweep.values("pooled_macro_auc")
    figure = Figure(figsize=(5, 3.4), layout="constrained")
    axis = figure.subplots()
    for label, (text, offset, side) in FIVE.items():
        x, y = seconds[label], mean(pooled, label, sorted(pooled[label])) or 0.0
        colour = SHOWN[label][1]
        axis.scatter([x], [y], s=60, color=colour, zorder=3)
        axis.annotate(text, (x, y), offset, textcoords="offset points", color=colour, ha=side, fontsize=10)
    axis.set(
        xlim=(0, 6.2),
        ylim=(87.8, 93.2),
        xlabel="seconds to learn five tasks in turn, on one core",
    )
    axis.set_title("Macro-AUC over all 20 labels of VOC 2012", loc="left", fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)
    return svg(figure)


def draw(sweeps: list[tuple[Sweep, Sweep]]) -> str:
    """Return the figure as SVG, from the table of methods and the table of bytes of each benchmark."""
    figure = Figure(figsize=(9, 3.1 * len(sweeps)), layout="constrained")
    axes = figure.subplots(len(sweeps), 2, squeeze=False)
    for row, (methods, kept) in zip(axes, sweeps, strict=True):
        by_seconds(row[0], methods)
        by_bytes(row[1], points(kept))
        name = NAMES[methods.record["benchmark"]]
        row[0].set_xlim(left=0)
        row[1].set_xscale("log")
        for axis, text in zip(row, ("seconds", "bytes kept"), strict=True):
            axis.set_xlabel(text)
            axis.set_title(f"{name}: Macro-AUC against {text}", loc="left", fontsize=10)
            axis.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylabel("filled: pooled, hollow: in-task", fontsize=8)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    return svg(figure)


def svg(figure: Figure) -> str:
    """Return a figure as SVG, on white so that it can be read in a dark page too."""
    out = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "mlcl", "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def folders() -> list[tuple[Path, Path]]:
    """Return the folders of the tables of methods and of bytes, for every benchmark that has both."""
    found = [tuple(ROOT / "results" / f"{table}-{name}" for table in ("fixed", "bytes")) for name in NAMES]
    return [(methods, kept) for methods, kept in found if methods.exists() and kept.exists()]


if __name__ == "__main__":
    if "--measure" in sys.argv[1:]:
        measure()
    sweeps = [(Sweep.read(methods), Sweep.read(kept)) for methods, kept in folders()]
    made = {"quality": simple(sweeps[0][0]), "fixed-features": draw(sweeps)}
    raise SystemExit(max(write(made[name], ROOT / "docs" / "images" / f"{name}.svg") for name in made))
