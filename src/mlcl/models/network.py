"""A network is a backbone and a head; `MODELS` is the registry of backbones, with the rules that every model keeps.

A model is a function in one file, decorated with ``MODELS.register``:

    model(input_shape, *, options...) -> Backbone

``input_shape`` is that of one sample, (C, H, W) or (D,). The options are keyword-only; each has a type, a default, and
a line in the Args section of the docstring, which becomes its help text on the command line. Rules, which
``mlcl.testing.check_model`` tests:

- Inputs that do not fit the model, and bad values of options, are an `mlcl.errors.InputError`.
- The backbone maps float images [B, C, H, W] or vectors [B, D] to features: a map [B, width, h, w] (kind ``"map"``) or
  vectors [B, width] (kind ``"vector"``), and gradients flow through them.
- Initial weights come from torch's CPU generator, which `build_model` seeds: the same seed gives the same weights.
- In evaluation mode a row's features depend on that row alone, and neither parameters nor buffers change.
- Everything that training changes is a parameter or a buffer, so that a state dict restores the backbone.

A backbone may look at the inputs of the first task, without labels, before anything is trained: `Backbone.fit`. What it
learns there follows from inputs and generator alone, and is in its state dict. A backbone without parameters, such as
``patches``, is never trained.
"""

from __future__ import annotations

import copy
import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from mlcl.errors import InputError
from mlcl.labels import Labels
from mlcl.memories import Memory, TaskSamples
from mlcl.registry import Registry

MOST = 2**29
"""The numbers of a network, at most: 2 GB. An option of a foreign config, as ``hidden``, could ask for any memory."""


class Bounded(TorchFunctionMode):
    """While it is active, tensors of more than so many numbers in all are not made: an `InputError` says so instead."""

    def __init__(self, numbers: int = MOST) -> None:
        super().__init__()
        self.numbers = self.left = numbers

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Count what is about to be made."""
        if func in (torch.empty, torch.zeros, torch.ones):
            sizes = args[0] if args and isinstance(args[0], list | tuple | torch.Size) else args
            self.left -= math.prod(int(side) for side in sizes if isinstance(side, int))
            if self.left < 0:
                raise InputError(
                    f"the options ask for a network of more than {self.numbers:,} numbers; expected smaller options"
                )
        return func(*args, **(kwargs or {}))


class Inputs(Protocol):
    """Inputs by row number, as the backbone gets them: a tensor [n, ...], or something that reads them when asked."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Tensor) -> Tensor:
        """Return the inputs of some rows, as a batch."""


class Backbone(nn.Module):
    """Inputs -> features: a map [B, width, h, w] (kind ``"map"``) or vectors [B, width] (kind ``"vector"``).

    A map's sides are ``ceil(H / stride)`` and ``ceil(W / stride)``; vectors have stride 1. A backbone with pre-trained
    weights may normalise its inputs itself (``normalises``: it expects images in [0, 1]), and states in ``provenance``
    where its weights come from. One that learns from inputs alone overrides `fit` and declares it (``fits``);
    one whose features are principal components already declares that (``projects``).
    """

    width: int
    kind: Literal["map", "vector"]
    stride: int = 1
    name: str = ""
    normalises: bool = False
    fits: bool = False
    projects: bool = False
    provenance: dict[str, Any] | None = None

    def use_map(self) -> bool:
        """Return feature maps from now on, if the backbone has them; return whether it has."""
        return self.kind == "map"

    def load_pretrained(self) -> None:
        """Load pre-trained weights, if the backbone was built to have any."""

    def fit(self, inputs: Inputs, *, generator: torch.Generator, mirror: bool) -> None:
        """Learn from the training inputs of the first task, without labels; called once, before anything is trained.

        Args:
            inputs: All of them, by row number.
            generator: Of all that is random.
            mirror: Whether a mirrored image has the same labels, as photographs do and digits do not.
        """

    def map_size(self, input_shape: tuple[int, ...]) -> tuple[int, int]:
        """Return the height and width of the feature map of one image [C, H, W]."""
        height, width = input_shape[1:]
        return math.ceil(height / self.stride), math.ceil(width / self.stride)


