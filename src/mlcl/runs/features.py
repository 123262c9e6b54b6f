"""Frozen features: a model's embeddings of a store's images, cached as a store of feature vectors.

A comparison of methods on such a store trains only a small head, and takes minutes where images take hours. Where
the embeddings come from is written into the store, and from there into every run on it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from mlcl._version import __version__
from mlcl.datasets import Dataset, StoreInfo, find_dataset, load_dataset, read_ids
from mlcl.datasets.writing import Chunk, Progress, one_after_the_other, prepare_features
from mlcl.engines.cluster import choose_engine
from mlcl.engines.pool import Engine, EngineFailure, Lost, Needs
from mlcl.errors import InputError
from mlcl.files import cache_dir, slug
from mlcl.models import Network, build_model, fast_layout
from mlcl.models.provenance import Provenance, images_of, mark_leak
from mlcl.models.weight_files import tensors_sha256
from mlcl.runs.folder import read_data_record
from mlcl.runs.trained import load_trained
from mlcl.seeds import torch_generator
from mlcl.training.batches import Normaliser, RowInputs
from mlcl.training.scoring import Scorer


@dataclass(frozen=True)
class ImageEncoder:
    """A frozen network that embeds images: its name in that of a store, and where it comes from."""

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

    The fields are those of `embed_store`.
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
            return Embedder(self, data, _model_encoder(self, data))
        if self.pretrained is not None or self.resize is not None:
            raise InputError(
                f"{self.model} is a run with weights of its own, so no pretrained or resize was expected"
            )
        return Embedder(self, data, _run_encoder(Path(self.model), data))


@dataclass(frozen=True)
class Embedder:
    """A store and an encoder, ready to embed rows."""

    recipe: Recipe
    data: Dataset
    encoder: ImageEncoder

    def __call__(self, start: int, stop: int) -> NDArray[np.float32]:
        """Return the features of the rows ``start`` to ``stop - 1``, training rows first."""
        train, test = self.data.train.inputs, self.data.test.inputs
        pieces = [train[start:stop], test[max(start - len(train), 0) : max(stop - len(train), 0)]]
        size = self.recipe.batch_size
        found = np.concatenate([self.encoder(piece, batch_size=size) for piece in pieces if len(piece)])
        if not np.isfinite(found).all():
            row = start + int((~np.isfinite(found)).any(1).argmax())
            raise InputError(
                f"{self.recipe.model} gives features that are no finite numbers for row {row} of "
                f"{self.recipe.store}"
            )
        return found


def _model_encoder(recipe: Recipe, data: Dataset) -> ImageEncoder:
    """Return a model by name, with its pre-trained weights or, with a warning, random ones."""
    model, seed, pretrained, resize = recipe.model, recipe.seed, recipe.pretrained, recipe.resize
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
        warnings.warn(f"model {model!r} has random weights; its features are a random map.", stacklevel=4)
    random["sha256"] = tensors_sha256(backbone.state_dict())
    provenance = (backbone.provenance or random) | {
        "resize": resize,
        "normalised": "as the weights want" if backbone.normalises else "to [0, 1]",
    }
    weights = Path(pretrained).stem if isinstance(pretrained, str) else ""
    name = weights if weights.startswith(model) else "-".join(filter(None, (model, weights)))
    return _placed(name, network, normaliser, provenance)


def _run_encoder(folder: Path, data: Dataset) -> ImageEncoder:
    """Return the backbone of a finished run."""
    trained = load_trained(folder)
    shape = data.train.inputs.shape[1:]
    if shape != trained.input_shape:
        raise InputError(
            f"{data.name} has images of shape {shape}, but {folder} was trained on {trained.input_shape}"
        )
    backbone, learnt = trained.network.backbone, read_data_record(folder)
    name, before = str(learnt.get("name")), backbone.provenance or {}
    provenance: Provenance = {
        "package": "mlcl",
        "version": __version__,
        "model": trained.config.model.kind,
        "weights": folder.resolve().name,
        "source": "run",
        "trained_on": [*before.get("trained_on", []), images_of(name) or name],
        "outputs": [len(trained.classes)],
        "sha256": tensors_sha256(backbone.state_dict()),
        "data": learnt.get("fingerprint"),
    }
    return _placed(folder.resolve().name, trained.network, trained.normaliser, provenance)


def _placed(name: str, network: Network, normaliser: Normaliser, provenance: Provenance) -> ImageEncoder:
    """Put a network where it is fast: on the GPU if there is one, in the layout of its convolutions."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    layout = fast_layout(network, learns=False)
    network.to(device).to(memory_format=layout)  # type: ignore[call-overload]
    network.eval().requires_grad_(False)
    return ImageEncoder(slug(name), network, replace(normaliser, layout=layout).to(device), provenance)


