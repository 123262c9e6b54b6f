"""The committed tables as sections of pages (tools/evidence.py), and verdicts on claims.

Every number comes from ``results/*/table.md`` and ``runs.csv``, every verdict from ``tools/claims.yaml`` and paired
differences between seeds.
"""

from __future__ import annotations

import csv
import math
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mlcl.metrics.intervals import paired_by_seed
from mlcl.reports.rendering import interval

ROOT = Path(__file__).resolve().parent.parent
TABLES = (
    "fixed",
    "bytes",
    "exact",
    "committee",
    "orders",
    "table1",
    "table2",
    "table3",
    "batch",
    "ewc",
    "krt",
    "lambda",
    "curves",
    "imbalance",
    "presets",
    "core",
    "weights",
    "reweight",
    "classes",
)
BENCHMARKS = (
    "c-digits",
    "c-voc-small",
    "c-coco-small",
    "c-voc-features",
    "c-coco-features",
    "c-scene",
    "c-enron",
    "many400",
    "many1000",
)

RENAMED = (
    ("sample deviation", "sample standard deviation"),
    ("data-set", "dataset"),
    ("data set", "dataset"),
    ("lifts fine-tuning", "improves fine-tuning"),
)
"""Words of recorded tables and titles, and the words for them today: the files keep what was written at the time."""

Values = dict[str, dict[int, float]]
"""Label to seed to value."""


@dataclass(frozen=True)
class Sweep:
    """One committed table: the content of ``sweep.yaml``, the printed table, and the runs."""

    folder: Path
    record: dict[str, Any]
    table: str
    runs: list[dict[str, str]]

    @classmethod
    def read(cls, folder: Path) -> Sweep:
        """Read a folder of ``results``."""
        record = yaml.safe_load((folder / "sweep.yaml").read_text())
        with (folder / "runs.csv").open() as file:
            return cls(folder, record, (folder / "table.md").read_text(), list(csv.DictReader(file)))

    def values(self, metric: str) -> Values:
        """Return a metric of all runs that have it."""
        found: Values = {}
        for run in self.runs:
            if run.get(metric):  # older tables have no steps and rows
                found.setdefault(run["label"], {})[int(run["seed"])] = float(run[metric])
        return found


def compare(values: Values, above: str, below: str, *, lower: bool) -> tuple[str, str]:
    """Return a verdict on "above is above below" and its evidence; with ``lower`` smaller values are better."""
    gain = paired_by_seed(values.get(above, {}), values.get(below, {}))
    if gain is None:
        return "not tested", ""
    shown = f"against {below}: {interval(gain)}"
    if math.isnan(gain.low):
        return "one seed", shown
    low, high = (-gain.high, -gain.low) if lower else (gain.low, gain.high)
    return "holds" if low > 0 else "does not hold" if high < 0 else "undecided", shown


def verdict(claim: dict[str, Any], sweep: Sweep | None) -> tuple[str, str]:
    """Return the verdict on a claim and its evidence; of several comparisons the worst verdict counts."""
    if sweep is None:
        return "not tested", ""
    metric = claim.get("metric", "macro_auc")
    values = sweep.values(metric)
    if "spread" in claim:
        means = {label: sum(v.values()) / len(v) for label, v in values.items()}
        low, high = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
        width = means[high] - means[low]
        word = "holds" if width <= claim["spread"] else "does not hold"
        word = word if min(map(len, values.values())) > 1 else "one seed"
        return word, f"{width:.2f} points between {high} ({means[high]:.2f}) and {low} ({means[low]:.2f})"
    parts = list(_pairs(claim, sweep))
    found = [compare(values, a, b, lower=metric == "forgetting") for a, b in parts]
    found = [part for part in found if part[0] != "not tested"]
    if not found:
        return "not tested", ""
    worst = max((word for word, _ in found), key=("holds", "one seed", "undecided", "does not hold").index)
    return worst, "; ".join(shown for _, shown in found)


