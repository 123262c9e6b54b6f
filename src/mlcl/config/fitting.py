"""What fits the data where nobody has chosen: a ResNet for images, an MLP for vectors; and the recommended method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlcl.config.schema import ModelConfig
from mlcl.datasets import find_dataset, store_kind
from mlcl.datasets.base import Kind
from mlcl.errors import InputError

OF_VECTORS = ("mlp", "linear")
"""Models that take vectors; the first is the default."""


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


def with_fitting_model(layer: Mapping[str, Any], kind: Kind | None) -> dict[str, Any]:
    """Return a layer of defaults with a model that takes data of this kind.

    >>> with_fitting_model({"model": {"kind": "resnet8", "width": 16}}, "features")
    {'model': {'kind': 'mlp'}}
    >>> with_fitting_model({"model": {"kind": "resnet34"}}, "images")
    {'model': {'kind': 'resnet34'}}
    """
    chosen = layer.get("model", {}).get("kind", ModelConfig.default)
    if kind is None or (chosen in OF_VECTORS) == (kind == "features"):
        return dict(layer)
    return {**layer, "model": {"kind": OF_VECTORS[0] if kind == "features" else ModelConfig.default}}


def fixed_features(model: Mapping[str, Any], kind: Kind | None) -> bool:
    """Return whether a run has features that need no training: vectors, or those of a pre-trained encoder.

    >>> fixed_features({"kind": "mlp"}, None), fixed_features({"kind": "resnet8"}, "images")
    (True, False)
    >>> fixed_features({"kind": "mobilenetv2", "pretrained": "mobilenetv2_100.safetensors"}, "images")
    True
    """
    return kind == "features" or model["kind"] in OF_VECTORS or model.get("pretrained") not in (None, False)
