"""iCaRL's nearest mean (Rebuffi et al., CVPR 2017), for several labels per row: a head that scores by class means.

    mlcl run --plugin examples/nearest_mean.py --method icarl

The network learns through a linear layer. When a task ends, the means of the normalised features of each class's
positives and of its negatives are computed anew, over the task's rows and the memory's; a row's score is how much
nearer it is to the positives.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from mlcl.methods import PRESETS, Preset
from mlcl.models import HEADS, AvailableRows, Backbone, LinearHead
from mlcl.models.network import pool

REFERENCE = "Rebuffi et al., iCaRL: Incremental Classifier and Representation Learning, CVPR 2017"


@HEADS.register("nearest-mean", summary="Scores by the means of a class's positives and negatives.")
class NearestMean(LinearHead):
    """A linear layer for training, and class means for scores: a buffer, so that checkpoints and folders have them."""

    means: Tensor

    def __init__(self, backbone: Backbone, input_shape: tuple[int, ...], classes: int, seed: int) -> None:  # noqa: ARG002
        super().__init__(backbone.width, classes)
        self.register_buffer("means", torch.zeros(classes, backbone.width))

    def finish_task(self, rows: AvailableRows) -> None:
        """Compute the means of all classes so far under the features as they are now."""
        features = F.normalize(torch.from_numpy(rows.features()).double())
        labels, known = map(torch.from_numpy, rows.labels(len(self.means)))
        weights = torch.from_numpy(rows.weights)[:, None] * known
        sides = [side * weights for side in (labels, 1 - labels)]
        positive, negative = (side.T @ features / side.sum(0)[:, None].clamp_min(1) for side in sides)
        self.means.copy_(positive - negative)

    def forward(self, features: Tensor) -> Tensor:
        """Return how much nearer features are to the positives of each class than to its negatives, [B, K]."""
        return F.normalize(pool(features)) @ self.means.T


PRESETS["icarl"] = Preset(
    "iCaRL: herding, distillation of the old logits, and scores by the nearest mean.",
    REFERENCE,
    {
        "loss": {"kind": "bce"},
        "memory": {"kind": "herding"},
        "regulariser": {"kind": "lwf"},
        "model": {"head": "nearest-mean"},
    },
)
