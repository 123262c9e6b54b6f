"""Exact Macro-AUC beside scikit-learn, torchmetrics and one sort of the same matrix."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from benches.problems import labels_of, scores_for
from benches.timing import Row, best, faster, once, within
from mlcl.metrics import macro_auc

SIZES = {"coco2017": 40_504, "nuswide": 100_000}


def measure(*, quick: bool) -> list[Row]:
    """Time two sizes, with and without ties."""
    from torchmetrics.functional.classification import multilabel_auroc

    rows = []
    for name, n in SIZES.items():
        labels = labels_of(name, n // 20 if quick else n)
        size = f"{len(labels):,} x {labels.shape[1]}"
        for ties in (False, True):
            scores = scores_for(labels, ties=ties)
            times = best(
                {
                    "ours": partial(macro_auc, scores, labels),
                    "sort": partial(np.sort, scores, axis=0),
                    "sklearn": partial(roc_auc_score, labels, scores),
                },
                repeats=3,
            )
            with_ties = ", ties" if ties else ""
            assert abs(macro_auc(scores, labels) - roc_auc_score(labels, scores)) < 1e-12
            subject = f"Macro-AUC, exact{with_ties}"
            rows.append(faster(subject, size, times["ours"], "scikit-learn", times["sklearn"], 12))
            rows.append(within(subject, size, times["ours"], "one np.sort", times["sort"], 3))
            if ties:
                continue
            inputs = torch.from_numpy(scores), torch.from_numpy(labels).long()
            seconds, value = once(
                partial(multilabel_auroc, *inputs, num_labels=labels.shape[1], thresholds=None)
            )
            assert abs(float(value) - macro_auc(scores, labels)) < 1e-4  # it adds up in float32
            rows.append(faster(subject, size, times["ours"], "torchmetrics, exact", seconds, 8))
    return rows
