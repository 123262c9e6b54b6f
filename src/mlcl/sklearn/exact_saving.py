"""An exact tagger as one safetensors file: arrays, and JSON in its header. Files are untrusted; no code is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from mlcl.arrays import Format
from mlcl.config.schema import upgraded
from mlcl.errors import InputError
from mlcl.exact import Learner
from mlcl.sklearn.array_files import (
    check_target,
    read_feature_names,
    reading,
    tagger_header,
)
from mlcl.sklearn.targets import Name, check_names

TAGGERS = Format("mlcl-exact-tagger", 1, what="an ExactTagger")
_BESIDE = "beside."


@dataclass(frozen=True, eq=False)
class Beside:
    """What else a program keeps in the file of a tagger, written and replaced together with it.

    Attributes:
        header: plain values.
        arrays: by name.
    """

    header: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]


def write_exact(
    path: Path,
    learner: Learner,
    *,
    params: Mapping[str, Any],
    classes: list[Name],
    feature_names: list[str] | None,
    overwrite: bool,
    beside: Beside | None = None,
) -> None:
    """Write a tagger; a failure leaves no partial file."""
    check_target(path, overwrite=overwrite)
    arrays = learner.arrays()
    header = tagger_header(params, classes, feature_names)
    if beside is not None:
        header["beside"] = dict(beside.header)
        arrays |= {_BESIDE + name: value for name, value in beside.arrays.items()}
    TAGGERS.write(path, arrays, header)


def read_exact(path: Path) -> tuple[Learner, dict[str, Any], list[Name], list[str] | None]:
    """Return the state, the parameters, the class names and the feature names of a saved tagger."""
    return read_exact_beside(path)[:4]


def read_exact_header(path: Path) -> dict[str, Any]:
    """Return the header of a saved tagger alone; anything else is an `InputError`."""
    return TAGGERS.read_header(path)


def read_exact_beside(
    path: Path,
) -> tuple[Learner, dict[str, Any], list[Name], list[str] | None, Beside | None]:
    """Return what `read_exact` does, and what else was written into the file."""
    header, arrays = TAGGERS.read(path)
    with reading(path):
        return (*_restore(header, arrays), _read_beside(header, arrays))


def _restore(
    header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> tuple[Learner, dict[str, Any], list[Name], list[str] | None]:
    """Rebuild a tagger from untrusted values; whatever does not fit raises an error."""
    classes = check_names(header["classes"], "classes", [])
    learner = Learner.from_arrays(arrays)
    if learner.classes != len(classes):
        raise InputError(f"the sums have {learner.classes} classes; expected {len(classes)}")
    names = read_feature_names(header["feature_names"], learner.features.features)
    params = upgraded(header["params"])
    params.setdefault("form", "full")  # of version 0.1
    return learner, params, classes, names


def _read_beside(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Beside | None:
    if not isinstance(header.get("beside"), dict):
        return None
    found = {name.removeprefix(_BESIDE): value for name, value in arrays.items() if name.startswith(_BESIDE)}
    return Beside(header["beside"], found)
