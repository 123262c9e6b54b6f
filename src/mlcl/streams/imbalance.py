"""The artificial imbalance of the released code: training rows are deleted towards random goals.

It is defined in docs/specification.md#imbalance.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mlcl.labels import Labels

CANDIDATES = 100
PATIENCE = 10


def official_imbalance(labels: Labels, *, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the rows of one task that are kept, in ascending order.

    Args:
        labels: 0 or 1, ``[n, Kt]``, the training labels of the task over its own classes.
        rng: generator of goals and candidates.

    >>> labels = np.repeat(np.eye(3, dtype=np.uint8), 200, axis=0)
    >>> kept = official_imbalance(labels, rng=np.random.default_rng(0))
    >>> labels[kept].sum(axis=0).tolist()
    [200, 130, 106]
    """
    goals = draw_goals(labels.sum(axis=0, dtype=np.int64), rng=rng)
    kept = np.ones(len(labels), dtype=np.bool_)
    kept[delete_rows(labels, goals, rng=rng)] = False
    return np.flatnonzero(kept)


def draw_goals(positive: NDArray[np.int64], *, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw how many positives each class is to keep: ``int(u_k P_k)``, ``u_k`` uniform on 0.05, 0.06, ..., 0.99.

    The largest class (the first of several) keeps all. Computed in whole numbers, so that the rounding of
    ``u_k`` has no effect.

    >>> draw_goals(np.array([100, 1000, 300]), rng=np.random.default_rng(0))
    array([  85, 1000,  159])
    """
    percent = rng.integers(5, 100, size=len(positive))
    goals = percent * positive // 100
    largest = positive.argmax()
    goals[largest] = positive[largest]
    return goals


def delete_rows(labels: Labels, goals: NDArray[np.int64], *, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the rows to delete, in order, to bring the positives of each class near ``goals`` ``[Kt]``.

    Each round draws 100 of the rows that are left (all, if fewer are) and deletes the one that lowers
    ``mean_k |P_k - goal_k|`` most (the first drawn of several), if any lowers it. It ends after 10 rounds in
    a row without a deletion.

    Deleting a row lowers ``|P_k - goal_k|`` by one for each of its classes that is above its goal, and
    raises it by one for each other of its classes. So its gain is a sum of +1 and -1: whole numbers, one
    matrix product per round.
    """
    signed = labels.astype(np.int64)
    positive = signed.sum(axis=0)
    rows, left = np.arange(len(labels)), len(labels)
    deleted: list[int] = []
    idle = 0
    while idle < PATIENCE and left:
        drawn = rng.choice(left, size=min(CANDIDATES, left), replace=False)
        gain = signed[rows[drawn]] @ np.where(positive > goals, 1, -1)
        best = int(gain.argmax())
        if gain[best] <= 0:
            idle += 1
            continue
        idle = 0
        at = drawn[best]
        deleted.append(int(rows[at]))
        positive -= signed[rows[at]]
        left -= 1
        rows[at] = rows[left]  # the last remaining row takes the place of the deleted one
    return np.array(deleted, dtype=np.int64)
