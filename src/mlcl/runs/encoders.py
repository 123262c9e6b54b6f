"""Encoders: frozen networks that embed images, from a model by name or a finished run."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mlcl._version import __version__
from mlcl.datasets import Dataset, load_dataset
from mlcl.errors import InputError
from mlcl.files import slug
from mlcl.models import Network, build_model, fast_layout
from mlcl.models.provenance import Provenance, images_of
from mlcl.models.weight_files import tensors_sha256
from mlcl.runs.folder import read_data_record
from mlcl.runs.trained import load_trained
from mlcl.seeds import torch_generator
from mlcl.training.batches import Normaliser, RowInputs
from mlcl.training.scoring import Scorer


@dataclass(frozen=True)
class Encoder:
    """A frozen network that embeds images.

    Attributes:
        name: what it is called in the name of a store.
        network: in evaluation mode; its head is not used.
        normaliser: how raw images become the network's inputs.
        provenance: model, weights, what they were trained on, and the SHA-256 of all of them.
    """

    name: str
    network: Network
    normaliser: Normaliser
    provenance: Provenance

    def __call__(self, inputs: NDArray[Any], *, batch_size: int) -> NDArray[np.float32]:
        """Return the embeddings [n, D] of raw images, uint8 [n, C, H, W]."""
        return Scorer(self.network, self.normaliser, batch_size)(self.network.features, inputs)


@dataclass(frozen=True)
class Recipe:
    """All that determines the features of a store, by names and paths, so that another process can make them.

    Attributes:
        store: the folder or name of a store of images, or ``digits``.
        model: a name of `mlcl.models.MODELS`, or the folder of a finished run.
        pretrained: weights of the model.
        resize: side to which images are resized for the model.
        batch_size: images embedded at once.
        seed: of random weights.
    """

    store: str
    model: str
    pretrained: bool | str | None = None
    resize: int | None = None
    batch_size: int = 32
    seed: int = 0

    def open(self) -> Embedder:
        """Load the store and the encoder."""
        if self.batch_size < 1:
            raise InputError(
                f"batch_size is {self.batch_size}, but a whole number of at least 1 was expected"
            )
        data = load_dataset(self.store)
        if data.kind != "images":
            raise InputError(
                f"{self.store} holds feature vectors already, but a store of images was expected"
            )
        if not Path(self.model).is_dir():
            options = {"pretrained": self.pretrained, "resize": self.resize, "seed": self.seed}
            return Embedder(self, data, model_encoder(self.model, data, **options))  # type: ignore[arg-type]
        if self.pretrained is not None or self.resize is not None:
            raise InputError(
                f"{self.model} is a run with weights of its own, so no pretrained or resize was expected"
            )
        return Embedder(self, data, run_encoder(Path(self.model), data))


@dataclass(frozen=True)
class Embedder:
    """A store and an encoder, ready to embed rows.

    Attributes:
        recipe: of what they are.
        data: the store.
        encoder: the encoder.
    """

    recipe: Recipe
    data: Dataset
    encoder: Encoder

    def __call__(self, start: int, stop: int) -> NDArray[np.float32]:
        """Return the features of the rows ``start`` to ``stop - 1``, training rows first."""
        parts = (self.data.train.inputs, self.data.test.inputs)
        split = len(parts[0])
        pieces = [parts[0][start:stop], parts[1][max(start - split, 0) : max(stop - split, 0)]]
        size = self.recipe.batch_size
        found = np.concatenate([self.encoder(piece, batch_size=size) for piece in pieces if len(piece)])
        if not np.isfinite(found).all():
            row = start + int((~np.isfinite(found)).any(1).argmax())
            raise InputError(
                f"{self.recipe.model} gives features that are no finite numbers for row {row} of "
                f"{self.recipe.store}"
            )
        return found


def model_encoder(
    model: str,
    data: Dataset,
    *,
    pretrained: bool | str | None = None,
    resize: int | None = None,
    seed: int = 0,
) -> Encoder:
    """Return a model by name, with its pre-trained weights or, with a warning, random ones."""
    shape = data.train.inputs.shape[1:]
    network = build_model(model, shape, 1, seed=seed, pretrained=pretrained, resize=resize)
    backbone = network.backbone
    # Statistics of all training images would leak images of later tasks into the first.
    normaliser = Normaliser.fit(data.train, normalise=False)
    random: Provenance = {"model": model, "weights": None, "seed": seed}
    if backbone.fits:
        network.eval()
        backbone.fit(
            RowInputs(data.train.inputs, np.arange(len(data.train)), normaliser),
            generator=torch_generator(seed, "fit"),
            mirror="flip" in data.augmentation,
        )
        random["weights"] = "learnt from the images of the training split, without labels"
    elif backbone.provenance is None:
        warnings.warn(f"model {model!r} has random weights; its features are a random map.", stacklevel=5)
    random["sha256"] = tensors_sha256(backbone.state_dict())
    provenance = (backbone.provenance or random) | {
        "resize": resize,
        "normalised": "as the weights want" if backbone.normalises else "to [0, 1]",
    }
    weights = Path(pretrained).stem if isinstance(pretrained, str) else ""
    name = weights if weights.startswith(model) else "-".join(filter(None, (model, weights)))
    return _placed(slug(name), network, normaliser, provenance)


def run_encoder(folder: Path, data: Dataset) -> Encoder:
    """Return the backbone of a finished run."""
    trained = load_trained(folder)
    shape = data.train.inputs.shape[1:]
    if shape != trained.input_shape:
        raise InputError(
            f"{data.name} has images of shape {shape}, but {folder} was trained on {trained.input_shape}"
        )
    network = trained.network
    before = network.backbone.provenance or {}
    learnt = read_data_record(folder)
    name = str(learnt.get("name"))
    provenance: Provenance = {
        "package": "mlcl",
        "version": __version__,
        "model": trained.config.model.kind,
        "weights": folder.resolve().name,
        "source": "run",
        "trained_on": [*before.get("trained_on", []), images_of(name) or name],
        "outputs": [len(trained.classes)],
        "sha256": tensors_sha256(network.backbone.state_dict()),
        "data": learnt.get("fingerprint"),
    }
    return _placed(slug(folder.resolve().name), network, trained.normaliser, provenance)


def _placed(name: str, network: Network, normaliser: Normaliser, provenance: Provenance) -> Encoder:
    """Put a network where it is fast: on the GPU if there is one, in the layout of its convolutions."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    layout = fast_layout(network, learns=False)
    network.to(device).to(memory_format=layout)  # type: ignore[call-overload]
    network.eval().requires_grad_(False)
    return Encoder(name, network, replace(normaliser, layout=layout).to(device), provenance)
