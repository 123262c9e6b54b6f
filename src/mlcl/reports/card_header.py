"""The YAML header of a model card: what the Hugging Face Hub lists and compares."""

from __future__ import annotations

import math
from typing import Any

import yaml

from mlcl.metrics import Interval, average_precision
from mlcl.reports.examine import Examined
from mlcl.reports.records import Run
from mlcl.texts import visible


def card_title(run: Run) -> str:
    """Return the name of the model: its method and its benchmark."""
    return f"{run.method} on {run.benchmark}"


def input_kind(run: Run) -> str:
    """Return whether the inputs are images or features."""
    return "images" if run.input_shape is not None and len(run.input_shape) == 3 else "features"


def card_header(run: Run, examined: Examined | None, pooled: Interval | None) -> str:
    """Return the YAML header: what the Hub lists and compares."""
    task = "image-classification" if input_kind(run) == "images" else "tabular-classification"
    metrics: list[dict[str, Any]] = [
        _metric("roc_auc", "Macro-AUC, mean over tasks (percent)", run.values["macro_auc"]),
        _metric(
            "roc_auc", "Macro-AUC, all labels on all test rows (percent)", run.values["pooled_macro_auc"]
        ),
        _metric("mean_average_precision", "mAP (percent)", run.values["pooled_map"]),
    ]
    if pooled is not None and examined is not None:
        metrics[1]["value"] = round(100 * pooled.estimate, 2)
        metrics[1]["args"] = {"interval_95": [round(100 * end, 2) for end in (pooled.low, pooled.high)]}
        metrics[2]["value"] = round(100 * average_precision(examined.probabilities, examined.labels), 2)
    if run.calibration is not None:
        metrics.append(_metric("brier_score", "Brier score", run.calibration.get("brier"), digits=4))
    header = {
        "library_name": "mlcl",
        "pipeline_tag": task,
        "tags": ["mlcl", "multi-label-classification", "continual-learning", "class-imbalance"],
        "metrics": ["roc_auc"],
        "model-index": [
            {
                "name": visible(card_title(run)),
                "results": [
                    {
                        "task": {"type": task, "name": "Multi-label classification"},
                        "dataset": {
                            "name": visible(run.benchmark),
                            "type": visible(data_field(run, "name") or run.benchmark),
                            "revision": visible(run.fingerprint or "unknown"),
                        },
                        "metrics": [metric for metric in metrics if metric["value"] is not None],
                    }
                ],
            }
        ],
    }
    text = yaml.safe_dump(header, sort_keys=False, allow_unicode=True, width=10**6)
    return f"---\n{text}---"


def _metric(kind: str, name: str, value: Any, *, digits: int = 2) -> dict[str, Any]:
    good = isinstance(value, int | float) and math.isfinite(value)
    return {"type": kind, "name": name, "value": round(float(value), digits) if good else None}


def data_field(run: Run, key: str) -> Any:
    """Return what the run recorded of its data, or None."""
    record = run.environment.get("data")
    return record.get(key) if isinstance(record, dict) else None
