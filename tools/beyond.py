"""The tables beyond the paper as sections of pages (tools/evidence.py), with gaps to upper bounds, goals and gains.

Every number comes from the committed ``results/beyond*/runs.csv`` and ``classes.csv``.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from ledger import Sweep, Values, command, words
from scipy.special import stdtrit
from scipy.stats import spearmanr

from mlcl.metrics.intervals import Interval, paired_by_seed
from mlcl.reports.rendering import interval
from mlcl.reports.tables import COSTS, abbreviated

BEST = "taught-committee"
"""The recommended method on images that a network is trained on from scratch: the row of the goals."""

START = "er + augment + cosine"
"""Where gaps begin: the baseline with the augmentation and the schedule of the methods that are compared with it."""

BOUNDS = {
    "macro_auc": ("joint-masked + RLDAM", "joint-masked + BCE"),
    "pooled_macro_auc": ("joint + RLDAM", "joint + BCE"),
}
"""Joint training, by measure: the upper bound is the better of the two."""

METRICS = (
    "macro_auc",
    "pooled_macro_auc",
    "forgetting",
    "head",
    "medium",
    "tail",
    "steps",
    "rows",
    "seconds",
)
HEADS = (
    "Macro-AUC",
    "against joint-masked",
    "gap closed",
    "Pooled",
    "against joint",
    "Forgetting",
    "Head",
    "Medium",
    "Tail",
    "Steps",
    "Rows seen",
    "Seconds",
)

PAIRS = (
    ("the paper's loss and memory", "rldam-wru", "er"),
    ("the same with augmentation and cosine schedule", "rldam-wru + augment + cosine", START),
    ("the same within distilled replay", "distilled-replay", "distilled-replay with BCE and random memory"),
    (
        "the same within distilled replay, losses of equal size",
        "distilled-replay",
        "distilled-replay with BCE x 2 and random memory",
    ),
    ("distillation and the paper's parts", "distilled-replay", START),
    ("the exact learner beside the network", "committee", "distilled-replay"),
    ("the exact learner as a teacher", BEST, "committee"),
)
"""What is compared class by class: what the comparison shows, a row, and the row that it is compared with."""

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


def _against(
    text: str,
    place: Place,
    other: tuple[Place, str],
    limit: float,
    *,
    row: str = BEST,
    pooled: bool = False,
) -> Goal:
    """Return the goal that a row is at least ``limit`` above another one, or at most ``-limit`` below it."""
    return Goal(text, place, row, limit, metric="pooled_macro_auc" if pooled else "macro_auc", other=other)


_VOC, _COCO, _DIGITS = (("beyond", name) for name in ("c-voc-small", "c-coco-small", "c-digits"))
(_INSIDE, _INSIDE_BCE), (_ACROSS, _ACROSS_BCE) = BOUNDS["macro_auc"], BOUNDS["pooled_macro_auc"]
_SIZES, _FULL = ("beyond-memory", "c-voc-small"), (_VOC, BEST)
_NONE, _FEW = f"{BEST}, M 0", f"{BEST}, M 200"
GOALS = (
    _against("M 500: at most 0.5 below masked joint training", _VOC, (_VOC, _INSIDE), -0.5),
    _against("M 500: pooled at most 1.5 below joint training", _VOC, (_VOC, _ACROSS), -1.5, pooled=True),
    _against("the same against masked joint training with BCE", _VOC, (_VOC, _INSIDE_BCE), -0.5),
    _against(
        "the same, pooled, against joint training with BCE", _VOC, (_VOC, _ACROSS_BCE), -1.5, pooled=True
    ),
    _against("M 200: at most 1 below M 500", _SIZES, _FULL, -1.0, row=_FEW),
    _against("M 200: pooled at most 1 below M 500", _SIZES, _FULL, -1.0, row=_FEW, pooled=True),
    _against("no stored image: at most 1 below M 500", _SIZES, _FULL, -1.0, row=_NONE),
    _against("no stored image: pooled at most 1 below M 500", _SIZES, _FULL, -1.0, row=_NONE, pooled=True),
    Goal("M 500: forgetting under 1", _VOC, BEST, 1.0, metric="forgetting", below=True),
    _against(
        "M 500: pooled at least 3 above RLDAM + WRU with augmentation and cosine schedule",
        _VOC,
        (_VOC, "rldam-wru + augment + cosine"),
        3.0,
        pooled=True,
    ),
    Goal("c-coco-small: 80 % of the gap closed", _COCO, BEST, 0.8, share=True),
    _against(
        "c-coco-small: pooled at most 1 below joint training", _COCO, (_COCO, _ACROSS), -1.0, pooled=True
    ),
    _against(
        "c-digits: pooled at most 1.5 below joint training", _DIGITS, (_DIGITS, _ACROSS), -1.5, pooled=True
    ),
)


def mean(values: Values, label: str, seeds: list[int]) -> float | None:
    """Return the mean of a row over some seeds; None where one is missing."""
    found = values.get(label, {})
    if not seeds or any(seed not in found for seed in seeds):
        return None
    return sum(found[seed] for seed in seeds) / len(seeds)


def upper_bound(values: Values, label: str, metric: str) -> str | None:
    """Return the label of a row's upper bound in a measure: the best joint training; None for joint training."""
    known = [name for name in BOUNDS[metric] if values.get(name)]
    if label.startswith("joint") or not known:
        return None
    return max(known, key=lambda name: mean(values, name, sorted(values[name])) or 0.0)


