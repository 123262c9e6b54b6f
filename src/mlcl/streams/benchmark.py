"""A benchmark: a dataset and its stream of tasks; and rows of the training split that are not trained on."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlcl.datasets.base import Dataset, Split
from mlcl.errors import InputError, check_choice
from mlcl.labels import LabelCounts, Labels
from mlcl.streams.notes import headline_problem, summary, task_notes
from mlcl.streams.orders import ClassRef, Order, class_groups
from mlcl.streams.tasks import (
    HOLD_OUT,
    KEEP_OUT,
    Imbalance,
    Negatives,
    Setting,
    Task,
    build_tasks,
    generator,
)

B = TypeVar("B", bound="Benchmark")


@dataclass(frozen=True, eq=False)
class TaskInfo:
    """Size, classes and imbalance of a task; arrays have one entry per class, in the task's order.

    Attributes:
        index: the task's place in the stream, from 0.
        class_ids: ids of its classes.
        classes: their names.
        train_rows: number of training rows.
        test_rows: number of test rows.
        positive: positives of each class in training, int64 ``[Kt]``.
        negative: negatives of each class in training, int64 ``[Kt]``.
        test_positive: positives of each class in test, int64 ``[Kt]``.
        tau: imbalance ``min(P_k, N_k) / n`` of each class in training, float64 ``[Kt]``.
        labels_per_row: the mean number of the task's labels on a training row.
    """

    index: int
    class_ids: tuple[int, ...]
    classes: tuple[str, ...]
    train_rows: int
    test_rows: int
    positive: NDArray[np.int64]
    negative: NDArray[np.int64]
    test_positive: NDArray[np.int64]
    tau: NDArray[np.float64]
    labels_per_row: float


@dataclass(frozen=True, eq=False)
class Benchmark:
    """A dataset cut into tasks: iterate over it, or take ``len``.

    >>> y = [[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 0, 1], [0, 0, 1, 1]]
    >>> stream = Benchmark.from_arrays(np.eye(4), y, np.eye(4), y, tasks=2, order="sorted")
    >>> for task in stream:
    ...     print(task.index, task.classes.tolist(), task.train.tolist())
    0 [0, 1] [0, 1, 2]
    1 [2, 3] [1, 2, 3]
    >>> stream
    Benchmark('arrays', 4 classes in 2 tasks, train=[4, 4], test=[4, 4])
    """

    name: str
    dataset: Dataset
    tasks: tuple[Task, ...]
    stream: Mapping[str, Any] | None = None
    """The options of `build_benchmark` that cut the dataset into these tasks, if they are known."""
    held_out: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """Rows of ``dataset.train`` that are in no task any more, see `keep_out`: for probabilities and thresholds."""
    complete: bool = True
    """Whether every row has the labels of all tasks; not so where tasks of several stores stand side by side."""
    added: int | None = None
    """How many of the last tasks are new, if not all: what the others lack was noted in the run before."""

    def __repr__(self) -> str:
        train, test = (list(split.inputs.shape) for split in (self.dataset.train, self.dataset.test))
        return (
            f"Benchmark({self.name!r}, {len(self.classes)} classes in {len(self.tasks)} tasks, train={train}, "
            f"test={test})"
        )

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the names of all classes, by class id."""
        return self.dataset.classes

    @property
    def task_of_class(self) -> NDArray[np.int64]:
        """Return the task that each class belongs to, int64 ``[K]``."""
        owner = np.empty(len(self.classes), dtype=np.int64)
        for task in self.tasks:
            owner[task.classes] = task.index
        return owner

    @property
    def tasks_fingerprint(self) -> str:
        """Return 16 hexadecimal digits of a SHA-256 over classes and rows of all tasks."""
        digest = hashlib.sha256()
        for task in self.tasks:
            for numbers in (task.classes, task.train, task.test):
                digest.update(f"{len(numbers)} ".encode() + numbers.astype("<i8").tobytes())
        return digest.hexdigest()[:16]

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what the new tasks lack that the metric or the theory needs, see `task_notes`."""
        new = len(self.tasks) if self.added is None else self.added
        return task_notes(self.dataset, self.tasks[len(self.tasks) - new :])

    @property
    def headline_problem(self) -> str:
        """Return why a run's Macro-AUC is undefined here, or leaves out tasks; empty if it does not."""
        return headline_problem(self.dataset, self.tasks)

    def task_labels(self, task: Task | int, *, split: Literal["train", "test"] = "train") -> Labels:
        """Return the labels of a task's rows over its own classes, ``[n, Kt]``: all labels that the task reveals."""
        check_choice("split", split, ("train", "test"))
        task = task if isinstance(task, Task) else self.tasks[task]
        rows, labels = (
            (task.train, self.dataset.train.labels)
            if split == "train"
            else (task.test, self.dataset.test.labels)
        )
        return labels[np.ix_(rows, task.classes)]

    def describe(self) -> list[TaskInfo]:
        """Return size, classes and imbalance of every task."""
        return [
            TaskInfo(
                index=task.index,
                class_ids=tuple(task.classes.tolist()),
                classes=tuple(self.classes[k] for k in task.classes),
                train_rows=len(task.train),
                test_rows=len(task.test),
                positive=task.counts.positive,
                negative=task.counts.negative,
                test_positive=self.dataset.test.counts(task.test, task.classes).positive,
                tau=task.counts.tau,
                labels_per_row=float(task.counts.positive.sum() / task.counts.total),
            )
            for task in self.tasks
        ]

    def renamed(self, names: Mapping[str, str]) -> Self:
        """Return the benchmark with other names for some classes."""
        classes = tuple(names.get(name, name) for name in self.classes)
        return replace(self, dataset=replace(self.dataset, classes=classes))

    def without(self, label: str) -> Self:
        """Return the benchmark without one class, and without the task that had no other."""
        data, k = self.dataset, self.classes.index(label)
        digest = hashlib.sha256(f"{data.fingerprint} without {label}".encode()).hexdigest()[:16]
        dataset = replace(
            data,
            classes=tuple(name for name in data.classes if name != label),
            train=data.train.without(k),
            test=data.test.without(k),
            fingerprint=digest if data.fingerprint else "",
        )
        left = [task for task in self.tasks if set(task.classes.tolist()) != {k}]
        return replace(
            self, dataset=dataset, tasks=tuple(task.without(k, index=t) for t, task in enumerate(left))
        )

    @classmethod
    def from_arrays(
        cls,
        x_train: ArrayLike,
        y_train: ArrayLike,
        x_test: ArrayLike,
        y_test: ArrayLike,
        *,
        known_train: ArrayLike | None = None,
        known_test: ArrayLike | None = None,
        tasks: int | Sequence[Sequence[ClassRef]] | None,
        classes: Sequence[str] | None = None,
        name: str = "arrays",
        order: Order = "random",
        seed: int = 0,
        **stream: Any,
    ) -> Benchmark:
        """Make a benchmark from arrays: numpy, torch or lists.

        Args:
            x_train: uint8 images ``[N, C, H, W]`` with 1 or 3 channels, or numbers ``[N, D]``.
            y_train: 0 or 1, ``[N, K]``; or a list or set of tags per row.
            x_test: like ``x_train``.
            y_test: like ``y_train``.
            known_train: which labels are known, ``[N, K]``; all by default.
            known_test: like ``known_train``.
            tasks: number of tasks, or the classes (ids or names) of each, such as ``[[0, 1], ["cat", "dog"]]``; None
                if ``order`` or ``increment`` determines it.
            classes: names of the ``K`` classes; None names them ``class-0``, ``class-1``, ..., or takes all tags,
                sorted.
            name: the name of the benchmark.
            order: see `class_groups`.
            seed: seed of all random draws.
            stream: further options of `build_benchmark`: ``base`` and ``increment`` (see `class_groups`), ``setting``,
                ``negatives`` and ``imbalance`` (see `build_tasks`).
        """
        if isinstance(tasks, list | tuple | np.ndarray):
            if not isinstance(order, str) or order != "random":
                raise InputError(
                    f"tasks lists the classes of each task and order is {order!r}; expected one of them"
                )
            if not all(isinstance(group, list | tuple | np.ndarray) for group in tasks):
                raise InputError(f"tasks is {tasks!r}; expected a number, or one list of classes per task")
            order, tasks = list(tasks), None
        return build_benchmark(
            Dataset.of(name, classes, x_train, y_train, x_test, y_test, known_train, known_test),
            tasks=cast("int | None", tasks),  # anything else is refused there
            order=order,
            seed=seed,
            **stream,
        )


