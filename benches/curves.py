"""What is measured against growing sizes: one function per room."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from benches.problems import synthetic
from mlcl.exact import ExactLearner, solve
from mlcl.exact.counting import Counter, Pairs
from mlcl.memories import Memory, TaskSamples
from mlcl.metrics import StreamingMacroAUC, average_precision, bootstrap_macro_auc, macro_auc

Prepare = Callable[[int], Callable[[], object]]
"""Takes a size, makes what is needed, and returns what is to be timed."""


@dataclass
class Curve:
    """Time and memory of one thing against one size."""

    room: str
    what: str
    axis: str
    fixed: str
    x: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    megabytes: list[float | None] = field(default_factory=list)
    slope: float | None = None
    memory_slope: float | None = None
    error: str | None = None


def task_of(labels: np.ndarray, number: int = 0) -> TaskSamples:
    """Return a whole task with these labels."""
    classes = np.arange(labels.shape[1]) + number * labels.shape[1]
    return TaskSamples.of(number, classes, np.arange(len(labels)), labels)


def memory_curves(cut: int) -> list[tuple[Curve, Prepare]]:
    """Return the curves of one update of every memory."""
    kinds: list[tuple[str, dict[str, object]]] = [
        ("random", {}), ("reservoir", {}), ("wru", {}), ("wru", {"candidates": 200}), ("prs", {}), ("ocdm", {}),
    ]  # fmt: skip

    def update(
        kind: str, options: dict[str, Any], n: int, classes: int, size: int, tasks: int
    ) -> Callable[[], object]:
        stream = [task_of(synthetic(n, classes, seed=number), number) for number in range(tasks)]
        memory = Memory(kind, size, **options)
        for task in stream[:-1]:
            memory.update(task)
        before = memory.tasks

        def last() -> None:
            memory.tasks = before
            memory.update(stream[-1])

        return last

    curves: list[tuple[Curve, Prepare]] = []
    for kind, options in kinds:
        made = partial(update, kind, options)
        words = f"{kind}, 200 candidates" if options else kind
        curve = partial(Curve, "memories", words)
        curves += [
            (curve("n", "K 10, M 2,000"), lambda n, made=made: made(n, 10, 2000 // cut, 1)),
            (curve("K", "n 20,000, M 2,000"), lambda k, made=made: made(20_000 // cut, k, 2000 // cut, 1)),
            (curve("M", "n 200,000, K 80"), lambda m, made=made: made(200_000 // cut, 80, m, 1)),
            (
                curve("T", "2,000 rows and 10 classes a task, M 2,000"),
                lambda t, made=made: made(2000 // cut, 10, 2000, t),
            ),
        ]
    return curves


def metric_curves(cut: int) -> list[tuple[Curve, Prepare]]:
    """Return the curves of the metrics."""

    def streaming(scores: np.ndarray, labels: np.ndarray) -> float:
        metric = StreamingMacroAUC(scores.shape[1])
        for start in range(0, len(scores), 512):
            metric.update(scores[start : start + 512], labels[start : start + 512])
        return metric.compute()

    jobs: dict[str, Callable[[np.ndarray, np.ndarray], object]] = {
        "macro_auc": macro_auc,
        "average_precision": average_precision,
        "streaming": streaming,
        "bootstrap, 100 resamples": partial(bootstrap_macro_auc, resamples=100),
    }

    def on(job: Callable[..., object], n: int, classes: int) -> Callable[[], object]:
        labels = synthetic(n, classes)
        scores = np.random.default_rng(0).random(labels.shape, dtype=np.float32)
        scores += labels
        return partial(job, scores, labels)

    curves: list[tuple[Curve, Prepare]] = []
    for words, job in jobs.items():
        curves.append((Curve("metrics", words, "n", "K 20"), lambda n, job=job: on(job, n, 20)))
        curves.append(
            (Curve("metrics", words, "K", "n 10,000"), lambda k, job=job: on(job, 10_000 // cut, k))
        )
    return curves


def step_curves(cut: int) -> list[tuple[Curve, Prepare]]:
    """Return the curves of a training step of RLDAM + WRU on features: there, what is not the network shows most."""
    from mlcl.config.resolve import config_from
    from mlcl.streams import Benchmark
    from mlcl.training.learner import Learner as Trainer

    def steps(n: int, classes: int, size: int, tasks: int) -> Callable[[], object]:
        labels = synthetic(n, classes)
        inputs = np.random.default_rng(0).random((n, 32), dtype=np.float32)
        benchmark = Benchmark.from_arrays(inputs, labels, inputs[:5000], labels[:5000], tasks=tasks, seed=0)
        config = config_from(
            {
                "method": "rldam-wru",
                "model": {"kind": "mlp", "hidden": 64, "depth": 1},
                "memory": {"size": size},
                "train": {"epochs": 1, "batch_size": 32, "lr": 0.01},
            }
        )
        learner = Trainer(config, benchmark)
        for stage in learner.tasks[:-1]:
            learner.start_task(stage)
            learner.finish_task(stage)
        learner.start_task(learner.tasks[-1])

        def run() -> None:
            for number in range(20):
                learner.learn(*learner.plan.step(number % len(learner.plan)))

        return run

    curve = partial(Curve, "step", "20 steps")
    return [
        (curve("n", "K 20, M 2,000, T 2"), lambda n: steps(n, 20, 2000, 2)),
        (curve("K", "n 10,000, M 2,000, T 2"), lambda k: steps(10_000 // cut, k, 2000, 2)),
        (curve("M", "n 200,000, K 20, T 2"), lambda m: steps(200_000 // cut, 20, m, 2)),
        (curve("T", "n 10,000, K 200, M 2,000"), lambda t: steps(10_000 // cut, 200, 2000, t)),
    ]


def exact_curves(cut: int) -> list[tuple[Curve, Prepare]]:
    """Return the curves of the exact learner: counting rows in memory, with two labels per row, and solving."""

    def rows_of(n: int, d: int, classes: int) -> tuple[np.ndarray, Pairs, list[str]]:
        rng = np.random.default_rng(0)
        owner = np.repeat(np.arange(n), 2)
        tags = (owner, rng.integers(0, classes, len(owner)))
        return rng.standard_normal((n, d), dtype=np.float32), tags, [f"label-{k}" for k in range(classes)]

    def counting(n: int, d: int, classes: int) -> Callable[[], object]:
        rows, (owner, labels), names = rows_of(n, d, classes)
        features = ExactLearner.begin(rows[: 10 * d], dimensions=None).features
        step = 10_000

        def job() -> object:
            counter = Counter(features)
            for start in range(0, n, step):
                tagged = slice(2 * start, 2 * (start + step))
                counter.add(rows[start : start + step], (owner[tagged] - start, labels[tagged]), names)
            return counter.part()

        return job

    def solving(d: int, classes: int) -> Callable[[], object]:
        rows, (owner, tagged), _ = rows_of(5_000 // cut, d, classes)
        labels = np.zeros((len(rows), classes), np.bool_)
        labels[owner, tagged] = True
        learner = ExactLearner.begin(rows, dimensions=None).learn(rows, labels, range(classes))
        return partial(solve, learner)

    count, weights = (partial(Curve, "exact", what) for what in ("counting", "solving"))
    return [
        (count("n", "d 64, K 20"), lambda n: counting(n, 64, 20)),
        (count("d", "n 50,000, K 20"), lambda d: counting(50_000 // cut, d, 20)),
        (count("K", "n 50,000, d 64"), lambda k: counting(50_000 // cut, 64, k)),
        (weights("d", "K 20"), lambda d: solving(d, 20)),
        (weights("K", "d 64"), lambda k: solving(64, k)),
    ]


MAKERS: dict[str, Callable[[int], list[tuple[Curve, Prepare]]]] = {
    "memories": memory_curves,
    "metrics": metric_curves,
    "step": step_curves,
    "exact": exact_curves,
}
"""By room: takes by how much to cut fixed sizes, and returns curves that are still to be measured."""
