"""Classification models of torchvision (extra ``torchvision``) as backbones: ``torchvision:NAME``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from mlcl.models.network import MODELS
from mlcl.models.packages import (
    Fetch,
    PackageBackbone,
    Weights,
    building,
    fetching,
    open_package,
    published,
    require,
    unknown_model,
    unknown_weights,
    weights_of_file,
)
from mlcl.models.weight_files import fit_names, is_weight_file

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and standard deviation that torchvision's classification weights expect; assumed for files as well."""


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
    """Return a classification model of torchvision without its last layer."""
    name, torchvision = open_package("torchvision", member, input_shape, resize)
    models = torchvision.models
    known = models.list_models(module=models)
    if member not in known:
        raise unknown_model("torchvision", member, known, kind="classification model")
    side = input_shape[1] if resize is None else resize
    with building(name, side, side, hint="model.resize changes their size"):
        module = _headless(models, member, side, bool(pretrained))
    fetch: Fetch | None = None
    statistics = IMAGENET
    if is_weight_file(pretrained):
        fetch = partial(weights_of_file, name, Path(pretrained))
    elif pretrained:
        weights = _named_weights(models, member, pretrained)
        fetch = partial(_from_package, name, weights)
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
    """Build a model with random weights and replace its last layer by the identity."""
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
    if pretrained is True:
        return known.DEFAULT
    names = [weights.name for weights in known]
    if pretrained not in names:
        raise unknown_weights(f"torchvision:{member}", str(pretrained), names)
    return known[str(pretrained)]


def _from_package(name: str, weights: Any, like: nn.Module) -> Weights:
    """Load published weights, from torch's cache or the network."""
    with fetching(name, weights.name, weights.url):
        tensors = weights.get_state_dict(progress=False, check_hash=True)
    found, outputs = fit_names(tensors, like.state_dict(), where=weights.url, model=name)
    categories = weights.meta.get("categories")
    provenance = published(
        name,
        weights.name,
        weights.url,
        outputs=[len(categories)] if categories else outputs,
        licence=weights.meta.get("license"),
    )
    return Weights(found, provenance)


def _to_map(module: nn.Module, inputs: Tensor) -> Tensor | None:
    """Return the features before pooling, of models that are a chain of layers up to ``avgpool`` (most are)."""
    names = [name for name, _ in module.named_children()]
    if "avgpool" not in names or getattr(module, "transform_input", False):
        return None
    for name in names[: names.index("avgpool")]:
        inputs = module.get_submodule(name)(inputs)
    return inputs
