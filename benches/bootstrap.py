"""The bootstrap interval of Macro-AUC beside a loop over scikit-learn."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from benches.problems import scores_for
from benches.timing import Row, best, faster, once
from mlcl.labels import Labels
from mlcl.metrics import bootstrap_macro_auc

ROWS, CLASSES, RESAMPLES = 5_823, 20, 1_000


def by_loop(scores: NDArray[np.float32], labels: Labels, resamples: int) -> NDArray[np.float64]:
    """Draw rows and score them, one resample after the other."""
    rng = np.random.default_rng(0)
    values = []
    for _ in range(resamples):
        rows = rng.integers(0, len(scores), len(scores))
        values.append(roc_auc_score(labels[rows], scores[rows]))
    return np.array(values)


def measure(*, quick: bool) -> list[Row]:
    """Time a data set of VOC's shape, and one whose classes are frequent."""
    found = []
    sample = 3 if quick else 40
    for prevalence in (0.07, 0.4):
        rng = np.random.default_rng(0)
        labels = (rng.random((ROWS, CLASSES)) < prevalence).astype(np.uint8)
        scores = scores_for(labels)
        ours = best({"ours": partial(bootstrap_macro_auc, scores, labels, resamples=RESAMPLES)}, repeats=3)
        seconds, values = once(partial(by_loop, scores, labels, sample))
        drawn = bootstrap_macro_auc(scores, labels, resamples=RESAMPLES)
        assert abs(values.mean() - drawn.mean()) < 5 * drawn.std() / sample**0.5
        size = f"{ROWS:,} x {CLASSES}, {prevalence:.0%} positive"
        note = f"theirs on {sample} resamples, times {RESAMPLES / sample:g}"
        subject = f"bootstrap, {RESAMPLES:,} resamples"
        rival = "loop over scikit-learn"
        found.append(faster(subject, size, ours["ours"], rival, seconds * RESAMPLES / sample, 50, note))
    return found
