"""Losses by name, one file per family; `mlcl.losses.base` states how a loss is called and which rules it keeps.

The margin family of the paper (``rldam``, ``ru``, ``margin``, ``bce``), and other losses for comparison.
"""

from mlcl.losses.base import LOSSES, build_loss
from mlcl.losses.elementwise import ElementwiseLoss
from mlcl.losses.margin import Base, MarginCount, MarginLoss, margin_loss, margins
from mlcl.losses.pairwise import PairwiseLoss
from mlcl.registry import discover

discover(__name__, __path__)

__all__ = [
    "LOSSES",
    "Base",
    "ElementwiseLoss",
    "MarginCount",
    "MarginLoss",
    "PairwiseLoss",
    "build_loss",
    "margin_loss",
    "margins",
]
