"""A finished run learns labels that nobody knew when it began: the head grows, and the memory stands for the past.

All that is needed of the past is in the run folder: weights, the stored samples with their inputs and the constants
of every task, and what the regulariser keeps. Old tasks are evaluated as well where their data can still be found.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from mlcl.config.schema import Config, to_dict
from mlcl.datasets import Dataset, Split, is_given_arrays, load_dataset
from mlcl.datasets.base import ConcatRows
from mlcl.errors import InputError, one_line
from mlcl.labels import Labels
from mlcl.memories import Memory, own_rows
from mlcl.models.network import grown
from mlcl.models.provenance import check_encoder
from mlcl.runs import folder as files
from mlcl.runs.recording import Recorder, load_benchmark, train_and_record
from mlcl.runs.result import Result
from mlcl.runs.trained import Trained, load_trained
from mlcl.streams import Benchmark, Task, build_tasks, task_notes
from mlcl.training.callbacks import Callback
from mlcl.training.launching import launched
from mlcl.training.learner import Learner
from mlcl.training.processes import settled
from mlcl.training.state import State, with_prefix

FREE = ("data", "benchmark", "train", "checkpoint")
"""Settings that may differ from those of the run before."""


@dataclass(frozen=True, eq=False)
class ExtendedBenchmark(Benchmark):
    """Old tasks as far as they are remembered, and a new one. No image has the labels of all tasks."""

    complete: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what the new task lacks; the others were noted in the run before."""
        return task_notes(self.dataset, self.tasks[-1:])


@dataclass(frozen=True)
class Base:
    """A finished run, with all that it keeps of the past.

    Attributes:
        trained: network, normaliser, classes, settings, what was measured.
        kept: the stored samples, the constants of every task, and what the regulariser keeps.
        inputs: the stored samples' inputs [M, ...], in the order of the memory.
        fingerprint: of all of it.
    """

    trained: Trained
    kept: files.Kept
    inputs: NDArray[Any]
    fingerprint: str

    @property
    def folder(self) -> Path:
        """Return the folder of the run."""
        return self.trained.folder

    @property
    def memory(self) -> Memory:
        """Return the memory."""
        return self.kept.memory


def extend(
    folder: str | Path,
    data: str | Path | None = None,
    *,
    out: str | Path,
    config: Config | None = None,
    overwrite: bool = False,
    callback: Callback | None = None,
) -> Result:
    """Train a finished run on the new classes of a dataset, as one more task, and write the result to a new folder.

    Args:
        folder: the finished run; it stays as it is.
        data: a store, by folder or name. Its classes that the run does not know are the new task.
        out: folder to write; ``mlcl resume`` continues there if it is stopped.
        config: settings instead of those of the run; only data, benchmark, train and checkpoint may differ.
        overwrite: replace ``out`` if it holds an earlier run.
        callback: called while training.
    """
    base = load_base(Path(folder))
    settings = config or dataclasses.replace(base.trained.config, data=str(data))
    _refuse_settings(base.trained.config, settings)
    if Path(out).resolve() == base.folder.resolve():
        raise InputError(f"--out {out} is the run that is extended; expected another folder.")
    settings = settled(settings)
    with launched(settings.train.devices, extend, folder, out=out, config=settings, overwrite=overwrite):
        learner = Learner(settings, extended_benchmark(base, settings), pretrained=False)
        begin_extended(learner, base)
        for note in learner.benchmark.notes:
            warnings.warn(note, UserWarning, stacklevel=2)
        record = {"run": str(base.folder.resolve()), "fingerprint": base.fingerprint}
        recorder = learner.processes.on_first(
            lambda: Recorder.create(
                Path(out), settings, learner.benchmark, overwrite=overwrite, extends=record
            )
        )
        return train_and_record(learner, recorder, callback)


