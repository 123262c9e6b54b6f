"""scikit-learn's interface: taggers on feature vectors that learn new labels call by call.

`ExactTagger` needs no torch; `ContinualTagger` is imported on first use, because it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlcl.sklearn.exact import ExactTagger

if TYPE_CHECKING:
    from mlcl.sklearn.tagger import ContinualTagger

__all__ = ["ContinualTagger", "ExactTagger"]


def __getattr__(name: str) -> Any:
    if name != "ContinualTagger":
        raise AttributeError(f"module 'mlcl.sklearn' has no attribute {name!r}")
    from mlcl.sklearn.tagger import ContinualTagger

    return ContinualTagger
