"""Models of timm and torchvision (extras of these names) as backbones: ``timm:NAME`` and ``torchvision:NAME``.

They come with their own weights, or with those of a file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isqrt
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from mlcl.errors import InputError, nearest, one_line
from mlcl.models.network import MODELS
from mlcl.models.packages import (
    Fetch,
    PackageBackbone,
    PackageError,
    Weights,
    check_images,
    origin,
    package_version,
    require,
    weights_of_file,
)
from mlcl.models.provenance import Provenance, trained_on
from mlcl.models.weight_files import fit_names, is_weight_file

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and standard deviation that torchvision's classification weights expect; assumed for files as well."""


def unknown_model(package: str, member: str, known: Iterable[str], *, kind: str = "model") -> InputError:
    """Return the error for a name that a package does not have, with the nearest one that it has."""
    name = f"{package}:{member}"
    hint = nearest(name, [f"{package}:{other}" for other in known])
    return InputError(
        f"unknown model {name!r}: {package} {package_version(package)} has no {kind} of this name.{hint}"
    )


def unknown_weights(name: str, given: str, known: Sequence[str]) -> InputError:
    """Return the error for weights that a model does not have, with the nearest ones that it has."""
    package = name.partition(":")[0]
    return InputError(
        f"model {name!r} has no weights {given!r} in {package} {package_version(package)}; known are: "
        f"{', '.join(known) or 'none'}.{nearest(given, known)}"
    )


@contextlib.contextmanager
def building(name: str, height: int, width: int, *, hint: str) -> Iterator[None]:
    """Turn whatever a package raises for an image size into one sentence that ends with a hint."""
    try:
        yield
    except Exception as error:  # each package has errors of its own
        raise InputError(
            f"model {name!r} cannot be built for images of {height} x {width}: {one_line(error)}; {hint}."
        ) from None


@contextlib.contextmanager
def fetching(name: str, weights: str | None, source: str) -> Iterator[None]:
    """Turn whatever a package raises while it downloads weights into one sentence with the alternative."""
    try:
        yield
    except Exception as error:  # no network, no disk, a missing file, a wrong checksum
        raise PackageError(
            f"the weights {weights!r} of model {name!r} could not be fetched from {source}: {one_line(error)}; "
            f"get the file yourself and give it: --model.pretrained FILE"
        ) from None


def published(
    name: str, weights: str, source: str, *, outputs: Sequence[int], licence: str | None
) -> Provenance:
    """Return the provenance of weights that a package downloads."""
    return origin(name) | {
        "weights": weights,
        "source": source,
        "trained_on": trained_on(weights, source.rpartition("/")[2]),
        "outputs": list(outputs),
        "licence": licence,
    }


def list_timm() -> Mapping[str, str]:
    """Return the names of timm's models, each with the names of its weights."""
    timm = require("timm", "models 'timm:NAME'")
    tags: dict[str, list[str]] = {name: [] for name in timm.list_models()}
    for name in timm.list_pretrained():
        architecture, _, tag = name.partition(".")
        tags.setdefault(architecture, []).append(tag or "default")
    return {name: f"weights: {', '.join(found)}" if found else "no weights" for name, found in tags.items()}


@MODELS.register_family(
    "timm",
    members=list_timm,
    summary="Any image model of timm; options pretrained and resize (pip install 'mlcl[timm]')",
    reference="Wightman, PyTorch Image Models, 2019",
)
def timm_backbone(
    member: str,
    input_shape: tuple[int, ...],
    *,
    pretrained: bool | str | None = None,
    resize: int | None = None,
) -> PackageBackbone:
    """Return a model of timm without its classifier; models of a fixed input size are built for the given size.

    Args:
        pretrained: Pre-trained weights: true for the package's default, the name of published weights, or a file.
        resize: Side in pixels to which images are resized before they reach the model.
    """
    name = f"timm:{member}"
    check_images(name, input_shape, resize)
    timm = require("timm", f"model {name!r}")
    full = _timm_name(timm, member, pretrained)
    config = timm.get_pretrained_cfg(full)
    height, width = input_shape[1:] if resize is None else (resize, resize)
    size = {"img_size": (height, width)} if config.fixed_input_size else {}
    create = partial(timm.create_model, full, num_classes=0, **size)
    hint = f"its own size is {config.input_size[-1]}, and model.resize brings images to it"
    with building(name, height, width, hint=hint):
        module = create()
    fetch: Fetch | None = None
    if is_weight_file(pretrained):
        fetch = partial(_timm_file, create, name, Path(pretrained))
    elif pretrained:
        if not config.has_weights:
            raise InputError(f"model {name!r} has no pre-trained weights in timm {timm.__version__}")
        fetch = partial(_timm_package, create, name, config)
    return PackageBackbone(
        name,
        input_shape,
        module,
        to_map=_timm_map,
        resize=resize,
        statistics=(tuple(config.mean), tuple(config.std)) if fetch else None,
        fetch=fetch,
    )


