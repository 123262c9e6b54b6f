"""Choose learning rate and threshold of each row of `mlcil` on the validation part: results/trials/mlcil.csv.

    python tools/mlcil.py BENCHMARK... [--lr 0.005 0.01 0.02 0.04 0.08]

A run gives every threshold: they are applied to the scores after each session. class-incremental.md has the choice.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import warnings
from pathlib import Path

import numpy as np

from mlcl.config.resolve import merge, resolve
from mlcl.metrics import session_means, session_measures
from mlcl.runs.run import run
from mlcl.sweeps import load_experiment
from mlcl.training.callbacks import Callback
from mlcl.training.learner import Learner
from mlcl.training.optimisation import TrainingError

OUT = Path("results/trials/mlcil.csv")
THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.52, 0.54, 0.56, 0.58, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
FIELDS = ("benchmark", "label", "lr", "threshold", "map", "cf1", "of1", "fpr")


class Sessions(Callback):
    """Measures every session at every threshold."""

    def __init__(self) -> None:
        self.found: dict[float, list[dict[str, float]]] = {threshold: [] for threshold in THRESHOLDS}

    def on_task_end(self, learner: Learner) -> None:
        """Score the validation rows of seen classes once, for all thresholds."""
        learnt = len(learner.benchmark.tasks) if learner.config.joint else learner.task_index
        seen = learner.benchmark.tasks[:learnt]
        rows = np.unique(np.concatenate([task.test for task in seen]))
        classes = np.concatenate([task.classes for task in seen])
        scores = learner.predict(learner.data.test.inputs[rows])[:, classes]
        labels = learner.data.test.labels[np.ix_(rows, classes)]
        for threshold, sessions in self.found.items():
            cut = math.log(threshold / (1 - threshold))
            sessions.append(session_measures(scores, labels, threshold=cut))


def main() -> None:
    """Run all rows on all benchmarks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("benchmarks", nargs="+")
    parser.add_argument("--lr", type=float, nargs="+", default=[0.005, 0.01, 0.02, 0.04, 0.08])
    parser.add_argument("--rows", nargs="*", default=[], help="labels of rows; all by default")
    given = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    fresh = not OUT.exists()
    with OUT.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if fresh:
            writer.writerow(FIELDS)
        for benchmark in given.benchmarks:
            for row in load_experiment("mlcil").rows_on(benchmark):
                if given.rows and row.label not in given.rows:
                    continue
                solved = row.settings.get("method") in ("exact", "l3a")
                for rate in [0.0] if solved else given.lr:
                    lr = {} if solved else {"train": {"lr": rate}}
                    settings = merge(row.settings, {"validate": True, "train": {"threads": 1}}, lr)
                    watch = Sessions()
                    try:
                        run(resolve(name=benchmark, given=settings), callback=watch)
                    except TrainingError:
                        sys.stdout.write(f"{benchmark} {row.label} {rate}: diverged\n")
                        continue
                    for threshold, sessions in watch.found.items():
                        mean = session_means(sessions)
                        values = [f"{100 * mean[name]:.3f}" for name in ("map", "cf1", "of1", "fpr")]
                        writer.writerow([benchmark, row.label, rate, threshold, *values])
                    file.flush()
                    sys.stdout.write(f"{benchmark} {row.label} {rate}\n")
                    sys.stdout.flush()


if __name__ == "__main__":
    main()
