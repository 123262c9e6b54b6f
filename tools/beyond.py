"""Write docs/beyond.md and its figures, and the README's first table: ``python tools/beyond.py`` (``make results``).

The text comes from ``tools/beyond-reading.md``; every number in the tables from the committed
``results/beyond*/runs.csv`` and ``classes.csv``.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass

from ledger import BENCHMARKS, ROOT, Sweep, Values, command, compare, words, write
from scipy.stats import spearmanr

UPPER_BOUNDS = ("joint + augment", "joint", "joint + augment + cosine")
"""The upper bound of a table is the first of these rows that it has; on c-digits there is nothing to augment."""

METRICS = ("macro_auc", "forgetting", "pooled_macro_auc", "head", "medium", "tail", "seconds")
HEADS = ("Macro-AUC", "gap closed", "Forgetting", "Pooled", "Head", "Medium", "Tail", "Seconds")

PAIRS = (
    ("the paper's loss and memory", "rldam-wru", "er"),
    ("the same within `best`", "best", "best with BCE and random memory"),
    ("the same within `best`, losses of equal size", "best", "best with BCE x 2 and random memory"),
    ("all of `best`", "best", "er"),
)
"""What is compared class by class: what the comparison shows, a row, and the row that it is compared with."""

LEAD = (
    ("**`--method best`**", "best"),
    ("joint training, same augmentation", None),
    ("RLDAM + WRU (the paper)", "rldam-wru"),
    ("ER (BCE, random memory)", "er"),
)
"""The rows of the README's table; None is the upper bound."""

Place = tuple[str, str]
"""Table and benchmark."""


@dataclass(frozen=True)
class Goal:
    """A goal: a limit for a row's metric, or for its difference from another row.

    Attributes:
        text: the goal.
        place: table and benchmark of the row.
        row: label of the row.
        limit: the value to reach, or with ``below`` the value not to exceed.
        metric: what is measured.
        other: place and label of the row that it is compared with, paired by seed.
        below: whether smaller is better.
        share: whether the value is the share of the gap that is closed instead of a metric.
    """

    text: str
    place: Place
    row: str
    limit: float
    metric: str = "macro_auc"
    other: tuple[Place, str] | None = None
    below: bool = False
    share: bool = False


_VOC, _COCO = ("beyond", "c-voc-small"), ("beyond", "c-coco-small")
_JOINT = (_VOC, "joint + augment")
_SIZES = ("beyond-memory", "c-voc-small")
GOALS = (
    Goal("M 500: at most 0.5 below joint training", _VOC, "best", -0.5, other=_JOINT),
    Goal("M 200: at most 1 below joint training", _SIZES, "best, M 200", -1.0, other=_JOINT),
    Goal(
        "M 200, smaller stored images in the same number of bytes: at most 1 below joint training",
        _SIZES,
        "best with smaller stored images, M 200",
        -1.0,
        other=_JOINT,
    ),
    Goal("no stored image: at most 3 below joint training", _SIZES, "best, M 0", -3.0, other=_JOINT),
    Goal("M 500: forgetting under 1", _VOC, "best", 1.0, metric="forgetting", below=True),
    Goal(
        "M 500: pooled at least 3 above RLDAM + WRU with augmentation",
        _VOC,
        "best",
        3.0,
        metric="pooled_macro_auc",
        other=(_VOC, "rldam-wru + augment"),
    ),
    Goal("c-coco-small: 80 % of the gap from ER to joint training closed", _COCO, "best", 0.8, share=True),
)


def mean(values: Values, label: str, seeds: list[int]) -> float | None:
    """Return the mean of a row over some seeds; None where one is missing."""
    found = values.get(label, {})
    if not seeds or any(seed not in found for seed in seeds):
        return None
    return sum(found[seed] for seed in seeds) / len(seeds)


