"""Optimising class distribution in memory (Liang and Li, 2022): drop what brings the label distribution to its target.

See specification.md#ocdm.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from mlcl.errors import check_choice, check_int, check_number
from mlcl.labels import Labels, Patterns
from mlcl.memories.base import MEMORIES, TaskSamples

Distance = Literal["kl", "l1"]
_SMOOTH = 1e-8


@MEMORIES.register(
    "ocdm",
    summary="Drops, batch by batch, the samples that bring the label distribution nearest to n_i^rho.",
    reference="Liang and Li, Optimizing Class Distribution in Memory for Multi-Label Online CL, 2022",
)
def update_ocdm(
    stored: tuple[TaskSamples, ...],
    new: TaskSamples,
    size: int,
    rng: np.random.Generator,
    *,
    batch_size: int = 128,
    distance: Distance = "kl",
    rho: float = 0.0,
) -> tuple[TaskSamples, ...]:
    """Offer the rows of the task in random batches; drop the overflow of each one sample at a time.

    The target ``p_i`` is proportional to ``n_i^rho`` over the classes seen so far, the current batch
    included; stream counts of past tasks are the positives in their stored constants. With ``q_i = l_i /
    sum_j l_j`` after a removal, the sample removed is the one that leaves the least ``KL(p || q + 1e-8)``
    (``distance="l1"``: ``sum_i |p_i - q_i|``). Removal looks at label patterns; equally good patterns (up
    to rounding): the task that came first, then the first label vector in lexicographic order. Within a
    pattern the sample is drawn at random. Samples without labels go first.

    Args:
        batch_size: Samples offered at once; in a run, the rows of a training batch.
        distance: The distance between the wanted distribution of labels and that in the memory.
        rho: The power of the wanted label counts, proportional to n_i^rho with n_i the positives so far; 0 means equal.
    """
    check_int("batch_size", batch_size, 1)
    check_choice("distance", distance, get_args(Distance))
    check_number("rho", rho, low=-10, high=10)  # far beyond 10, powers of counts overflow
    tasks = (*stored, new)
    classes = np.unique(np.concatenate([samples.classes for samples in tasks]))
    seen = np.zeros(len(classes), dtype=np.int64)
    rows: list[Labels] = []
    ids: list[NDArray[np.int64]] = []
    for samples in tasks:
        columns = np.searchsorted(classes, samples.classes)
        if samples is not new:
            seen[columns] += samples.counts.positive
        patterns = Patterns.of(samples.labels)
        wide = np.zeros((len(patterns.vectors), len(classes)), dtype=np.uint8)
        wide[:, columns] = patterns.vectors
        ids.append(patterns.inverse + sum(len(block) for block in rows))
        rows.append(wide)
    order = rng.permutation(len(new))
    ids[-1] = ids[-1][order]
    held = ocdm_pass(
        np.concatenate(rows), np.concatenate(ids), len(ids[-1]), seen, size, rng,
        batch_size=batch_size, distance=distance, rho=rho,
    )  # fmt: skip
    *old, fresh = np.split(held, np.cumsum([len(samples) for samples in stored]))
    kept = [samples.take(np.flatnonzero(part)) for samples, part in zip(stored, old, strict=True)]
    return (*kept, new.take(order[fresh]))


def ocdm_pass(
    rows: Labels,
    ids: NDArray[np.int64],
    offered: int,
    seen: NDArray[np.int64],
    size: int,
    rng: np.random.Generator,
    *,
    batch_size: int = 128,
    distance: Distance = "kl",
    rho: float = 0.0,
) -> NDArray[np.bool_]:
    """Run OCDM over a stream of label patterns and return which samples are held at the end.

    Args:
        rows: Label patterns over all classes ``[U, K]``.
        ids: Pattern of each sample ``[m + n]``: first the ``m`` held ones, then those of the stream in
            their order.
        offered: How many of ``ids`` are the stream, ``n``.
        seen: Stream counts of the classes before the pass ``[K]``.
    """
    removal = _Removal(rows, distance)
    held = np.zeros(len(ids), dtype=bool)
    pools: list[list[int]] = [[] for _ in rows]  # samples held of each pattern
    seen = seen.copy()
    start = len(ids) - offered
    firsts = range(start, len(ids), batch_size)
    for first, last in [(0, start), *((i, min(i + batch_size, len(ids))) for i in firsts)]:
        batch = ids[first:last]
        held[first:last] = True
        for sample, pattern in enumerate(batch.tolist(), start=first):
            pools[pattern].append(sample)
        labels = rows[batch].sum(axis=0, dtype=np.int64)
        removal.add(batch, labels)
        if first >= start:
            seen += labels
        overflow = removal.held - size
        if overflow <= 0:
            continue
        power = np.where(seen > 0, np.maximum(seen, 1.0) ** rho, 0.0)
        picks = removal.remove(overflow, power / max(power.sum(), 1e-300))
        for pattern, draw in zip(picks, rng.random(overflow), strict=True):
            pool = pools[pattern]
            position = int(draw * len(pool))
            pool[position], pool[-1] = pool[-1], pool[position]
            held[pool.pop()] = False
    return held


class _Removal:
    """Counts of label patterns, and the greedy removal over them.

    After removing a pattern with ``w`` labels, class ``k`` has ``l_k - y_k`` of ``sum l - w`` labels. So for
    each ``w`` a class has two possible costs, and the distance after removing a pattern is ``sum_k
    cost_w(l_k) + sum_{k in pattern} (cost_w(l_k - 1) - cost_w(l_k))``: a table of sizes times classes, whose
    last column holds the first sum, and for each pattern a short sum over entries of the table.
    """

    def __init__(self, rows: Labels, distance: Distance) -> None:
        self.rows = rows
        self.width = rows.sum(axis=1, dtype=np.int64)
        self.distance = distance
        self.held = 0
        self.left = np.zeros(len(rows), dtype=np.int64)
        self.live = np.zeros(0, dtype=np.int64)  # the patterns of which something is left, in their order
        self.inside = np.zeros(rows.shape[1])  # l_k

    def add(self, batch: NDArray[np.int64], labels: NDArray[np.int64]) -> None:
        """Take in samples: the pattern of each, and how many labels of each class they have together."""
        patterns, counts = np.unique(batch, return_counts=True)
        self.left[patterns] += counts
        self.live = np.union1d(self.live, patterns)
        self.held += len(batch)
        self.inside += labels

    def remove(self, steps: int, p: NDArray[np.float64]) -> list[int]:
        """Remove ``steps`` samples one at a time and return their patterns; ``p`` is the target ``[K]``."""
        picks: list[int] = []
        self.held -= steps
        for pattern in self.live[self.width[self.live] == 0].tolist():
            here = min(steps - len(picks), int(self.left[pattern]))
            self.left[pattern] -= here
            picks += [pattern] * here
        # Which entries of the table are the labels of which pattern, among the patterns that are there.
        live = self.live[self.width[self.live] > 0]
        sizes, group = np.unique(self.width[live], return_inverse=True)
        pattern_of, column = np.nonzero(np.column_stack([self.rows[live], np.ones(len(live), np.uint8)]))
        entries = group[pattern_of] * (len(p) + 1) + column
        starts = np.searchsorted(pattern_of, np.arange(len(live)))
        # About 10 microseconds per step, most of it the cost of calling numpy: so all arrays and views of
        # arrays are made once and changed in place.
        closed = np.zeros(len(live))
        labels = (self.inside.sum() - sizes)[:, None]  # sum l - w for each size w
        counts = np.stack([self.inside, np.maximum(self.inside - 1.0, 0.0)])[:, None, :]
        fewer = counts[1]
        cost = np.empty((2, len(sizes), len(p)))
        same, less = cost
        table = np.empty((len(sizes), len(p) + 1))
        change, total, flat = table[:, :-1], table[:, -1], table.reshape(-1)
        minus_p = -p
        for _ in range(steps - len(picks)):
            # q after the removal; where no label would be left the counts are 0, and so is q.
            np.divide(counts, labels if labels[-1, 0] > 0 else np.maximum(labels, 1.0), out=cost)
            if self.distance == "kl":
                cost += _SMOOTH
                np.log(cost, out=cost)
                cost *= minus_p  # KL(p || q) without its constant term sum_k p_k log p_k
            else:
                cost -= p
                np.abs(cost, out=cost)
            np.subtract(less, same, out=change)
            np.add.reduce(same, axis=1, out=total)
            score = np.add.reduceat(flat.take(entries), starts)
            score += closed
            # The first pattern that is best up to rounding: the choice does not depend on the order of a sum.
            best = int((score <= score[score.argmin()] + 1e-12).argmax())
            pattern = int(live[best])
            counts -= self.rows[pattern]
            np.maximum(fewer, 0.0, out=fewer)
            labels -= self.width[pattern]
            self.left[pattern] -= 1
            if self.left[pattern] == 0:
                closed[best] = np.inf
            picks.append(pattern)
        self.inside = counts[0, 0].copy()
        self.live = self.live[self.left[self.live] > 0]
        return picks
