"""A small store for the sweeps of the tests."""

from __future__ import annotations

import numpy as np
import pytest

from helpers import small_arrays
from mlcl.datasets import prepare_source


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    """A store of feature vectors, so that a run takes a fraction of a second."""
    folder = tmp_path_factory.mktemp("data")
    x_train, y_train = small_arrays(n=120)
    x_test, y_test = small_arrays(n=80, seed=1)
    np.savez(folder / "tiny.npz", x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    prepare_source("arrays", folder / "tiny.npz", out=folder / "tiny")
    return folder / "tiny"
