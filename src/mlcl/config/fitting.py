"""What fits the data where nobody has chosen: the model, its learning rate, and the recommended method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlcl.config.schema import ModelConfig
from mlcl.datasets import find_dataset, store_kind
from mlcl.datasets.base import Kind
from mlcl.errors import InputError

OF_VECTORS = ("mlp", "linear")
"""Models that take vectors; the first is the default."""
RATES: Mapping[Kind, float] = {"features": 0.05, "images": 0.2}
"""Learning rates of SGD where nobody has chosen one: for vectors the best over several sets on validation rows
(docs/evidence/rates.md); for images that of c-digits, which is no photograph (`warn_of_rate`)."""


def data_kind(data: str) -> Kind | None:
    """Return what the inputs of a dataset are, from its manifest alone; None if it is not there, or damaged.

    >>> data_kind("digits")
    'images'
    """
    if data == "digits":
        return "images"
    try:
        return store_kind(find_dataset(data))
    except InputError:
        return None  # whoever opens the data says what is wrong with them


def with_fitting_defaults(layer: Mapping[str, Any], kind: Kind | None) -> dict[str, Any]:
    """Return a layer of defaults with a model that takes data of this kind, and a learning rate for it.

    >>> with_fitting_defaults({"model": {"kind": "resnet8", "width": 16}, "train": {"lr": 0.2}}, "features")
    {'model': {'kind': 'mlp'}, 'train': {'lr': 0.05}}
    >>> with_fitting_defaults({"model": {"kind": "resnet34"}, "train": {"lr": 0.1}}, "images")
    {'model': {'kind': 'resnet34'}, 'train': {'lr': 0.1}}
    """
    out, train = dict(layer), layer.get("train", {})
    if kind is None:
        return out
    chosen = layer.get("model", {}).get("kind", ModelConfig.default)
    fits = (chosen in OF_VECTORS) == (kind == "features")
    if not fits:
        out["model"] = {"kind": OF_VECTORS[0] if kind == "features" else ModelConfig.default}
    if not fits or "lr" not in train:
        out["train"] = {**train, "lr": RATES[kind]}
    return out


def fixed_features(model: Mapping[str, Any], kind: Kind | None) -> bool:
    """Return whether a run has features that need no training: vectors, or those of a pre-trained encoder.

    >>> fixed_features({"kind": "mlp"}, None), fixed_features({"kind": "resnet8"}, "images")
    (True, False)
    >>> fixed_features({"kind": "mobilenetv2", "pretrained": "mobilenetv2_100.safetensors"}, "images")
    True
    """
    return kind == "features" or model["kind"] in OF_VECTORS or model.get("pretrained") not in (None, False)
