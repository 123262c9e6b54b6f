"""What is measured after each task."""

from __future__ import annotations

import numpy as np

from mlcl import Benchmark
from mlcl.training.evaluation import Evaluations


def test_what_is_measured_again_replaces_the_last_row_of_every_table():
    rng = np.random.default_rng(0)
    labels = (rng.random((40, 4)) < 0.4).astype(np.uint8)
    inputs = rng.random((40, 2)).astype(np.float32)
    stream = Benchmark.from_arrays(inputs, labels, inputs, labels, tasks=2, seed=0)
    first, wrong, right = (rng.standard_normal((40, 4)) for _ in range(3))
    found, expected = Evaluations(), Evaluations()
    for measured, last in ((found, wrong), (expected, right)):
        measured.add(first, stream, learnt=1)
        measured.add(last, stream, learnt=2)
    assert found != expected
    found.measure_again(right, stream, threshold=0.5)
    for name, table in expected.tables().items():
        assert np.array_equal(found.tables()[name], table, equal_nan=True)
    assert found.pooled[-1] == expected.pooled[-1]
    assert len(found.pooled) == 2
