"""How far labels of held-out rows are trusted when thresholds are chosen, on three sets of vectors with rare labels.

``python tools/thresholds.py`` prints the table of lab/decisions.md#thresholds. Of at most 8,000 rows, drawn at random,
30 % are scored and 10 % of the rest are held out; labels with fewer than three positives are left out.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

import numpy as np
import scipy.io
from ledger import ROOT
from numpy.typing import NDArray
from scipy.special import expit

from mlcl.exact import ExactLearner, solve
from mlcl.metrics import LogOddsLines, choose_thresholds, fit_lines

DATA = Path(os.environ.get("MLCL_DATA") or ROOT.parent / "shared" / "data") / "mat"
NAMES = ("corel5k", "bibtex", "delicious")
SEEDS = (0, 1)
DOUBTS = (0.0, 5.0, 20.0, 80.0, 1e9)


def f1(given: NDArray[np.bool_], labels: NDArray[np.uint8]) -> tuple[float, float]:
    """Return the mean F1 of the labels that occur, and the F1 over all decisions, in points."""
    hits, total = (given & (labels > 0)).sum(0), given.sum(0) + labels.sum(0)
    there = labels.any(0)
    return 100 * float((2 * hits / np.maximum(total, 1))[there].mean()), float(200 * hits.sum() / total.sum())


def measured(name: str, seed: int) -> list[tuple[float, float]]:
    """Return both for each doubt, and last for the thresholds that the sums alone predict."""
    content = scipy.io.loadmat(DATA / f"{name}.mat")
    x, y = (
        np.asarray(getattr(part, "toarray", lambda part=part: part)())
        for part in (content["data"], content["target"])
    )
    x, y = x.astype(np.float32), ((y if len(y) == len(x) else y.T) > 0).astype(np.uint8)
    drawn = np.random.default_rng(9).permutation(len(x))[:8000]
    x, y = x[drawn], y[drawn]
    y = y[:, y.sum(0) >= 3]
    rows = np.random.default_rng(seed).permutation(len(x))
    train, test = np.split(rows, [int(0.7 * len(rows))])
    held, seen = np.split(train, [len(train) // 10])
    solution = solve(ExactLearner.begin(x[seen]).learn(x[seen], y[seen], range(y.shape[1])))
    logits, scored = (solution.scores(x[part]).astype(np.float32) for part in (held, test))
    lines, _ = fit_lines(logits, y[held], start=LogOddsLines.identity(y.shape[1]), prior=solution.prior)
    p, q = lines.probabilities(logits), lines.probabilities(scored)
    found = [f1(q > choose_thresholds(p, y[held], doubt=doubt).values, y[test]) for doubt in DOUBTS]
    return [*found, f1(expit(scored) > expit(solution.thresholds()), y[test])]


def main() -> None:
    """Print the table: means over seeds."""
    warnings.simplefilter("ignore")
    columns = {name: np.mean([measured(name, seed) for seed in SEEDS], axis=0) for name in NAMES}
    lines = ["| Positives with which labels count by half | " + " | ".join(NAMES) + " |"]
    lines.append("|---|" + "---:|" * len(NAMES))
    heads = (
        *(f"{doubt:g}" for doubt in DOUBTS[:-1]),
        "never: probabilities alone",
        "no held-out rows: the sums",
    )
    for number, head in enumerate(heads):
        cells = (f"{columns[name][number][0]:.1f} / {columns[name][number][1]:.1f}" for name in NAMES)
        lines.append(f"| {head} | {' | '.join(cells)} |")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
