"""Write docs/beyond.md from the committed results: ``python tools/beyond.py`` (``make results``).

The text comes from ``tools/beyond-reading.md``; every number in the tables from ``results/beyond*/runs.csv``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ledger import BENCHMARKS, ROOT, Sweep, Values, command, write

CEILING = "joint + augment"
METRICS = ("macro_auc", "forgetting", "pooled_macro_auc", "tail", "seconds")
HEADS = ("Macro-AUC", "gap closed", "Forgetting", "Pooled Macro-AUC", "Tail", "Seconds")


def mean(values: Values, label: str, seeds: list[int]) -> float | None:
    """Return the mean of a row over some seeds; None where one is missing."""
    found = values.get(label, {})
    return sum(found[seed] for seed in seeds) / len(seeds) if all(seed in found for seed in seeds) else None


def table(sweep: Sweep) -> Iterator[str]:
    """Yield a line a row: means over its seeds, and the share of the gap from ER to joint training that it closes."""
    values = {metric: sweep.values(metric) for metric in METRICS}
    auc = values["macro_auc"]
    has_gap = "er" in auc and CEILING in auc
    heads = [head for head in HEADS if has_gap or head != "gap closed"]
    yield f"|  | Seeds | {' | '.join(heads)} |"
    yield f"|---|---:|{'---:|' * len(heads)}"
    for row in sweep.record["rows"]:
        label = row["label"]
        seeds = sorted(auc.get(label, {}))
        if not seeds:
            continue
        cells = {metric: mean(values[metric], label, seeds) for metric in METRICS}
        shown = [f"{cells['macro_auc']:.2f}"]
        if has_gap:
            low, high = mean(auc, "er", seeds), mean(auc, CEILING, seeds)
            known = low is not None and high is not None and cells["macro_auc"] is not None
            shown.append(f"{(cells['macro_auc'] - low) / (high - low):.0%}" if known else "-")
        for metric in METRICS[1:]:
            value = cells[metric]
            shown.append("-" if value is None else f"{value:.0f}" if metric == "seconds" else f"{value:.2f}")
        yield f"| {label} | {len(seeds)} | {' | '.join(shown)} |"


def render(results: Path, reading: str) -> str:
    """Return the page."""
    sweeps = [Sweep.read(path.parent) for path in results.glob("beyond*/sweep.yaml")]
    sweeps.sort(key=lambda s: (s.record["table"], BENCHMARKS.index(s.record["benchmark"])))
    out = [reading.strip()]
    for sweep in sweeps:
        record = sweep.record
        out += ["", f"## {record['title']}: {record['benchmark']}", "", f"    {command(record)}", ""]
        commits = ", ".join(str(commit)[:7] for commit in record["commits"])
        out += [f"{record['machine']['cores']} cores, one thread a run; commits {commits}; ", ""]
        out[-2] += f"files: `results/{sweep.folder.name}`"
        out += table(sweep)
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    page = render(ROOT / "results", (ROOT / "tools" / "beyond-reading.md").read_text())
    raise SystemExit(write(page, ROOT / "docs" / "beyond.md"))
