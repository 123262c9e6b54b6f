"""The registry of memories, the rules that every strategy keeps, and the class `Memory` over the strategies.

A strategy is one pure function in one file, decorated with ``MEMORIES.register``:

    update(stored, new, size, rng, *, options...) -> one `TaskSamples` per task, old tasks first

``stored`` is what is kept of the past tasks, ``new`` holds all rows of the task that has just ended. A strategy that
selects by what the network makes of these rows takes it as further positional parameters, by name (`WANTED`):
``features`` ``[n, D]``, ``logits`` or ``losses`` (binary cross-entropy), both ``[n, Kt]``. The options are
keyword-only; each has a type, a default, and a line in the Args section of the docstring, which becomes its help text
on the command line. The strategy raises `mlcl.errors.InputError` for a bad value; `Memory` calls it once with an empty
task when it is built, so that a bad value is found before training.

Rules (specification.md#memories), which ``mlcl.testing.check_memory`` tests:

- At most ``size`` samples are kept over all tasks, and there is one `TaskSamples` per task in the order of the tasks,
  also for a task of which nothing is kept.
- Rows are selected with `TaskSamples.take`, so that the classes and counts of a task never change and extra columns
  follow their rows.
- A row is kept at most once, and what is dropped never comes back: the rows kept of an old task are a part of those
  stored before, in the same order. Stored inputs are addressed by this order.
- Random numbers come from ``rng`` alone: the same seed gives the same memory.
- Empty tasks, ``size`` 0, and a ``size`` larger than the number of rows work.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlcl.errors import InputError, check_int
from mlcl.labels import LabelCounts, Labels, as_labels
from mlcl.registry import Registry


@dataclass(frozen=True, eq=False)
class TaskSamples:
    """Rows of one task, their labels, and the constants of the whole task (specification.md#memories).

    Dropping rows with `take` never changes ``classes`` and ``counts``: the loss reweights by the counts of the
    dataset, not by those of the rows that are left.

    Args:
        classes: Class ids ``[Kt]``, the columns of ``labels``.
        counts: Label counts over all training rows of the task.
        rows: Row numbers in the training split ``[m]``, in selection order.
        labels: 0/1 labels ``[m, Kt]`` of these rows.
        extra: Further columns with one entry per row (reservoir keys, stored logits); they follow their rows.

    >>> samples = TaskSamples.of(0, [4, 7], rows=[10, 11, 12], labels=[[1, 0], [1, 1], [0, 1]])
    >>> kept = samples.take([2, 0])
    >>> kept.rows, kept.counts.positive, len(kept)
    (array([12, 10]), array([2, 2]), 2)
    """

    task: int
    classes: NDArray[np.int64]
    counts: LabelCounts
    rows: NDArray[np.int64]
    labels: Labels
    extra: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.labels.shape != (len(self.rows), len(self.classes)):
            raise InputError(
                f"labels of task {self.task + 1} have shape {self.labels.shape}, expected "
                f"{(len(self.rows), len(self.classes))}: a line for each row number, a column for each class"
            )
        if len(self.counts.positive) != len(self.classes):
            raise InputError(
                f"counts of task {self.task + 1} cover {len(self.counts.positive)} classes, "
                f"expected {len(self.classes)}"
            )
        for name, column in self.extra.items():
            if len(column) != len(self.rows) or column.dtype.hasobject:
                raise InputError(
                    f"extra column {name!r} of task {self.task + 1} has shape {column.shape} and dtype "
                    f"{column.dtype}, expected a numeric array with {len(self.rows)} rows"
                )

    @classmethod
    def of(cls, task: int, classes: ArrayLike, rows: ArrayLike, labels: ArrayLike) -> TaskSamples:
        """Describe a whole task; its counts are those of ``labels``."""
        checked = as_labels(labels)
        return cls(
            task=int(task),
            classes=np.asarray(classes, dtype=np.int64),
            counts=LabelCounts.of(checked),
            rows=np.asarray(rows, dtype=np.int64),
            labels=checked,
        )

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, index: ArrayLike) -> TaskSamples:
        """Keep the rows at these positions, in this order; the constants stay."""
        kept = np.asarray(index, dtype=np.int64)
        extra = {name: column[kept] for name, column in self.extra.items()}
        return replace(self, rows=self.rows[kept], labels=self.labels[kept], extra=extra)


Strategy: TypeAlias = Callable[..., tuple[TaskSamples, ...]]
WANTED = ("features", "logits", "losses")
"""What a strategy may ask for of the rows of a task."""
MEMORIES: Registry[Strategy] = Registry("memory")


@MEMORIES.register("none", summary="Keeps no sample, only the label counts of every task.")
def update_none(
    stored: tuple[TaskSamples, ...],
    new: TaskSamples,
    size: int,  # noqa: ARG001  every strategy has the same four parameters
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[TaskSamples, ...]:
    """Keep the constants of each task and none of its rows."""
    return tuple(samples.take([]) for samples in (*stored, new))


def quotas(size: int, available: Sequence[int]) -> list[int]:
    """Share ``size`` places between tasks that have ``available`` rows each (specification.md#quotas).

    Without small tasks: ``floor(M/t)`` for each, one more for the first ``M mod t``. A task smaller than
    its share is kept whole and its spare room is shared out again among the others (water-filling): with
    ``L`` the largest whole level for which ``sum_i min(available_i, L) <= M``, task ``i`` gets
    ``min(available_i, L)``, and what is then left goes, one place each, to the first tasks that have more
    rows than ``L``.

    >>> quotas(10, [50, 50, 50])
    [4, 3, 3]
    >>> quotas(10, [50, 1, 50])
    [5, 1, 4]
    >>> quotas(10, [2, 3])
    [2, 3]
    """
    rows = np.asarray(available, dtype=np.int64)
    if rows.sum() <= size:
        return [int(n) for n in rows]
    ascending = np.sort(rows)
    below = np.cumsum(ascending) - ascending
    # If the i smallest tasks are kept whole, the others share the rest. The first i at which the next
    # task does not fit into its share gives the level; it exists because not everything fits.
    share = (size - below) // (len(rows) - np.arange(len(rows)))
    level = share[np.argmax(share < ascending)]
    given = np.minimum(rows, level)
    given[np.flatnonzero(rows > level)[: size - int(given.sum())]] += 1
    return [int(n) for n in given]


class Memory:
    """At most ``size`` samples of past tasks, chosen by a strategy, with the constants of every task.

    Args:
        kind: Name of a strategy in ``MEMORIES``.
        size: The largest number of samples over all tasks, ``M``; 0 keeps only the constants.
        seed: Every update draws from a generator made of this seed and the number of the update, so that
            a memory restored from its state continues exactly as the one that was saved.
        options: Options of the strategy; one that it does not take, or a bad value, is refused here.

    >>> memory = Memory("wru", 4, seed=0)
    >>> labels = np.array([[1, 0], [0, 1], [1, 0], [0, 0], [1, 1], [0, 0]])
    >>> memory.update(TaskSamples.of(0, classes=[0, 1], rows=np.arange(6), labels=labels))
    >>> memory.update(TaskSamples.of(1, classes=[2, 3], rows=np.arange(6), labels=labels))
    >>> len(memory), [len(samples) for samples in memory.tasks], memory.task_of_row
    (4, [2, 2], array([0, 0, 1, 1]))
    >>> Memory("random", 4, candidates=200)
    Traceback (most recent call last):
    ...
    mlcl.errors.InputError: memory 'random' takes no option 'candidates' (given: 200); its options are:
    none.
    """

    def __init__(self, kind: str, size: int, *, seed: int = 0, **options: Any) -> None:
        self._strategy = MEMORIES.get(kind)
        self.kind = kind
        self.size = check_int("memory size", size, 0)
        self.seed = check_int("memory seed", seed, 0)
        given = {name: value for name, value in options.items() if value is not None}
        MEMORIES.check(kind, given)
        self.options = {n: v.item() if isinstance(v, np.generic) else v for n, v in given.items()}
        self.needs = tuple(name for name in WANTED if name in inspect.signature(self._strategy).parameters)
        self.tasks: tuple[TaskSamples, ...] = ()
        # A dry run on an empty task: the strategy itself checks the values of its options, now and not after the
        # first task has been trained.
        empty = TaskSamples.of(0, [], [], np.zeros((0, 0), np.uint8))
        self._choose(empty, {name: np.zeros((0, int(name == "features"))) for name in self.needs})

    def _choose(self, new: TaskSamples, given: Mapping[str, NDArray[Any]]) -> tuple[TaskSamples, ...]:
        rng = np.random.default_rng([self.seed, len(self.tasks)])
        return self._strategy(self.tasks, new, self.size, rng, **given, **self.options)

    def update(
        self,
        samples: TaskSamples,
        features: NDArray[Any] | None = None,
        *,
        logits: NDArray[Any] | None = None,
        losses: NDArray[Any] | None = None,
    ) -> None:
        """Take in a finished task: ``samples`` holds all its rows, and what `needs` names is given of them."""
        if any(samples.task == known.task for known in self.tasks):
            raise InputError(
                f"task {samples.task + 1} (task={samples.task}) is in the memory already, expected a task it has not "
                "seen"
            )
        found = {"features": features, "logits": logits, "losses": losses}
        given = {name: value for name, value in found.items() if value is not None}
        if wrong := sorted(set(given) ^ set(self.needs)):
            does = "was given, but is not used" if wrong[0] in given else "is missing, but is needed"
            raise InputError(f"{wrong[0]} {does} by memory {self.kind!r}")
        self.tasks = self._choose(samples, given)

    def __len__(self) -> int:
        return sum(len(samples) for samples in self.tasks)

    @property
    def rows(self) -> NDArray[np.int64]:
        """Row numbers of all samples ``[len(memory)]``, task by task in selection order."""
        return np.concatenate([np.zeros(0, dtype=np.int64), *(samples.rows for samples in self.tasks)])

    @property
    def task_of_row(self) -> NDArray[np.int64]:
        """Number of the task of each entry of `rows`."""
        numbers = np.array([samples.task for samples in self.tasks], dtype=np.int64)
        return np.repeat(numbers, [len(samples) for samples in self.tasks])

    def state(self) -> dict[str, NDArray[Any]]:
        """Return everything as a flat mapping of numeric arrays; the header is JSON in UTF-8 bytes."""
        header = {"kind": self.kind, "size": self.size, "seed": self.seed, "options": self.options}
        header["tasks"] = [
            {"task": s.task, "total": s.counts.total, "extra": list(s.extra)} for s in self.tasks
        ]
        state: dict[str, NDArray[Any]] = {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)}
        for i, s in enumerate(self.tasks):
            state |= {f"{i}.rows": s.rows, f"{i}.labels": s.labels, f"{i}.classes": s.classes}
            state |= {f"{i}.positive": s.counts.positive, f"{i}.negative": s.counts.negative}
            state |= {f"{i}.extra.{name}": column for name, column in s.extra.items()}
        return {name: array.copy() for name, array in state.items()}

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[Any]]) -> Memory:
        """Rebuild the memory that `state` described: same kind, options, rows, order and constants."""
        try:
            header = json.loads(np.asarray(state["header"], dtype=np.uint8).tobytes())
            memory = cls(header["kind"], header["size"], seed=header["seed"], **header["options"])
            memory.tasks = tuple(_restore(state, i, task) for i, task in enumerate(header["tasks"]))
        except KeyError as missing:
            raise InputError(
                f"memory state has no entry {missing}, expected one written by Memory.state()"
            ) from None
        return memory


def _restore(state: Mapping[str, NDArray[Any]], i: int, task: Mapping[str, Any]) -> TaskSamples:
    """Read one task of `Memory.state`."""
    return TaskSamples(
        task=task["task"],
        classes=state[f"{i}.classes"].astype(np.int64),
        counts=LabelCounts(state[f"{i}.positive"], state[f"{i}.negative"], task["total"]),
        rows=state[f"{i}.rows"].astype(np.int64),
        labels=state[f"{i}.labels"].astype(np.uint8),
        extra={name: state[f"{i}.extra.{name}"].copy() for name in task["extra"]},
    )


def own_rows(memory: Memory) -> list[TaskSamples]:
    """Number the stored samples of all tasks from 0, in the order in which their inputs are kept."""
    ends = np.cumsum([len(samples) for samples in memory.tasks])
    return [
        replace(samples, rows=np.arange(end - len(samples), end, dtype=np.int64))
        for samples, end in zip(memory.tasks, ends, strict=True)
    ]