def embed_store(
    store: str,
    model: str,
    *,
    out: str | Path | None = None,
    pretrained: bool | str | None = None,
    resize: int | None = None,
    batch_size: int = 32,
    seed: int = 0,
    engine: Literal["local", "ray"] = "local",
    jobs: int | None = None,
    address: str | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> StoreInfo:
    """Write the embeddings of a store's images to a new store, which every command takes as data.

    Interrupted or killed, the same call continues where it was; a finished store is not made again.

    Args:
        store: the folder or name of a store of images, or ``digits``.
        model: a name of `mlcl.models.MODELS`, such as ``timm:resnet18``, or the folder of a finished run.
        out: the folder to make; in the cache, by names of store and model, if not given.
        pretrained: weights of the model: a file, or for a package's model also True or their name; random ones if not
            given.
        resize: side to which images are resized for the model.
        batch_size: images embedded at once; more than a few dozen do not fit the caches of a CPU.
        seed: of random weights.
        engine: this process, or the nodes of a Ray cluster, each with an encoder of its own.
        jobs: encoders on Ray; one per GPU of the cluster, or per core, if not given.
        address: of a Ray cluster; one is started on this machine if not given.
        overwrite: replace a store of other content.
        progress: called with rows done and rows in all.
    """
    workers = choose_engine(engine, jobs=jobs, address=address)
    recipe = Recipe(store, model, pretrained, resize, batch_size, seed)
    embedder = recipe.open()
    data, encoder = embedder.data, embedder.encoder
    mark_leak(encoder.provenance, data=(data.name,), classes=len(data.classes), fingerprint=data.fingerprint)
    source = {"name": data.name, "fingerprint": data.fingerprint}
    name = data.name if store == "digits" else find_dataset(store).resolve().name
    target = cache_dir() / "stores" / f"{name}-{encoder.name}" if out is None else Path(out).expanduser()
    compute = one_after_the_other(embedder)
    if engine == "ray":
        compute = OnNodes(workers, EmbeddingJob(recipe, encoder.provenance.get("sha256")))
    return prepare_features(
        data,
        _ids(store, data),
        target,
        compute,
        width=encoder(data.train.inputs[:1], batch_size=1).shape[1],
        origin=encoder.provenance | {"of": source},
        also={
            "image_size": list(data.train.inputs.shape[2:]),
            "of": source
            | {"options": dict(data.options)},  # which labels these are: difficult objects, crowds
        },
        step=batch_size,
        overwrite=overwrite,
        progress=progress,
    )


@dataclass(frozen=True)
class EmbeddingJob:
    """Embeds ranges of rows on a node, which must find store and weights under the same names and paths."""

    recipe: Recipe
    sha256: str | None

    def __call__(self, chunk: Chunk) -> NDArray[np.float32]:
        """Return the features of a range of rows."""
        embedder = _opened(self.recipe)
        if embedder.encoder.provenance.get("sha256") != self.sha256:
            raise InputError(
                f"a node has other weights of {self.recipe.model} than this machine; expected the same files on all "
                "nodes"
            )
        return embedder(*chunk)


@lru_cache(maxsize=1)
def _opened(recipe: Recipe) -> Embedder:
    """Load store and encoder once per process."""
    try:
        return recipe.open()
    except InputError as error:
        raise InputError(f"a node cannot load what this machine can: {error}") from None


@dataclass(frozen=True)
class OnNodes:
    """Computes ranges of rows on an engine, in any order."""

    engine: Engine
    job: EmbeddingJob

    def __call__(self, ranges: Sequence[Chunk]) -> Iterator[tuple[Chunk, NDArray[np.float32]]]:
        """Yield ranges with their features."""
        needs = Needs(gpu=True)
        with closing(self.engine.each(self.job, ranges, attempts=3, needs=lambda _: needs)) as stream:
            for chunk, found in stream:
                if isinstance(found, Lost):
                    raise EngineFailure(
                        f"rows {chunk[0]} to {chunk[1]} could not be embedded: {found.reason}"
                    )
                yield chunk, found


def _ids(store: str, data: Dataset) -> list[str]:
    """Return the names of all rows; those of the embedded dataset are numbers."""
    if store != "digits":
        return read_ids(find_dataset(store))
    splits = (("train", len(data.train)), ("test", len(data.test)))
    return [f"{split}-{row}" for split, count in splits for row in range(count)]