def build_benchmark(
    dataset: Dataset,
    *,
    name: str | None = None,
    tasks: int | None = None,
    order: Order = "random",
    base: int = 0,
    increment: int | None = None,
    setting: Setting = "overlap",
    negatives: Negatives = "in_task",
    imbalance: Imbalance = "none",
    seed: int = 0,
) -> Benchmark:
    """Cut a dataset into tasks: `class_groups`, then `build_tasks`, which describe the options.

    >>> y = np.array([[1, 1, 0, 0], [0, 1, 0, 0], [1, 0, 1, 1], [0, 0, 1, 0], [0, 0, 0, 1]])
    >>> data = Dataset.of("tiny", ["cat", "dog", "hen", "cow"], np.eye(5), y, np.eye(5), y)
    >>> stream = build_benchmark(data, tasks=2, order=["dog", "cat", "cow", "hen"])
    >>> [(info.classes, info.train_rows, info.positive.tolist()) for info in stream.describe()]
    [(('dog', 'cat'), 3, [2, 2]), (('cow', 'hen'), 3, [2, 2])]
    """
    named = isinstance(order, str)
    groups = class_groups(
        dataset.classes, tasks=tasks, order=order, base=base, increment=increment, seed=seed
    )
    options: dict[str, Any] = {
        "setting": setting,
        "negatives": negatives,
        "imbalance": imbalance,
        "seed": int(seed),
    }
    found = build_tasks(dataset, groups, **options)
    if note := summary(dataset, found):
        warnings.warn(note, UserWarning, stacklevel=2)
    options |= {
        "tasks": int(tasks) if named and tasks is not None else None,
        "order": order if named else [group.tolist() for group in groups],
        "base": base,
        "increment": increment,
    }
    return Benchmark(dataset.name if name is None else name, dataset, found, options)


