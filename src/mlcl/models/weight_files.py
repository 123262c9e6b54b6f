"""Weights in files: read without running code, and fitted to a model by the names of their tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

import torch
from torch import Tensor

from mlcl.errors import InputError, one_line

SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")
_WRAPPERS = ("state_dict", "model", "model_state_dict", "state_dict_ema", "net")
_PREFIXES = ("", "backbone.", "backbone.body.", "encoder.")


def is_weight_file(pretrained: bool | str | None) -> TypeGuard[str]:
    """Return whether a value of ``model.pretrained`` names a file, and not weights of a package.

    >>> is_weight_file("weights/resnet18.safetensors"), is_weight_file("a1_in1k"), is_weight_file(True)
    (True, False, False)
    """
    return isinstance(pretrained, str) and (pretrained.lower().endswith(SUFFIXES) or "/" in pretrained)


def read_weight_file(path: Path) -> tuple[dict[str, Tensor], str]:
    """Return the tensors of a file by name, and the SHA-256 of the file.

    A ``.safetensors`` file, or one of ``torch.save``, which is read with ``weights_only=True``: no code in it can run.
    What training scripts wrap around them (``state_dict``, ``model``, ``module.``) is removed.
    """
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}.") from None
    try:
        if path.suffix.lower() == ".safetensors":
            from safetensors.torch import load_file

            content: Any = load_file(path)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
        while isinstance(content, Mapping) and (inner := _inner(content)) is not None:
            content = inner
        tensors = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
    except Exception as error:  # the parser of an untrusted file: whatever it raises, the file is bad
        raise InputError(
            f"{path}: holds no weights that can be read without running code: {one_line(error)}."
        ) from None
    if not tensors:
        raise InputError(f"{path}: holds no tensors; expected weights by name, as {', '.join(SUFFIXES)}.")
    return {name.removeprefix("module."): value for name, value in tensors.items()}, digest


def _inner(content: Mapping[Any, Any]) -> Mapping[Any, Any] | None:
    """Return what a training script wrapped, or None if nothing is wrapped."""
    return next((content[key] for key in _WRAPPERS if isinstance(content.get(key), Mapping)), None)


def fit_names(
    tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor], *, where: str, model: str
) -> tuple[dict[str, Tensor], list[int]]:
    """Return the tensors that a backbone needs, and the number of outputs of each layer that it does not need.

    The latter are classifiers: their outputs hint at what the weights were trained on. Batch counters may be missing.

    >>> t = torch.zeros
    >>> fit_names({"backbone.conv": t(2), "fc.weight": t(80, 2)}, {"conv": t(2)}, where="x.pth", model="net")
    ({'conv': tensor([0., 0.])}, [80])
    >>> fit_names({"fc.weight": t(80, 2)}, {"conv": t(2)}, where="x.pth", model="net")
    Traceback (most recent call last):
    ...
    mlcl.errors.InputError: x.pth: does not fit model 'net': 1 of its 1 tensors are missing, the first is 'conv'; of the
    1 in the file 1 are not expected, the first is 'fc.weight'.
    """
    needed = [name for name in wanted if not name.endswith("num_batches_tracked")]
    prefix = next((p for p in _PREFIXES if all(f"{p}{name}" in tensors for name in needed)), None)
    if prefix is None:
        missing = [name for name in needed if name not in tensors]
        unknown = [name for name in tensors if name not in wanted]
        other = (
            f"; of the {len(tensors)} in the file {len(unknown)} are not expected, the first is {unknown[0]!r}"
            if unknown
            else ""
        )
        raise InputError(
            f"{where}: does not fit model {model!r}: {len(missing)} of its {len(wanted)} tensors are missing, "
            f"the first is {missing[0]!r}{other}."
        )
    found = {name: tensors[f"{prefix}{name}"] for name in wanted if f"{prefix}{name}" in tensors}
    taken = {f"{prefix}{name}" for name in found}
    others = [value for name, value in tensors.items() if name not in taken and value.ndim > 0]
    return found, sorted({len(value) for value in others})


def tensors_sha256(tensors: Mapping[str, Tensor]) -> str:
    """Return a SHA-256 over names, types, shapes and values, whatever file they came from.

    >>> a = {"w": torch.ones(2), "b": torch.zeros(1)}
    >>> tensors_sha256(a) == tensors_sha256(dict(reversed(a.items()))), tensors_sha256(a)[:8]
    (True, 'fbc1397f')
    """
    digest = hashlib.sha256()
    for name in sorted(tensors):
        value = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(
            value.reshape(-1).view(torch.uint8).numpy().tobytes()
            if value.ndim
            else repr(value.item()).encode()
        )
    return digest.hexdigest()
