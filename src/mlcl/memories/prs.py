"""Partitioning reservoir sampling (Kim et al., ECCV 2020): label counts in memory follow a partition.

See specification.md#prs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mlcl.errors import check_number
from mlcl.labels import Labels
from mlcl.memories.base import MEMORIES, TaskSamples

# Counts are compared with products of floats (l_i with p_i sum l): equal up to this is equal.
_EQUAL = 1e-9
_CHUNK = 8192


@MEMORIES.register(
    "prs",
    summary="Partitioning reservoir sampling: memory label counts proportional to n_i^rho.",
    reference="Kim et al., Imbalanced Continual Learning with Partitioning Reservoir Sampling, ECCV 2020",
)
def update_prs(
    stored: tuple[TaskSamples, ...],
    new: TaskSamples,
    size: int,
    rng: np.random.Generator,
    *,
    rho: float = 0.0,
) -> tuple[TaskSamples, ...]:
    """Offer the rows of the task once, in random order, to the memory (`prs_pass`).

    The stream counts ``n_i`` of past tasks are the positives in their stored constants. With ``rho`` 0 every class is
    wanted equally often; the authors use -0.03 on COCO and 0.02 on NUS-WIDE.

    Args:
        rho: The power of the wanted label counts, proportional to n_i^rho with n_i the positives so far; 0 means equal.
    """
    check_number("rho", rho, low=-10, high=10)  # far beyond 10, powers of counts overflow
    tasks = (*stored, new)
    classes = np.unique(np.concatenate([samples.classes for samples in tasks]))
    columns = [np.searchsorted(classes, samples.classes) for samples in tasks]
    sizes = [len(samples) for samples in stored]
    memory = np.zeros((sum(sizes), len(classes)), dtype=np.uint8)
    seen = np.zeros(len(classes), dtype=np.int64)
    stop = np.cumsum(sizes, dtype=np.int64)
    for samples, where, last in zip(stored, columns, stop, strict=False):
        memory[last - len(samples) : last, where] = samples.labels
        seen[where] += samples.counts.positive
    order = rng.permutation(len(new))
    draws = rng.random((len(new), 3))
    held = prs_pass(memory, new.labels[order], columns[-1], seen, size, draws, rho=rho)
    parts = np.split(held, np.searchsorted(held, stop))
    kept = [s.take(part - (last - len(s))) for s, part, last in zip(stored, parts, stop, strict=False)]
    return (*kept, new.take(order[parts[-1] - len(memory)]))


def prs_pass(
    memory: Labels,
    stream: Labels,
    columns: NDArray[np.int64],
    seen: NDArray[np.int64],
    size: int,
    draws: NDArray[np.float64],
    *,
    rho: float = 0.0,
) -> NDArray[np.int64]:
    """Run PRS over ``stream`` and return which samples are held at the end.

    ``n_i`` counts class ``i`` in the stream before the sample, ``l_i`` in the memory; over the classes
    seen so far ``p_i = n_i^rho / sum_j n_j^rho``. The decisions are those of
    specification.md#prs. A class never seen before accepts with certainty; a sample without labels is taken
    only while there is room and is the first to be evicted; equally good victims are drawn at random.

    Args:
        memory: Labels of the held samples over all classes ``[m, K]``.
        stream: Labels of the offered samples over their own classes ``[n, Kt]``, in the order they come.
        columns: Columns of ``memory`` that the columns of ``stream`` are ``[Kt]``.
        seen: Stream counts ``n_i`` before the pass ``[K]``.
        draws: Uniform numbers ``[n, 3]``: for acceptance, for the class to evict from, for ties.

    Returns:
        Sorted ids of the held samples: ``0 .. m-1`` of ``memory``, ``m + j`` for sample ``j`` of
        ``stream``.
    """
    m, room = len(memory), min(max(size - len(memory), 0), len(stream))
    if size == 0:
        return np.arange(0)
    held = _Held(np.concatenate([memory, _placed(stream[:room], columns, memory.shape[1])]))
    ids = np.arange(m + room)
    outside = np.delete(np.arange(memory.shape[1]), columns)
    power = np.where(seen > 0, np.maximum(seen, 1.0) ** rho, 0.0)
    seen_now = seen[columns] + stream[:room].sum(axis=0, dtype=np.int64)
    # Acceptance depends on the stream alone, not on the memory: it is decided for a chunk of samples at
    # once, and only the accepted ones are walked through.
    for start in range(room, len(stream), _CHUNK):
        labels = stream[start : start + _CHUNK]
        after = seen_now + np.cumsum(labels, axis=0, dtype=np.int64)
        before = after - labels
        powers = np.where(before > 0, np.maximum(before, 1.0) ** rho, 0.0)
        total = powers.sum(axis=1) + power[outside].sum()
        chance = _acceptance(labels, before, powers, total, size)
        accepted = np.flatnonzero(draws[start : start + _CHUNK, 0] < chance)
        for j, (class_draw, tie_draw) in zip(
            accepted.tolist(), draws[start + accepted, 1:].tolist(), strict=True
        ):
            power[columns] = powers[j]
            slot = held.victim(power / max(total[j], 1e-300), class_draw, tie_draw)  # nothing seen: p is 0
            held.put(slot, columns, labels[j])
            ids[slot] = m + start + j
        seen_now = after[-1]
    return np.sort(ids)


def _placed(labels: Labels, columns: NDArray[np.int64], width: int) -> Labels:
    """Return labels over some classes as labels over all ``width`` of them."""
    wide = np.zeros((len(labels), width), dtype=np.uint8)
    wide[:, columns] = labels
    return wide


def _acceptance(
    labels: Labels,
    before: NDArray[np.int64],
    powers: NDArray[np.float64],
    total: NDArray[np.float64],
    size: int,
) -> NDArray[np.float64]:
    """Return ``sum_{i in Y} w_i min(1, m_i/n_i)`` of each row, ``w`` the softmax over Y of ``-n_i``."""
    quota = size * powers / np.maximum(total, 1e-300)[:, None]  # m_i = M p_i
    ratio = np.where(before > 0, np.minimum(1.0, quota / np.maximum(before, 1)), 1.0)
    count = np.where(labels > 0, before, np.inf)
    rarest = count.min(axis=1, initial=np.finfo(np.float64).max, keepdims=True)
    weight = np.exp(rarest - count)  # 0 for the labels the row has not
    return np.asarray((weight * ratio).sum(axis=1) / np.maximum(weight.sum(axis=1), 1.0), dtype=np.float64)


class _Held:
    """The samples in memory. An eviction is a few dozen calls on short arrays, so what it needs is kept at hand."""

    def __init__(self, labels: Labels) -> None:
        self.labels = labels.astype(np.float32)  # exact, and multiplied fast
        self.having = np.ascontiguousarray(labels.T).view(np.bool_)  # for each class, who has it
        self.width = labels.sum(axis=1, dtype=np.int64)
        self.inside = labels.sum(axis=0, dtype=np.float64)  # l
        self.total = int(self.width.sum())
        self.bare = int(np.count_nonzero(self.width == 0))
        self.ones = np.ones(labels.shape[1])

    def put(self, slot: int, columns: NDArray[np.int64], labels: Labels) -> None:
        """Put another sample into a slot."""
        row = self.labels[slot]
        self.inside -= row
        row[:] = 0
        row[columns] = labels
        self.inside += row
        self.having[:, slot] = row
        width, before = int(np.count_nonzero(labels)), int(self.width[slot])
        self.total += width - before
        self.bare += (width == 0) - (before == 0)
        self.width[slot] = width

    def victim(self, p: NDArray[np.float64], class_draw: float, tie_draw: float) -> int:
        """Return the slot to evict."""
        if self.bare:
            slots = (self.width == 0).nonzero()[0]
            return int(slots[int(tie_draw * len(slots))])
        excess = self.inside - p * self.total  # d_i
        # The largest is that of a class in memory: those of all others are not above 0, and they sum up to 0.
        weight = np.exp(excess - excess[excess.argmax()])
        weight *= self.inside > 0
        upto = weight.cumsum()
        drawn = int(upto.searchsorted(class_draw * upto[-1], side="right"))
        if drawn == len(upto):
            drawn = int(weight.nonzero()[0][-1])
        slots = self.having[drawn].nonzero()[0]
        labels = self.labels.take(slots, axis=0)
        scarce = labels.dot((excess <= _EQUAL).astype(np.float32))
        fewest = (scarce == scarce[scarce.argmin()]).nonzero()[0]
        slots = slots.take(fewest)
        rest = self.inside - labels.take(fewest, axis=0)
        rest -= np.multiply.outer(self.total - self.width.take(slots), p)
        gap = np.abs(rest, out=rest).dot(self.ones)
        ties = slots[gap <= gap[gap.argmin()] + _EQUAL]
        return int(ties[int(tie_draw * len(ties))])