def difference(values: Values, label: str, other: str | None) -> Interval | None:
    """Return the difference of two rows paired by seed, with nan ends for one seed; None without common seeds."""
    return paired_by_seed(values.get(label, {}), values.get(other or "", {}))


def closed(values: Values, label: str) -> Interval | None:
    """Return the share of the gap from the fair start to a row's upper bound that it closes, with its interval.

    None with fewer than two seeds, and where the gap itself is within noise.
    """
    bound = upper_bound(values, label, "macro_auc")
    found = [values.get(name or "", {}) for name in (label, START, bound)]
    seeds = sorted(found[0].keys() & found[1].keys() & found[2].keys())
    if len(seeds) < 2 or label == START:
        return None
    mine, start, top = ([row[seed] for seed in seeds] for row in found)
    gain = [a - b for a, b in zip(mine, start, strict=True)]
    return share_interval(gain, [a - b for a, b in zip(top, start, strict=True)])


def share_interval(gain: Sequence[float], gap: Sequence[float], *, level: float = 0.95) -> Interval | None:
    """Return ``mean(gain) / mean(gap)`` with Fieller's interval, or None where the gap itself is within noise.

    Which share of the gap from a baseline to an upper bound does a method close? Both differences vary from seed to
    seed and together, and the share is of use only if the gap is certainly not 0.

    Args:
        gain: ``[R]``, R >= 2, the method minus the baseline, one value per seed.
        gap: ``[R]``, the upper bound minus the baseline on the same seeds.
        level: confidence level.

    References:
        Fieller, Some problems in interval estimation, 1954.

    >>> share = share_interval([4.0, 5.0, 4.5], [8.0, 9.0, 10.0])
    >>> round(share.estimate, 3), round(share.low, 3), round(share.high, 3)
    (0.5, 0.376, 0.666)
    >>> share_interval([1.0, 2.0], [-1.0, 3.0]) is None
    True
    """
    a, b = np.array(gain), np.array(gap)
    critical = float(stdtrit(a.size - 1, (1 + level) / 2)) ** 2 / a.size
    (va, vab), (_, vb) = np.cov(a, b)
    top, bottom = float(a.mean()), float(b.mean())
    # All shares rho for which mean(a - rho b) is not significantly different from 0: a quadratic inequality.
    square, linear, constant = (
        bottom**2 - critical * vb,
        top * bottom - critical * vab,
        top**2 - critical * va,
    )
    if square <= 0:
        return None
    half_width = float(np.sqrt(max(linear**2 - square * constant, 0.0)))
    low, high = (linear - half_width) / square, (linear + half_width) / square
    return Interval(estimate=top / bottom, low=float(low), high=float(high), level=level)


