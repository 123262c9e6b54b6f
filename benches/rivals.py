"""Published procedures that have no package, written down plainly: one sample, one candidate at a time.

Fresh transcriptions from the papers' text, not copies of anyone's code. Each is checked, by the subject that times it,
to choose as ours does or as well. Where a line could be written for all classes at once, it was.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mlcl.labels import Labels
from mlcl.memories import TaskSamples


def wru_by_candidates(
    labels: Labels, size: int, rng: np.random.Generator, candidates: int = 200
) -> NDArray[np.int64]:
    """Choose as the paper's appendix says: a random subset a step, counts of memory and candidate taken afresh."""
    positive = labels.sum(axis=0, dtype=np.int64)
    ratio = positive / (len(labels) - positive)
    chosen: list[int] = []
    free = np.ones(len(labels), dtype=bool)
    for _ in range(size):
        pool = rng.choice(np.flatnonzero(free), size=min(candidates, int(free.sum())), replace=False)
        gaps = []
        for candidate in pool:
            together = labels[[*chosen, candidate]]
            have = together.sum(axis=0, dtype=np.int64)
            gaps.append(np.abs(ratio - have / (len(together) - have + 0.01)).sum())
        best = int(pool[int(np.argmin(gaps))])
        chosen.append(best)
        free[best] = False
    return np.array(chosen)


def reservoir_by_sample(
    tasks: list[TaskSamples], size: int, integers: Callable[[int], int]
) -> list[tuple[int, int, NDArray[np.uint8]]]:
    """Run Vitter's algorithm R over all samples; ``integers(n)`` draws a whole number below n. Returns what is held."""
    held: list[tuple[int, int, NDArray[np.uint8]]] = []
    seen = 0
    for task in tasks:
        for row, labels in zip(task.rows.tolist(), task.labels, strict=True):
            if seen < size:
                held.append((task.task, row, labels))
            else:
                slot = integers(seen + 1)
                if slot < size:
                    held[slot] = (task.task, row, labels)
            seen += 1
    return held


def ocdm_by_sample(labels: Labels, size: int, batch: int = 128) -> list[int]:
    """Run OCDM with equal shares: from each batch remove, one at a time, the sample whose loss costs least."""
    held: list[int] = []
    for first in range(0, len(labels), batch):
        held += range(first, min(first + batch, len(labels)))
        seen = labels[: first + batch].any(axis=0)
        target = seen / seen.sum()
        while len(held) > size:
            inside = labels[held].sum(axis=0, dtype=np.int64)
            costs = []
            for sample in held:
                rest = inside - labels[sample]
                share = rest / max(rest.sum(), 1) + 1e-8
                costs.append(-(target[seen] * np.log(share[seen])).sum())
            held.pop(int(np.argmin(costs)))
    return held


def prs_by_sample(labels: Labels, size: int, seed: int) -> list[int]:
    """Run PRS with equal shares, as its authors describe it: sample in, sample out."""
    draw = random.Random(seed)
    rows = [np.flatnonzero(row).tolist() for row in labels]
    classes = labels.shape[1]
    seen, inside = [0] * classes, [0] * classes
    held: list[int] = []
    for sample, own in enumerate(rows):
        if len(held) < size:
            accept = True
        else:
            met = sum(count > 0 for count in seen)
            least = min(seen[k] for k in own)
            weights = [math.exp(least - seen[k]) for k in own]
            ratios = [min(1.0, size / met / seen[k]) if seen[k] else 1.0 for k in own]
            chance = sum(w * r for w, r in zip(weights, ratios, strict=True)) / sum(weights)
            accept = draw.random() < chance
        if accept and len(held) == size:
            out = _prs_victim(rows, held, inside, seen, draw)
            held.remove(out)
            for k in rows[out]:
                inside[k] -= 1
        if accept:
            held.append(sample)
            for k in own:
                inside[k] += 1
        for k in own:
            seen[k] += 1
    return held


def _prs_victim(
    rows: list[list[int]], held: list[int], inside: list[int], seen: list[int], draw: random.Random
) -> int:
    met = sum(count > 0 for count in seen)
    wanted = [1 / met if count else 0.0 for count in seen]
    total = sum(inside)
    excess = [count - p * total for count, p in zip(inside, wanted, strict=True)]
    present = [k for k, count in enumerate(inside) if count]
    top = max(excess[k] for k in present)
    (drawn,) = draw.choices(present, [math.exp(excess[k] - top) for k in present])
    having = [member for member in held if drawn in rows[member]]
    scarce = [sum(excess[k] <= 0 for k in rows[member]) for member in having]
    best, least = having[0], math.inf
    for member, count in zip(having, scarce, strict=True):
        if count > min(scarce):
            continue
        rest = list(inside)
        for k in rows[member]:
            rest[k] -= 1
        whole = sum(rest)
        gap = sum(abs(left - p * whole) for left, p in zip(rest, wanted, strict=True))
        if gap < least:
            best, least = member, gap
    return best


def pairwise_logistic(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean over classes of the mean over (positive, negative) pairs of the logistic loss of their gap."""
    gaps = logits.unsqueeze(1) - logits.unsqueeze(0)
    pairs = labels.unsqueeze(1) * (1 - labels).unsqueeze(0)
    mean = (torch.nn.functional.softplus(-gaps) * pairs).sum((0, 1)) / pairs.sum((0, 1)).clamp_min(1)
    both = (pairs.sum((0, 1)) > 0).to(logits.dtype)
    return (mean * both).sum() / both.sum().clamp_min(1)
