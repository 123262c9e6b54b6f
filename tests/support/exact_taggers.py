"""Real data for the tests of the exact learner."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from data import shared_data
from mlcl.datasets import load_dataset, prepare_source
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


@cache
def real(name: str) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Training and test rows of a file of the shared real data (skips where that is not there), or of the digits."""
    if name == "digits":
        return digit_patches()
    source = next((shared_data() / "arff").glob(f"{name.capitalize()}.arff*"))
    with tempfile.TemporaryDirectory(prefix="mlcl-test-") as place:
        data = load_dataset(str(prepare_source("arff", source, out=Path(place) / name, jobs=1).path))
        parts = [np.array(part) for half in (data.train, data.test) for part in (half.inputs, half.labels)]
    return parts[0], parts[1], parts[2], parts[3]