def share(found: Interval | None) -> str:
    """Return a share of a gap with its interval."""
    return "-" if found is None else f"{found.estimate:.0%} [{found.low:.0%}, {found.high:.0%}]"


def table(sweep: Sweep) -> Iterator[str]:
    """Yield one line per row: means over its seeds, the differences to its upper bounds, and what it cost."""
    values = {metric: sweep.values(metric) for metric in METRICS}
    auc, pooled = values["macro_auc"], values["pooled_macro_auc"]
    bounded = any(label in auc for label in BOUNDS["macro_auc"])
    compared = ("against joint-masked", "gap closed", "against joint")
    heads = [head for head in HEADS if bounded or head not in compared]
    yield f"|  | Seeds | {' | '.join(heads)} |"
    yield f"|---|---:|{'---:|' * len(heads)}"
    for row in sweep.record["rows"]:
        label = row["label"]
        seeds = sorted(auc.get(label, {}))
        if not seeds:
            continue
        means = {metric: mean(values[metric], label, seeds) for metric in METRICS}
        shown = [
            "-" if value is None else abbreviated(value) if metric in COSTS else f"{value:.2f}"
            for metric, value in means.items()
        ]
        if bounded:
            inside = difference(auc, label, upper_bound(auc, label, "macro_auc"))
            across = difference(pooled, label, upper_bound(pooled, label, "pooled_macro_auc"))
            shown[2:2] = [interval(across)]
            shown[1:1] = [interval(inside), share(closed(auc, label))]
        yield f"| {label} | {len(seeds)} | {' | '.join(shown)} |"


def goals(sweeps: dict[Place, Sweep]) -> Iterator[str]:
    """Yield one line per goal: the measured value, and whether its interval reaches the goal."""
    yield "| goal | measured | seeds | reached |"
    yield "|---|---:|---:|---|"
    for goal in GOALS:
        sweep = sweeps.get(goal.place)
        values = sweep.values(goal.metric) if sweep else {}
        mine = values.get(goal.row, {})
        seeds = sorted(mine)
        found: Interval | None
        if goal.share:
            found = closed(values, goal.row)
        else:
            place, label = goal.other or (None, "")
            other = sweeps[place].values(goal.metric).get(label, {}) if place in sweeps else {}
            other = other if goal.other else dict.fromkeys(mine, 0.0)
            seeds = sorted(mine.keys() & other.keys())
            found = difference({"this": mine, "other": other}, "this", "other")
        if found is None:
            yield f"| {goal.text} | - | {len(seeds)} | not measured |"
            continue
        shown = share(found) if goal.share else interval(found)
        yield f"| {goal.text} | {shown} | {len(seeds)} | {reached(found, goal)} |"


def reached(found: Interval, goal: Goal) -> str:
    """Return whether the whole interval reaches the goal."""
    if math.isnan(found.low):
        return "one seed"
    sign = -1 if goal.below else 1
    worst, best = sorted((sign * found.low, sign * found.high))
    if worst >= sign * goal.limit:
        return "yes"
    return "**no**" if best < sign * goal.limit else "within noise"


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


def figure(sweep: Sweep) -> str:
    """Return the name of a table's figure among the documentation's images."""
    return f"{sweep.folder.name}.svg"


def section(sweep: Sweep) -> Iterator[str]:
    """Yield a table, its gains by class and its figure."""
    record = sweep.record
    commits = ", ".join(str(commit)[:7] for commit in record["commits"])
    yield from ("", f"## {words(record['title'])}", "", f"    {command(record)}", "")
    yield (
        f"{record['machine']['cores']} cores, one thread per run; commits {commits}; "
        f"files: `results/{sweep.folder.name}`"
    )
    yield from ("", *table(sweep))
    classes = list(by_class(sweep))
    if classes:
        yield from ("", *classes)
    yield from ("", f"![{words(record['title'])}: {record['benchmark']}](../images/{figure(sweep)})")
