"""Frozen features: a model's embeddings of a store's images, cached as a store of feature vectors.

A comparison of methods on such a store trains only a small head, and takes minutes where images take hours. Where
the embeddings come from is written into the store, and from there into every run on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets import Dataset, StoreInfo, find_dataset, read_ids
from mlcl.datasets.writing import Chunk, Progress, one_after_the_other, prepare_features
from mlcl.engines.cluster import choose_engine
from mlcl.engines.pool import Engine, EngineFailure, Lost, Needs
from mlcl.errors import InputError
from mlcl.files import cache_dir
from mlcl.models.provenance import mark_leak
from mlcl.runs.encoders import Embedder, Recipe


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
    origin = encoder.provenance | {"of": source}
    name = data.name if store == "digits" else find_dataset(store).resolve().name
    target = cache_dir() / "stores" / f"{name}-{encoder.name}" if out is None else Path(out).expanduser()
    compute = one_after_the_other(embedder)
    if engine == "ray":
        sha256 = encoder.provenance.get("sha256")
        compute = OnNodes(workers, EmbeddingJob(recipe, sha256))
    return prepare_features(
        data,
        _ids(store, data),
        target,
        compute,
        width=encoder(data.train.inputs[:1], batch_size=1).shape[1],
        origin=origin,
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
    """Embeds ranges of rows on a node, which must find store and weights under the same names and paths.

    Attributes:
        recipe: of store and encoder.
        sha256: of the encoder's weights here.
    """

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
