"""A hundred thousand labels: learnt from a sparse matrix, the ten best found for new rows, and the peak memory.

A subject of its own, because the peak is that of its process.
"""

from __future__ import annotations

import resource
import warnings

import numpy as np

from benches.exact import tags
from benches.timing import Row, limit, once, told
from mlcl.sklearn import ExactTagger

BATCH, TOP = 20_000, 10


def measure(*, quick: bool) -> list[Row]:
    """Learn batch by batch, solve, and rank the labels of new rows block by block."""
    n, d, classes, new = (2_000, 64, 500, 256) if quick else (100_000, 1_024, 100_000, 2_048)
    rng = np.random.default_rng(0)
    warnings.simplefilter("ignore", UserWarning)  # not every label has a row

    def batches() -> ExactTagger:
        tagger = ExactTagger(form="shared")
        for start in range(0, n, BATCH):
            rows = rng.standard_normal((min(BATCH, n - start), d), dtype=np.float32)
            tagger.partial_fit(rows, tags(len(rows), classes, 5, rng))
        return tagger

    learning, tagger = once(batches)
    solving, _ = once(lambda: tagger.coef_)
    rows = rng.standard_normal((new, d), dtype=np.float32)
    ranking, _ = once(lambda: tagger.predict_top(rows, TOP))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    size = f"{classes:,} labels, d {d}, shared form"
    return [
        told(
            "exact: learning sparse labels",
            f"{n:,} rows, 5 of {size}",
            learning,
            f"sums of {tagger.nbytes_ / 1e9:.2g} GB",
        ),
        told("exact: solving, ridge chosen", size, solving),
        told(f"exact: the {TOP} best labels", f"{new:,} rows, {size}", ranking),
        limit("exact: peak memory of learning, solving and ranking", size, peak, 8.0, "GB"),
    ]
