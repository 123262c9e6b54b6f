"""Features that never change: each row is computed once, in the same batch whatever is asked for first."""

from __future__ import annotations

import numpy as np

from mlcl.training.scoring import FeatureCache


def test_a_cache_that_would_be_too_large_computes_anew():
    asked = []

    def compute(batches):
        asked.append([batch.tolist() for batch in batches])
        return np.concatenate(batches)[:, None].astype(np.float32)

    cache = FeatureCache(compute, [np.array([0, 1]), np.array([2])], rows=3, width=1, limit=8)
    for _ in range(2):
        assert cache(np.array([2, 0, 1])).ravel().tolist() == [2, 0, 1]
    assert asked == [[[2, 0], [1]]] * 2
    kept = FeatureCache(compute, [np.array([0, 1]), np.array([2])], rows=3, width=1, limit=12)
    asked.clear()
    for rows in ([1], [2, 0], [0, 1, 2]):
        assert kept(np.array(rows)).ravel().tolist() == rows
    assert asked == [[[0, 1]], [[2]]]
