"""Backbones for images and feature vectors, heads, and `build_model`, which joins them by name.

One file per family of models; `mlcl.models.network` states the rules that a model keeps.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from mlcl.errors import InputError
from mlcl.models.attention import IncrementalAttentionHead
from mlcl.models.committee import Committee, build_committee
from mlcl.models.graph import GraphHead
from mlcl.models.lanes import LaneHead
from mlcl.models.network import (
    HEADS,
    MODELS,
    AvailableRows,
    Backbone,
    Bounded,
    Head,
    Inputs,
    LinearHead,
    Network,
    Outputs,
    frozen_copy,
    seeded,
)
from mlcl.registry import discover

discover(__name__, __path__)

__all__ = [
    "HEADS",
    "MODELS",
    "AvailableRows",
    "Backbone",
    "Committee",
    "GraphHead",
    "Head",
    "IncrementalAttentionHead",
    "Inputs",
    "LaneHead",
    "LinearHead",
    "Network",
    "Outputs",
    "build_committee",
    "build_model",
    "fast_layout",
    "frozen_copy",
]


def build_model(
    name: str,
    input_shape: tuple[int, ...],
    classes: int,
    *,
    seed: int = 0,
    head: str = "linear",
    load: bool = True,
    **options: Any,
) -> Network:
    """Build a network by its name in `MODELS`, initialised from ``seed`` alone, or with pre-trained weights.

    Convolutions start Kaiming-normal (fan out), normalisations at scale 1, all other layers as in PyTorch; models of
    other packages start as they do there. The global random state does not change, and the backbone's weights do not
    depend on the head.

    Args:
        name: of the model, see ``mlcl ls models``.
        input_shape: of one sample, (C, H, W) or (D,).
        classes: K.
        seed: of the initial weights.
        head: its name in `HEADS`. Before ``"attention"`` and ``"lanes"`` can be used, ``network.head.add_session`` must
            be called with the classes of the first task; ``"graph"`` connects the classes that were added so.
        load: False skips loading pre-trained weights, for callers that load a whole state right afterwards.
        options: options of the model, such as ``width``, ``hidden`` or ``pretrained``; None keeps the default.

    >>> network = build_model("resnet8", (3, 16, 16), 20)
    >>> network.backbone.width, sum(p.numel() for p in network.parameters())
    (64, 78692)
    >>> build_model("mlp", (128,), 20, head="attention")
    Traceback (most recent call last):
    ...
    mlcl.errors.InputError: the attention head needs a feature map; model 'mlp' gives vectors
    """
    input_shape = tuple(int(side) for side in input_shape)
    if not input_shape or min(input_shape) < 1:
        raise InputError(f"input_shape is {input_shape}, expected sides of at least 1")
    if classes < 1:
        raise InputError(f"classes is {classes}, expected at least 1")
    make = HEADS.get(head)
    with seeded(seed), Bounded():
        backbone: Backbone = MODELS.build(name, input_shape, **options)
        backbone.name = name
        network = Network(backbone, make(backbone, input_shape, classes, seed))
    if load:
        backbone.load_pretrained()
    return network


def fast_layout(network: Network, *, learns: bool = True) -> torch.memory_format:
    """Return the memory layout in which a network's convolutions are fast, and safe.

    Channels last is up to twice as fast on a CPU. If the number of channels is not a multiple of 16, torch 2.13's CPU
    convolutions corrupt memory in the backward pass on two threads or more (seen with 2, 4, 8 and 12 channels), so
    such networks stay contiguous, except for networks that do not learn, and on one thread those with multiples of 8
    from 16 on (MobileNetV2).

    Args:
        network: the network.
        learns: whether there will be backward passes.

    >>> fast_layout(build_model("resnet8", (3, 16, 16), 5))
    torch.channels_last
    >>> fast_layout(build_model("resnet8", (3, 16, 16), 5, width=4))
    torch.contiguous_format
    """
    channels = [module.out_channels for module in network.modules() if isinstance(module, nn.Conv2d)]
    multiple = 8 if torch.get_num_threads() == 1 else 16
    regular = all(count % multiple == 0 and count >= 16 for count in channels)
    return torch.channels_last if channels and (regular or not learns) else torch.contiguous_format
