"""``mlcl thresholds``: choose which probabilities are tags, without training."""

from __future__ import annotations

import argparse
import sys
from math import inf
from pathlib import Path

from mlcl.cli.progress import make_console
from mlcl.cli.verbs import verb_parser
from mlcl.metrics import Goal, Thresholds
from mlcl.metrics.decisions import CONFIDENCE
from mlcl.reports.rendering import PrintedTable, decimals
from mlcl.taggers.thresholds import Decided, set_thresholds


def main(arguments: list[str]) -> int:
    """Choose: ``mlcl thresholds DIR [--f1 | --f1-overall | --precision P | --recall R | --cost C] [--data STORE]``."""
    parser = verb_parser(
        "thresholds",
        "Choose the probability of each label above which it is a tag, on rows that the run held out "
        "(mlcl run --held_out 0.1) or on a store, and write them to the run folder: `mlcl predict --tags` uses them.",
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder of the run")
    goals = parser.add_mutually_exclusive_group()
    goals.add_argument("--f1", action="store_true", help="the best F1 of each label (default)")
    goals.add_argument("--f1-overall", action="store_true", help="the best F1 over all tags together")
    goals.add_argument(
        "--precision",
        type=float,
        metavar="P",
        help="at least this precision per label, certified, and most recall",
    )
    goals.add_argument(
        "--recall",
        type=float,
        metavar="R",
        help="at least this recall per label, certified, and most precision",
    )
    goals.add_argument(
        "--cost", type=float, metavar="C", help="the least cost, if a miss costs C times a false alarm"
    )
    parser.add_argument(
        "--confidence",
        type=float,
        default=CONFIDENCE,
        metavar="C",
        help="with which a precision or recall of each label is certified (default: %(default)s)",
    )
    parser.add_argument(
        "--data",
        metavar="STORE",
        help="choose on all rows of this store instead; it must not be what trained the run",
    )
    given = parser.parse_args(arguments)
    found = set_thresholds(given.folder, goal_from_options(given), data=given.data)
    console = make_console(sys.stdout)
    console.print(threshold_table(found))
    missed = (~found.thresholds.reached).sum()
    if missed:
        console.print(
            f"{missed} of {len(found.classes)} labels cannot be certified on these rows and are never tags; the last "
            "column says how many more annotated positives they need."
        )
    return 0


def goal_from_options(given: argparse.Namespace) -> Goal:
    """Return the goal that the options name."""
    if given.f1_overall:
        return Goal("f1-overall")
    for kind in ("precision", "recall", "cost"):
        if (value := getattr(given, kind)) is not None:
            return Goal(kind, value, given.confidence)
    return Goal()


def threshold_table(found: Decided) -> PrintedTable:
    """Return one line per label: threshold, what it does on rows that it was not chosen on, and what is certified."""
    thresholds = found.thresholds
    values = zip(
        *(found.classes, found.positive, thresholds.values, thresholds.own),
        *(found.precision, found.recall),
        strict=True,
    )
    rows = []
    for label, positives, cut, own, precision, recall in values:
        shares = (decimals(100 * value, 1) for value in (precision, recall))
        rows.append([label, str(int(positives)), f"{cut:.3f}{'' if own else ' (few rows)'}", *shares])
    title = (
        f"{found.folder}: thresholds for {thresholds.goal}, on {thresholds.rows} rows; precision, recall and F1 over "
        f"all tags ({100 * found.overall:.1f}) on rows left out in turn"
    )
    names = ["label", "positives", "threshold", "precision", "recall"]
    if certified := _certified(thresholds):
        names, rows = [*names, "certified"], [[*row, one] for row, one in zip(rows, certified, strict=True)]
    return PrintedTable(title, names, rows, left=("label",))


def _certified(thresholds: Thresholds) -> list[str]:
    """Return what is certified of each label, or how many more positives it needs."""
    if thresholds.bound is None or thresholds.needed is None:
        return []
    return [
        "more would not help"
        if need == inf
        else f"{need:.0f} more"
        if need
        else f"{decimals(100 * bound, 1)}"
        for bound, need in zip(thresholds.bound, thresholds.needed, strict=True)
    ]
