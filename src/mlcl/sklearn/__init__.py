"""scikit-learn's interface: a tagger on feature vectors that learns new labels call by call.

It needs no torch, and is imported on first use: the processes that count shards need neither, nor scikit-learn itself.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlcl.sklearn.exact import ExactTagger

__all__ = ["ExactTagger"]


def __getattr__(name: str) -> Any:
    if name == "ContinualTagger":
        raise AttributeError(
            "ContinualTagger is gone; what to use instead: docs/reference/taggers.md#networks"
        )
    if name not in __all__:
        raise AttributeError(f"module 'mlcl.sklearn' has no attribute {name!r}")
    return getattr(importlib.import_module("mlcl.sklearn.exact"), name)