class Head(nn.Module):
    """Backbone features -> logits, through embeddings: one per session, or one for all classes.

    A head that grows with the classes overrides `add_session`; if it freezes what earlier sessions learnt
    (``freezes``), no later session can bring more rows of their classes. One that computes something when a task ends
    overrides `finish_task`. Training uses `forward_with_embeddings`; what is measured, predicted and exported is
    `forward`, which may be something else, such as the distance to the mean of a class.
    """

    freezes: bool = False

    def add_session(self, classes: Tensor | NDArray[np.integer] | Sequence[int]) -> None:
        """Take in the class ids of a task before it is learnt; nothing to do where all K are there from the start."""

    def finish_task(self, rows: AvailableRows) -> None:
        """Look back at a learnt task; the network is in evaluation mode. What is found belongs into buffers."""

    def forward(self, features: Tensor) -> Tensor:
        """Return the scores [B, K] of features [B, C, h, w] or [B, d]: the logits, unless a head overrides it."""
        return self.forward_with_embeddings(features)[0]

    def forward_with_embeddings(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits [B, K] and the embeddings [B, S, d] from which they are computed."""
        raise NotImplementedError


MODELS: Registry[Callable[..., Backbone]] = Registry("model")
"""Model names; an entry maps ``input_shape`` and keyword options to a `Backbone`."""
HEADS: Registry[Callable[..., Head]] = Registry("head")
"""Heads by name; an entry is called as ``head(backbone, input_shape, classes, seed)``, and draws from torch's CPU
generator, which `build_model` seeds, or from a generator of its own made of ``seed``."""


def pool(features: Tensor) -> Tensor:
    """Average a feature map [B, C, h, w] over its positions to [B, C]; vectors [B, d] pass unchanged."""
    return features.mean((2, 3)) if features.ndim == 4 else features


class LinearHead(Head):
    """Global average pooling of a feature map, then one linear layer of width K.

    >>> LinearHead(8, 3)(torch.zeros(2, 8, 4, 4)).shape
    torch.Size([2, 3])
    """

    linear: nn.Linear

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, classes)

    def forward_with_embeddings(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits [B, K] and the pooled features as one session's embedding, [B, 1, d]."""
        pooled = pool(features)
        return self.linear(pooled), pooled.unsqueeze(1)


@HEADS.register("linear", summary="One linear layer of width K on the pooled features.")
def linear_head(backbone: Backbone, input_shape: tuple[int, ...], classes: int, seed: int) -> LinearHead:  # noqa: ARG001
    """Return a linear layer with PyTorch's initial weights."""
    return LinearHead(backbone.width, classes)


@HEADS.register(
    "exact", summary="One linear layer whose weights are solved in closed form; nothing is trained."
)
def exact_head(backbone: Backbone, input_shape: tuple[int, ...], classes: int, seed: int) -> LinearHead:  # noqa: ARG001
    """Return a linear layer that scores 0 until somebody solves for its weights."""
    head = LinearHead(backbone.width, classes)
    nn.init.zeros_(head.linear.weight)
    nn.init.zeros_(head.linear.bias)
    return head


class Network(nn.Module):
    """A backbone and a head: ``network(x)`` are the logits [B, K].

    >>> backbone = MODELS.build("resnet8", (3, 16, 16))
    >>> network = Network(backbone, LinearHead(backbone.width, 5))
    >>> images = torch.zeros(2, 3, 16, 16)
    >>> network(images).shape, network.features(images).shape
    (torch.Size([2, 5]), torch.Size([2, 64]))
    """

    def __init__(self, backbone: Backbone, head: Head) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits [B, K] of images [B, C, H, W] or feature vectors [B, D]."""
        logits: Tensor = self.head(self.backbone(inputs))
        return logits

    def forward_with_embeddings(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits [B, K] and the head's embeddings [B, S, d], from one pass of the backbone.

        The attention head has one embedding per session; the linear head has one, the pooled features.
        """
        return self.head.forward_with_embeddings(self.backbone(inputs))

    def features(self, inputs: Tensor) -> Tensor:
        """Return the pooled backbone features [B, d], whatever the head (herding selects by them)."""
        return pool(self.backbone(inputs))

    def features_and_scores(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the pooled features [B, d] and the logits [B, K], from one pass of the backbone."""
        found = self.backbone(inputs)
        return pool(found), self.head(found)


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


@dataclass(frozen=True, eq=False)
class AvailableRows:
    """The rows that can still be read when a task ends: the task's own, then those of the memory.

    Attributes:
        task: rows and labels of the task.
        known: which of these labels are known, ``[n, len(task.classes)]``; None: all.
        memory: samples of earlier tasks.
        network: as it has learnt the task, in evaluation mode.
        teacher: the network as it was before the task; None in the first task, and where nothing asked for it.
        apply: applies a function of inputs to all rows, ``[n + m, ...]``.
    """

    task: TaskSamples
    known: NDArray[np.bool_] | None
    memory: Memory
    network: Network
    teacher: Network | None
    apply: Callable[[Callable[[Tensor], Tensor]], NDArray[np.float32]]

    def features(self) -> NDArray[np.float32]:
        """Return the network's features of all rows, ``[n + m, d]``."""
        return self.apply(self.network.features)

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """How many rows each row stands for: a stored one for as many of its task as the task had per stored row."""
        stored = [np.full(len(one), one.counts.total / max(len(one), 1)) for one in self.memory.tasks]
        return np.concatenate([np.ones(len(self.task)), *stored])

    def labels(self, classes: int) -> tuple[Labels, NDArray[np.bool_]]:
        """Return the labels of all rows and ``classes`` classes, and which of them are known; others are 0."""
        labels = np.zeros((len(self.weights), classes), np.uint8)
        known, start = np.zeros(labels.shape, np.bool_), 0
        for samples in (self.task, *self.memory.tasks):
            cells = self.known if samples is self.task else samples.extra.get("known")
            cells = np.ones(samples.labels.shape, np.bool_) if cells is None else cells
            place = np.ix_(np.arange(start, start + len(samples)), samples.classes)
            labels[place], known[place] = samples.labels * cells, cells
            start += len(samples)
        return labels, known


@contextmanager
def seeded(*key: int) -> Iterator[None]:
    """Draw initial weights on the CPU from a generator keyed by ``key``; the global state is restored afterwards.

    Only the CPU generator is touched: ``torch.manual_seed`` would reseed every GPU as well.
    """
    if min(key) < 0:
        raise InputError(f"seed is {min(key)}, expected a whole number of at least 0")
    state = int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(state)
        yield


def vector_width(name: str, input_shape: tuple[int, ...]) -> int:
    """Return D of an input shape (D,); anything else does not fit a model of feature vectors."""
    if len(input_shape) != 1:
        raise InputError(f"model {name!r} takes feature vectors (D,), not inputs of shape {input_shape}")
    return input_shape[0]


def image_channels(name: str, input_shape: tuple[int, ...], *, smallest: int) -> int:
    """Return C of an image shape (C, H, W), having checked that the images fit the model."""
    if len(input_shape) != 3:
        hint = "; 'mlp' and 'linear' take feature vectors" if len(input_shape) == 1 else ""
        raise InputError(f"model {name!r} takes images (C, H, W), not inputs of shape {input_shape}{hint}")
    channels, height, width = input_shape
    if channels not in (1, 3):
        raise InputError(
            f"model {name!r} takes images of 1 or 3 channels, not {channels} (shape {input_shape})"
        )
    if min(height, width) < smallest:
        raise InputError(
            f"model {name!r} takes images of at least {smallest} x {smallest} pixels, not {height} x {width}"
        )
    return channels


def frozen_copy(network: Network) -> Network:
    """Return a copy that does not learn: the old network, as distillation and pseudo-labels need it."""
    return copy.deepcopy(network).eval().requires_grad_(False)


def grown(value: Tensor, like: Tensor | None) -> Tensor:
    """Return ``value`` extended by the further rows of ``like``, if that has more: a head with more classes.

    A matrix of classes by classes is extended by rows and columns.
    """
    if like is None or value.shape == like.shape:
        return value
    square = _is_square(value) and _is_square(like)
    if not square and value.shape[1:] != like.shape[1:]:
        return value
    out = like.detach().cpu().clone()
    out[(slice(len(value)),) * (2 if square else 1)] = value
    return out


def _is_square(value: Tensor) -> bool:
    return value.ndim == 2 and value.shape[0] == value.shape[1]
