"""Test rows of a run that never was, for the page of one run."""

from __future__ import annotations

import numpy as np

from mlcl.reports.examine import Examined


def examined(n=60, classes=4, seed=0, **changes):
    """Labels with probabilities that are mostly right."""
    rng = np.random.default_rng(seed)
    labels = (rng.random((n, classes)) < 0.3).astype(np.uint8)
    values = {
        "where": "somewhere",
        "classes": tuple("abcdefgh"[:classes]),
        "positive": np.arange(classes),
        "ids": [f"id{i}" for i in range(n)],
        "inputs": rng.integers(0, 256, (n, 3, 16, 16), dtype=np.uint8),
        "places": np.arange(n),
        "labels": labels,
        "probabilities": np.clip(0.4 * labels + 0.6 * rng.random((n, classes)), 0, 1),
        "thresholds": np.linspace(0.3, 0.6, classes),
    }
    return Examined(**(values | changes))
