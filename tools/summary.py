"""Write the tables of results of the README and of the verdicts: ``python tools/summary.py`` (``make results``).

Every number is a mean over the seeds of a committed ``results/*/runs.csv``.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from beyond import BOUNDS, mean
from ledger import ROOT, Sweep, write

METRICS = ("macro_auc", "pooled_macro_auc")
README, VERDICTS = ROOT / "README.md", ROOT / "docs" / "evidence" / "verdicts.md"
COLUMNS = {
    "fixed-c-voc-features": "VOC features",
    "fixed-c-coco-features": "COCO features",
    "beyond-c-digits": "c-digits",
    "beyond-c-voc-small": "c-voc-small",
}
"""Folder of the results, and its name in the table; ``exact-*`` beside ``beyond-*`` has the exact learner's rows."""


@dataclass(frozen=True)
class Line:
    """A line of the table.

    Attributes:
        text: the method.
        fixed: its labels on fixed features, in-task and pooled.
        trained: its labels where no pre-trained encoder is used.
    """

    text: str
    fixed: tuple[str, str]
    trained: tuple[str, str]


def _both(label: str) -> tuple[str, str]:
    return label, label


_JOINT = _both("joint")
_REGRESSION = ("in-task", "pooled")
LINES = (
    Line("**`--method best`**", _both("exact, u 0.1"), _both("taught-committee")),
    Line("`taught-committee`", _both("taught-committee"), _both("taught-committee")),
    Line("`exact`, u 0", _both("exact, u 0"), _both("exact, u 0")),
    Line("`exact`, u 1", _both("exact, u 1"), _both("exact, u 1")),
    Line("distilled replay", _both("distilled-replay"), _both("distilled-replay")),
    Line("RLDAM + WRU (the paper)", _both("rldam-wru"), _both("rldam-wru")),
    Line("ER (BCE, random memory)", _both("er"), _both("er")),
    Line("upper bounds: all data at once", _REGRESSION, _JOINT),
)
SHORT = {
    "`--method best`": 0,
    "distilled replay": 4,
    "RLDAM + WRU (the paper)": 5,
    "replay of random rows (ER)": 6,
    "all data at once (upper bound)": 7,
}
"""Lines of the README's table, and the line of `LINES` that each one shows."""
SHORT_COLUMNS = {
    "fixed-c-voc-features": "VOC, encoder's features",
    "fixed-c-coco-features": "COCO, encoder's features",
    "beyond-c-voc-small": "VOC, 32 pixels, from scratch",
}


def table(sweeps: dict[str, Sweep], lines: Sequence[Line] = LINES) -> Iterator[str]:
    """Yield the table: Macro-AUC of each method on each benchmark, in-task and pooled, best of the methods in bold."""
    shown = {name: sweep for name in COLUMNS if (sweep := sweeps.get(name)) is not None}
    yield "|  | " + " | ".join(f"{COLUMNS[name]} | pooled" for name in shown) + " |"
    yield "|---|" + "---:|---:|" * len(shown)
    columns = []
    for name, sweep in shown.items():
        for place, metric in enumerate(METRICS):
            labels = [line.fixed if name.startswith("fixed") else line.trained for line in lines]
            values = sweep.values(metric)
            columns.append([_highest(values, pair[place], metric) for pair in labels])
    methods = [number for number, line in enumerate(lines) if line.trained != _JOINT]
    best = [
        max((value for n in methods if (value := column[n]) is not None), default=None) for column in columns
    ]
    for number, line in enumerate(lines):
        cells = [
            _cell(column[number], bold=column[number] == top and number in methods)
            for column, top in zip(columns, best, strict=True)
        ]
        yield f"| {line.text} | {' | '.join(cells)} |"


def _highest(values: dict[str, dict[int, float]], label: str, metric: str) -> float | None:
    """Return the mean of a row; of joint training that of the loss with the highest."""
    found = [_mean(values, one) for one in (BOUNDS[metric] if label == _JOINT[0] else (label,))]
    return max((one for one in found if one is not None), default=None)


def short(sweeps: dict[str, Sweep]) -> Iterator[str]:
    """Yield the README's table: Macro-AUC over all labels and test images of five lines on three benchmarks."""
    yield f"| Macro-AUC, all labels together | {' | '.join(SHORT_COLUMNS.values())} |"
    yield "|---|" + "---:|" * len(SHORT_COLUMNS)
    for text, number in SHORT.items():
        line, cells = LINES[number], []
        for name in SHORT_COLUMNS:
            labels = line.fixed if name.startswith("fixed") else line.trained
            values = sweeps[name].values("pooled_macro_auc")
            cells.append(_cell(_highest(values, labels[1], "pooled_macro_auc"), bold=not number))
        yield f"| {text} | {' | '.join(cells)} |"


def regressions() -> dict[str, list[dict[str, str]]]:
    """Return the runs of ``results/regression.csv`` by the folder whose table they bound, with measures as labels."""
    found: dict[str, list[dict[str, str]]] = {}
    with (ROOT / "results" / "regression.csv").open() as file:
        for line in csv.DictReader(file):
            run = {"label": line["measure"], "seed": line["seed"]} | dict.fromkeys(METRICS, line["macro_auc"])
            found.setdefault(f"fixed-{line['benchmark']}", []).append(run)
    return found


def joined(main: Sweep, other: Sweep | None) -> Sweep:
    """Return a table with the rows of another one that it lacks, on its own seeds."""
    if other is None:
        return main
    labels, seeds = ({run[key] for run in main.runs} for key in ("label", "seed"))
    more = [run for run in other.runs if run["label"] not in labels and run["seed"] in seeds]
    return replace(main, runs=main.runs + more)


def _mean(values: dict[str, dict[int, float]], label: str) -> float | None:
    return mean(values, label, sorted(values.get(label, {})))


def _cell(value: float | None, *, bold: bool) -> str:
    if value is None:
        return "-"
    return f"**{value:.2f}**" if bold else f"{value:.2f}"


def between(page: str, lines: Sequence[str], name: str = "results") -> str:
    """Return a page with the lines between the two markers of a name."""
    start, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    before, rest = page.split(start, 1)
    return before + start + "\n".join(["", *lines, "", ""]) + end + rest.split(end, 1)[1]


if __name__ == "__main__":
    read = {path.parent.name: Sweep.read(path.parent) for path in (ROOT / "results").glob("*/sweep.yaml")}
    found = {name: joined(read[name], read.get(name.replace("beyond", "exact"))) for name in COLUMNS}
    for folder, bounds in regressions().items():
        found[folder] = replace(found[folder], runs=found[folder].runs + bounds)
    made = {README: short(found), VERDICTS: table(found)}
    raise SystemExit(max(write(between(page.read_text(), list(lines)), page) for page, lines in made.items()))
