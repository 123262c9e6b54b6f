"""What the files of all taggers share: their header, and the checks of what is read from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from mlcl.errors import InputError, one_line
from mlcl.files import require_folder
from mlcl.sklearn.targets import Name


def check_target(path: Path, *, overwrite: bool) -> None:
    """Refuse to replace a file unless that was asked for, a folder always, and a folder that does not exist."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; expected the name of a file to write")
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists already; choose another file, or pass overwrite=True")
    require_folder(path)


def tagger_header(
    params: Mapping[str, Any], classes: list[Name], feature_names: list[str] | None
) -> dict[str, Any]:
    """Return what the header of every tagger has; a ``random_state`` that is not a number is not saved."""
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in params.items()}
    state = plain.get("random_state")
    return {
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
