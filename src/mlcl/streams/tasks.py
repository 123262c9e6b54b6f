"""Tasks: which rows of a dataset belong to which classes (specification.md#task-rows)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets.base import Dataset
from mlcl.errors import InputError, check_choice, check_int
from mlcl.labels import LabelCounts, Labels, numbers_without

Setting = Literal["overlap", "disjoint"]
Negatives = Literal["in_task", "all"]
Imbalance = Literal["none", "official"]

# `mlcl.seeds` derives its generators in another way. To use it here would change the bits of every stream, and with
# them every published number: at the next version.
ORDER, DISJOINT, IMBALANCE, HOLD_OUT, KEEP_OUT = range(1, 6)
CANDIDATES = 100
PATIENCE = 10


def generator(seed: int, *key: int) -> np.random.Generator:
    """Return the generator for one purpose, named by ``key``: one option does not change the draws of another.

    >>> [generator(0, key).integers(100, size=3).tolist() for key in (ORDER, DISJOINT)]
    [[52, 88, 99], [97, 8, 28]]
    """
    return np.random.default_rng([check_int("seed", seed, 0), *key])


@dataclass(frozen=True, eq=False)
class Task:
    """One task of a stream.

    Attributes:
        index: its place in the stream, from 0.
        classes: class ids (columns of the label matrix), int64 ``[Kt]``; labels of other classes are masked.
        train: rows of ``dataset.train``, ascending, int64.
        test: rows of ``dataset.test``, ascending, int64.
        counts: positives and negatives of ``classes`` on the training rows.
    """

    index: int
    classes: NDArray[np.int64]
    train: NDArray[np.int64]
    test: NDArray[np.int64]
    counts: LabelCounts

    def __repr__(self) -> str:
        return (
            f"Task(index={self.index}, classes={self.classes.tolist()}, {len(self.train)} training and "
            f"{len(self.test)} test rows)"
        )

    def without(self, k: int, *, index: int) -> Task:
        """Return the task in a dataset without class ``k``, in another place of the stream."""
        keep = self.classes != k
        classes = numbers_without(self.classes, k)
        return replace(self, index=index, classes=classes, counts=self.counts.select(keep))


def build_tasks(
    dataset: Dataset,
    groups: Sequence[NDArray[np.int64]],
    *,
    setting: Setting = "overlap",
    negatives: Negatives = "in_task",
    imbalance: Imbalance = "none",
    seed: int = 0,
) -> tuple[Task, ...]:
    """Give each group of classes its rows of both splits.

    A task with no row is an `InputError`; what else a task may lack is in `task_notes`.

    Args:
        dataset: labels of both splits; its inputs are not read.
        groups: the class ids of each task, from `class_groups`.
        setting: ``overlap``: a row is in every task that it has a class of. ``disjoint``: it is in one of
            those tasks, drawn uniformly, in both splits.
        negatives: ``in_task``: a task has only rows with one of its classes. ``all``: every task has every
            row, and those without any of its classes are negatives (refused with ``disjoint``).
        imbalance: ``official`` deletes training rows of each task, see `official_imbalance`.
        seed: seed of the disjoint draw and of the deletion.

    >>> y = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 0, 1], [0, 0, 1, 1]])
    >>> data = Dataset.of("tiny", list("abcd"), np.eye(4), y, np.eye(4), y)
    >>> first, second = build_tasks(data, [np.array([0, 1]), np.array([2, 3])])
    >>> first.train.tolist(), second.train.tolist(), first.counts.positive.tolist()
    ([0, 1, 2], [1, 2, 3], [2, 2])
    """
    check_choice("setting", setting, ("overlap", "disjoint"))
    check_choice("negatives", negatives, ("in_task", "all"))
    check_choice("imbalance", imbalance, ("none", "official"))
    if setting == "disjoint" and negatives == "all":
        raise InputError(
            "negatives is 'all' and setting is 'disjoint', but a row cannot be in every task and in one only"
        )
    labels = {"training": dataset.train.labels, "test": dataset.test.labels}
    rows = {
        split: _rows(labels[split], groups, setting, negatives, generator(seed, DISJOINT, part))
        for part, split in enumerate(labels)
    }
    tasks = []
    for index, classes in enumerate(groups):
        found = {split: rows[split][index] for split in labels}
        if imbalance == "official" and len(found["training"]):
            before = found["training"]
            kept = official_imbalance(
                labels["training"][np.ix_(before, classes)], rng=generator(seed, IMBALANCE, index)
            )
            found["training"] = before[kept]
        for split, own in found.items():
            if not len(own):
                names = ", ".join(dataset.classes[k] for k in classes)
                raise InputError(
                    f"task {index + 1} (classes {names}) has no {split} row, but at least one was expected"
                )
        counts = dataset.train.counts(found["training"], classes)
        tasks.append(Task(index, classes, found["training"], found["test"], counts))
    return tuple(tasks)


def _rows(
    labels: Labels,
    groups: Sequence[NDArray[np.int64]],
    setting: Setting,
    negatives: Negatives,
    rng: np.random.Generator,
) -> list[NDArray[np.int64]]:
    """Return the rows of each task in one split."""
    if negatives == "all":
        return [np.arange(len(labels)) for _ in groups]
    member = np.stack([labels[:, classes].any(axis=1) for classes in groups], axis=1)
    if setting == "disjoint":
        # Of the c tasks that a row belongs to, the one with the drawn number 1..c; rows of no task have none.
        number = np.cumsum(member, axis=1)
        drawn = rng.integers(1, np.maximum(number[:, -1], 1), endpoint=True)
        member &= number == drawn[:, None]
    return [np.flatnonzero(member[:, t]) for t in range(len(groups))]


def official_imbalance(labels: Labels, *, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the rows of one task that are kept, in ascending order (specification.md#imbalance).

    Training rows are deleted towards random goals, as in the released code.

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
