"""What a stream lacks that the metric or the theory needs: sentences for people, who count tasks from 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets.base import Dataset
from mlcl.streams.tasks import Task


@dataclass(frozen=True)
class _Gaps:
    """Names of a task's classes that have no positive or no negative row, by split and sign; and the theory's need."""

    task: int
    names: tuple[str, ...]
    without: dict[tuple[str, str], list[str]]
    single: bool

    def sentences(self) -> list[str]:
        found = [
            f"task {self.task + 1} has no {sign} {split} row of {', '.join(names)}, so no AUC is defined there"
            for (split, sign), names in self.without.items()
            if names
        ]
        if self.single:
            found.append(
                f"task {self.task + 1} (classes {', '.join(self.names)}) has no training row with two labels, "
                "which the paper's assumption 1.2 requires"
            )
        return found


def task_notes(dataset: Dataset, tasks: Sequence[Task]) -> tuple[str, ...]:
    """Return a sentence for each gap of each task: classes without positives or negatives, no row with two labels.

    >>> y = np.array([[1, 0], [1, 1], [0, 1]])
    >>> data = Dataset.of("tiny", ["cat", "dog"], np.eye(3), y, np.eye(3), [[1, 1], [1, 0], [1, 0]])
    >>> from mlcl.streams.tasks import build_tasks
    >>> task_notes(data, build_tasks(data, [np.array([0, 1])]))
    ('task 1 has no negative test row of cat, so no AUC is defined there',)
    """
    return tuple(sentence for gaps in _gaps(dataset, tasks) for sentence in gaps.sentences())


def summary(dataset: Dataset, tasks: Sequence[Task]) -> str:
    """Return all notes in one line: the note itself if there is one, otherwise counts; empty if there is none."""
    gaps = _gaps(dataset, tasks)
    notes = [sentence for found in gaps for sentence in found.sentences()]
    if len(notes) < 2:
        return "".join(notes)
    classes, parts = sum(len(found.names) for found in gaps), []
    for split, effect in (("training", "cannot be learnt"), ("test", "have no AUC")):
        signs = [(split, "positive"), (split, "negative")]
        if lacking := {name for found in gaps for sign in signs for name in found.without[sign]}:
            parts.append(
                f"{len(lacking)} of {classes} classes {effect}, for want of a positive or a negative {split} row in "
                "their task"
            )
    if single := sum(found.single for found in gaps):
        parts.append(
            f"{single} of {len(gaps)} tasks have no training row with two labels, which the paper's assumption 1.2 "
            "requires"
        )
    return f"{len(notes)} notes on the tasks: {'; '.join(parts)}"


def measurable(dataset: Dataset, tasks: Sequence[Task]) -> NDArray[np.bool_]:
    """Return for each class whether its task has positive and negative test rows of it: whether its AUC is defined."""
    found = np.zeros(len(dataset.classes), np.bool_)
    for task in tasks:
        found[task.classes] = dataset.test.counts(task.test, task.classes).defined
    return found


def headline_problem(dataset: Dataset, tasks: Sequence[Task]) -> str:
    """Return why the mean of Macro-AUC over tasks is undefined, or of some tasks only; empty if it is of all.

    Tasks without test rows, whose data an extended run no longer has, do not count.
    """
    defined = measurable(dataset, tasks)
    tasks = [task for task in tasks if len(task.test)]
    lost = [task for task in tasks if not defined[task.classes].any()]
    if not lost:
        return ""
    single = all(len(task.classes) == 1 for task in lost)
    reason = (
        "a task of one class has no negatives unless stream.negatives is 'all', so choose that or fewer tasks"
        if single
        else "no class of them has both positive and negative test rows in its task"
    )
    if len(lost) == len(tasks):
        return f"Macro-AUC is undefined (nan) in every task, and so is the headline: {reason}"
    numbers = ", ".join(str(task.index + 1) for task in lost)
    return (
        f"Macro-AUC is undefined (nan) in {len(lost)} of {len(tasks)} tasks ({numbers}), which the headline leaves "
        f"out: {reason}"
    )


def _gaps(dataset: Dataset, tasks: Sequence[Task]) -> list[_Gaps]:
    found = []
    for task in tasks:
        names = tuple(dataset.classes[k] for k in task.classes)
        test = dataset.test.counts(task.test, task.classes)
        without = {
            (split, sign): [name for name, number in zip(names, numbers, strict=True) if number == 0]
            for split, counts in (("training", task.counts), ("test", test))
            for sign, numbers in (("positive", counts.positive), ("negative", counts.negative))
        }
        rows = dataset.train.labels[np.ix_(task.train, task.classes)].sum(axis=1, dtype=np.int64)
        found.append(_Gaps(task.index, names, without, single=bool(rows.max() < 2)))
    return found
