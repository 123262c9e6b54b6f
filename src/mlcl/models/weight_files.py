"""Weights in files: read without running code, and fitted to a model by the names of their tensors."""

from __future__ import annotations

import hashlib
import pickle
import re
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

import torch
from torch import Tensor

from mlcl.arrays import ENDING, read_foreign
from mlcl.errors import InputError
from mlcl.files import file_sha256

SUFFIXES = (ENDING, ".pth", ".pt", ".bin")
_EXPECTED = "expected tensors by name, as safetensors or torch.save(model.state_dict(), FILE) write them"
_ZIP = b"PK\x03\x04"
_WRAPPERS = ("state_dict", "model", "model_state_dict", "state_dict_ema", "net")
_PREFIXES = ("", "backbone.", "backbone.body.", "encoder.")


def is_weight_file(pretrained: bool | str | None) -> TypeGuard[str]:
    """Return whether a value of ``model.pretrained`` names a file, and not weights of a package."""
    return isinstance(pretrained, str) and (pretrained.lower().endswith(SUFFIXES) or "/" in pretrained)


def read_weight_file(path: Path) -> tuple[dict[str, Tensor], str]:
    """Return the tensors of a file by name, and the SHA-256 of the file.

    A ``.safetensors`` file, or one of ``torch.save``, which is read with ``weights_only=True``: no code in it can run.
    What training scripts wrap around them (``state_dict``, ``model``, ``module.``) is removed.
    """
    digest = file_sha256(path)
    try:
        content = _content(path)
    except Exception as error:  # the parser of an untrusted file: whatever it raises, the file is bad
        raise InputError(
            f"{path}: holds no weights that can be read without running code: {_reason(path, error)}; {_EXPECTED}."
        ) from None
    if not isinstance(content, Mapping):
        raise InputError(f"{path}: holds one value of type {type(content).__name__}; {_EXPECTED}.")
    while wrapped := [key for key in _WRAPPERS if isinstance(content.get(key), Mapping)]:
        content = content[wrapped[0]]
    tensors = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
    if not tensors:
        raise InputError(f"{path}: holds no tensors; {_EXPECTED}.")
    return {name.removeprefix("module."): value for name, value in tensors.items()}, digest


def _content(path: Path) -> Any:
    """Return what a file holds, read without running code."""
    if path.suffix.lower() == ENDING:
        return read_foreign(path)
    with warnings.catch_warnings():
        # Of files that it refuses in the next moment.
        warnings.filterwarnings("ignore", "Detected pickle protocol")
        return torch.load(path, map_location="cpu", weights_only=True)


def _reason(path: Path, error: Exception) -> str:
    """Return why a file could not be read. What torch says is of its own insides, or advice to run the code."""
    with path.open("rb") as file:
        head = file.read(4)
    if not head:
        return "it is empty"
    if path.suffix.lower() == ENDING:
        return "it is cut short, or not in the format of safetensors"
    if head == _ZIP and not zipfile.is_zipfile(path):
        return "it is cut short: the end of the archive that torch.save writes is missing"
    needed = re.search(r"GLOBAL ([\w.]{1,80})", str(error))
    if isinstance(error, pickle.UnpicklingError) and needed:
        return f"it holds objects of code ({needed[1]}) besides tensors"
    return "it is cut short, or not in the format of torch.save"


def check_finite(tensors: Mapping[str, Tensor], *, where: str) -> None:
    """Refuse weights with which no network gives scores."""
    for name, value in tensors.items():
        bad = 0 if not value.is_floating_point() else int((~value.isfinite()).sum())
        if bad:
            raise InputError(
                f"{where}: {bad} of {value.numel()} values of {name!r} are no finite numbers; expected weights "
                "without NaN and infinity."
            )


def fit_names(
    tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor], *, where: str, model: str
) -> tuple[dict[str, Tensor], list[int]]:
    """Return the tensors that a backbone needs, and the number of outputs of each layer that it does not need.

    The latter are classifiers: their outputs hint at what the weights were trained on. Batch counters may be missing.
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
