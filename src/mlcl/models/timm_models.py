"""Models of timm (extra ``timm``) as backbones: ``timm:NAME``, with its own weights or those of a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import isqrt
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


def list_timm() -> Mapping[str, str]:
    """Return the names of timm's models, each with the names of its weights."""
    timm = require("timm", "models 'timm:NAME'")
    tags: dict[str, list[str]] = {name: [] for name in timm.list_models()}
    for name in timm.list_pretrained():
        architecture, _, tag = name.partition(".")
        tags.setdefault(architecture, []).append(tag)
    return {name: _told(found) for name, found in tags.items()}


def _told(tags: list[str]) -> str:
    return f"weights: {', '.join(tag or 'default' for tag in tags)}" if tags else "no weights"


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
    """Return a model of timm without its classifier.

    Arguments: ``member``, timm's name, with or without a tag (``resnet18.a1_in1k``); ``input_shape`` (C, H, W);
    ``pretrained``: True for timm's default weights, a tag, or a file; ``resize``: side to which images are resized.
    Models of a fixed input size are built for the size at hand.
    """
    name = f"timm:{member}"
    image_channels(name, input_shape, smallest=1)
    check_resize(name, resize)
    timm = require("timm", f"model {name!r}")
    architecture, _, tag = member.partition(".")
    if not timm.is_model(architecture):
        raise InputError(
            f"unknown model {name!r}: timm {timm.__version__} has none of this name."
            f"{nearest(f'timm:{architecture}', [f'timm:{known}' for known in timm.list_models()])}"
        )
    if isinstance(pretrained, str) and not is_weight_file(pretrained):
        if tag not in ("", pretrained):
            raise InputError(
                f"model {name!r} names the weights {tag!r} and model.pretrained {pretrained!r}; expected one of them"
            )
        tag = pretrained
    full = f"{architecture}.{tag}" if tag else architecture
    config = _pretrained_config(timm, full, name)
    side = input_shape[1:] if resize is None else (resize, resize)
    size = {"img_size": tuple(side)} if config.fixed_input_size else {}
    create = partial(timm.create_model, full, num_classes=0, **size)
    try:
        module = create()
    except Exception as error:  # a size that the model cannot be built for, told in timm's own way
        raise InputError(
            f"model {name!r} cannot be built for images of {side[0]} x {side[1]}: {brief(error)}; "
            f"its own size is {config.input_size[-1]}, and model.resize brings images to it."
        ) from None
    fetch: Fetch | None = None
    if isinstance(pretrained, str) and is_weight_file(pretrained):
        fetch = partial(_from_file, create, Path(pretrained), name)
    elif pretrained:
        if not config.has_weights:
            raise InputError(f"model {name!r} has no pre-trained weights in timm {timm.__version__}")
        fetch = partial(_from_package, create, config, name)
    return PackageBackbone(
        name,
        input_shape,
        module,
        to_map=_to_map,
        resize=resize,
        statistics=(tuple(config.mean), tuple(config.std)) if fetch else None,
        fetch=fetch,
    )


def _pretrained_config(timm: Any, full: str, name: str) -> Any:
    """Return what timm knows of a model's weights; an unknown tag is refused with the nearest one."""
    architecture, _, tag = full.partition(".")
    tags = [known.partition(".")[2] for known in timm.list_pretrained(f"{architecture}.*")]
    if tag and tag not in tags:
        raise InputError(
            f"model {name!r} has no weights {tag!r} in timm {timm.__version__}; known are: "
            f"{', '.join(tags) or 'none'}.{nearest(tag, tags)}"
        )
    return timm.get_pretrained_cfg(full)


def _from_package(create: Callable[..., nn.Module], config: Any, name: str, _: nn.Module) -> Weights:
    """Let timm get its weights, from its cache or the network."""
    try:
        module = create(pretrained=True)
    except Exception as error:  # no network, no such file, a hub that says no: each in a way of its own
        raise PackageError(
            f"the weights {config.tag!r} of model {name!r} could not be fetched from "
            f"{config.hf_hub_id or config.url}: {brief(error)}; get the file yourself and give it: "
            f"--model.pretrained FILE"
        ) from None
    source = f"https://huggingface.co/{config.hf_hub_id}" if config.hf_hub_id else str(config.url)
    provenance = _provenance(name) | {
        "weights": config.tag or "default",
        "source": source,
        "trained_on": trained_on(config.tag or "", source.rpartition("/")[2]),
        "outputs": [config.num_classes],
        "licence": config.license,
    }
    return Weights(module.state_dict(), provenance)


def _from_file(create: Callable[..., nn.Module], path: Path, name: str, like: nn.Module) -> Weights:
    """Read weights from a file that has timm's own names; timm fits position embeddings to the size at hand."""
    tensors, digest = read_weight_file(path)
    found, outputs = fit_names(tensors, like.state_dict(), where=str(path), model=name)
    try:
        module = create(pretrained=True, pretrained_cfg_overlay={"state_dict": found, "custom_load": False})
    except Exception as error:  # tensors of other shapes
        raise InputError(f"{path}: does not fit model {name!r}: {brief(error)}.") from None
    provenance = _provenance(name) | {
        "weights": path.name,
        "source": "file",
        "file_sha256": digest,
        "trained_on": trained_on(path.name),
        "outputs": outputs,
    }
    return Weights(module.state_dict(), provenance)


def _provenance(name: str) -> dict[str, Any]:
    architecture = name.removeprefix("timm:").partition(".")[0]
    return {"package": "timm", "version": version("timm"), "model": architecture}


def _to_map(module: Any, inputs: Tensor) -> Tensor | None:
    """Return the features before pooling as [B, C, h, w]: maps as they are, patch tokens put back in their square."""
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
