"""Estimator checks that do not apply to `ExactTagger`, and real data for its tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from estimator_checks import EXCEPTIONS, NO_ZERO_ONE, ONE_D

EXACT_EXCEPTIONS = EXCEPTIONS | {
    "check_sample_weights_not_an_array": NO_ZERO_ONE,
    "check_sample_weights_shape": NO_ZERO_ONE,
    "check_sample_weights_not_overwritten": NO_ZERO_ONE,
    "check_estimator_sparse_array": ONE_D,
    "check_estimator_sparse_matrix": ONE_D,
    "check_classifier_multioutput": "predicts above 0; here every label has a threshold of its own",
}
"""Checks of scikit-learn that the exact tagger cannot pass, and why."""


def real(name: str) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Training and test rows of a prepared store, in the user's cache; skips where it is not there."""
    folder = Path.home() / ".cache/mlcl/stores" / name
    if not (folder / "manifest.json").is_file():
        pytest.skip(f"the prepared store {folder} is not here")
    train = json.loads((folder / "manifest.json").read_text())["train"]
    rows, labels = (np.load(folder / file) for file in ("inputs.npy", "labels.npy"))
    return rows[:train], labels[:train], rows[train:], labels[train:]
