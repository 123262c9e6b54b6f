"""Measure probabilities and tags on four real datasets.

    python tools/calibration.py measure    # results/calibration/table.csv: the test rows
    python tools/calibration.py measure exact `best`    # the rows of these methods anew
    python tools/calibration.py            # the table in docs/evidence/probabilities.md, from this file

Needs the prepared stores of ``STORES`` in the user's cache. One thread. The training rows are cut into as many chunks
as there are groups of labels, at random; each chunk is annotated for its own group. Test rows are scored once, at the
end; probabilities and thresholds are fitted on training rows that the model was not trained on (or, for the exact
tagger, on its sums).
"""

from __future__ import annotations

import csv
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ledger import ROOT, write
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from summary import between

from mlcl.datasets import open_store
from mlcl.metrics import (
    LogOddsLines,
    brier_score,
    calibration_error,
    choose_thresholds,
    f1_scores,
    fit_lines,
    macro_auc,
)
from mlcl.sklearn import ExactTagger

RESULTS = ROOT / "results" / "calibration"
CACHE = Path.home() / ".cache" / "mlcl" / "stores"
STORES = {
    "VOC features": ("voc2012-96-mobilenetv2_100", 5),
    "scene": ("scene", 3),
    "enron": ("enron", 5),
    "music": ("music", 3),
}
"""Name to store and number of groups of labels."""
SEEDS = (0, 1)
C = 0.001
"""Of the logistic regression: best on the validation rows of VOC and enron, among 1e-4 to 1e-1."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Problem:
    """Chunks of training rows, each with labels of its own group, and rows to score."""

    chunks: list[tuple[NDArray[Any], NDArray[Any], list[int]]]
    x: NDArray[Any]
    y: NDArray[Any]


@dataclass(frozen=True, eq=False)
class Scored:
    """Probabilities of the rows to score, the thresholds that were chosen, and the seconds of learning."""

    probabilities: Floats
    thresholds: Floats
    seconds: float


def problem(name: str, seed: int) -> Problem:
    """Cut the training rows into chunks; the rows to score are the test rows."""
    store, groups = STORES[name]
    data = open_store(CACHE / store)
    x, y = np.asarray(data.train.inputs, np.float32), np.asarray(data.train.labels)
    rng = np.random.default_rng(seed)
    rows = np.array_split(rng.permutation(len(x)), groups)
    labels = np.array_split(rng.permutation(y.shape[1]), groups)
    chunks = [(x[r], y[r][:, ids], ids.tolist()) for r, ids in zip(rows, labels, strict=True)]
    return Problem(chunks, np.asarray(data.test.inputs, np.float32), np.asarray(data.test.labels))


def by_tagger(tagger: Any, found: Problem) -> Scored:
    """Teach a tagger chunk by chunk."""
    begun = time.perf_counter()
    for x, y, ids in found.chunks:
        tagger.partial_fit(x, y, classes=ids)
    p, order = tagger.predict_proba(found.x), np.argsort(tagger.classes_)
    return Scored(p[:, order], tagger.thresholds_[order], time.perf_counter() - begun)


def by_regression(found: Problem, seed: int) -> Scored:
    """One logistic regression per label on nine tenths of its chunk; the rest is for probability and threshold."""
    begun = time.perf_counter()
    p, cut = np.zeros(found.y.shape), np.full(found.y.shape[1], 0.5)
    for x, y, ids in found.chunks:
        rest = np.random.default_rng(seed).permutation(len(x)) < len(x) // 10
        scaler = StandardScaler().fit(x[~rest])
        seen, held, test = (scaler.transform(part) for part in (x[~rest], x[rest], found.x))
        scores = {"held": np.zeros((len(held), len(ids))), "test": np.zeros((len(test), len(ids)))}
        for k in range(len(ids)):
            if 0 < y[~rest][:, k].sum() < (~rest).sum():
                model = LogisticRegression(C=C, max_iter=300).fit(seen, y[~rest][:, k])
                scores["held"][:, k], scores["test"][:, k] = map(model.decision_function, (held, test))
        prior = (y[~rest].sum(0) + 0.5) / ((~rest).sum() + 1)
        start = LogOddsLines.identity(len(ids))
        lines, _ = fit_lines(scores["held"], y[rest], start=start, prior=prior)
        p[:, ids] = lines.probabilities(scores["test"])
        cut[ids] = choose_thresholds(lines.probabilities(scores["held"]), y[rest]).values
    return Scored(p, cut, time.perf_counter() - begun)


def by_run(name: str, method: str, seed: int, *, held_out: float | None) -> tuple[Scored, NDArray[Any]]:
    """``mlcl run --benchmark STORE --method METHOD``, whose tasks are made from the labels themselves."""
    from mlcl.runs.run import run
    from mlcl.runs.trained import load_trained

    store, groups = STORES[name]
    data = open_store(CACHE / store)
    settings = {
        "benchmark": str(CACHE / store),
        "method": method,
        "seed": seed,
        "stream": {"tasks": groups},
        "train": {"threads": 1},
    }
    if held_out is not None:
        settings["held_out"] = held_out
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        run(settings, out=Path(folder) / "run")
        trained = load_trained(Path(folder) / "run")
        p = trained.probabilities(np.asarray(data.test.inputs)).astype(np.float64)
        scored = Scored(p, trained.thresholds.values, time.perf_counter() - begun)
    return scored, np.asarray(data.test.labels)


def measures(scored: Scored, y: NDArray[Any]) -> dict[str, float]:
    """Return the columns of the table, in points except for the seconds."""
    p = scored.probabilities
    share = y.mean(axis=0)
    return {
        "macro_auc": 100 * macro_auc(p, y),
        "brier": 100 * brier_score(p, y),
        "brier_prior": 100 * float((share * (1 - share)).mean()),
        "calibration_error": 100 * calibration_error(p, y, average="pooled"),
        "f1_half": 100 * f1_scores(p, y, threshold=0.5).OF1,
        "f1_chosen": 100 * f1_scores(p, y, threshold=scored.thresholds).OF1,
        "tags": float((p > scored.thresholds).sum(1).mean()),
        "true_tags": float(y.sum(1).mean()),
        "seconds": scored.seconds,
    }


RUNS: dict[str, tuple[str, float | None]] = {
    "`best`, held_out 0.1": ("best", 0.1),
    "`rldam-wru`, held_out 0.1": ("rldam-wru", 0.1),
    "`rldam-wru`, counts alone": ("rldam-wru", None),
}
METHODS = ("exact", "logistic regression", *RUNS)


def measured(name: str, method: str, seed: int) -> dict[str, float]:
    """Return the measures of a method on the test rows."""
    if method in RUNS:
        kind, held_out = RUNS[method]
        return measures(*by_run(name, kind, seed, held_out=held_out))
    found = problem(name, seed)
    if method == "logistic regression":
        return measures(by_regression(found, seed), found.y)
    return measures(by_tagger(ExactTagger(), found), found.y)


def write_csv(path: Path, lines: list[dict[str, Any]]) -> None:
    """Write lines with the same columns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, lines[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            {k: f"{v:.4f}" if isinstance(v, float) else v for k, v in line.items()} for line in lines
        )


