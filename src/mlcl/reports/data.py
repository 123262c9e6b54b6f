"""What ``mlcl data info`` shows of a benchmark: its tasks, their imbalance, and rows that repeat."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mlcl.config.schema import Config
from mlcl.datasets import Dataset
from mlcl.datasets.base import shared_rows
from mlcl.errors import InputError
from mlcl.files import write_bytes
from mlcl.labels import LabelCounts
from mlcl.models.provenance import describe_weights
from mlcl.reports.drawing import ReportFigure, colour, plain_log, shown, to_file
from mlcl.reports.rendering import PrintedTable, plural
from mlcl.runs.recording import load_benchmark
from mlcl.streams import Benchmark
from mlcl.streams.notes import summary

FORMATS = (".svg", ".pdf", ".png")


def load_quietly(config: Config) -> tuple[Benchmark, list[str]]:
    """Load a benchmark and return its warnings beside it, except for the one that sums up its notes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        benchmark = load_benchmark(config)
    known = summary(benchmark.dataset, benchmark.tasks)
    texts = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
    return benchmark, [text for text in texts if text != known]


def overview_lines(benchmark: Benchmark) -> list[str]:
    """Return a few lines about the dataset as a whole."""
    data = benchmark.dataset
    counts = LabelCounts.of(data.train.labels, data.train.known)
    shape = " x ".join(map(str, data.train.inputs.shape[1:]))
    met = counts.positive[counts.positive > 0]
    ratio = f"{met.max() / met.min():.0f}" if len(met) else "-"
    return [
        f"{benchmark.name}: data {data.name} (fingerprint {data.fingerprint}), {data.kind} {shape}",
        f"{len(data.train)} training and {len(data.test)} test rows, {len(data.classes)} classes, "
        f"{data.train.labels.sum(1).mean():.3f} labels per training row, "
        f"{data.test.labels.sum(1).mean():.3f} per test row",
        f"positives per class in training: {counts.positive.min()} to {counts.positive.max()} (ratio {ratio})",
        *([] if data.origin is None else [f"features of: {describe_weights(data.origin)}"]),
        *_prepared_with(data),
    ]


def _prepared_with(data: Dataset) -> list[str]:
    """Return with which options the labels came about, or that a store of features does not record it."""
    if data.options:
        shown = {k: f"{v:g}" if isinstance(v, float) else str(v) for k, v in data.options.items()}
        return [f"prepared with: {', '.join(map(' '.join, shown.items()))}"]
    source = {} if data.origin is None else data.origin.get("of")
    known = data.origin is None or (isinstance(source, Mapping) and "options" in source)
    return [] if known else ["prepared with: not recorded"]


def task_table(benchmark: Benchmark) -> PrintedTable:
    """Return a table with one row per task."""
    rows = [
        [
            str(info.index + 1),
            ", ".join(info.classes),
            str(info.train_rows),
            str(info.test_rows),
            f"{info.labels_per_row:.2f}",
            f"{info.positive.min()} to {info.positive.max()}",
            f"{info.tau.min():.3f} to {info.tau.max():.3f}",
        ]
        for info in benchmark.describe()
    ]
    heads = ("task", "classes", "train", "test", "labels per row", "positives", "tau")
    return PrintedTable("Tasks", heads, rows, left=("classes",))


def class_table(benchmark: Benchmark) -> PrintedTable:
    """Return a table with one row per class."""
    rows = []
    for info in benchmark.describe():
        for k, name in enumerate(info.classes):
            values = (info.positive[k], info.negative[k], f"{info.tau[k]:.4f}", info.test_positive[k])
            rows.append([str(info.index + 1), str(info.class_ids[k]), name, *map(str, values)])
    heads = ("task", "id", "class", "positives", "negatives", "tau", "test positives")
    return PrintedTable("Classes, in the order of the tasks", heads, rows, left=("class",))


def repetition_lines(benchmark: Benchmark) -> Iterator[str]:
    """Yield how many training rows belong to several tasks, and how many test rows equal a training row."""
    data = benchmark.dataset
    seen = np.bincount(np.concatenate([task.train for task in benchmark.tasks]), minlength=len(data.train))
    times = np.bincount(seen)
    parts = [f"{count} in {plural(n, 'task')}" for n, count in enumerate(times) if count and n]
    unused = f"; {times[0]} in none" if times[0] else ""
    yield f"training rows: {', '.join(parts)}{unused}"
    pairs = shared_rows(data.train.inputs, data.test.inputs)
    if len(pairs):
        examples = ", ".join(f"train {i} = test {j}" for i, j in pairs[:3])
        yield f"WARNING: {len(pairs)} test rows are identical to a training row ({examples})"
    else:
        yield "no test row is identical to a training row"


def check_figure(path: Path) -> None:
    """Refuse a file whose extension is not a known image format."""
    if path.suffix not in FORMATS:
        raise InputError(f"--figure is {str(path)!r}; expected a file that ends in {', '.join(FORMATS)}.")


def imbalance_figure(benchmark: Benchmark, path: Path) -> None:
    """Draw the number of positives per class of the first three tasks, the paper's Figure 1, into a file."""
    check_figure(path)
    infos = benchmark.describe()[:3]
    kind = "images" if benchmark.dataset.kind == "images" else "vectors"

    def draw(figure: Any) -> None:
        axes: Any = figure.subplots(1, len(infos), sharey=True, squeeze=False)[0]
        for axis, info in zip(axes, infos, strict=True):
            order = np.argsort(-info.positive, kind="stable")
            axis.bar(range(len(order)), info.positive[order], color=colour(0))
            names = [shown(info.classes[k], 60) for k in order]
            axis.set_xticks(range(len(order)), names, rotation=60, ha="right")
            axis.set(title=f"Task {info.index + 1}: {info.train_rows} {kind}", yscale="log")
            plain_log(axis.yaxis)
        axes[0].set_ylabel("training rows with the class")

    alt = ", ".join(f"task {info.index + 1} {info.positive.min()} to {info.positive.max()}" for info in infos)
    figure = ReportFigure(
        "Positives per class", f"Bars of the positives: {alt}.", draw, (3.4 * len(infos), 3.2)
    )
    write_bytes(path, to_file(figure, path.suffix[1:]))
