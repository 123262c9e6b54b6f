"""Write docs/rates.md and its figures from the tables ``equal``: ``python tools/rates.py`` (``make results``).

``results/equal-BENCHMARK`` has rows at their own best learning rate, ``results/adam-BENCHMARK`` some of them with Adam;
the same rows at the one rate that the benchmark ships are in older tables. The curves are those of ``tuning.csv``:
validation rows, at a seed that the tables do not have. What the page says in words is in ``tools/rates.md``.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import matplotlib as mpl
import numpy as np
from ledger import ROOT, Sweep, Values, command, write
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mlcl.metrics.intervals import paired_interval

NAMES = {
    "c-digits": "c-digits",
    "c-voc-features": "VOC features",
    "c-coco-features": "COCO features",
    "c-scene": "Scene",
    "c-enron": "Enron",
    "c-corel5k": "Corel5k",
    "c-bibtex": "Bibtex",
    "c-delicious": "Delicious",
}
LOSSES = {
    "er": ("BCE", "#7b838d", "-"),
    "er x 2": ("BCE x 2", "#7b838d", "--"),
    "er + margin": ("margin", "#8a6cc0", "-"),
    "er + RU": ("RU (reweighted)", "#2f9a6c", "-"),
    "er + RLDAM": ("RLDAM", "#d4802a", "-"),
    "rldam-wru": ("RLDAM + WRU", "#cf4d5f", "-"),
}
"""Rows of the curves: name, colour and line."""

METRICS = {"macro_auc": "in-task", "pooled_macro_auc": "pooled"}
CLAIMS = (
    ("RLDAM + WRU is above ER", "macro_auc", "rldam-wru", "er"),
    ("... in the pooled measure", "pooled_macro_auc", "rldam-wru", "er"),
    ("... for the rarest third", "tail", "rldam-wru", "er"),
    ("Reweighting improves ER", "macro_auc", "er + RU", "er"),
    ("The margin improves ER", "macro_auc", "er + margin", "er"),
    ("The margin improves the reweighted loss", "macro_auc", "er + RLDAM", "er + RU"),
    ("WRU improves ER", "macro_auc", "er + WRU", "er"),
    ("WRU improves RLDAM", "macro_auc", "rldam-wru", "er + RLDAM"),
    ("RLDAM alone improves fine-tuning", "macro_auc", "ft-rldam", "ft"),
)
"""A claim, the measure, and the row that is claimed to be above the other."""

CANDIDATES = (0.005, 0.015, 0.05, 0.15)
"""Rates that the default for vectors is chosen from."""
ONE_RATE = ("shipped", "table2", "fixed", "presets", "exact")
"""Tables that have the same rows at the rate that the benchmark ships; the first that has both rows counts."""
RENAMED = {
    "reweighting": "er + RU",
    "margin": "er + margin",
    "reweighting + margin": "er + RLDAM",
    "reweighting + margin + WRU": "rldam-wru",
}
"""Rows of Table 2, and what they are called here."""


def difference(values: Values, above: str, below: str) -> str:
    """Return a paired difference with its interval, bold where the interval excludes zero; "-" without two seeds.

    >>> difference({"a": {0: 2.0, 1: 2.2}, "b": {0: 1.0, 1: 1.1}}, "a", "b")
    '**+1.05 [+0.41, +1.69]**'
    """
    seeds = sorted(set(values.get(above, {})) & set(values.get(below, {})))
    if len(seeds) < 2:
        return "-"
    gain = paired_interval([values[above][s] for s in seeds], [values[below][s] for s in seeds])
    mean = fmean(values[above][s] - values[below][s] for s in seeds)
    shown = f"{mean:+.2f} [{gain.low:+.2f}, {gain.high:+.2f}]"
    return f"**{shown}**" if gain.low > 0 or gain.high < 0 else shown


def sweeps(prefix: str) -> dict[str, Sweep]:
    """Return the tables of a kind by benchmark, in the order of `NAMES`."""
    folders = {name: ROOT / "results" / f"{prefix}-{name}" for name in NAMES}
    return {name: Sweep.read(path) for name, path in folders.items() if (path / "sweep.yaml").exists()}


def at_one_rate(benchmark: str) -> list[Sweep]:
    """Return the tables of a benchmark at its one rate, with the labels of this page."""
    folders = [ROOT / "results" / f"{table}-{benchmark}" for table in ONE_RATE]
    found = [Sweep.read(folder) for folder in folders if (folder / "sweep.yaml").exists()]
    return [
        replace(sweep, runs=[run | {"label": RENAMED.get(run["label"], run["label"])} for run in sweep.runs])
        for sweep in found
    ]


def first_difference(tables: Sequence[Sweep], metric: str, above: str, below: str) -> str:
    """Return the difference of two rows in the first table that has both."""
    found = (difference(sweep.values(metric), above, below) for sweep in tables)
    return next((shown for shown in found if shown != "-"), "-")


def curves(folder: Path) -> dict[str, dict[float, dict[str, float]]]:
    """Return what was measured while tuning: row, rate, metric, the mean over the seeds."""
    cells: dict[tuple[str, float], list[dict[str, str]]] = {}
    with (folder / "tuning.csv").open(newline="") as file:
        for line in csv.DictReader(file):
            if line["setting"] == "train.lr":
                cells.setdefault((line["row"], float(line["value"])), []).append(line)
    found: dict[str, dict[float, dict[str, float]]] = {}
    for (label, value), lines in sorted(cells.items()):
        known = {m: [float(line[m]) for line in lines if line[m] not in ("", "nan")] for m in METRICS}
        found.setdefault(label, {})[value] = {m: fmean(those) for m, those in known.items() if those}
    return found


def regret(line: Mapping[float, Mapping[str, float]], rate: float) -> float | None:
    """Return how far a row is below its best in-task value at a rate, between measured ones; None beyond them.

    >>> regret({0.01: {"macro_auc": 70.0}, 0.1: {"macro_auc": 74.0}}, 0.01 * 10**0.5)
    2.0
    """
    points = {one: point["macro_auc"] for one, point in line.items() if "macro_auc" in point}
    if not min(points) <= rate * 1.2 or not rate / 1.2 <= max(points):
        return None
    there = np.interp(math.log(rate), [math.log(one) for one in points], list(points.values()))
    return round(max(points.values()) - float(there), 6)


def regrets(own: Mapping[str, Sweep]) -> Iterator[str]:
    """Yield the table that the default for vectors is chosen by: mean (largest) regret over the losses of a set."""
    found = {name: curves(sweep.folder) for name, sweep in own.items() if name != "c-digits"}
    yield "| rate | " + " | ".join(NAMES[name] for name in found) + " |"
    yield "|---:|" + "---:|" * len(found)
    for rate in CANDIDATES:
        cells = []
        for lines in found.values():
            lost = [regret(lines[label], rate) for label in LOSSES if label in lines]
            known = [one for one in lost if one is not None]
            cells.append(f"{fmean(known):.1f} ({max(known):.1f})" if len(known) == len(lost) else "-")
        yield f"| {rate} | {' | '.join(cells)} |"


def panel(axis: Axes, found: Mapping[str, Mapping[float, Mapping[str, float]]], metric: str) -> None:
    """Draw a line per loss."""
    lines = {
        label: [(rate, point[metric]) for rate, point in found.get(label, {}).items() if metric in point]
        for label in LOSSES
    }
    points = [value for line in lines.values() for _, value in line]
    for label, (name, colour, style) in LOSSES.items():
        if lines[label]:
            axis.plot(
                *zip(*lines[label], strict=True), style, color=colour, label=name, marker="o", ms=2.5, lw=1.3
            )
    axis.set_ylim(max(min(points), max(points) - 9) - 0.3, max(points) + 0.4)
    axis.set_xscale("log")
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=7)


def draw(columns: Sequence[tuple[str, Path]]) -> str:
    """Return the figure as SVG: a column per set, in-task above, pooled below."""
    figure = Figure(figsize=(2.3 * len(columns), 4.6), layout="constrained")
    axes = figure.subplots(2, len(columns), squeeze=False, sharex="col")
    for place, (title, folder) in enumerate(columns):
        found = curves(folder)
        for row, (metric, name) in enumerate(METRICS.items()):
            panel(axes[row, place], found, metric)
            axes[row, 0].set_ylabel(f"Macro-AUC, {name}", fontsize=8)
        axes[0, place].set_title(title, loc="left", fontsize=9)
        axes[1, place].set_xlabel("learning rate", fontsize=8)
    handles = {
        name: line for axis in axes[0] for line, name in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        handles.values(),
        handles,
        loc="outside lower center",
        ncols=6 if len(columns) > 3 else 3,
        fontsize=8,
        frameon=False,
    )
    out = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "mlcl", "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def verdicts(own: Mapping[str, Sweep]) -> Iterator[str]:
    """Yield the table of claims: at one rate, then at each row's own."""
    one = {name: at_one_rate(name) for name in own}
    yield "| claim | rate | " + " | ".join(NAMES[name] for name in own) + " |"
    yield "|---|---|" + "---|" * len(own)
    for claim, metric, above, below in CLAIMS:
        before = [first_difference(one[name], metric, above, below) for name in own]
        after = [difference(sweep.values(metric), above, below) for sweep in own.values()]
        yield f"| {claim} | one | {' | '.join(before)} |"
        yield f"| | own | {' | '.join(after)} |"


