"""mlcl: multi-label continual learning under class imbalance.

Everything public is importable from here; torch is loaded when the first name that needs it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mlcl._version import __version__

if TYPE_CHECKING:
    from mlcl.config import Config as Config
    from mlcl.datasets import Dataset as Dataset
    from mlcl.datasets import load_dataset as load_dataset
    from mlcl.errors import InputError as InputError
    from mlcl.labels import LabelCounts as LabelCounts
    from mlcl.losses import MarginLoss as MarginLoss
    from mlcl.losses import build_loss as build_loss
    from mlcl.losses import margin_loss as margin_loss
    from mlcl.memories import Memory as Memory
    from mlcl.memories import TaskSamples as TaskSamples
    from mlcl.memories import select_wru as select_wru
    from mlcl.metrics import ResultMatrix as ResultMatrix
    from mlcl.metrics import average_precision as average_precision
    from mlcl.metrics import bootstrap_interval as bootstrap_interval
    from mlcl.metrics import macro_auc as macro_auc
    from mlcl.models import build_model as build_model
    from mlcl.plugins import load_plugin as load_plugin
    from mlcl.runs.result import Result as Result
    from mlcl.runs.run import resume as resume
    from mlcl.runs.run import run as run
    from mlcl.streams import Benchmark as Benchmark
    from mlcl.taggers import Refused as Refused
    from mlcl.taggers import Tagger as Tagger
    from mlcl.taggers import load as load
    from mlcl.training.callbacks import Callback as Callback
    from mlcl.training.replay import ReplaySampler as ReplaySampler
    from mlcl.training.replay import replay_loader as replay_loader

_HOME = {
    "Benchmark": "mlcl.streams",
    "Callback": "mlcl.training.callbacks",
    "Config": "mlcl.config",
    "Dataset": "mlcl.datasets",
    "InputError": "mlcl.errors",
    "LabelCounts": "mlcl.labels",
    "MarginLoss": "mlcl.losses",
    "Memory": "mlcl.memories",
    "ReplaySampler": "mlcl.training.replay",
    "Refused": "mlcl.taggers",
    "Result": "mlcl.runs.result",
    "ResultMatrix": "mlcl.metrics",
    "Tagger": "mlcl.taggers",
    "TaskSamples": "mlcl.memories",
    "average_precision": "mlcl.metrics",
    "bootstrap_interval": "mlcl.metrics",
    "build_loss": "mlcl.losses",
    "build_model": "mlcl.models",
    "load": "mlcl.taggers",
    "load_dataset": "mlcl.datasets",
    "load_plugin": "mlcl.plugins",
    "macro_auc": "mlcl.metrics",
    "margin_loss": "mlcl.losses",
    "replay_loader": "mlcl.training.replay",
    "resume": "mlcl.runs.run",
    "run": "mlcl.runs.run",
    "select_wru": "mlcl.memories",
}

__all__ = [*sorted(_HOME), "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'mlcl' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
