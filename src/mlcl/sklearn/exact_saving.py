"""An exact tagger as one safetensors file: arrays, and JSON in its header. Files are untrusted; no code is loaded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save

from mlcl.errors import InputError, one_line
from mlcl.exact import Learner
from mlcl.files import require_folder, write_bytes
from mlcl.sklearn.targets import Name, check_names

FORMAT, VERSION = "mlcl-exact-tagger", 1
KEY = "mlcl"


def write_exact(
    path: Path,
    learner: Learner,
    *,
    params: Mapping[str, Any],
    classes: list[Name],
    feature_names: list[str] | None,
    overwrite: bool,
) -> None:
    """Write a tagger; a failure leaves no partial file."""
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists already; choose another file, or pass overwrite=True")
    require_folder(path)
    arrays = {name: np.ascontiguousarray(value) for name, value in learner.arrays().items()}
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in params.items()}
    state = plain.get("random_state")
    header = {
        "format": FORMAT,
        "version": VERSION,
        "params": plain | {"random_state": state if isinstance(state, int) else None},
        "classes": classes,
        "feature_names": feature_names,
    }
    header["sha256"] = _digest(header, arrays)
    write_bytes(path, save(arrays, {KEY: json.dumps(header)}))


def read_exact(path: Path) -> tuple[Learner, dict[str, Any], list[Name], list[str] | None]:
    """Return the state, the parameters, the class names and the feature names of a saved tagger."""
    if not path.is_file():
        raise InputError(f"{path}: cannot be read: no such file.")
    try:
        with safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {}).get(KEY, "null"))
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (no mapping)
    except Exception as error:  # the parser of an untrusted file may raise anything
        raise InputError(f"{path} is not a saved tagger, or corrupt: {one_line(error)}.") from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise InputError(f"{path} is a safetensors file, but not one of an ExactTagger.")
    if header.get("version") != VERSION:
        raise InputError(
            f"{path} has the format version {header.get('version')!r}, but this mlcl reads {VERSION}."
        )
    if header.pop("sha256", None) != _digest(header, arrays):
        raise InputError(f"{path} is corrupt: its checksum does not match its content.")
    try:
        return _restore(header, arrays)
    except KeyError as missing:
        raise InputError(f"{path} is corrupt: it has no entry {one_line(missing)}.") from None
    except Exception as error:  # names, shapes and values come from a file
        raise InputError(f"{path} is corrupt: {one_line(error)}.") from None


def _restore(
    header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> tuple[Learner, dict[str, Any], list[Name], list[str] | None]:
    """Rebuild a tagger from untrusted values; whatever does not fit raises an error."""
    classes = check_names(header["classes"], "classes", [])
    learner = Learner.from_arrays(arrays)
    if learner.classes != len(classes):
        raise InputError(f"the sums have {learner.classes} classes; expected {len(classes)}")
    names, features = header["feature_names"], learner.features.features
    if names is not None and (
        not isinstance(names, list) or len(names) != features or not all(type(name) is str for name in names)
    ):
        raise InputError(f"feature_names is {names!r}; expected {features} strings, or null")
    return learner, dict(header["params"]), classes, names


def _digest(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return a SHA-256 over the header, and over names, types, shapes and bytes of the arrays."""
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name, value in sorted(arrays.items()):
        digest.update(f"{name} {value.dtype} {list(value.shape)} ".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    return digest.hexdigest()
