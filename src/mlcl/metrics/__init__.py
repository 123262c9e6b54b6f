"""Metrics: exact Macro-AUC, average precision, F1, bootstrap, and everything derived from the result matrix.

Numpy only; tensors are accepted. Values are in [0, 1] unless a caller brings points.
"""

from __future__ import annotations

from mlcl.metrics.bootstrap import bootstrap_interval, bootstrap_macro_auc
from mlcl.metrics.intervals import Interval, mean_std, paired_interval
from mlcl.metrics.matrix import ResultMatrix
from mlcl.metrics.ranking import AucReport, auc_report, average_precision, batch_mean_auc, macro_auc
from mlcl.metrics.thresholded import F1Scores, by_frequency, f1_scores

__all__ = [
    "AucReport",
    "F1Scores",
    "Interval",
    "ResultMatrix",
    "auc_report",
    "average_precision",
    "batch_mean_auc",
    "bootstrap_interval",
    "bootstrap_macro_auc",
    "by_frequency",
    "f1_scores",
    "macro_auc",
    "mean_std",
    "paired_interval",
]
