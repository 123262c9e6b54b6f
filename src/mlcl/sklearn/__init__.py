"""scikit-learn's interface: taggers on feature vectors that learn new labels call by call.

`ExactTagger` needs no torch; `ContinualTagger` does. Both are imported on first use: the processes that count shards
need neither, nor scikit-learn itself.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlcl.sklearn.exact import ExactTagger
    from mlcl.sklearn.tagger import ContinualTagger

__all__ = ["ContinualTagger", "ExactTagger"]

_MODULES = {"ContinualTagger": "tagger", "ExactTagger": "exact"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'mlcl.sklearn' has no attribute {name!r}")
    return getattr(importlib.import_module(f"mlcl.sklearn.{_MODULES[name]}"), name)
