"""Speed of the metrics beside scikit-learn's: ``python benches/bench_metrics.py [--repeats N]``.

Best time of several, the jobs taking turns so that a busy machine slows all alike. scikit-learn is called in
its own best way, once for the whole matrix. Its bootstrap is timed on a few resamples and extrapolated.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, roc_auc_score

from mlcl.metrics import average_precision, bootstrap_macro_auc, macro_auc
from mlcl.metrics.columns import cores
from mlcl.metrics.inputs import Scores


def best_times(jobs: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Seconds of the fastest run of each job, the jobs taking turns."""
    best = dict.fromkeys(jobs, float("inf"))
    for _ in range(repeats):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def problem(n: int, classes: int, prevalence: float, dtype: type) -> tuple[Scores, NDArray[np.uint8]]:
    rng = np.random.default_rng(0)
    labels = (rng.random((n, classes)) < prevalence).astype(np.uint8)
    return (rng.normal(size=(n, classes)) + labels).astype(dtype), labels


def row(name: str, seconds: float, reference: float | None = None, note: str = "") -> None:
    ratio = f"{reference / seconds:8.1f}x" if reference is not None else " " * 9
    print(f"  {name:<34}{seconds * 1e3:10.1f} ms{ratio}  {note}")


def bench_auc(repeats: int) -> None:
    for dtype in (np.float32, np.float64):
        for prevalence in (0.03, 0.3):
            scores, labels = problem(40_504, 80, prevalence, dtype)
            assert np.isclose(macro_auc(scores, labels), roc_auc_score(labels, scores), atol=1e-12)
            times = best_times(
                {
                    "sklearn auc": partial(roc_auc_score, labels, scores),
                    "auc": partial(macro_auc, scores, labels),
                    "sort": partial(np.sort, scores, axis=0),
                    "sklearn ap": partial(average_precision_score, labels, scores),
                    "ap": partial(average_precision, scores, labels),
                },
                repeats,
            )
            print(f"40,504 x 80, {dtype.__name__}, {prevalence:.0%} positive")
            row("sklearn roc_auc_score", times["sklearn auc"])
            note = f"{times['auc'] / times['sort']:.2f} times one np.sort"
            row("mlcl macro_auc", times["auc"], times["sklearn auc"], note)
            row("np.sort(scores, axis=0)", times["sort"])
            row("sklearn average_precision_score", times["sklearn ap"])
            row("mlcl average_precision", times["ap"], times["sklearn ap"])


def bootstrap_by_sklearn(scores: Scores, labels: NDArray[np.uint8], resamples: int) -> None:
    rng = np.random.default_rng(0)
    for _ in range(resamples):
        rows = rng.integers(0, len(scores), len(scores))
        roc_auc_score(labels[rows], scores[rows])


def bench_bootstrap(repeats: int, sample: int = 10, resamples: int = 1000) -> None:
    n, classes = 5_823, 20
    for prevalence in (0.07, 0.4):
        scores, labels = problem(n, classes, prevalence, np.float32)

        jobs: dict[str, Callable[[], object]] = {
            "sklearn": partial(bootstrap_by_sklearn, scores, labels, sample),
            "mlcl": partial(bootstrap_macro_auc, scores, labels, resamples=resamples),
        }
        times = best_times(jobs, repeats)
        print(f"{resamples} bootstrap resamples of {n:,} x {classes}, {prevalence:.0%} positive")
        slow = times["sklearn"] * resamples / sample
        row("loop over sklearn roc_auc_score", slow, note=f"extrapolated from {sample} resamples")
        row("mlcl bootstrap_macro_auc", times["mlcl"], slow)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    print(f"numpy {np.__version__}, {cores()} threads, best of {arguments.repeats}")
    bench_auc(arguments.repeats)
    bench_bootstrap(max(2, arguments.repeats // 2))