def read_csv(path: Path) -> list[dict[str, str]]:
    """Read what `write_csv` wrote."""
    with path.open() as file:
        return list(csv.DictReader(file))


def mean(lines: list[dict[str, str]], column: str, **where: str) -> float:
    """Return the mean of a column over the lines with these values."""
    values = [float(line[column]) for line in lines if all(line[k] == v for k, v in where.items())]
    return float(np.mean(values))


def table(lines: list[dict[str, str]]) -> list[str]:
    """Return the table of measures: means over seeds."""
    heads = (
        *("Data", "Method", "Macro-AUC", "Brier (of the share)", "Calibration error"),
        *("F1 at 0.5", "F1 at thresholds", "Tags (true)"),
    )
    out = ["| " + " | ".join(heads) + " |", "|---|---|" + "---:|" * (len(heads) - 2)]
    for data, method in dict.fromkeys((line["data"], line["method"]) for line in lines):
        at = {name: mean(lines, name, data=data, method=method) for name in list(lines[0])[3:]}
        cells = (
            f"{at['macro_auc']:.1f}",
            f"{at['brier']:.2f} ({at['brier_prior']:.2f})",
            f"{at['calibration_error']:.2f}",
            f"{at['f1_half']:.1f}",
            f"{at['f1_chosen']:.1f}",
            f"{at['tags']:.2f} ({at['true_tags']:.2f})",
        )
        out.append(f"| {data} | {method} | " + " | ".join(cells) + " |")
    return out


def pages() -> int:
    """Write the table into its page."""
    target = ROOT / "docs" / "evidence" / "probabilities.md"
    lines = table(read_csv(RESULTS / "table.csv"))
    return write(between(target.read_text(), lines, "calibration"), target)


def measure(anew: Sequence[str]) -> None:
    """Measure methods on the test rows; the lines of the others stay."""
    path = RESULTS / "table.csv"
    kept = [line for line in (read_csv(path) if path.exists() else []) if line["method"] not in anew]
    by_key: dict[tuple[str, str, int], dict[str, Any]] = {
        (line["data"], line["method"], int(line["seed"])): dict(line) for line in kept
    }
    for name in STORES:
        for seed in SEEDS:
            for method in anew:
                found = measured(name, method, seed)
                by_key[name, method, seed] = {"data": name, "method": method, "seed": seed, **found}
                sys.stderr.write(f"{name} {seed} {method} {found['seconds']:.1f} s\n")
    order = [(name, method, seed) for name in STORES for method in METHODS for seed in SEEDS]
    write_csv(path, [by_key[key] for key in order if key in by_key])


def main(arguments: list[str]) -> int:
    """Measure, or write the page."""
    warnings.simplefilter("ignore")
    if arguments in ([], ["--check"]):
        return pages()
    import torch

    torch.set_num_threads(1)
    verb, *methods = arguments
    if verb != "measure" or not set(methods) <= set(METHODS):
        sys.stderr.write(f"expected measure, and some of {', '.join(METHODS)}\n")
        return 2
    measure(methods or METHODS)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
