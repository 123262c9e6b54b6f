"""The exact learner: a linear Macro-AUC learner in closed form, from sums over rows. Numpy and scipy only.

Sums add. So rows may come in any order and any cut, two learners can be merged, rows can be forgotten exactly, and
learning class by class equals learning everything at once, with no stored row, no epoch and no forgetting.
"""

from __future__ import annotations

from mlcl.exact.carrying import carried, linear_map
from mlcl.exact.features import FeatureMap, fit_map
from mlcl.exact.learner import ExactLearner
from mlcl.exact.moments import Moments
from mlcl.exact.solving import Options, Solution, solve
from mlcl.exact.sums import Sums

Learner = ExactLearner
"""Its name until `mlcl.training.learner.Learner` had the same one."""

__all__ = [
    "ExactLearner",
    "FeatureMap",
    "Learner",
    "Moments",
    "Options",
    "Solution",
    "Sums",
    "carried",
    "fit_map",
    "linear_map",
    "solve",
]