def load_base(folder: Path) -> Base:
    """Load a finished run with its memory; one that cannot be extended is an `InputError`."""
    trained = load_trained(folder)
    if trained.config.joint:
        raise InputError(
            f"{folder} learnt everything at once (protocol {trained.config.protocol!r}); it has no tasks to add one to."
        )
    kept = files.read_memory(folder, trained.result)
    if [samples.classes.tolist() for samples in kept.memory.tasks] != [ids.tolist() for ids in trained.tasks]:
        raise InputError(
            f"{folder / files.MEMORY} does not fit the run: its tasks are not those of {files.RESULT}."
        )
    tasks, classes = len(trained.tasks), len(trained.classes)
    result = trained.result
    if result.matrix.values.shape != (tasks, tasks) or result.per_class.shape != (tasks, classes):
        raise InputError(f"{folder / files.RESULT}: its matrix is not one of its {tasks} tasks.")
    inputs = files.stored_inputs(kept, trained.config, trained.input_shape, path=folder)
    return Base(trained, kept, inputs, files.fingerprint(folder))


def _refuse_settings(before: Config, now: Config) -> None:
    old, new = to_dict(before), to_dict(now)
    for name in sorted({*old, *new} - set(FREE)):
        if old.get(name) != new.get(name):
            raise InputError(
                f"{name} was {old.get(name)} and is {new.get(name)}; an extended run may change only "
                f"{', '.join(FREE)}."
            )


def extended_benchmark(base: Base, config: Config) -> ExtendedBenchmark:
    """Put the remembered tasks and the new one side by side: old columns first, stored rows first."""
    data, columns = new_classes(base, load_dataset(config.data, in_memory=config.train.in_memory))
    known, stored = len(base.trained.classes), len(base.memory)
    before = _earlier_tests(base)
    shift = 0 if before is None else len(before.dataset.test)
    added = _added_task(data, columns, config)
    tasks = [
        Task(
            index=samples.task,
            classes=samples.classes,
            train=samples.rows,
            test=np.empty(0, np.int64) if before is None else before.tasks[samples.task].test,
            counts=samples.counts,
        )
        for samples in own_rows(base.memory)
    ]
    last = Task(
        index=len(tasks),
        classes=known + np.arange(len(columns)),
        train=stored + added.train,
        test=shift + added.test,
        counts=added.counts,
    )
    names = base.trained.classes + tuple(data.classes[k] for k in columns)
    train = _joined(base.inputs, _stored_labels(base), data.train, columns)
    test = (
        _joined(before.dataset.test.inputs, before.dataset.test.labels, data.test, columns)
        if before is not None
        else _joined(data.test.inputs[:0], np.zeros((0, known), np.uint8), data.test, columns)
    )
    parts = [base.fingerprint, data.fingerprint, None if before is None else before.dataset.fingerprint]
    fingerprint = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    dataset = Dataset(
        f"{data.name}-extended",
        names,
        train,
        test,
        fingerprint,
        augmentation=data.augmentation,
        origin=data.origin,
    )
    return ExtendedBenchmark(config.benchmark, dataset, (*tasks, last))


def new_classes(base: Base, data: Dataset) -> tuple[Dataset, NDArray[np.int64]]:
    """Return the dataset and the columns of its classes that the run does not know yet."""
    if data.train.inputs.shape[1:] != base.trained.input_shape:
        raise InputError(
            f"{data.name} has inputs of shape {data.train.inputs.shape[1:]}, but the network was trained on "
            f"{base.trained.input_shape}."
        )
    check_encoder(base.trained.result.features, data.origin, run=str(base.folder), data=data.name)
    known = set(base.trained.classes)
    columns = np.array([k for k, name in enumerate(data.classes) if name not in known], np.int64)
    if not len(columns):
        raise InputError(f"{data.name} has no class that {base.folder} does not know already.")
    if len(columns) < len(data.classes):
        seen = ", ".join(name for name in data.classes if name in known)
        warnings.warn(f"{data.name}: classes known already are left out: {seen}.", UserWarning, stacklevel=3)
    return data, columns


def _added_task(data: Dataset, columns: NDArray[np.int64], config: Config) -> Task:
    """Return the rows of the new task, by the rules of the stream."""
    stream = config.stream
    seed = config.seed if stream.seed is None else stream.seed
    (task,) = build_tasks(data, [columns], negatives=stream.negatives, imbalance=stream.imbalance, seed=seed)
    return task