def _timm_name(timm: Any, member: str, pretrained: bool | str | None) -> str:
    """Return timm's name of a model with the tag of its weights, if the user named one."""
    name = f"timm:{member}"
    architecture, _, tag = member.partition(".")
    if not timm.is_model(architecture):
        raise unknown_model("timm", architecture, timm.list_models())
    if isinstance(pretrained, str) and not is_weight_file(pretrained):
        if tag not in ("", pretrained):
            raise InputError(
                f"model {name!r} names the weights {tag!r} and model.pretrained {pretrained!r}; expected one of them"
            )
        tag = pretrained
    tags = [known.partition(".")[2] for known in timm.list_pretrained(f"{architecture}.*")]
    if tag and tag not in tags:
        raise unknown_weights(name, tag, tags)
    return f"{architecture}.{tag}" if tag else architecture


def _timm_package(create: Callable[..., nn.Module], name: str, config: Any, _: nn.Module) -> Weights:
    """Let timm load its weights, from its cache or the network."""
    with fetching(name, config.tag, config.hf_hub_id or config.url):
        module = create(pretrained=True)
    source = f"https://huggingface.co/{config.hf_hub_id}" if config.hf_hub_id else str(config.url)
    provenance = published(
        name, config.tag or "default", source, outputs=[config.num_classes], licence=config.license
    )
    return Weights(module.state_dict(), provenance)


def _timm_file(create: Callable[..., nn.Module], name: str, path: Path, like: nn.Module) -> Weights:
    """Read weights from a file; timm fits position embeddings to the input size."""
    found = weights_of_file(name, path, like)
    overlay = {"state_dict": found.tensors, "custom_load": False}
    try:
        module = create(pretrained=True, pretrained_cfg_overlay=overlay)
    except Exception as error:  # tensors of other shapes
        raise InputError(f"{path}: does not fit model {name!r}: {one_line(error)}.") from None
    return replace(found, tensors=module.state_dict())


def _timm_map(module: Any, inputs: Tensor) -> Tensor | None:
    """Return the features before pooling as [B, C, h, w]: maps unchanged, patch tokens put back in their square."""
    found: Any = module.forward_features(inputs)
    if not isinstance(found, Tensor):
        return None
    if found.ndim == 4:
        last = getattr(module, "output_fmt", "NCHW") == "NHWC"
        return found.permute(0, 3, 1, 2) if last else found
    if found.ndim == 3:
        tokens = found[:, int(getattr(module, "num_prefix_tokens", 0)) :]
        side = isqrt(tokens.shape[1])
        if side * side == tokens.shape[1]:
            return tokens.transpose(1, 2).reshape(tokens.shape[0], tokens.shape[2], side, side)
    return None


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
    name = f"torchvision:{member}"
    check_images(name, input_shape, resize)
    models = require("torchvision", f"model {name!r}").models
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
        fetch = partial(_torchvision_package, name, weights)
        transform = weights.transforms()
        statistics = (tuple(transform.mean), tuple(transform.std))
    return PackageBackbone(
        name,
        input_shape,
        module,
        to_map=_torchvision_map,
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


def _torchvision_package(name: str, weights: Any, like: nn.Module) -> Weights:
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


def _torchvision_map(module: nn.Module, inputs: Tensor) -> Tensor | None:
    """Return the features before pooling, of models that are a chain of layers up to ``avgpool`` (most are)."""
    names = [name for name, _ in module.named_children()]
    if "avgpool" not in names or getattr(module, "transform_input", False):
        return None
    for name in names[: names.index("avgpool")]:
        inputs = module.get_submodule(name)(inputs)
    return inputs
