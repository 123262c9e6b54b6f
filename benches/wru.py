"""WRU, exact over all rows, beside the published procedure."""

from __future__ import annotations

from functools import partial

import numpy as np

from benches.problems import is_real, tasks_of
from benches.rivals import wru_by_candidates
from benches.timing import Row, best, faster, limit, once
from mlcl.labels import LabelCounts, Patterns
from mlcl.memories import select_wru, wru_gap


def measure(*, quick: bool) -> list[Row]:
    """Time the made-up task against the published procedure, and the largest real ones against a limit."""
    n, size = (2_000, 100) if quick else (20_000, 1_000)
    rng = np.random.default_rng(0)
    labels = (rng.random((n, 10)) < np.geomspace(0.4, 0.02, 10)).astype(np.uint8)
    job = {"ours": partial(select_wru, labels, size)}
    before = best(job, repeats=20)["ours"]
    seconds, chosen = once(partial(wru_by_candidates, labels, size, rng))
    ours = min(before, best(job, repeats=20)["ours"])  # theirs takes seconds, in which a busy moment may pass
    counts = LabelCounts.of(labels)
    mine, theirs = (wru_gap(counts, labels[rows]) for rows in (select_wru(labels, size), chosen))
    assert mine <= theirs
    note = f"gap J: ours {mine:.2g}, theirs {theirs:.2g}"
    shape = f"n {n:,}, K 10, M {size:,}"
    rows = [faster("WRU, exact", shape, ours, "published procedure, 200 candidates", seconds, 1000, note)]
    for name, title in (("coco2017", "COCO"), ("nuswide", "NUS-WIDE")):
        task = max(tasks_of(name), key=len)
        ours = best({"ours": partial(select_wru, task.labels, 2000)}, repeats=5)["ours"]
        made = "" if is_real(name) else ", made up"
        shape = f"{title}'s largest task{made}: n {len(task):,}, K {len(task.classes)}, M 2,000"
        note = f"{len(Patterns.of(task.labels)):,} label patterns"
        rows.append(limit("WRU, exact", shape, ours, 0.2, "s", note))
    return rows
