"""The tasks of a finished run, as far as they are remembered, and the task that a store adds to them.

Old tasks are evaluated as well where their data can still be found.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from mlcl.config.schema import Config
from mlcl.datasets import Dataset, Split, is_given_arrays, load_dataset, shown_data
from mlcl.datasets.base import ConcatRows
from mlcl.errors import InputError
from mlcl.labels import Labels
from mlcl.memories import own_rows
from mlcl.models.provenance import check_encoder
from mlcl.runs import folder as files
from mlcl.runs.base import Base, read_base
from mlcl.runs.names import renamed_benchmark
from mlcl.runs.recording import load_benchmark
from mlcl.runs.without import benchmark_without
from mlcl.streams import Benchmark, Task, build_tasks, keep_out, task_notes


@dataclass(frozen=True, eq=False)
class ExtendedBenchmark(Benchmark):
    """Old tasks as far as they are remembered, and a new one. No image has the labels of all tasks."""

    complete: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what the new task lacks; the others were noted in the run before."""
        return task_notes(self.dataset, self.tasks[-1:])


class RememberedBenchmark(ExtendedBenchmark):
    """The tasks of a run as far as they are remembered."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Return nothing: all that the tasks lack was noted in the run before."""
        return ()


def extended_benchmark(base: Base, config: Config, *, known: bool = False) -> ExtendedBenchmark:
    """Put the remembered tasks and the new one side by side: old columns first, stored rows first.

    Args:
        base: the run before.
        config: names the data of the new task, and says how its rows are found.
        known: whether the new task has the classes of the store that the run knows already.
    """
    data = load_dataset(config.data, in_memory=config.train.in_memory)
    columns = added_classes(base, data, store=shown_data(config.data), known=known)
    past = remembered_benchmark(base)
    names = (
        *base.trained.classes,
        *(data.classes[k] for k in columns if data.classes[k] not in past.classes),
    )
    ids = np.array([names.index(data.classes[k]) for k in columns], np.int64)
    added = _added_task(data, columns, config)
    last = Task(
        index=len(past.tasks),
        classes=ids,
        train=len(past.dataset.train) + added.train,
        test=len(past.dataset.test) + added.test,
        counts=added.counts,
    )
    before = past.dataset.fingerprint or None
    dataset = Dataset(
        f"{data.name}-extended",
        names,
        _joined(past.dataset.train, data.train, columns=columns, ids=ids, classes=len(names)),
        _joined(past.dataset.test, data.test, columns=columns, ids=ids, classes=len(names)),
        _digest(base.fingerprint, data.fingerprint, before),
        augmentation=data.augmentation,
        origin=data.origin,
    )
    found = ExtendedBenchmark(config.benchmark, dataset, (*past.tasks, last))
    if config.held_out is None:
        return found
    return keep_out(found, share=config.held_out, seed=config.seed, rows=last.train)


def remembered_benchmark(base: Base) -> Benchmark:
    """Return the tasks of a run with the rows that it stored, and their tests where the data are still there.

    The fingerprint of its dataset is that of the data, or empty.
    """
    before = _earlier_tests(base)
    shape = base.trained.input_shape
    nothing = np.empty(0, np.int64)
    tasks = tuple(
        Task(
            index=samples.task,
            classes=samples.classes,
            train=samples.rows,
            test=nothing if before is None else before.tasks[samples.task].test,
            counts=samples.counts,
        )
        for samples in own_rows(base.memory)
    )
    empty = Split(
        np.zeros((0, *shape), base.inputs.dtype), np.zeros((0, len(base.trained.classes)), np.uint8)
    )
    dataset = Dataset(
        base.trained.config.benchmark,
        base.trained.classes,
        Split(base.inputs, base.stored_labels),
        empty if before is None else before.dataset.test,
        "" if before is None else before.dataset.fingerprint,
        origin=base.trained.result.features,
    )
    complete = before is not None and bool(getattr(before, "complete", True))
    return RememberedBenchmark(base.trained.config.benchmark, dataset, tasks, complete=complete)


def added_classes(base: Base, data: Dataset, *, store: str, known: bool) -> NDArray[np.int64]:
    """Return the columns of a dataset's classes that the new task has: all, or those that the run does not know.

    Messages name the store and not the dataset, of which there may be several stores.
    """
    if data.train.inputs.shape[1:] != base.trained.input_shape:
        raise InputError(
            f"{store} has inputs of shape {data.train.inputs.shape[1:]}, but the network was trained on "
            f"{base.trained.input_shape}."
        )
    check_encoder(base.trained.result.features, data.origin, run=str(base.folder), data=store)
    seen = [name for name in data.classes if name in set(base.trained.classes)]
    if known:
        if seen and base.trained.network.head.freezes:
            raise InputError(
                f"{store} has classes that {base.folder} knows ({seen[0]!r}), but its head "
                f"{base.trained.config.model.head!r} has one session per class; expected new classes alone "
                "(mlcl extend)."
            )
        return np.arange(len(data.classes))
    columns = np.array([k for k, name in enumerate(data.classes) if name not in seen], np.int64)
    if not len(columns):
        raise InputError(f"{store} has no class that {base.folder} does not know already.")
    if seen:
        warnings.warn(
            f"{store}: classes known already are left out: {', '.join(seen)}.", UserWarning, stacklevel=3
        )
    return columns


def _added_task(data: Dataset, columns: NDArray[np.int64], config: Config) -> Task:
    """Return the rows of the new task, by the rules of the stream."""
    stream = config.stream
    seed = config.seed if stream.seed is None else stream.seed
    (task,) = build_tasks(data, [columns], negatives=stream.negatives, imbalance=stream.imbalance, seed=seed)
    return task


def _earlier_tests(base: Base) -> Benchmark | None:
    """Return the benchmark of the run before if its data are still there, to test its tasks too."""
    try:
        found = benchmark_of(base)
        if found.dataset.fingerprint == files.read_data_record(base.folder).get("fingerprint"):
            return found
        reason = "they have another fingerprint now"
    except InputError as error:
        reason = str(error)
    warnings.warn(
        f"the data of {base.folder} were not found ({reason.rstrip('.')}), so its tasks are not evaluated again.",
        UserWarning,
        stacklevel=4,
    )
    return None


def benchmark_of(base: Base) -> Benchmark:
    """Return the benchmark that a finished run was made with; data that are gone are an `InputError`."""
    config, extends = base.trained.config, files.read_extends(base.folder)
    if is_given_arrays(config.data):
        raise InputError("they are arrays that were given in Python")
    receipt = files.read_receipt(base.folder)
    if receipt is not None and receipt.get("what") == "names":
        return renamed_benchmark(benchmark_of(read_base(base.folder)), receipt["names"])
    if receipt is not None:
        found = remembered_benchmark(read_base(base.folder))
        label = receipt.get("label")
        return found if label is None else benchmark_without(found, str(label))
    if extends is not None:
        return extended_benchmark(read_base(base.folder), config, known=extends.known)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # shown when the run was made
        return load_benchmark(config)


def _joined(
    before: Split, added: Split, *, columns: NDArray[np.int64], ids: NDArray[np.int64], classes: int
) -> Split:
    """Return old rows, then new ones; each has labels in its own columns only."""
    wide: Labels = np.zeros((len(before) + len(added), classes), np.uint8)
    wide[: len(before), : before.labels.shape[1]] = before.labels
    wide[len(before) :, ids] = added.labels[:, columns]
    return Split(cast("NDArray[Any]", ConcatRows(before.inputs, added.inputs)), wide)


def _digest(*parts: str | None) -> str:
    """Return one fingerprint of several."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
