"""Real data for the tests of the exact learner."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from mlcl.datasets import load_dataset
from mlcl.models.patches import patches


@cache
def digit_patches() -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Training and test rows of the embedded digits as label-free patch features."""
    data = load_dataset("digits")
    train, test = (torch.from_numpy(np.asarray(part.inputs)) / 255 for part in (data.train, data.test))
    encoder = patches(tuple(train.shape[1:]), centres=100, dimensions=200)
    encoder.fit(train, generator=torch.Generator().manual_seed(0), mirror=False)
    with torch.no_grad():
        return encoder(train).numpy(), data.train.labels, encoder(test).numpy(), data.test.labels


def real(name: str) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Training and test rows of a prepared store in the cache (skips where it is not there), or of the digits."""
    if name == "digits":
        return digit_patches()
    folder = Path.home() / ".cache/mlcl/stores" / name
    if not (folder / "manifest.json").is_file():
        pytest.skip(f"the prepared store {folder} is not here")
    train = json.loads((folder / "manifest.json").read_text())["train"]
    rows, labels = (np.load(folder / file) for file in ("inputs.npy", "labels.npy"))
    return rows[:train], labels[:train], rows[train:], labels[train:]