def hold_out(dataset: Dataset, *, fraction: float = 0.2, seed: int = 0) -> Dataset:
    """Return a dataset whose test split is a part of the training rows; the real test split is not in it.

    Rows are drawn uniformly, once for all tasks, and stay in their order. Inputs in memory are copied; of a
    memory map only the row numbers are kept, and rows are read when they are needed.

    Args:
        dataset: the dataset whose training split is divided.
        fraction: share of the training rows to hold out, above 0 and below 1; either part has at least one row.
        seed: seed of the draw.

    >>> y = np.ones((10, 1))
    >>> part = hold_out(Dataset.of("tiny", ["cat"], np.arange(10)[:, None], y, np.zeros((3, 1)), y[:3]))
    >>> part.train.inputs.ravel(), part.test.inputs.ravel()
    (array([0., 1., 2., 3., 4., 6., 7., 8.], dtype=float32), array([5., 9.], dtype=float32))
    """
    if not 0 < fraction < 1:
        raise InputError(f"fraction is {fraction}; expected a number above 0 and below 1")
    total = len(dataset.train)
    if total < 2:
        raise InputError(f"{dataset.name!r} has {total} training row, but at least 2 were expected")
    count = min(max(1, round(total * fraction)), total - 1)
    order = generator(seed, HOLD_OUT).permutation(total)
    held, kept = np.sort(order[:count]), np.sort(order[count:])
    # Derived from the known fingerprint and the row numbers: the content need not be read again.
    digest = hashlib.sha256(dataset.fingerprint.encode() + held.astype("<i8").tobytes())
    return replace(
        dataset,
        name=f"{dataset.name}-validation",
        train=_take(dataset.train, kept),
        test=_take(dataset.train, held),
        fingerprint=digest.hexdigest()[:16],
        dropped={},
    )