def _earlier_tests(base: Base) -> Benchmark | None:
    """Return the benchmark of the run before if its data are still there, to test its tasks too."""
    config = base.trained.config
    try:
        record = files.read_data_record(base.folder)
        if is_given_arrays(config.data):
            raise InputError("they are arrays that were given in Python")
        if files.read_extends(base.folder) is not None:
            found: Benchmark = extended_benchmark(read_base(base.folder), config)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # shown when the run was made
                found = load_benchmark(config)
        if found.dataset.fingerprint == record.get("fingerprint"):
            return found
        reason = "they have another fingerprint now"
    except InputError as error:
        reason = str(error)
    warnings.warn(
        f"the data of {base.folder} were not found ({reason.rstrip('.')}), so its tasks are not evaluated again.",
        UserWarning,
        stacklevel=3,
    )
    return None


def read_base(folder: Path) -> Base:
    """Return the run that an extended one began from, if it is still the same."""
    record = files.read_extends(folder) or {}
    base = load_base(Path(str(record.get("run"))))
    if base.fingerprint != record.get("fingerprint"):
        raise InputError(f"{base.folder} is no longer the run that {folder} was extended from.")
    return base


def _stored_labels(base: Base) -> Labels:
    labels = np.zeros((len(base.memory), len(base.trained.classes)), np.uint8)
    for samples in own_rows(base.memory):
        labels[np.ix_(samples.rows, samples.classes)] = samples.labels
    return labels


def _joined(inputs: NDArray[Any], labels: Labels, added: Split, columns: NDArray[np.int64]) -> Split:
    """Return old rows, then new ones; each has labels in its own columns only."""
    wide = np.zeros((len(labels) + len(added), labels.shape[1] + len(columns)), np.uint8)
    wide[: len(labels), : labels.shape[1]] = labels
    wide[len(labels) :, labels.shape[1] :] = added.labels[:, columns]
    return Split(cast("NDArray[Any]", ConcatRows(inputs, added.inputs)), wide)


def begin_extended(learner: Learner, base: Base) -> None:
    """Move a new learner of an extended benchmark to where the run before ended."""
    try:
        learner.load_state(_start(learner, base))
    except InputError:
        raise
    except Exception as error:  # names and shapes come from files
        raise InputError(f"{base.folder} does not fit its own settings: {one_line(error)}.") from None


def _start(learner: Learner, base: Base) -> State:
    fresh = learner.network.state_dict()
    tensors = {
        f"network.{name}": grown(value.cpu(), fresh.get(name))
        for name, value in base.trained.network.state_dict().items()
    }
    memory = Memory.from_state(base.memory.state())
    memory.tasks = tuple(own_rows(memory))
    tensors |= {f"memory.{name}": torch.from_numpy(value) for name, value in memory.state().items()}
    for name, value in base.kept.regulariser.items():
        like = fresh.get(
            name.split(".", 1)[-1]
        )  # importance and anchor of a parameter: new classes have none
        tensors[f"regulariser.{name}"] = grown(value, None if like is None else torch.zeros_like(like))
    tensors |= with_prefix("exact", base.kept.exact)
    tensors["normaliser.scale"] = base.trained.normaliser.scale.cpu()
    tensors["normaliser.shift"] = base.trained.normaliser.shift.cpu()
    result, done = base.trained.result, len(base.trained.tasks)
    added = len(learner.data.classes) - len(base.trained.classes)
    nothing = {"macro_auc": float("nan"), "map": float("nan")}
    for name, table, more in (
        ("matrix", result.matrix.values, 1),
        ("per_class", result.per_class, added),
    ):  # from points back to shares, with a gap for the task to come
        wide = np.pad(table / 100, ((0, 0), (0, more)), constant_values=np.nan)
        tensors[f"measured.{name}"] = torch.from_numpy(wide)
    values = {
        "position": [done, 0, 0, False],
        "pooled": [nothing] * done,
        "task_seconds": result.task_seconds.tolist(),
        "labels": learner.parts.labels.state(),
        "weights": base.trained.network.backbone.provenance,
    }
    return State(tensors, values)
