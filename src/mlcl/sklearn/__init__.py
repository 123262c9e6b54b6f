"""scikit-learn's interface: a tagger on feature vectors that learns new labels call by call."""

from __future__ import annotations

from mlcl.sklearn.tagger import ContinualTagger

__all__ = ["ContinualTagger"]
