"""Write docs/evidence/rates.md and its figures from the tables ``equal``: ``python tools/rates.py`` (``make results``).

``results/equal-BENCHMARK`` has rows at their own best learning rate, ``results/adam-BENCHMARK`` some of them with Adam;
the same rows at the one rate that the benchmark ships are in older tables. The curves are those of ``tuning.csv``:
validation rows, at a seed that the tables do not have. What the page says in words is in ``tools/rates.md``.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import matplotlib as mpl
import numpy as np
from ledger import ROOT, Sweep, Values, command, write
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mlcl.metrics.intervals import paired_by_seed
from mlcl.reports.rendering import interval

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


@dataclass(frozen=True)
class Claim:
    """A claim: the measure, the row that is claimed to be above another, and the table that has both."""

    text: str
    metric: str
    above: str
    below: str
    table: str = "equal"


_PAPER, _ER = "rldam-wru", "er"
CLAIMS = (
    Claim("RLDAM + WRU is above ER", "macro_auc", _PAPER, _ER),
    Claim("... in the pooled measure", "pooled_macro_auc", _PAPER, _ER),
    Claim("... for the rarest third", "tail", _PAPER, _ER),
    *(
        Claim(f"... with M {size}", "macro_auc", f"{_PAPER}, M {size}", f"{_ER}, M {size}", "table3")
        for size in (200, 2000)
    ),
    Claim(
        "... after the deletion of images",
        "macro_auc",
        f"{_PAPER}, imbalance official",
        f"{_ER}, imbalance official",
        "imbalance",
    ),
    Claim("Reweighting improves ER", "macro_auc", "er + RU", _ER),
    Claim("The margin improves ER", "macro_auc", "er + margin", _ER),
    Claim("The margin improves the reweighted loss", "macro_auc", "er + RLDAM", "er + RU"),
    Claim(
        "Lambda 0.7 is above lambda 0",
        "macro_auc",
        f"{_PAPER}, lambda 0.7",
        f"{_PAPER}, lambda 0.0",
        "lambda",
    ),
    Claim("WRU improves ER", "macro_auc", "er + WRU", _ER),
    Claim("WRU improves RLDAM", "macro_auc", _PAPER, "er + RLDAM"),
    Claim("RLDAM alone improves fine-tuning", "macro_auc", "ft-rldam", "ft"),
    Claim("RLDAM improves EWC", "macro_auc", "ewc-rldam", "ewc", "ewc"),
    Claim("RU is above BCE in batch learning", "pooled_macro_auc", "RU", "BCE", "batch"),
    Claim("RLDAM is above BCE in batch learning", "pooled_macro_auc", "RLDAM", "BCE", "batch"),
)
SIDES = {"above": 1, "level": 0, "below": -1}
"""What an interval says, by its side of zero."""

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
    """Return a paired difference with its interval, bold where the interval excludes zero; "-" below three seeds.

    >>> difference({"a": {0: 2.0, 1: 2.2, 2: 2.1}, "b": {0: 1.0, 1: 1.1, 2: 1.2}}, "a", "b")
    '**+1.00 [+0.75, +1.25]**'
    """
    a, b = values.get(above, {}), values.get(below, {})
    gain = paired_by_seed(a, b) if len(set(a) & set(b)) > 2 else None
    if gain is None or math.isnan(gain.low):
        return "-"
    return f"**{interval(gain)}**" if gain.low > 0 or gain.high < 0 else interval(gain)


def tables(kind: str, benchmark: str, *, tuned: bool) -> list[Sweep]:
    """Return the tables of a kind that exist, those of `results/earlier` after today's."""
    folders = [ROOT / "results" / place / f"{kind}-{benchmark}" for place in ("", "earlier")]
    found = [Sweep.read(folder) for folder in folders if (folder / "sweep.yaml").exists()]
    return [sweep for sweep in found if bool(sweep.record.get("tuning")) == tuned]


def sweeps(kind: str) -> dict[str, Sweep]:
    """Return the tuned tables of a kind by benchmark, in the order of `NAMES`."""
    found = {name: tables(kind, name, tuned=True) for name in NAMES}
    return {name: those[0] for name, those in found.items() if those}


def at_one_rate(benchmark: str, kind: str = "equal") -> list[Sweep]:
    """Return the tables of a benchmark at its one rate, with the labels of this page."""
    kinds = ONE_RATE if kind == "equal" else (kind,)
    return [
        replace(sweep, runs=[run | {"label": RENAMED.get(run["label"], run["label"])} for run in sweep.runs])
        for one in kinds
        for sweep in tables(one, benchmark, tuned=False)
    ]