def rows(sweep: Sweep) -> Iterator[str]:
    """Yield the table of one benchmark: chosen rate, both measures, and the differences to ER at either choice."""
    values = {metric: sweep.values(metric) for metric in (*METRICS, "pooled_map")}
    tables, chosen = at_one_rate(sweep.record["benchmark"]), sweep.record["tuning"]["chosen"]
    yield "| row | rate | in-task | pooled | mAP | minus ER, in-task | minus ER, pooled | at one rate, in-task |"
    yield "|---|---:|---:|---:|---:|---|---|---|"
    for row in sweep.record["rows"]:
        label = row["label"]
        if label in values["macro_auc"]:
            means = [f"{fmean(found[label].values()):.2f}" for found in values.values()]
            gains = [difference(values[metric], label, "er") for metric in METRICS]
            gains.append(first_difference(tables, "macro_auc", label, "er"))
            shown = ["" if label == "er" else gain for gain in gains]
            rate = chosen.get(label, {}).get("train.lr", "-")
            yield f"| {label} | {rate} | {' | '.join(means)} | {' | '.join(shown)} |"


def section(name: str, sweep: Sweep) -> Iterator[str]:
    """Yield the part of the page on one benchmark."""
    record = sweep.record
    seeds = ", ".join(map(str, record["tuning"]["seeds"]))
    commits = ", ".join(str(commit)[:7] for commit in record["commits"])
    yield from ("", f"## {NAMES[name]}", "", f"    {command(record)}", "")
    yield (
        f"{record['seeds']} seeds; rates chosen on validation rows at seed {seeds}; commits {commits}; files: "
        f"`results/{sweep.folder.name}`"
    )
    yield from ("", *rows(sweep))


def render() -> str:
    """Return the page."""
    own = sweeps("equal")
    text = (ROOT / "tools" / "rates.md").read_text()
    body = [line for name, sweep in own.items() for line in section(name, sweep)]
    tables = {"<!-- verdicts -->": verdicts(own), "<!-- regrets -->": regrets(own)}
    for mark, lines in tables.items():
        text = text.replace(mark, "\n".join(lines))
    return "\n".join([text.strip(), *body]) + "\n"


def main() -> int:
    """Write page and figures, or check them."""
    states = [write(render(), ROOT / "docs" / "rates.md")]
    for prefix, target in (("equal", "rates.svg"), ("adam", "rates-adam.svg")):
        columns = [(NAMES[name], sweep.folder) for name, sweep in sweeps(prefix).items()]
        if columns:
            states.append(write(draw(columns), ROOT / "docs" / "images" / target))
    return max(states)


if __name__ == "__main__":
    raise SystemExit(main())
