"""Metrics: exact and streaming Macro-AUC, AP, F1, calibration, thresholds, bootstrap, and the result matrix.

Numpy only; tensors are accepted. Values are in [0, 1] unless the caller passes points. `MacroAUC`, the torchmetrics
``Metric``, is imported on first use, because torchmetrics is an extra. Definitions: specification.md#metrics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlcl.metrics.bootstrap import bootstrap_interval, bootstrap_macro_auc
from mlcl.metrics.calibration import (
    Reliability,
    brier_score,
    calibration_error,
    log_loss,
    measure,
    reliability,
)
from mlcl.metrics.decisions import Goal, Thresholds, choose_thresholds
from mlcl.metrics.intervals import Interval, mean_std, paired_interval
from mlcl.metrics.matrix import ResultMatrix
from mlcl.metrics.ranking import average_precision, batch_mean_auc, macro_auc
from mlcl.metrics.scaling import (
    Calibration,
    HeldOut,
    LogOddsLines,
    cross_fitted,
    fit_lines,
    prior_shift,
)
from mlcl.metrics.sessions import (
    F1Scores,
    by_frequency,
    f1_scores,
    false_positive_rate,
    precision_forgetting,
    session_means,
    session_measures,
)
from mlcl.metrics.streaming import StreamingMacroAUC

if TYPE_CHECKING:
    from mlcl.metrics.stateful import MacroAUC as MacroAUC

__all__ = [
    "Calibration",
    "F1Scores",
    "Goal",
    "HeldOut",
    "Interval",
    "LogOddsLines",
    "Reliability",
    "ResultMatrix",
    "StreamingMacroAUC",
    "Thresholds",
    "average_precision",
    "batch_mean_auc",
    "bootstrap_interval",
    "bootstrap_macro_auc",
    "brier_score",
    "by_frequency",
    "calibration_error",
    "choose_thresholds",
    "cross_fitted",
    "f1_scores",
    "false_positive_rate",
    "fit_lines",
    "log_loss",
    "macro_auc",
    "mean_std",
    "measure",
    "paired_interval",
    "precision_forgetting",
    "prior_shift",
    "reliability",
    "session_means",
    "session_measures",
]


def __getattr__(name: str) -> Any:
    if name != "MacroAUC":  # not in __all__, so that a star import works without the extra
        raise AttributeError(f"module 'mlcl.metrics' has no attribute {name!r}")
    from mlcl.metrics.stateful import MacroAUC

    return MacroAUC