def first_difference(found: Sequence[Sweep], metric: str, above: str, below: str) -> str:
    """Return the difference of two rows in the first table that has both."""
    shown_first = (difference(sweep.values(metric), above, below) for sweep in found)
    return next((shown for shown in shown_first if shown != "-"), "-")


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


def line_of(points: Mapping[float, Mapping[str, float]], metric: str) -> dict[float, float]:
    """Return one measure of a curve, without the rates at which a run diverged."""
    return {rate: point[metric] for rate, point in points.items() if metric in point}


def regret(line: Mapping[float, float], rate: float) -> float | None:
    """Return how far a row is below its best value at a rate, between measured ones; None beyond them.

    >>> regret({0.01: 70.0, 0.1: 74.0}, 0.01 * 10**0.5)
    2.0
    """
    if not min(line) <= rate * 1.2 or not rate / 1.2 <= max(line):
        return None
    there = np.interp(math.log(rate), [math.log(one) for one in line], list(line.values()))
    return round(max(line.values()) - float(there), 6)


def regrets(own: Mapping[str, Sweep]) -> Iterator[str]:
    """Yield the table that the default for vectors is chosen by: mean (largest) regret over the losses of a set."""
    found = {name: curves(sweep.folder) for name, sweep in own.items() if name != "c-digits"}
    yield "| rate | " + " | ".join(NAMES[name] for name in found) + " |"
    yield "|---:|" + "---:|" * len(found)
    for rate in CANDIDATES:
        cells = []
        for lines in found.values():
            lost = [regret(line_of(lines[label], "macro_auc"), rate) for label in LOSSES if label in lines]
            known = [one for one in lost if one is not None]
            cells.append(f"{fmean(known):.1f} ({max(known):.1f})" if len(known) == len(lost) else "-")
        yield f"| {rate} | {' | '.join(cells)} |"


def panel(axis: Axes, found: Mapping[str, Mapping[float, Mapping[str, float]]], metric: str) -> None:
    """Draw a line per loss."""
    lines = {label: sorted(line_of(found.get(label, {}), metric).items()) for label in LOSSES}
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


def mean_of(shown: str) -> str:
    """Return a shown difference without its interval.

    >>> mean_of("**+1.05 [+0.41, +1.69]**"), mean_of("-0.05 [-0.41, +0.69]"), mean_of("-")
    ('**+1.05**', '-0.05', '-')
    """
    mean, *_ = shown.split(" ")
    return f"{mean}**" if shown.startswith("**") else mean


def side(shown: str) -> int:
    """Return on which side of zero the interval of a shown difference is, 0 where it has zero.

    >>> side("**+1.05 [+0.41, +1.69]**"), side("-0.05 [-0.41, +0.69]")
    (1, 0)
    """
    return 0 if not shown.startswith("**") else 1 if shown.startswith("**+") else -1


def verdicts() -> Iterator[str]:
    """Yield the table of claims, per set: at one rate, then at each row's own; and how often each holds."""
    names = [name for name in NAMES if any(sweeps(claim.table).get(name) for claim in CLAIMS)]
    yield "| claim | " + " | ".join(NAMES[name] for name in names) + " | at own rates |"
    yield "|---|" + "---:|" * len(names) + "---|"
    for claim in CLAIMS:
        cells, sides = [], []
        own = sweeps(claim.table)
        for name in names:
            older = at_one_rate(name, claim.table)
            before = first_difference(older, claim.metric, claim.above, claim.below)
            values = own[name].values(claim.metric) if name in own else {}
            after = difference(values, claim.above, claim.below)
            cells.append("" if before == after == "-" else f"{mean_of(before)} \u2192 {mean_of(after)}")
            if after != "-":
                sides.append(side(after))
        counts = [f"{word} {sides.count(one)}" for word, one in SIDES.items() if one in sides]
        yield f"| {claim.text} | {' | '.join(cells)} | {', '.join(counts) or '-'} |"


def peak(line: Mapping[float, float]) -> str:
    """Return the best value and its rate, and what a third of that rate and three times it cost.

    >>> peak({0.01: 70.0, 0.1: 72.0, 1.0: 70.0})
    '72.0 at 0.1 (1.0, 1.0)'
    """
    best = max(line, key=line.__getitem__)
    lost = (regret(line, best * factor) for factor in (1 / 3, 3))
    return f"{line[best]:.1f} at {best:g} ({', '.join('-' if one is None else f'{one:.1f}' for one in lost)})"