def upper_bound(values: Values) -> str | None:
    """Return the label of the row that is a table's upper bound."""
    return next((label for label in UPPER_BOUNDS if label in values), None)


def closed(values: Values, label: str) -> float | None:
    """Return the share of the gap from ER to the upper bound that a row closes, on the row's own seeds."""
    seeds, top = sorted(values.get(label, {})), upper_bound(values)
    if top is None:
        return None
    low, high, here = mean(values, "er", seeds), mean(values, top, seeds), mean(values, label, seeds)
    return None if low is None or high is None or here is None else (here - low) / (high - low)


def table(sweep: Sweep) -> Iterator[str]:
    """Yield one line per row: means over its seeds, and the share of the gap between ER and joint training."""
    values = {metric: sweep.values(metric) for metric in METRICS}
    auc = values["macro_auc"]
    has_gap = "er" in auc and upper_bound(auc) is not None
    heads = [head for head in HEADS if has_gap or head != "gap closed"]
    yield f"|  | Seeds | {' | '.join(heads)} |"
    yield f"|---|---:|{'---:|' * len(heads)}"
    for row in sweep.record["rows"]:
        label = row["label"]
        seeds = sorted(auc.get(label, {}))
        if not seeds:
            continue
        shown = []
        for metric in METRICS:
            value = mean(values[metric], label, seeds)
            shown.append("-" if value is None else f"{value:.0f}" if metric == "seconds" else f"{value:.2f}")
        if has_gap:
            share = closed(auc, label)
            shown.insert(1, "-" if share is None else f"{share:.0%}")
        yield f"| {label} | {len(seeds)} | {' | '.join(shown)} |"


def goals(sweeps: dict[Place, Sweep]) -> Iterator[str]:
    """Yield one line per goal: the measured value, and whether it reaches the goal."""
    yield "| goal | measured | seeds | reached |"
    yield "|---|---:|---:|---|"
    for goal in GOALS:
        sweep = sweeps.get(goal.place)
        values = sweep.values(goal.metric) if sweep else {}
        seeds = sorted(values.get(goal.row, {}))
        value: float | None
        shown = ""
        if goal.share:
            value = closed(values, goal.row)
            shown = "" if value is None else f"{value:.0%}"
        elif goal.other is not None:
            place, label = goal.other
            against = sweeps[place].values(goal.metric).get(label, {}) if place in sweeps else {}
            seeds = [seed for seed in seeds if seed in against]
            pair = {"this": values.get(goal.row, {}), "other": against}
            value, other = mean(pair, "this", seeds), mean(pair, "other", seeds)
            value = None if value is None or other is None else value - other
            shown = compare(pair, "this", "other", lower=False)[1].removeprefix("against other: ")
        else:
            value = mean(values, goal.row, seeds)
            shown = "" if value is None else f"{value:.2f}"
        if value is None:
            yield f"| {goal.text} | - | 0 | not measured |"
            continue
        good = value <= goal.limit if goal.below else value >= goal.limit
        yield f"| {goal.text} | {shown} | {len(seeds)} | {'yes' if good else '**no**'} |"


def by_class(sweep: Sweep) -> Iterator[str]:
    """Yield one line per pair of rows: the mean gain in thirds of the classes, and its rank correlation with P_k."""
    path = sweep.folder / "classes.csv"
    if not path.exists():
        return
    found: dict[str, dict[tuple[str, str], tuple[int, float]]] = {}
    with path.open() as file:
        for line in csv.DictReader(file):
            if line["auc"]:
                cell = (int(line["positive"]), float(line["auc"]))
                found.setdefault(line["label"], {})[line["seed"], line["class"]] = cell
    lines = []
    for text, above, below in PAIRS:
        both = sorted(found.get(above, {}).keys() & found.get(below, {}).keys())
        if not both:
            continue
        gains = [found[above][key][1] - found[below][key][1] for key in both]
        rho = spearmanr([found[above][key][0] for key in both], gains).statistic
        seeds = sorted({int(seed) for seed, _ in both})
        cells = []
        for third in ("head", "medium", "tail"):
            high, low = (mean(sweep.values(third), label, seeds) for label in (above, below))
            cells.append("-" if high is None or low is None else f"{high - low:+.2f}")
        lines.append(f"| {text}: {above} - {below} | {' | '.join(cells)} | {rho:+.2f} |")
    if lines:
        yield "| gain | Head | Medium | Tail | rank correlation of a class's gain with P_k |"
        yield "|---|---:|---:|---:|---:|"
        yield from lines


