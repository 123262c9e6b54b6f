"""A stream of 50 tasks: resident memory, processor time, open files and folder must not grow with the tasks.

Prints the ratio of the last ten tasks to tasks 6 to 15 (1 is flat), and draws a figure. What does grow is what is
measured: after task t the pooled measures look at the classes of t tasks.

    python -m benches.stream [--figure docs/images/stream-50.svg]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from mlcl.config.resolve import config_from
from mlcl.runs.run import run
from mlcl.streams import Benchmark
from mlcl.training.callbacks import Callback

TASKS = 50
METHODS = ("rldam-wru", "er-rs", "ewc", "lwf")


def make_benchmark() -> Benchmark:
    """Return 100 classes in 50 tasks of about 400 rows each."""
    rng = np.random.default_rng(0)
    splits: list[Any] = []
    for rows in (10_000, 2_000):
        labels = (rng.random((rows, 2 * TASKS)) < 0.02).astype(np.uint8)
        splits += [(labels + 0.4 * rng.standard_normal(labels.shape)).astype(np.float32), labels]
    return Benchmark.from_arrays(*splits, tasks=TASKS, seed=0)


class Watch(Callback):
    """Notes what the process holds after each task."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.memory: list[float] = []
        self.files: list[int] = []
        self.disk: list[int] = []
        self.seconds: list[float] = []
        self.evaluation: list[float] = []
        self._last = self._trained = time.process_time()

    def on_epoch(self, learner: object, loss: float, seconds: float) -> None:  # noqa: ARG002
        self._trained = time.process_time()

    def on_task_end(self, learner: object) -> None:  # noqa: ARG002
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        self.memory.append(pages * os.sysconf("SC_PAGE_SIZE") / 2**20)
        self.files.append(len(list(Path("/proc/self/fd").iterdir())))
        self.disk.append(sum(p.stat().st_size for p in (self.folder / "checkpoints").iterdir()))
        now = time.process_time()  # what the work costs, whatever else the machine does
        self.seconds.append(now - self._last)
        self.evaluation.append(now - self._trained)
        self._last = now


def ratio(values: list[float] | list[int]) -> float:
    return float(np.median(values[-10:]) / np.median(values[5:15]))


def draw(found: dict[str, tuple[list[float], list[float]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "mlcl"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(8, 3), layout="constrained")
    for name, (memory, seconds) in found.items():
        axes[0].plot(range(1, TASKS + 1), memory, label=name)
        axes[1].plot(range(1, TASKS + 1), 1e3 * np.array(seconds), label=name)
    for axis, title in zip(axes, ("resident memory, MB", "processor time of a task, ms"), strict=True):
        axis.set(xlabel="task", title=title, ylim=(0, None))
    axes[0].legend(frameon=False, fontsize=8)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", type=Path)
    given = parser.parse_args()
    benchmark = make_benchmark()
    found = {}
    for method in METHODS:
        config = config_from(
            {
                "method": method,
                "model": {"kind": "mlp", "hidden": 64, "depth": 1},
                "memory": {"size": 200},
                "train": {"epochs": 10, "batch_size": 32, "lr": 0.05},
                "checkpoint": {"every": 50},
            }
        )
        with tempfile.TemporaryDirectory(prefix="mlcl-bench-") as folder:
            watch = Watch(Path(folder) / "run")
            run(config, benchmark=benchmark, out=watch.folder, callback=watch)
        steps = [all_ - test for all_, test in zip(watch.seconds, watch.evaluation, strict=True)]
        found[method] = (watch.memory, watch.seconds)
        print(
            f"{method:10} memory {watch.memory[-1]:4.0f} MB, x {ratio(watch.memory):.3f}   "
            f"processor time {1e3 * np.mean(watch.seconds):4.0f} ms a task, x {ratio(watch.seconds):.2f} "
            f"(steps x {ratio(steps):.2f}, memory and tests x {ratio(watch.evaluation):.2f})   "
            f"open files {min(watch.files)} to {max(watch.files)}   "
            f"checkpoints {watch.disk[5] / 2**10:.0f} to {watch.disk[-1] / 2**10:.0f} kB"
        )
    if given.figure:
        draw(found, given.figure)
        print(given.figure)


if __name__ == "__main__":
    main()
