"""Backbones of other packages (extras), which are imported when a model is requested by name and not before.

`PackageBackbone` adapts a model of another package, or one of ours with a layout from there (`mobilenet`): grey images
are repeated to three channels, images are resized if ``resize`` is given, and with pre-trained weights inputs are
normalised as those weights expect.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from mlcl.errors import InputError, one_line
from mlcl.models.network import Backbone, image_channels, seeded
from mlcl.models.provenance import Provenance, trained_on, with_checksum
from mlcl.models.weight_files import check_finite, fit_names, read_weight_file, tensors_sha256

MAX_SIDE = 4096


class PackageError(InputError):
    """A package that a model needs is missing or cannot be imported, or its weights cannot be fetched."""


def require(package: str, what: str) -> Any:
    """Import a package of an extra; if that fails, the error names what needs it (``what``) and what to install."""
    if importlib.util.find_spec(package) is None:
        raise PackageError(
            f"{what}: {package} is not installed; install it with: pip install 'mlcl[{package}]'"
        )
    # timm imports torchvision, and it is torchvision that breaks: so it is imported, and named in the error, first.
    for name in dict.fromkeys(("torchvision", package)):
        try:
            module = importlib.import_module(name)
        except Exception as error:  # a library built for another torch may raise anything
            hint = (
                f": it is built for another torch than {torch.__version__}; install the two that belong together, "
                f"see https://pytorch.org/get-started"
            )
            raise PackageError(
                f"{what}: {name} {package_version(name)} cannot be imported ({one_line(error)})"
                f"{hint if name == 'torchvision' else '.'}"
            ) from None
    return module


def package_version(package: str) -> str:
    """Return the version of an installed package, or ``(not installed)``."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


@dataclass(frozen=True)
class Weights:
    """Pre-trained weights for a backbone: its tensors by name, and their provenance."""

    tensors: dict[str, Tensor]
    provenance: Provenance


Fetch = Callable[[nn.Module], Weights]
"""Returns the pre-trained weights for a model that is passed with random weights."""


class PackageBackbone(Backbone):
    """A model of another package as a backbone. Its weights are random until `load_pretrained`.

    Args:
        module: maps images of 3 channels to vectors [B, width].
        to_map: takes the module and images, and returns a feature map [B, width, h, w], or None where there is none.
        statistics: mean and standard deviation of inputs in [0, 1] that the pre-trained weights expect; None without
            such weights.
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
        # Part of the weights, so that a run that is loaded or resumed does not need the package's metadata.
        for part, values in zip(("mean", "std"), statistics or ((0.0,) * 3, (1.0,) * 3), strict=True):
            self.register_buffer(part, torch.tensor(values, dtype=torch.float32).view(1, 3, 1, 1))
        self.register_buffer(
            "draws", torch.cat([torch.randint(2**31, (1,)), torch.zeros(1, dtype=torch.int64)])
        )
        self.kind = "vector"
        self.width = self._probe(2).shape[1]

    def _probe(self, ndim: int) -> Tensor:
        """Return the model's output for one image of zeros; an `InputError` if it cannot process such images."""
        training = self.training
        self.eval()
        try:
            with torch.no_grad():
                found: Any = self(torch.zeros(1, *self.input_shape))
        except Exception as error:  # another package's code: whatever it raises, these images do not fit
            raise InputError(
                f"model {self.name!r} does not take {self._images()}: {one_line(error)}."
            ) from None
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
        """Return feature maps instead of vectors from now on, if the model has them."""
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
        """Let dropout and similar layers draw from a generator of this step; no other random numbers change.

        Seed and number of the step are a buffer, so a resumed run draws the same numbers as an uninterrupted one. With
        several processes each draws for its own rows.
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
        """Return images as the model expects them: three channels, its size, its normalisation."""
        if inputs.shape[1] == 1:
            inputs = inputs.expand(-1, 3, -1, -1)
        if self.resize is not None:
            smaller = self.resize < max(inputs.shape[2:])
            inputs = F.interpolate(
                inputs, (self.resize, self.resize), mode="bilinear", align_corners=False, antialias=smaller
            )
        return (inputs - self.mean) / self.std if self.normalises else inputs

    def load_pretrained(self) -> None:
        """Load the pre-trained weights, which are downloaded if they are not cached, and set their provenance."""
        if self.fetch is None:
            return
        # A package draws random weights before it loads its own: no other random numbers may change. What it prints
        # while it downloads must not reach stdout.
        with seeded(0), contextlib.redirect_stdout(sys.stderr):
            found = self.fetch(self.model)
        state = self.model.state_dict()
        for name, value in found.tensors.items():
            if name in state and value.shape != state[name].shape:
                raise InputError(
                    f"the weights {found.provenance['weights']!r} do not fit model {self.name!r}: {name!r} has shape "
                    f"{tuple(value.shape)}, expected {tuple(state[name].shape)}."
                )
        self.model.load_state_dict(found.tensors, strict=False)  # all there: batch counters may be absent
        self.provenance = with_checksum(found.provenance, tensors_sha256(self.model.state_dict()))


def check_images(name: str, input_shape: tuple[int, ...], resize: int | None, *, smallest: int = 1) -> None:
    """Refuse images that a model does not take, where ``resize`` does not bring them to a size that it takes."""
    if resize is not None and not smallest <= resize <= MAX_SIDE:
        raise InputError(f"resize is {resize}; expected {smallest} to {MAX_SIDE}")
    image_channels(name, input_shape, smallest=smallest if resize is None else 1)


def weights_of_file(name: str, path: Path, like: nn.Module) -> Weights:
    """Read weights from a file that has the package's own names of tensors."""
    tensors, digest = read_weight_file(path)
    found, outputs = fit_names(tensors, like.state_dict(), where=str(path), model=name)
    check_finite(found, where=str(path))
    return Weights(
        found,
        origin(name)
        | {
            "weights": path.name,
            "source": "file",
            "file_sha256": digest,
            "trained_on": trained_on(path.name),
            "outputs": outputs,
        },
    )


def origin(name: str) -> Provenance:
    """Return package, version and model of a name such as ``timm:resnet18.a1_in1k``, or of a model of our own."""
    package, _, member = name.partition(":") if ":" in name else ("mlcl", "", name)
    return {"package": package, "version": package_version(package), "model": member.partition(".")[0]}