def lead(sweeps: dict[Place, Sweep]) -> Iterator[str]:
    """Yield the README's table: Macro-AUC and pooled Macro-AUC of the rows of ``LEAD`` on every benchmark."""
    shown = [(name, sweeps["beyond", name]) for name in BENCHMARKS if ("beyond", name) in sweeps]
    heads = []
    for name, sweep in shown:
        seeds = len(sweep.values("macro_auc").get("best", {}))
        heads += [f"{name}, {seeds} seed{'s' if seeds != 1 else ''}", "pooled"]
    yield f"|  | {' | '.join(heads)} |"
    yield f"|---|{'---:|---:|' * len(shown)}"
    for text, row in LEAD:
        cells = []
        for _, sweep in shown:
            auc = sweep.values("macro_auc")
            label = upper_bound(auc) if row is None else row
            own = sorted(auc.get(label or "", {}))
            for metric in ("macro_auc", "pooled_macro_auc"):
                value = mean(sweep.values(metric), label or "", own)
                mark = "**" if row == "best" else ""
                cells.append("-" if value is None else f"{mark}{value:.2f}{mark}")
        yield f"| {text} | {' | '.join(cells)} |"


def between(page: str, lines: list[str]) -> str:
    """Return a page with the lines between its two markers."""
    start, end = "<!-- beyond -->\n", "<!-- /beyond -->"
    before, rest = page.split(start, 1)
    return before + start + "\n".join(["", *lines, "", ""]) + end + rest.split(end, 1)[1]


def figure(sweep: Sweep) -> str:
    """Return the name of a table's figure among the documentation's images."""
    return f"{sweep.folder.name}.svg"


def render(sweeps: dict[Place, Sweep], reading: str) -> str:
    """Return the page; ``<!-- goals -->`` in the text becomes the table of goals."""
    out = [reading.strip().replace("<!-- goals -->", "\n".join(goals(sweeps)))]
    for place in sorted(sweeps, key=lambda p: (p[0], BENCHMARKS.index(p[1]))):
        sweep = sweeps[place]
        record = sweep.record
        commits = ", ".join(str(commit)[:7] for commit in record["commits"])
        out += ["", f"## {words(record['title'])}: {record['benchmark']}", "", f"    {command(record)}", ""]
        out += [
            f"{record['machine']['cores']} cores, one thread per run; commits {commits}; "
            f"files: `results/{sweep.folder.name}`",
            "",
            *table(sweep),
        ]
        classes = list(by_class(sweep))
        if classes:
            out += ["", *classes]
        out += ["", f"![{words(record['title'])}: {record['benchmark']}](images/{figure(sweep)})"]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    found = [Sweep.read(path.parent) for path in (ROOT / "results").glob("beyond*/sweep.yaml")]
    by_place = {(s.record["table"], s.record["benchmark"]): s for s in found}
    text = render(by_place, (ROOT / "tools" / "beyond-reading.md").read_text())
    readme = ROOT / "README.md"
    codes = [
        write(text, ROOT / "docs" / "beyond.md"),
        write(between(readme.read_text(), list(lead(by_place))), readme),
    ]
    for one in found:
        drawing = (one.folder / "figure.svg").read_text()
        codes.append(write(drawing, ROOT / "docs" / "images" / figure(one)))
    raise SystemExit(max(codes))
