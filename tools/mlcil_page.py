"""Write the tables of docs/evidence/class-incremental.md: ``python tools/mlcil_page.py`` (``make results``).

A table stands between ``<!-- table FOLDER ... -->`` and ``<!-- /table -->``; every number comes from the ``runs.csv``
of these folders of ``results``. One folder gives all measures, several give mAP avg and last of each.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from ledger import ROOT, Sweep, command, write

from mlcl.reports.tables import NAMES
from mlcl.sweeps.experiment import SESSION_METRICS

PAGE = ROOT / "docs" / "evidence" / "class-incremental.md"
MEASURES = {name: NAMES[name] for name in (*SESSION_METRICS, "pooled_macro_auc")}
JOINT = "joint"
"""Rows of this name have one session, so they have no mean over sessions."""
_MARKED = re.compile(r"(<!-- table ([^>]+?) -->\n).*?(<!-- /table -->)", re.DOTALL)


def cell(values: Sequence[float]) -> str:
    """Return the mean of a measure with its sample standard deviation.

    >>> cell([1.0, 2.0]), cell([3.0]), cell([])
    ('1.5 ± 0.7', '3.0', '-')
    """
    if not values:
        return "-"
    mean = sum(values) / len(values)
    if len(values) == 1:
        return f"{mean:.1f}"
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return f"{mean:.1f} ± {spread:.1f}"


def _shown(sweep: Sweep, label: str, measure: str) -> str:
    averaged = measure.endswith("_avg") or measure == "map_forgetting"
    if label.startswith(JOINT) and averaged:
        return "-"
    return cell(list(sweep.values(measure).get(label, {}).values()))


def _labels(sweeps: Sequence[Sweep]) -> list[str]:
    return list(dict.fromkeys(run["label"] for sweep in sweeps for run in sweep.runs))


def whole(sweep: Sweep) -> Iterator[str]:
    """Yield the table of one folder."""
    yield f"|  | seeds | {' | '.join(MEASURES.values())} |"
    yield "|---|" + "---:|" * (len(MEASURES) + 1)
    for label in _labels([sweep]):
        seeds = len(sweep.values("map_last")[label])
        yield f"| {label} | {seeds} | {' | '.join(_shown(sweep, label, one) for one in MEASURES)} |"


def brief(sweeps: Sequence[Sweep]) -> Iterator[str]:
    """Yield a table of several folders side by side: mAP avg / last."""
    names = [sweep.record["benchmark"] for sweep in sweeps]
    yield f"| mAP avg / last | {' | '.join(f'`{name}`' for name in names)} |"
    yield "|---|" + "---:|" * len(names)
    for label in _labels(sweeps):
        cells = [f"{_shown(s, label, 'map_avg')} / {_shown(s, label, 'map_last')}" for s in sweeps]
        yield f"| {label} | {' | '.join(cells)} |"


def render(text: str) -> str:
    """Return the page with its tables made anew."""

    def filled(match: re.Match[str]) -> str:
        sweeps = [Sweep.read(ROOT / "results" / name) for name in match[2].split()]
        lines = [""]
        for sweep in sweeps:
            lines.append(f"    {command(sweep.record)}")
        commits = sorted({run["commit"][:7] for sweep in sweeps for run in sweep.runs})
        lines += ["", *(whole(sweeps[0]) if len(sweeps) == 1 else brief(sweeps)), ""]
        files = ", ".join(f"`results/{sweep.folder.name}`" for sweep in sweeps)
        lines += [f"Commits {', '.join(commits)}, one thread per run; files: {files}.", ""]
        return match[1] + "\n".join(lines) + "\n" + match[3]

    return _MARKED.sub(filled, text)


if __name__ == "__main__":
    raise SystemExit(write(render(PAGE.read_text()), PAGE))