def peaks(columns: Mapping[str, Sweep]) -> Iterator[str]:
    """Yield the table of the curves: the peak of each loss on each set, and how fast it falls."""
    found = {name: curves(sweep.folder) for name, sweep in columns.items()}
    yield "| loss | measure | " + " | ".join(NAMES[name] for name in found) + " |"
    yield "|---|---|" + "---|" * len(found)
    for label, (loss, _, _) in LOSSES.items():
        for metric, measure in METRICS.items():
            lines = [line_of(those.get(label, {}), metric) for those in found.values()]
            yield f"| {loss} | {measure} | {' | '.join(peak(line) if line else '-' for line in lines)} |"


def rows(sweep: Sweep) -> Iterator[str]:
    """Yield the table of one benchmark: chosen rate, both measures, and the differences to ER at either choice."""
    values = {metric: sweep.values(metric) for metric in (*METRICS, "pooled_map")}
    common = set.intersection(*(set(seeds) for seeds in values["macro_auc"].values()))
    older, chosen = at_one_rate(sweep.record["benchmark"]), sweep.record["tuning"]["chosen"]
    yield "| row | rate | in-task | pooled | mAP | minus ER, in-task | minus ER, pooled | at one rate, in-task |"
    yield "|---|---:|---:|---:|---:|---|---|---|"
    for row in sweep.record["rows"]:
        label = row["label"]
        if label in values["macro_auc"]:
            means = [f"{fmean(found[label][seed] for seed in common):.2f}" for found in values.values()]
            gains = [difference(values[metric], label, "er") for metric in METRICS]
            gains.append(first_difference(older, "macro_auc", label, "er"))
            shown = ["" if label == "er" else gain for gain in gains]
            rate = chosen.get(label, {}).get("train.lr", "-")
            yield f"| {label} | {rate} | {' | '.join(means)} | {' | '.join(shown)} |"


def done(sweep: Sweep) -> str:
    """Return the number of seeds of a table; where rows lack some, the number that all have is what means are of."""
    least = min(len(seeds) for seeds in sweep.values("macro_auc").values())
    wanted = int(sweep.record["seeds"])
    return f"{wanted} seeds" if least == wanted else f"not complete: {least} of {wanted} seeds"


def section(name: str, sweep: Sweep) -> Iterator[str]:
    """Yield the part of the page on one benchmark."""
    record = sweep.record
    seeds = ", ".join(map(str, record["tuning"]["seeds"]))
    commits = ", ".join(str(commit)[:7] for commit in record["commits"])
    yield from ("", f"## {NAMES[name]}", "", f"    {command(record)}", "")
    yield (
        f"{done(sweep)}; rates chosen on validation rows at seed {seeds}; commits {commits}; files: "
        f"`results/{sweep.folder.name}`"
    )
    yield from ("", *rows(sweep))


def untuned() -> Iterator[str]:
    """Yield the tables that are still at one rate, with their benchmarks; `mlcil` has a rate per row in its file."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "results").glob("*/sweep.yaml")):
        record = Sweep.read(path.parent).record
        if not record.get("tuning") and record["table"] != "mlcil":
            found.setdefault(record["table"], []).append(record["benchmark"])
    yield from (f"- `{table}`: {', '.join(dict.fromkeys(those))}" for table, those in found.items())


def render() -> str:
    """Return the page."""
    own = sweeps("equal")
    text = (ROOT / "tools" / "rates.md").read_text()
    body = [line for name, sweep in own.items() for line in section(name, sweep)]
    blocks = {
        "<!-- verdicts -->": verdicts(),
        "<!-- peaks -->": peaks(own),
        "<!-- peaks with Adam -->": peaks(sweeps("adam")),
        "<!-- regrets -->": regrets(own),
        "<!-- rest -->": untuned(),
    }
    for mark, lines in blocks.items():
        text = text.replace(mark, "\n".join(lines))
    return "\n".join([text.strip(), *body]) + "\n"


def main() -> int:
    """Write page and figures, or check them."""
    states = [write(render(), ROOT / "docs" / "evidence" / "rates.md")]
    for prefix, target in (("equal", "rates.svg"), ("adam", "rates-adam.svg")):
        columns = [(NAMES[name], sweep.folder) for name, sweep in sweeps(prefix).items()]
        if columns:
            states.append(write(draw(columns), ROOT / "docs" / "images" / target))
    return max(states)


if __name__ == "__main__":
    raise SystemExit(main())