def keep_out(benchmark: B, *, share: float, seed: int = 0, rows: NDArray[np.int64] | None = None) -> B:
    """Return the benchmark without a share of its training rows, which are its ``held_out`` rows.

    They are drawn uniformly, once for all tasks, so that a row that is held out is trained on for no class; but no
    class loses the last positive of its task, and no task its last row.

    Args:
        benchmark: the tasks.
        share: of the training rows, above 0 and below 1.
        seed: seed of the draw.
        rows: the rows to draw from; those of all tasks by default.

    >>> y = np.array([[1, 1], [1, 0], [0, 1], [1, 0], [0, 1]] * 2)
    >>> stream = Benchmark.from_arrays(np.arange(10)[:, None], y, np.zeros((5, 1)), y[:5], tasks=1)
    >>> part = keep_out(stream, share=0.2)
    >>> part.held_out, part.tasks[0].train, part.tasks[0].counts.positive.tolist()
    (array([1, 7]), array([0, 2, 3, 4, 5, 6, 8, 9]), [5, 5])
    """
    if not 0 < share < 1:
        raise InputError(f"held_out is {share}; expected a share above 0 and below 1")
    pool = np.unique(np.concatenate([task.train for task in benchmark.tasks])) if rows is None else rows
    train, labels = benchmark.dataset.train, benchmark.dataset.train.labels
    count = min(max(1, round(len(pool) * share)), max(len(pool) - 1, 0))
    held = np.zeros(len(labels), np.bool_)
    held[generator(seed, KEEP_OUT).permutation(pool)[:count]] = True
    for task in benchmark.tasks:
        own = labels[np.ix_(task.train, task.classes)] > 0
        lost = own.any(axis=0) & ~own[~held[task.train]].any(axis=0)
        held[task.train[own[:, lost].any(axis=1)]] = False
        if held[task.train].all():
            held[task.train[:1]] = False
    tasks = []
    for task in benchmark.tasks:
        left = task.train[~held[task.train]]
        counts = train.counts(left, task.classes) if len(left) < len(task.train) else task.counts
        tasks.append(replace(task, train=left, counts=counts))
    return replace(benchmark, tasks=tuple(tasks), held_out=np.flatnonzero(held))


def joint_task(benchmark: Benchmark, *, masked: bool = False) -> Task:
    """Return one task with all classes and every image of the benchmark's tasks, each once, with all its labels.

    Joint training is an upper bound for continual methods, of two kinds, because there are two measures: ``joint``
    trains every image for every class (pooled measure), ``joint-masked`` for the classes of its own tasks (in-task
    measure, the paper's Eq. 6, for networks trained from scratch; on vectors ``exact`` and ``lwf`` can be above it).
    Tests stay those of the benchmark's tasks. See specification.md#joint.

    Args:
        masked: positives and negatives of a class are counted inside its own task, as `joint_mask` trains them.
    """
    train = np.unique(np.concatenate([task.train for task in benchmark.tasks]))
    test = np.unique(np.concatenate([task.test for task in benchmark.tasks]))
    classes = np.arange(len(benchmark.dataset.classes), dtype=np.int64)
    if not masked:
        counts = benchmark.dataset.train.counts(train, classes)
        return Task(index=0, classes=classes, train=train, test=test, counts=counts)
    positive, negative = np.zeros((2, len(classes)), np.int64)
    for task in benchmark.tasks:
        positive[task.classes], negative[task.classes] = task.counts.positive, task.counts.negative
    counts = LabelCounts(positive, negative, len(train))
    return Task(index=0, classes=classes, train=train, test=test, counts=counts)


def joint_mask(benchmark: Benchmark) -> NDArray[np.bool_]:
    """Return for which classes each training row contributes in masked joint training, bool ``[N, K]``.

    >>> y = [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]]
    >>> stream = Benchmark.from_arrays(np.eye(3), y, np.eye(3), y, tasks=2, order="sorted")
    >>> joint_mask(stream).astype(int)
    array([[1, 1, 0, 0],
           [1, 1, 1, 1],
           [0, 0, 1, 1]])
    """
    mask = np.zeros((len(benchmark.dataset.train), len(benchmark.dataset.classes)), np.bool_)
    for task in benchmark.tasks:
        mask[np.ix_(task.train, task.classes)] = True
    return mask if benchmark.dataset.train.known is None else mask & benchmark.dataset.train.known


class RowView:
    """Some rows of an array that is too large to copy; indexed by row only, and the rows that are taken are copied."""

    def __init__(self, base: NDArray[Any], rows: NDArray[np.int64]) -> None:
        self.base, self.rows = base, rows
        self.shape = (len(rows), *base.shape[1:])
        self.dtype, self.ndim = base.dtype, base.ndim
        self.nbytes = base.nbytes // max(1, len(base)) * len(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> NDArray[Any]:
        return np.asarray(self.base[self.rows[index]])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:].astype(self.dtype if dtype is None else dtype, copy=False)


def _take(split: Split, rows: NDArray[np.int64]) -> Split:
    """Return some rows of a split."""
    large = isinstance(split.inputs, np.memmap | RowView)
    inputs = RowView(split.inputs, rows) if large else split.inputs[rows]
    known = None if split.known is None else split.known[rows]
    return Split(cast("NDArray[Any]", inputs), split.labels[rows], known)
