"""Arrays with a header of JSON in one safetensors file: how taggers are saved. Reading one runs no code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save
from sklearn.base import BaseEstimator

from mlcl.errors import InputError, one_line
from mlcl.files import check_regular, is_there, require_folder, write_bytes
from mlcl.sklearn.targets import Name

KEY = "mlcl"
Arrays = Mapping[str, NDArray[Any]]


def write_arrays(path: Path, header: Mapping[str, Any], arrays: Arrays) -> None:
    """Write header and arrays with a checksum of both; whole or not at all.

    Args:
        path: the file; an existing one is replaced.
        header: plain values, among them ``format`` and ``version``.
        arrays: by name.
    """
    whole = {name: np.ascontiguousarray(value) for name, value in arrays.items()}
    content = {**header, "sha256": digest_of(header, whole)}
    write_bytes(path, save(whole, {KEY: json.dumps(content)}))


def read_header(path: Path, *, format: str, version: int, kind: str) -> dict[str, Any]:
    """Return the header of a file that `write_arrays` wrote, without reading its arrays."""
    return _read(path, format=format, version=version, kind=kind, arrays=False)[0]


def read_arrays(
    path: Path, *, format: str, version: int, kind: str
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return header and arrays of a file that `write_arrays` wrote; anything else is an `InputError`.

    Args:
        path: the file.
        format: expected in the header.
        version: expected in the header.
        kind: what the file should be one of, in words.
    """
    header, arrays = _read(path, format=format, version=version, kind=kind, arrays=True)
    if header.pop("sha256", None) != digest_of(header, arrays):
        raise InputError(f"{path} is corrupt: its checksum does not match its content.")
    return header, arrays


def _read(
    path: Path, *, format: str, version: int, kind: str, arrays: bool
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    if path.is_dir():
        raise InputError(f"{path} is a folder; expected the file of a saved tagger.")
    if not is_there(path):
        raise InputError(f"{path}: cannot be read: no such file.")
    check_regular(path)
    try:
        with safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {}).get(KEY, "null"))
            names = file.keys() if arrays else ()
            found = {name: file.get_tensor(name) for name in names}
    except Exception as error:  # the parser of an untrusted file may raise anything
        raise InputError(f"{path} is not a saved tagger, or corrupt: {one_line(error)}.") from None
    if not isinstance(header, dict) or header.get("format") != format:
        raise InputError(f"{path} is a safetensors file, but not one of {kind}.")
    if header.get("version") != version:
        raise InputError(
            f"{path} has the format version {header.get('version')!r}, but this mlcl reads {version}."
        )
    return header, found


def digest_of(header: Mapping[str, Any], arrays: Arrays) -> str:
    """Return a SHA-256 over the header, and over names, types, shapes and bytes of the arrays."""
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name, value in sorted(arrays.items()):
        digest.update(f"{name} {value.dtype} {list(value.shape)} ".encode())
        digest.update(np.ascontiguousarray(value).data)
    return digest.hexdigest()


def check_target(path: Path, *, overwrite: bool) -> None:
    """Refuse to replace a file unless that was asked for, a folder always, and a folder that does not exist."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; expected the name of a file to write")
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists already; choose another file, or pass overwrite=True")
    require_folder(path)


def tagger_header(
    format: str, version: int, params: Mapping[str, Any], classes: list[Name], feature_names: list[str] | None
) -> dict[str, Any]:
    """Return what the header of every tagger has; a ``random_state`` that is not a number is not saved."""
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in params.items()}
    state = plain.get("random_state")
    return {
        "format": format,
        "version": version,
        "params": plain | {"random_state": state if isinstance(state, int) else None},
        "classes": classes,
        "feature_names": feature_names,
    }


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Report whatever does not fit in a file, whose names, shapes and values are untrusted, as an `InputError`."""
    try:
        yield
    except KeyError as missing:
        raise InputError(f"{path} is corrupt: it has no entry {one_line(missing)}.") from None
    except Exception as error:
        raise InputError(f"{path} is corrupt: {one_line(error)}.") from None


def read_feature_names(names: Any, features: int) -> list[str] | None:
    """Check the names of features in a header."""
    if names is None:
        return None
    if not isinstance(names, list) or len(names) != features or not all(type(name) is str for name in names):
        raise InputError(f"feature_names is {names!r}; expected {features} strings, or null")
    return names


def names_of_features(tagger: BaseEstimator) -> list[str] | None:
    """Return the names of the features that a tagger was fitted on, if they had names."""
    names = getattr(tagger, "feature_names_in_", None)
    return None if names is None else list(names)


def set_features(tagger: BaseEstimator, features: int, names: list[str] | None) -> None:
    """Set number and names of the features as scikit-learn does when it fits."""
    tagger.n_features_in_ = features
    if names is not None:
        tagger.feature_names_in_ = np.array(names, dtype=object)
