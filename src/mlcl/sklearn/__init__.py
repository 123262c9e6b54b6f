"""scikit-learn's interface: a tagger on feature vectors that gains labels over the years."""

from __future__ import annotations

from mlcl.sklearn.tagger import ContinualTagger

__all__ = ["ContinualTagger"]
