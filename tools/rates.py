"""Write docs/rates.md and its figure from the tables ``equal``: ``python tools/rates.py`` (``make results``).

``results/equal-BENCHMARK`` has every row at its own best learning rate, ``results/shipped-BENCHMARK`` the same rows at
the one rate that the benchmark ships, ``results/adam-BENCHMARK`` some of them with Adam. The curves are those of
``tuning.csv``: validation rows, at seeds that the tables do not have. What the page says in words is in
``tools/rates.md``.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

import matplotlib as mpl
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
    ("The margin improves the reweighted loss", "macro_auc", "er + RLDAM", "er + RU"),
    ("WRU improves RLDAM", "macro_auc", "rldam-wru", "er + RLDAM"),
    ("WRU improves ER", "macro_auc", "er + WRU", "er"),
    ("RLDAM alone improves fine-tuning", "macro_auc", "ft-rldam", "ft"),
    ("RLDAM is above BCE in batch learning (pooled)", "pooled_macro_auc", "joint + RLDAM", "joint + BCE"),
    ("`best` is above ER (pooled)", "pooled_macro_auc", "best", "er"),
    ("`best` is above distilled replay (in-task)", "macro_auc", "best", "distilled-replay"),
)
"""A claim, the measure, and the row that is claimed to be above the other."""


def difference(values: Values, above: str, below: str) -> str:
    """Return a paired difference with its interval, bold where the interval excludes zero; "-" without two seeds.

    >>> difference({"a": {0: 2.0, 1: 2.2}, "b": {0: 1.0, 1: 1.1}}, "a", "b")
    '+1.05 [+0.41, +1.69]'
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


def panel(axis: Axes, found: Mapping[str, Mapping[float, Mapping[str, float]]], metric: str) -> None:
    """Draw a line per loss."""
    top = max(point[metric] for line in found.values() for point in line.values() if metric in point)
    for label, (name, colour, style) in LOSSES.items():
        points = sorted(
            (rate, point[metric]) for rate, point in found.get(label, {}).items() if metric in point
        )
        if points:
            axis.plot(
                *zip(*points, strict=True),
                style,
                color=colour,
                label=name,
                marker="o",
                markersize=2.5,
                lw=1.3,
            )
    axis.set_ylim(top - 9, top + 0.8)
    axis.set_xscale("log")
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=7)


def draw(columns: Sequence[tuple[str, Path]]) -> str:
    """Return the figure as SVG: a column per set, in-task above, pooled below."""
    figure = Figure(figsize=(2.2 * len(columns), 4.6), layout="constrained")
    axes = figure.subplots(2, len(columns), squeeze=False, sharex="col")
    for place, (title, folder) in enumerate(columns):
        found = curves(folder)
        for row, (metric, name) in enumerate(METRICS.items()):
            panel(axes[row, place], found, metric)
            if place == 0:
                axes[row, 0].set_ylabel(f"Macro-AUC, {name}", fontsize=8)
        axes[0, place].set_title(title, loc="left", fontsize=9)
        axes[1, place].set_xlabel("learning rate", fontsize=8)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6, fontsize=8, frameon=False)
    out = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "mlcl", "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def verdicts(one: Mapping[str, Sweep], own: Mapping[str, Sweep]) -> Iterator[str]:
    """Yield the table of claims: at one rate, then at each row's own."""
    yield "| claim | rate | " + " | ".join(NAMES[name] for name in own) + " |"
    yield "|---|---|" + "---|" * len(own)
    for claim, metric, above, below in CLAIMS:
        for title, rate, found in ((claim, "one", one), ("", "own", own)):
            cells = [
                difference(found[name].values(metric), above, below) if name in found else "-" for name in own
            ]
            yield f"| {title} | {rate} | {' | '.join(cells)} |"


def rows(sweep: Sweep, shipped: Sweep | None) -> Iterator[str]:
    """Yield the table of one benchmark: chosen rate, both measures, and the differences to ER at either choice."""
    values = {metric: sweep.values(metric) for metric in (*METRICS, "pooled_map")}
    before = shipped.values("macro_auc") if shipped else {}
    chosen = sweep.record["tuning"]["chosen"]
    yield "| row | rate | in-task | pooled | mAP | minus ER, in-task | minus ER, pooled | at one rate, in-task |"
    yield "|---|---:|---:|---:|---:|---|---|---|"
    for row in sweep.record["rows"]:
        label = row["label"]
        if label not in values["macro_auc"]:
            continue
        means = [f"{fmean(values[metric][label].values()):.2f}" for metric in values]
        gains = [
            difference(found, label, "er")
            for found in (values["macro_auc"], values["pooled_macro_auc"], before)
        ]
        rate = chosen.get(label, {}).get("train.lr", "-")
        yield f"| {label} | {rate} | {' | '.join(means)} | {' | '.join('' if label == 'er' else g for g in gains)} |"


def render() -> str:
    """Return the page."""
    own, one = sweeps("equal"), sweeps("shipped")
    text = (ROOT / "tools" / "rates.md").read_text()
    out = [text.strip(), "", "## The claims, at one rate and at each row's own", "", *verdicts(one, own)]
    for name, sweep in own.items():
        record = sweep.record
        commits = ", ".join(str(commit)[:7] for commit in record["commits"])
        out += ["", f"## {NAMES[name]}", "", f"    {command(record)}"]
        if name in one:
            out += [f"    {command(one[name].record)}      # one rate"]
        seeds = ", ".join(map(str, record["tuning"]["seeds"]))
        out += [
            "",
            f"{record['seeds']} seeds; rates chosen on validation rows at seeds {seeds}; commits {commits}; files: ",
        ]
        out[-1] += (
            f"`results/equal-{name}`, `results/shipped-{name}`" if name in one else f"`results/equal-{name}`"
        )
        out += ["", *rows(sweep, one.get(name))]
    return "\n".join(out) + "\n"


def main() -> int:
    """Write page and figures, or check them."""
    images = ROOT / "docs" / "images"
    states = [write(render(), ROOT / "docs" / "rates.md")]
    for prefix, target in (("equal", "rates.svg"), ("adam", "rates-adam.svg")):
        columns = [(NAMES[name], sweep.folder) for name, sweep in sweeps(prefix).items()]
        if columns:
            states.append(write(draw(columns), images / target))
    return max(states)


if __name__ == "__main__":
    raise SystemExit(main())