def _pairs(claim: dict[str, Any], sweep: Sweep) -> Iterator[tuple[str, str]]:
    if not claim.get("series"):
        yield from ((claim["above"], below) for below in claim["below"])
        return
    rows = sweep.record["rows"]
    for row in rows:
        if row["series"] == claim["above"]:
            for other in rows:
                if other["series"] in claim["below"] and other["x"] == row["x"]:
                    yield row["label"], other["label"]


def command(record: dict[str, Any]) -> str:
    """Return the command that makes the whole table.

    The recorded one is without folders and options of one machine (with ``--done`` it would start no run). Where a
    table was completed by later commands, it has the number of seeds and the rows that the table has now.
    """
    text = re.sub(r" --(out|jobs) \S+| --(done|overwrite)\b", "", str(record["command"]))
    text = re.sub(r" --reuse( (?!--)\S+)+", "", text)
    text = re.sub(r" --seeds \d+", f" --seeds {record['seeds']}", text)
    if {row["label"] for row in record["rows"]} <= {run["label"] for run in record["runs"]}:
        text = re.sub(r" --rows( (?!--)\S+)+", "", text)
    return text


def words(text: str) -> str:
    """Return recorded text in today's words."""
    for old, new in RENAMED:
        text = text.replace(old, new)
    return text


def claims_table(sweeps: Sequence[Sweep], claims: list[dict[str, Any]]) -> Iterator[str]:
    """Yield one line per claim with its verdict on each benchmark that has a table for one."""
    by_place = {(s.record["table"], s.record["benchmark"]): s for s in sweeps}
    judged = {claim["table"] for claim in claims}
    known = [b for b in BENCHMARKS if any(table in judged and name == b for table, name in by_place)]
    yield f"| claim | {' | '.join(known)} |"
    yield f"|---|{'---|' * len(known)}"
    for claim in claims:
        words = [verdict(claim, by_place.get((claim["table"], name)))[0] for name in known]
        yield f"| {claim['claim']} ({claim['table']}) | {' | '.join(words)} |"


def sections(sweeps: Sequence[Sweep], benchmark: str, claims: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the tables of a benchmark, each with its command and the verdicts on its claims."""
    found = {s.record["table"]: s for s in sweeps if s.record["benchmark"] == benchmark}
    for table in sorted(found, key=TABLES.index):
        yield ""
        yield from _section(found[table], [c for c in claims if c["table"] == table])


def _section(sweep: Sweep, claims: list[dict[str, Any]]) -> Iterator[str]:
    record = sweep.record
    machine = record["machine"]
    yield f"## {words(record['title'])}"
    yield ""
    if record["claim"]:
        yield f"The claim: {words(record['claim'])}"
        yield ""
    yield f"    {command(record)}"
    yield ""
    commits = ", ".join(str(commit)[:7] for commit in record["commits"])
    yield (
        f"{machine['cores']} cores, one thread per run, torch {machine['versions']['torch']}; commits {commits}; "
        f"files: `results/{sweep.folder.name}`"
    )
    yield ""
    # The last note names the commits again.
    table = words(sweep.table.strip()).splitlines()
    yield from (line for line in table if not line.startswith("Runs were made by"))
    for claim in claims:
        word, evidence = verdict(claim, sweep)
        if word != "not tested":
            yield ""
            yield f"- {claim['claim']}: **{word}** ({evidence})"


def write(page: str, target: Path) -> int:
    """Write a page, or with ``--check`` on the command line report whether it is up to date."""
    name = target.relative_to(ROOT)
    if "--check" in sys.argv[1:]:
        same = target.exists() and target.read_text() == page
        sys.stdout.write(f"{name} is up to date\n" if same else f"{name} is stale: make results\n")
        return 0 if same else 1
    target.write_text(page)
    sys.stdout.write(f"{name}\n")
    return 0
