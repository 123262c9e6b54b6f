"""Logistic regression per class on fixed features: upper bounds for linear learners, with its strength C chosen.

``python tools/regression.py c-voc-features c-coco-features`` writes ``results/regression.csv``. Features are
standardised, positives and negatives weigh the same. For the pooled measure a class is learnt from all rows with all
true labels, as `joint` does; inside the tasks it is learnt from the rows of its task, as `joint-masked` does, for five
class orders. C is chosen for all classes together on the validation part (a fifth of the training split, the first
order), and the test split is looked at once.
"""

from __future__ import annotations

import csv
import sys

import numpy as np
from ledger import ROOT
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

import mlcl
from mlcl.config.resolve import resolve
from mlcl.runs.recording import load_benchmark
from mlcl.streams import Benchmark

STRENGTHS = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3)
ORDERS = range(5)
FIELDS = ("benchmark", "measure", "seed", "C", "validation", "macro_auc")


def macro_auc(
    features: tuple[NDArray[np.float64], NDArray[np.float64]],
    labels: tuple[NDArray[np.bool_], NDArray[np.bool_]],
    strength: float,
) -> float:
    """Return the Macro-AUC in points of one regression per class, from (train, test) features and labels."""
    (x, test), (y, truth) = features, labels
    scores = [
        LogisticRegression(C=strength, class_weight="balanced", max_iter=500)
        .fit(x, y[:, k])
        .decision_function(test)
        for k in range(y.shape[1])
    ]
    return 100 * float(mlcl.macro_auc(np.stack(scores, axis=1), truth))


def measure(benchmark: Benchmark, which: str, strength: float) -> float:
    """Return the pooled Macro-AUC of all classes, or the mean over tasks of that inside each task."""
    train, test = benchmark.dataset.train, benchmark.dataset.test
    x = np.asarray(train.inputs, dtype=np.float64)
    mean, scale = x.mean(0), x.std(0)
    scale[scale == 0] = 1
    x, seen = (x - mean) / scale, (np.asarray(test.inputs, dtype=np.float64) - mean) / scale
    y, truth = np.asarray(train.labels, bool), np.asarray(test.labels, bool)
    if which == "pooled":
        return macro_auc((x, seen), (y, truth), strength)
    cells = [(np.ix_(t.train, t.classes), np.ix_(t.test, t.classes), t) for t in benchmark]
    return float(
        np.mean([macro_auc((x[t.train], seen[t.test]), (y[a], truth[b]), strength) for a, b, t in cells])
    )


def stream(name: str, seed: int, *, validate: bool) -> Benchmark:
    """Return a shipped benchmark with the class order of a seed."""
    return load_benchmark(resolve(name=name, given={"seed": seed, "validate": validate}))


def main(names: list[str]) -> int:
    """Choose C and measure, for each benchmark and both measures."""
    with (ROOT / "results" / "regression.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(FIELDS)
        for name in names:
            for which, seeds in (("in-task", ORDERS), ("pooled", range(1))):  # pooled: no order of classes
                part = stream(name, 0, validate=True)
                found = {strength: measure(part, which, strength) for strength in STRENGTHS}
                best = max(found, key=lambda strength: found[strength])
                for seed in seeds:
                    value = measure(stream(name, seed, validate=False), which, best)
                    writer.writerow((name, which, seed, best, round(found[best], 4), round(value, 4)))
                    file.flush()
                print(name, which, {strength: round(value, 2) for strength, value in found.items()})  # noqa: T201
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
