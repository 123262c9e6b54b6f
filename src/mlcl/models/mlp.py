"""Models for feature vectors: a multilayer perceptron, and no backbone at all."""

from __future__ import annotations

from torch import Tensor, nn

from mlcl.errors import check_int
from mlcl.models.network import MODELS, Backbone, vector_width


class VectorBackbone(Backbone):
    """``layers`` applied to vectors [B, D], giving vectors [B, width]."""

    kind = "vector"

    def __init__(self, width: int, layers: nn.Module) -> None:
        super().__init__()
        self.width = width
        self.layers = layers

    def forward(self, inputs: Tensor) -> Tensor:
        """Map vectors [B, D] to vectors [B, width]."""
        features: Tensor = self.layers(inputs)
        return features


@MODELS.register("mlp", summary="Perceptron for feature vectors; options hidden and depth")
def mlp(input_shape: tuple[int, ...], *, hidden: int = 256, depth: int = 2) -> VectorBackbone:
    """Return ``depth`` times (Linear, LayerNorm, ReLU) of width ``hidden``.

    Features come from any encoder, at any scale; the normalisation after each linear layer removes the scale, and
    unlike batch statistics it is the same for new and replayed rows.

    Args:
        input_shape: (D,).
        hidden: Width of the hidden layers.
        depth: Number of hidden layers.

    >>> import torch
    >>> mlp((12,), hidden=32)(torch.zeros(4, 12)).shape
    torch.Size([4, 32])
    """
    inputs = vector_width("mlp", input_shape)
    check_int("hidden", hidden, 1)
    check_int("depth", depth, 1)
    layers: list[nn.Module] = []
    for width in [inputs] + [hidden] * (depth - 1):
        layers += [nn.Linear(width, hidden), nn.LayerNorm(hidden), nn.ReLU(inplace=True)]
    return VectorBackbone(hidden, nn.Sequential(*layers))


@MODELS.register("linear", summary="The linear head alone, on feature vectors")
def linear(input_shape: tuple[int, ...]) -> VectorBackbone:
    """Return the identity on vectors; ``input_shape`` is (D,).

    >>> linear((12,)).width
    12
    """
    return VectorBackbone(vector_width("linear", input_shape), nn.Identity())
