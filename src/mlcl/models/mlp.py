"""Models for feature vectors: a multilayer perceptron, random features, and no backbone at all."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from mlcl.errors import InputError, check_int
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


LARGEST = 1 << 28
"""Numbers in B, at most: 1 GiB."""


class RandomRelu(Backbone):
    """``max(0, B x)``; B is a buffer, not a parameter: nothing trains it."""

    kind = "vector"
    projection: Tensor

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.register_buffer("projection", torch.randn(width, inputs) / math.sqrt(inputs))

    def forward(self, inputs: Tensor) -> Tensor:
        """Map vectors [B, D], or images, whose pixels are taken as vectors, to vectors [B, width]."""
        return torch.nn.functional.linear(inputs.flatten(1), self.projection).relu()


@MODELS.register("random-relu", summary="Random ReLU features of vectors (or pixels), for l3a; option width")
def random_relu(input_shape: tuple[int, ...], *, width: int = 4096) -> RandomRelu:
    """Return the random map, drawn by the run's seed; entries are normal with variance 1/D.

    Args:
        width: Number of random features; 4096 to 8192 in L3A.

    >>> random_relu((12,), width=32)(torch.zeros(4, 12)).shape
    torch.Size([4, 32])
    """
    check_int("width", width, 1)
    inputs = math.prod(input_shape)
    if inputs * width > LARGEST:
        raise InputError(
            f"model 'random-relu' has {inputs} inputs and width {width}; expected a product of at most {LARGEST}."
        )
    return RandomRelu(inputs, width)


@MODELS.register("linear", summary="The linear head alone, on feature vectors")
def linear(input_shape: tuple[int, ...]) -> VectorBackbone:
    """Return the identity on vectors; ``input_shape`` is (D,).

    >>> linear((12,)).width
    12
    """
    return VectorBackbone(vector_width("linear", input_shape), nn.Identity())
