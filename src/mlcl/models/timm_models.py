"""Models of timm (extra ``timm``) as backbones: ``timm:NAME``, with its own weights or those of a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import isqrt
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from mlcl.errors import InputError, one_line
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
from mlcl.models.weight_files import is_weight_file


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
    name, timm = open_package("timm", member, input_shape, resize)
    full = _full_name(timm, member, pretrained)
    config = timm.get_pretrained_cfg(full)
    height, width = input_shape[1:] if resize is None else (resize, resize)
    size = {"img_size": (height, width)} if config.fixed_input_size else {}
    create = partial(timm.create_model, full, num_classes=0, **size)
    hint = f"its own size is {config.input_size[-1]}, and model.resize brings images to it"
    with building(name, height, width, hint=hint):
        module = create()
    fetch: Fetch | None = None
    if is_weight_file(pretrained):
        fetch = partial(_from_file, create, name, Path(pretrained))
    elif pretrained:
        if not config.has_weights:
            raise InputError(f"model {name!r} has no pre-trained weights in timm {timm.__version__}")
        fetch = partial(_from_package, create, name, config)
    return PackageBackbone(
        name,
        input_shape,
        module,
        to_map=_to_map,
        resize=resize,
        statistics=(tuple(config.mean), tuple(config.std)) if fetch else None,
        fetch=fetch,
    )


def _full_name(timm: Any, member: str, pretrained: bool | str | None) -> str:
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


def _from_package(create: Callable[..., nn.Module], name: str, config: Any, _: nn.Module) -> Weights:
    """Let timm load its weights, from its cache or the network."""
    with fetching(name, config.tag, config.hf_hub_id or config.url):
        module = create(pretrained=True)
    source = f"https://huggingface.co/{config.hf_hub_id}" if config.hf_hub_id else str(config.url)
    provenance = published(
        name, config.tag or "default", source, outputs=[config.num_classes], licence=config.license
    )
    return Weights(module.state_dict(), provenance)


def _from_file(create: Callable[..., nn.Module], name: str, path: Path, like: nn.Module) -> Weights:
    """Read weights from a file; timm fits position embeddings to the input size."""
    found = weights_of_file(name, path, like)
    overlay = {"state_dict": found.tensors, "custom_load": False}
    try:
        module = create(pretrained=True, pretrained_cfg_overlay=overlay)
    except Exception as error:  # tensors of other shapes
        raise InputError(f"{path}: does not fit model {name!r}: {one_line(error)}.") from None
    return replace(found, tensors=module.state_dict())


def _to_map(module: Any, inputs: Tensor) -> Tensor | None:
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
