"""Time every memory on the label streams of COCO and NUS-WIDE, and WRU against the published procedure.

Run: ``python benches/bench_memories.py [--size 2000]``. Needs the label files of `MLCL_DATA`, or of
``../shared/data`` beside the project. Only labels are read: herding gets random features of width 64.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mlcl.labels import Labels, Patterns
from mlcl.memories import MEMORIES, Memory, TaskSamples, select_wru, wru_gap

# Class orders of SPEC 2 (`order: paper`).
COCO = [
    [63, 30, 37, 53, 15, 48, 38, 69, 70, 58], [42, 6, 47, 66, 25, 73, 26, 74, 71, 39],
    [59, 18, 77, 56, 28, 11, 21, 32, 22, 57], [19, 46, 43, 13, 64, 54, 20, 12, 51, 62],
    [60, 75, 50, 5, 17, 67, 14, 45, 41, 55], [23, 61, 24, 9, 49, 36, 7, 34, 1, 0],
    [31, 76, 65, 44, 2, 68, 79, 4, 78, 52], [40, 72, 10, 29, 3, 33, 16, 8, 35, 27],
]  # fmt: skip
NUS = [
    [54, 28, 39, 46, 15, 67, 42, 19, 74], [71, 50, 60, 25, 6, 43, 55, 64, 51],
    [37, 75, 72, 26, 61, 18, 78, 58, 30], [11, 21, 59, 22, 47, 48, 63, 56, 13],
    [65, 38, 20, 12, 53, 66, 62, 76, 70], [5, 17, 68, 14, 45, 41, 57, 23, 77],
    [24, 9, 49, 36, 7, 34, 1, 0, 31], [32, 44, 2, 69, 80, 4, 79, 52, 40], [73, 10, 29, 3, 33, 16, 8, 35, 27],
]  # fmt: skip
VARIANTS: list[tuple[str, dict[str, object]]] = [
    ("random", {}),
    ("reservoir", {}),
    ("wru", {}),
    ("wru", {"shrink": "greedy_removal"}),
    ("wru", {"candidates": 200}),
    ("prs", {}),
    ("prs", {"rho": -0.03}),
    ("ocdm", {}),
    ("ocdm", {"distance": "l1"}),
    ("ocdm", {"rho": 0.5, "batch_size": 32}),
    ("herding", {}),
]


def data_folder() -> Path:
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("MLCL_DATA", default))
    if not (folder / "coco2017" / "labels_all.npz").exists():
        raise SystemExit(
            f"no coco2017/labels_all.npz in {folder}: set MLCL_DATA to the folder of the label files"
        )
    return folder


def stream(name: str, folder: Path) -> list[TaskSamples]:
    """The overlap tasks of a data set: rows with at least one class of the task, that task's labels only."""
    with np.load(folder / name / "labels_all.npz") as file:
        labels = np.unpackbits(file["labels_packed"], axis=1)[:, : int(file["n_classes"])]
        train = file["split2017"] == b"train" if name == "coco2017" else ~file["is_test"] & file["labelled"]
    labels = labels[train]
    tasks = []
    for number, classes in enumerate(COCO if name == "coco2017" else NUS):
        rows = np.flatnonzero(labels[:, classes].any(axis=1))
        tasks.append(TaskSamples.of(number, classes, rows, labels[np.ix_(rows, classes)]))
    return tasks


def published_wru(
    labels: Labels, size: int, rng: np.random.Generator, candidates: int = 200
) -> NDArray[np.int64]:
    """The paper's procedure as written: a random subset a step, counts of memory + candidate taken afresh."""
    positive = labels.sum(axis=0, dtype=np.int64)
    ratio = positive / (len(labels) - positive)
    chosen: list[int] = []
    free = np.ones(len(labels), dtype=bool)
    for _ in range(size):
        pool = rng.choice(np.flatnonzero(free), size=min(candidates, int(free.sum())), replace=False)
        scores = []
        for candidate in pool:
            together = labels[[*chosen, candidate]]
            have = together.sum(axis=0, dtype=np.int64)
            scores.append(np.abs(ratio - have / (len(together) - have + 0.01)).sum())
        best = int(pool[int(np.argmin(scores))])
        chosen.append(best)
        free[best] = False
    return np.array(chosen)


def bench_strategies(name: str, tasks: list[TaskSamples], size: int) -> None:
    print(f"\n{name}: {len(tasks)} tasks, {sum(map(len, tasks))} rows offered, memory {size}")
    print(f"{'strategy':44s} {'slowest update':>14s} {'task':>5s} {'all tasks':>10s}")
    assert {kind for kind, _ in VARIANTS} | {"none"} == set(MEMORIES.names())
    for kind, options in VARIANTS:
        memory = Memory(kind, size, seed=0, **options)
        rng = np.random.default_rng(0)
        times = []
        for task in tasks:
            features = rng.normal(size=(len(task), 64)).astype(np.float32) if memory.needs_features else None
            begin = time.perf_counter()
            memory.update(task, features)
            times.append(time.perf_counter() - begin)
        text = kind + "".join(f" {key}={value}" for key, value in options.items())
        print(f"{text:44s} {max(times):13.3f}s {int(np.argmax(times)):5d} {sum(times):9.3f}s")


def bench_published(name: str, tasks: list[TaskSamples], size: int) -> None:
    """The largest task of the stream at full quota: exact greedy against the published procedure."""
    task = max(tasks, key=len)
    begin = time.perf_counter()
    exact = select_wru(task.labels, size)
    fast = time.perf_counter() - begin
    begin = time.perf_counter()
    published = published_wru(task.labels, size, np.random.default_rng(0))
    slow = time.perf_counter() - begin
    patterns = len(Patterns.of(task.labels))
    print(f"\n{name}: WRU on task {task.task} ({len(task)} rows, {patterns} label patterns), {size} chosen")
    print(f"  exact greedy over all rows   {fast:8.3f}s   J {wru_gap(task.counts, task.labels[exact]):.6f}")
    print(
        f"  published, 200 candidates    {slow:8.3f}s   J {wru_gap(task.counts, task.labels[published]):.6f}"
    )
    print(f"  ratio                        {slow / fast:8.0f} x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=2000, help="memory size M")
    parser.add_argument("--skip-published", action="store_true", help="leave out the slow published WRU")
    arguments = parser.parse_args()
    folder = data_folder()
    streams = {name: stream(name, folder) for name in ("coco2017", "nuswide")}
    for name, tasks in streams.items():
        bench_strategies(name, tasks, arguments.size)
    if not arguments.skip_published:
        for name, tasks in streams.items():
            bench_published(name, tasks, arguments.size)


if __name__ == "__main__":
    main()
