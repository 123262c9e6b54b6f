"""Frozen features: a model's embeddings of a store's images, cached as a store of feature vectors.

A comparison of methods on such a store trains only a small head, and takes minutes where images take hours. Where
the embeddings come from is written into the store, and from there into every run on it.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal

from mlcl.datasets import Dataset, StoreInfo, find_dataset, read_ids
from mlcl.datasets.computing import prepare_features
from mlcl.datasets.writing import Progress, one_after_the_other
from mlcl.files import cache_dir
from mlcl.models.provenance import mark_leak
from mlcl.runs.encoders import Recipe
from mlcl.runs.features_ray import embed_on_ray
from mlcl.training.cluster import check_engine


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
    check_engine(jobs=jobs, engine=engine, address=address)
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
        compute = partial(embed_on_ray, recipe, sha256=sha256, jobs=jobs, address=address)
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


def _ids(store: str, data: Dataset) -> list[str]:
    """Return the names of all rows; those of the embedded dataset are numbers."""
    if store != "digits":
        return read_ids(find_dataset(store))
    splits = (("train", len(data.train)), ("test", len(data.test)))
    return [f"{split}-{row}" for split, count in splits for row in range(count)]
