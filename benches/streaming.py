"""Streaming Macro-AUC in bounded memory beside torchmetrics' binned mode."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from benches.auc import SIZES
from benches.problems import labels_of, scores_for
from benches.timing import Row, best, faster, limit, once
from mlcl.labels import Labels
from mlcl.metrics import StreamingMacroAUC, macro_auc

BATCH, THRESHOLDS = 512, 200


def streamed(scores: NDArray[np.float32], labels: Labels) -> StreamingMacroAUC:
    """Give a metric all rows, a batch at a time, and have it compute."""
    metric = StreamingMacroAUC(scores.shape[1])
    for start in range(0, len(scores), BATCH):
        metric.update(scores[start : start + BATCH], labels[start : start + BATCH])
    metric.compute()
    return metric


def peak(job: Callable[[], object]) -> int:
    """Return the most bytes that a job had in use at once."""
    tracemalloc.start()
    job()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def measure(*, quick: bool) -> list[Row]:
    """Time, compare and weigh two sizes."""
    from torchmetrics.classification import MultilabelAUROC

    rows = []
    for name, n in SIZES.items():
        labels = labels_of(name, n // 20 if quick else n)
        scores = scores_for(labels)
        size = f"{len(labels):,} x {labels.shape[1]}"
        ours = best({"ours": partial(streamed, scores, labels)}, repeats=3)["ours"]
        part = BATCH if quick else 8 * BATCH  # the rival's cost is the same for every batch

        def binned(scores: NDArray[np.float32] = scores, labels: Labels = labels, part: int = part) -> float:
            metric = MultilabelAUROC(labels.shape[1], thresholds=THRESHOLDS, validate_args=False)
            for start in range(0, part, BATCH):
                piece = slice(start, min(start + BATCH, part))
                metric.update(torch.from_numpy(scores[piece]), torch.from_numpy(labels[piece]).long())
            return float(metric.compute())

        seconds = once(binned)[0] * len(labels) / part
        subject = "Macro-AUC, streaming"
        note = f"batches of {BATCH}; theirs on {part:,} rows, times {len(labels) / part:.1f}"
        rows.append(faster(subject, size, ours, f"torchmetrics, {THRESHOLDS} thresholds", seconds, 20, note))
        metric = streamed(scores, labels)
        exact = macro_auc(scores, labels, average=None)
        error = float(np.nanmax(np.abs(metric.compute(average=None) - exact)))
        bound = metric.error_bound()
        note = f"the worst class; its own bound on the mean says {bound:.0e}"
        rows.append(limit(f"{subject}, error", size, error, 1e-4, "", note))
        bytes_a_bin = peak(partial(streamed, scores, labels)) / labels.shape[1] / metric.bins
        note = f"the most in use at once, a class and bin ({metric.bins} bins)"
        rows.append(limit(f"{subject}, memory", size, bytes_a_bin, 200, "bytes", note))
    return rows
