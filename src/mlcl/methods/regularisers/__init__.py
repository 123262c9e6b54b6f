"""Regularisers: penalties that keep the network close to what it was before the task, added to the loss of a step."""

from mlcl.methods.regularisers.base import REGULARISERS, Regulariser
from mlcl.methods.regularisers.distillation import confidence, distillation_loss, embedding_drift
from mlcl.methods.regularisers.ewc import diagonal_fisher
from mlcl.registry import discover

discover(__name__, __path__)

__all__ = [
    "REGULARISERS",
    "Regulariser",
    "confidence",
    "diagonal_fisher",
    "distillation_loss",
    "embedding_drift",
]
