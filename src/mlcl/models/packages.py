"""Backbones of other packages (extras): imported when asked for by name, never before.

`PackageBackbone` makes a model of timm or torchvision one of ours: grey images are repeated to three channels, images
are resized if that is wanted, and with pre-trained weights inputs are normalised as those weights are used to.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from mlcl.errors import InputError
from mlcl.models.network import Backbone, image_channels, seeded
from mlcl.models.provenance import Provenance
from mlcl.models.weight_files import tensors_sha256


class PackageError(InputError):
    """A package that a model needs is not there, or cannot be imported."""


def require(package: str, what: str) -> Any:
    """Import a package of an extra, or say in one sentence what to do; ``what`` is what needs it."""
    if importlib.util.find_spec(package) is None:
        raise PackageError(
            f"{what}: {package} is not installed; install it with: pip install 'mlcl[{package}]'"
        )
    # They import torchvision, and it is torchvision that breaks: so it is imported, and blamed, first.
    for name in dict.fromkeys(("torchvision", package)):
        try:
            module = importlib.import_module(name)
        except Exception as error:  # a library for another torch fails in ways of its own
            hint = (
                f": it is built for another torch than {torch.__version__}; install the two that belong together, "
                f"see https://pytorch.org/get-started"
            )
            raise PackageError(
                f"{what}: {name} {version(name)} cannot be imported ({brief(error)})"
                f"{hint if name == 'torchvision' else '.'}"
            ) from None
    return module


def version(package: str) -> str:
    """Return the version of an installed package, or ``(not installed)``.

    >>> version("no-such-package")
    '(not installed)'
    """
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def brief(error: Exception) -> str:
    """Return what somebody else's error says, in part of a sentence.

    >>> brief(RuntimeError("Error(s) in loading state_dict for Net:\\n\\tsize mismatch for w."))
    'Error(s) in loading state_dict for Net: size mismatch for w'
    """
    return (" ".join(str(error).split())[:200] or type(error).__name__).rstrip(".")


@dataclass(frozen=True)
class Weights:
    """Pre-trained weights, ready for a backbone: its tensors by name, and where they come from."""

    tensors: dict[str, Tensor]
    provenance: Provenance


Fetch = Callable[[nn.Module], Weights]
"""Gets the weights for a model, given as it is, with random ones."""


class PackageBackbone(Backbone):
    """A model of another package as a backbone. Its weights are random until `load_pretrained`.

    Arguments: ``name``, as a user gave it; ``input_shape`` (C, H, W); ``module`` maps images of 3 channels to vectors
    [B, width]; ``to_map`` takes the module and images, and gives a feature map [B, width, h, w], or None where the
    model has none; ``resize``: side to which images are resized; ``statistics``: mean and deviation of inputs in
    [0, 1] that the pre-trained weights want, None without such weights; ``fetch`` gets the weights.
    """

    mean: Tensor
    std: Tensor
    draws: Tensor

    def __init__(
        self,
        name: str,
        input_shape: tuple[int, ...],
        module: nn.Module,
        *,
        to_map: Callable[[Any, Tensor], Tensor | None],
        resize: int | None,
        statistics: tuple[tuple[float, ...], tuple[float, ...]] | None,
        fetch: Fetch | None,
    ) -> None:
        super().__init__()
        image_channels(name, input_shape, smallest=1)
        self.name, self.input_shape, self.resize = name, input_shape, resize
        self.model, self.to_map, self.fetch = module, to_map, fetch
        self.normalises = statistics is not None
        # Part of the weights: a run that is loaded or resumed needs no package's metadata for them.
        for part, values in zip(("mean", "std"), statistics or ((0.0,) * 3, (1.0,) * 3), strict=True):
            self.register_buffer(part, torch.tensor(values, dtype=torch.float32).view(1, 3, 1, 1))
        self.register_buffer(
            "draws", torch.cat([torch.randint(2**31, (1,)), torch.zeros(1, dtype=torch.int64)])
        )
        self.kind = "vector"
        self.width = self._probe(2).shape[1]

    def _probe(self, ndim: int) -> Tensor:
        """Return what the model makes of one image of zeros, or say why it cannot."""
        training = self.training
        self.eval()
        try:
            with torch.no_grad():
                found: Any = self(torch.zeros(1, *self.input_shape))
        except Exception as error:  # other people's code: whatever it trips over, these images do not fit
            raise InputError(f"model {self.name!r} does not take {self._images()}: {brief(error)}.") from None
        finally:
            self.train(training)
        if not isinstance(found, Tensor) or found.ndim != ndim or min(found.shape) < 1:
            what = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            shape = "a feature vector" if ndim == 2 else "a feature map"
            raise InputError(f"model {self.name!r} gives {what} for an image; expected {shape}.")
        return found

    def _images(self) -> str:
        shape = " x ".join(map(str, self.input_shape))
        if self.resize is not None:
            return f"images of {shape} resized to {self.resize} x {self.resize}"
        return f"images of {shape} (model.resize would make them larger)"

    def use_map(self) -> bool:
        """Give a feature map instead of vectors from now on, if the model has one."""
        self.kind = "map"
        try:
            found = self._probe(4)
        except InputError:
            self.kind = "vector"
            return False
        self.width, self.sides = found.shape[1], (found.shape[2], found.shape[3])
        return True

    def map_size(self, input_shape: tuple[int, ...]) -> tuple[int, int]:
        """Return the height and width of the feature map."""
        if input_shape != self.input_shape:
            raise InputError(f"model {self.name!r} was built for {self.input_shape}, not for {input_shape}")
        return self.sides

    def forward(self, inputs: Tensor) -> Tensor:
        """Map images [B, C, H, W] to vectors [B, width], or to a feature map [B, width, h, w]."""
        with self._own_draws(inputs.device) if self.training else contextlib.nullcontext():
            images = self._prepared(inputs)
            features: Any = self.to_map(self.model, images) if self.kind == "map" else self.model(images)
        return features  # type: ignore[no-any-return]

    @contextlib.contextmanager
    def _own_draws(self, device: torch.device) -> Iterator[None]:
        """Let dropout and its kin draw from a generator of this step; all other random numbers stay as they were.

        Seed and number of the step are a buffer, so a resumed run draws what a run in one go does. Of several
        processes each draws for its own rows.
        """
        others = [dist.get_rank()] if dist.is_initialized() and dist.get_rank() > 0 else []
        entropy = [*self.draws.tolist(), *others]
        seed = int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0])
        self.draws[1] += 1
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.default_generator.manual_seed(seed)
            if device.type == "cuda":
                torch.cuda.manual_seed(seed)
            yield

    def _prepared(self, inputs: Tensor) -> Tensor:
        """Return images as the model wants them: three channels, its size, its normalisation."""
        if inputs.shape[1] == 1:
            inputs = inputs.expand(-1, 3, -1, -1)
        if self.resize is not None:
            smaller = self.resize < max(inputs.shape[2:])
            inputs = F.interpolate(
                inputs, (self.resize, self.resize), mode="bilinear", align_corners=False, antialias=smaller
            )
        return (inputs - self.mean) / self.std if self.normalises else inputs

    def load_pretrained(self) -> None:
        """Get the pre-trained weights, by network if they are not at hand, and note where they come from."""
        if self.fetch is None:
            return
        # A package draws random weights before it loads its own: nobody else's numbers may change. What it prints
        # while it downloads is no output of ours.
        with seeded(0), contextlib.redirect_stdout(sys.stderr):
            found = self.fetch(self.model)
        try:
            self.model.load_state_dict(found.tensors, strict=False)  # all there: batch counters may be absent
        except RuntimeError as error:
            weights = found.provenance["weights"]
            raise InputError(
                f"the weights {weights!r} do not fit model {self.name!r}: {brief(error)}."
            ) from None
        self.provenance = found.provenance | {"sha256": tensors_sha256(self.model.state_dict())}


def check_resize(name: str, resize: int | None) -> None:
    """Refuse sides that no image has.

    >>> check_resize("timm:resnet18", 0)
    Traceback (most recent call last):
    ...
    mlcl.errors.InputError: resize of model 'timm:resnet18' is 0, expected 1 to 4096
    """
    if resize is not None and not 1 <= resize <= 4096:
        raise InputError(f"resize of model {name!r} is {resize}, expected 1 to 4096")
