"""A small problem for the tests of `mlcl.sklearn`."""

from __future__ import annotations

import numpy as np


def problem(n=240, classes=4, *, seed=0, noise=0.4):
    """Return inputs that are noisy labels, and the labels."""
    rng = np.random.default_rng(seed)
    y = (rng.random((n, classes)) < np.linspace(0.5, 0.2, classes)).astype(np.uint8)
    return (y + noise * rng.standard_normal(y.shape)).astype(np.float32), y
