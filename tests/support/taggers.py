"""A small problem and taggers fitted to it, for the tests of `mlcl.sklearn`."""

from __future__ import annotations

import numpy as np

from mlcl.sklearn import ContinualTagger

SMALL = {
    "model": "mlp",
    "hidden": 16,
    "depth": 1,
    "memory_size": 40,
    "random_state": 0,
    "epochs": 4,
    "batch_size": 32,
    "lr": 0.05,
    "weight_decay": 1e-5,
}


def problem(n=240, classes=4, *, seed=0, noise=0.4):
    """Return inputs that are noisy labels, and the labels."""
    rng = np.random.default_rng(seed)
    y = (rng.random((n, classes)) < np.linspace(0.5, 0.2, classes)).astype(np.uint8)
    return (y + noise * rng.standard_normal(y.shape)).astype(np.float32), y


def fitted(*, calls=2, **params):
    """Return a tagger after some calls, each with two new classes."""
    x, y = problem()
    tagger = ContinualTagger(**SMALL | params)
    for call in range(calls):
        tagger.partial_fit(x, y[:, 2 * call : 2 * call + 2], classes=[f"c{2 * call}", f"c{2 * call + 1}"])
    return tagger
