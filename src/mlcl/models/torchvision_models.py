"""Classification models of torchvision (extra ``torchvision``) as backbones: ``torchvision:NAME``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from mlcl.errors import InputError, nearest
from mlcl.models.network import MODELS, image_channels
from mlcl.models.packages import (
    Fetch,
    PackageBackbone,
    PackageError,
    Weights,
    brief,
    check_resize,
    require,
    version,
)
from mlcl.models.provenance import trained_on
from mlcl.models.weight_files import fit_names, is_weight_file, read_weight_file

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and deviation that all of torchvision's classification weights want, and that a file's are taken to want."""


def list_torchvision() -> Mapping[str, str]:
    """Return the names of torchvision's classification models, each with the names of its weights."""
    models = require("torchvision", "models 'torchvision:NAME'").models
    names = models.list_models(module=models)
    return {name: f"weights: {', '.join(w.name for w in models.get_model_weights(name))}" for name in names}


@MODELS.register_family(
    "torchvision",
    members=list_torchvision,
    summary="Any classification model of torchvision; options pretrained and resize "
    "(pip install 'mlcl[torchvision]')",
)
def torchvision_backbone(
    member: str,
    input_shape: tuple[int, ...],
    *,
    pretrained: bool | str | None = None,
    resize: int | None = None,
) -> PackageBackbone:
    """Return a classification model of torchvision without its last layer.

    Arguments: ``member``, torchvision's name; ``input_shape`` (C, H, W); ``pretrained``: True for the default weights,
    the name of weights (``IMAGENET1K_V2``), or a file; ``resize``: side to which images are resized.
    """
    name = f"torchvision:{member}"
    image_channels(name, input_shape, smallest=1)
    check_resize(name, resize)
    torchvision = require("torchvision", f"model {name!r}")
    models = torchvision.models
    known = models.list_models(module=models)
    if member not in known:
        raise InputError(
            f"unknown model {name!r}: torchvision {torchvision.__version__} has no classification model of this "
            f"name.{nearest(name, [f'torchvision:{other}' for other in known])}"
        )
    side = input_shape[1] if resize is None else resize
    build = partial(_headless, models, member, side, bool(pretrained))
    try:
        module = build()
    except Exception as error:  # a size that the model cannot be built for
        raise InputError(
            f"model {name!r} cannot be built for images of {side} x {side}: {brief(error)}; model.resize changes them."
        ) from None
    fetch: Fetch | None = None
    statistics = IMAGENET
    if isinstance(pretrained, str) and is_weight_file(pretrained):
        fetch = partial(_from_file, Path(pretrained), member)
    elif pretrained:
        weights = _named_weights(models, member, pretrained)
        fetch = partial(_from_package, weights, member)
        transform = weights.transforms()
        statistics = (tuple(transform.mean), tuple(transform.std))
    return PackageBackbone(
        name,
        input_shape,
        module,
        to_map=_to_map,
        resize=resize,
        statistics=statistics if fetch else None,
        fetch=fetch,
    )


def _headless(models: Any, member: str, side: int, pretrained: bool) -> nn.Module:
    """Build a model with random weights whose last layer is taken out."""
    options: dict[str, Any] = {}
    if member in ("googlenet", "inception_v3"):  # no second classifier; with weights they renormalise inputs
        options = {"aux_logits": False, "init_weights": True, "transform_input": pretrained}
    elif member.startswith(("vit_", "maxvit")):
        options = {"image_size": side} if member.startswith("vit_") else {"input_size": (side, side)}
    module: nn.Module = models.get_model(member, weights=None, **options)
    kinds = {name: type(layer) for name, layer in module.named_modules()}
    classifiers = [name for name, kind in kinds.items() if issubclass(kind, nn.Linear)]
    # SqueezeNet classifies by a convolution.
    classifiers = classifiers or [name for name, kind in kinds.items() if issubclass(kind, nn.Conv2d)]
    parent, _, last = classifiers[-1].rpartition(".")
    setattr(module.get_submodule(parent), last, nn.Identity())
    return module


def _named_weights(models: Any, member: str, pretrained: bool | str) -> Any:
    known = models.get_model_weights(member)
    names = [weights.name for weights in known]
    if pretrained is True:
        return known.DEFAULT
    if pretrained not in names:
        raise InputError(
            f"model 'torchvision:{member}' has no weights {pretrained!r}; known are: {', '.join(names)}."
            f"{nearest(str(pretrained), names)}"
        )
    return known[str(pretrained)]


def _from_package(weights: Any, member: str, like: nn.Module) -> Weights:
    """Get published weights, from torch's cache or the network."""
    try:
        tensors = weights.get_state_dict(progress=False, check_hash=True)
    except Exception as error:  # no network, no disk, another file than expected
        raise PackageError(
            f"the weights {weights.name!r} of model 'torchvision:{member}' could not be fetched from {weights.url}: "
            f"{brief(error)}; get the file yourself and give it: --model.pretrained FILE"
        ) from None
    found, outputs = fit_names(tensors, like.state_dict(), where=weights.url, model=f"torchvision:{member}")
    provenance = _provenance(member) | {
        "weights": weights.name,
        "source": weights.url,
        "trained_on": trained_on(weights.name, weights.url.rpartition("/")[2]),
        "outputs": sorted({len(weights.meta["categories"])} if weights.meta.get("categories") else outputs),
        "licence": weights.meta.get("license"),
    }
    return Weights(found, provenance)


def _from_file(path: Path, member: str, like: nn.Module) -> Weights:
    """Read weights from a file that has torchvision's own names."""
    tensors, digest = read_weight_file(path)
    found, outputs = fit_names(tensors, like.state_dict(), where=str(path), model=f"torchvision:{member}")
    provenance = _provenance(member) | {
        "weights": path.name,
        "source": "file",
        "file_sha256": digest,
        "trained_on": trained_on(path.name),
        "outputs": outputs,
    }
    return Weights(found, provenance)


def _provenance(member: str) -> dict[str, Any]:
    return {"package": "torchvision", "version": version("torchvision"), "model": member}


def _to_map(module: nn.Module, inputs: Tensor) -> Tensor | None:
    """Return the features before pooling, of models that are a chain of layers up to ``avgpool`` (most are)."""
    names = [name for name, _ in module.named_children()]
    if "avgpool" not in names or getattr(module, "transform_input", False):
        return None
    for name in names[: names.index("avgpool")]:
        inputs = module.get_submodule(name)(inputs)
    return inputs
