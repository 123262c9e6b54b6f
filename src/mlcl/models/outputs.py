"""The network as a training step calls it: one forward pass, which DDP wraps and torch.compile compiles."""

from __future__ import annotations

import os
import shutil
from itertools import chain

import torch
from torch import Tensor, nn

from mlcl.errors import InputError
from mlcl.models.network import Network


class Outputs(nn.Module):
    """Inputs to logits [B, K] and embeddings [B, S, d].

    The network itself does not change: evaluation, checkpoints and export are not compiled, because the kernels would
    have to be compiled once more for them.

    Args:
        network: the network.
        compile: compile the forward and backward pass at the first step, and once more when the number of rows changes.
    """

    def __init__(self, network: Network, *, compile: bool = False) -> None:
        super().__init__()
        self.network = network
        self.pass_through = network.forward_with_embeddings
        if compile:
            _require_compiler(next(chain(network.parameters(), network.buffers())).device)
            self.pass_through = torch.compile(network.forward_with_embeddings)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Call the network."""
        return self.pass_through(inputs)


def _require_compiler(device: torch.device) -> None:
    """Fail now instead of at the first step."""
    if device.type == "cpu" and not any(
        map(shutil.which, (os.environ.get("CXX") or "g++", "g++", "clang++"))
    ):
        raise InputError("train.compile needs a C++ compiler on a CPU; neither g++ nor clang++ was found.")
