"""Random ReLU features, ``max(0, B x)`` with B drawn once, for heads that are solved."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mlcl.errors import InputError, check_int
from mlcl.models.network import MODELS, Backbone

LARGEST = 1 << 28
"""Numbers in B, at most: 1 GiB."""


class RandomRelu(Backbone):
    """``max(0, B x)``; B is a buffer, not a parameter: nothing trains it.

    Args:
        inputs: D.
        width: number of features.
    """

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
        input_shape: (D,) or (C, H, W).
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
