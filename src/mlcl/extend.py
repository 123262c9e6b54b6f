"""A finished run learns labels that nobody knew when it began: the head grows, and the memory speaks for the past.

All that is needed of the past is in the run folder: weights, the stored samples with their inputs and the constants
of every task, and what the regulariser kept. Old tasks are tested as well where their data can still be found.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mlcl.batches import enlarged
from mlcl.config import Config, to_dict
from mlcl.datasets import Dataset, Split, load_dataset
from mlcl.errors import InputError
from mlcl.files import read_object
from mlcl.labels import Labels
from mlcl.launching import started
from mlcl.learner_state import State
from mlcl.memories import Memory, TaskSamples
from mlcl.observers import Observer
from mlcl.processes import settled
from mlcl.results import Result
from mlcl.run_folder import EXTENDS, RunFolder
from mlcl.runs import go_on, load_benchmark
from mlcl.streams import Benchmark, Task, build_tasks
from mlcl.trained import Trained, load_trained, read_tensors
from mlcl.training import Learner

FREE = ("data", "benchmark", "train", "checkpoint")
"""Settings that may differ from those of the run before."""


@dataclass(frozen=True, eq=False)
class ExtendedBenchmark(Benchmark):
    """Old tasks as far as they are remembered, and a new one. No image has the labels of all tasks."""

    complete: bool = False


@dataclass(frozen=True)
class Base:
    """A finished run, with all that it remembers.

    Attributes:
        folder: of the run.
        trained: network, normaliser, classes, settings.
        memory: the stored samples, their labels, and the constants of every task.
        inputs: the stored samples' inputs [M, ...], in the order of the memory.
        regulariser: what the regulariser kept.
        measured: matrix, per_class, pooled and task_seconds so far, AUC between 0 and 1.
        fingerprint: of all of it.
    """

    folder: Path
    trained: Trained
    memory: Memory
    inputs: NDArray[Any]
    regulariser: dict[str, Tensor]
    measured: dict[str, Any]
    fingerprint: str


class Joined:
    """Rows of two arrays, one after the other, without a copy of either."""

    def __init__(self, first: NDArray[Any], second: NDArray[Any]) -> None:
        self.parts = (first, second)
        self.shape = (len(first) + len(second), *second.shape[1:])
        self.dtype, self.ndim = second.dtype, second.ndim
        self.nbytes = first.nbytes + second.nbytes

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, index: Any) -> NDArray[Any]:
        """Return the rows of a slice or of row numbers, as a new array.

        >>> Joined(np.array([[1.0], [2.0]]), np.array([[3.0], [4.0]]))[np.array([3, 0])].tolist()
        [[4.0], [1.0]]
        """
        rows = np.arange(len(self))[index]
        out = np.empty((len(rows), *self.shape[1:]), self.dtype)
        late = rows >= len(self.parts[0])
        out[~late] = self.parts[0][rows[~late]]
        out[late] = self.parts[1][rows[late] - len(self.parts[0])]
        return out


def extend(
    folder: str | Path,
    data: str | Path | None = None,
    *,
    out: str | Path,
    config: Config | None = None,
    overwrite: bool = False,
    observer: Observer | None = None,
) -> Result:
    """Teach a finished run the new classes of a data set, as one more task, and write the result to a new folder.

    Args:
        folder: the finished run; it stays as it is.
        data: a store, by folder or name. Its classes that the run does not know are the new task.
        out: folder to write; ``mlcl resume`` goes on there if it is stopped.
        config: settings instead of those of the run; only data, benchmark, train and checkpoint may differ.
        overwrite: replace ``out`` if it holds an earlier run.
        observer: told what happens while training.
    """
    base = load_base(Path(folder))
    settings = config or dataclasses.replace(base.trained.config, data=str(data))
    _refuse_settings(base.trained.config, settings)
    if Path(out).resolve() == base.folder.resolve():
        raise InputError(f"--out {out} is the run that is extended; expected another folder.")
    settings = settled(settings)
    with started(settings.train.devices, extend, folder, out=out, config=settings, overwrite=overwrite):
        learner = Learner(settings, extended_benchmark(base, settings), pretrained=False)
        begin(learner, base)
        record = {"run": str(base.folder.resolve()), "fingerprint": base.fingerprint}
        opened = learner.processes.on_first(
            lambda: RunFolder.create(
                Path(out), settings, learner.benchmark, overwrite=overwrite, extends=record
            )
        )
        return go_on(learner, opened, observer)


def load_base(folder: Path) -> Base:
    """Load a finished run with its memory; one that cannot be extended is an `InputError`."""
    trained = load_trained(folder)
    if trained.config.protocol == "joint":
        raise InputError(
            f"{folder} learnt everything at once (protocol 'joint'); it has no tasks to add one to."
        )
    path = folder / "memory.safetensors"
    result = read_object(folder / "result.json", limit=1 << 30)
    tensors = read_tensors(path, sums=result.get("sha256"))
    if "inputs" not in tensors:
        raise InputError(f"{path}: has no inputs of the stored samples; the run was made by an older mlcl.")
    try:
        memory = Memory.from_state(
            {k: v.numpy() for k, v in tensors.items() if "." not in k or k[0].isdecimal()}
        )
        classes = [samples.classes.tolist() for samples in memory.tasks]
        if classes != [ids.tolist() for ids in trained.tasks] or len(tensors["inputs"]) != len(memory):
            raise ValueError("its tasks are not those of result.json")
        factor = trained.config.memory.downscale
        channels, *sides = tensors["inputs"].shape[1:]
        if (channels, *(factor * side for side in sides)) != trained.input_shape:
            raise ValueError(f"its inputs have the shape {tuple(tensors['inputs'].shape[1:])}")
        # Not before the sides are known to fit: the factor comes from a file.
        inputs = enlarged(tensors["inputs"], factor)
        measured = _measured(result, len(trained.tasks), len(trained.classes))
    except Exception as error:  # names, shapes and values come from files
        reason = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        raise InputError(f"{path} does not fit the run: {reason}.") from None
    kept = {k.removeprefix("regulariser."): v for k, v in tensors.items() if k.startswith("regulariser.")}
    digest = hashlib.sha256((folder / "weights.safetensors").read_bytes() + path.read_bytes())
    return Base(folder, trained, memory, inputs.numpy(), kept, measured, digest.hexdigest()[:16])


def _measured(result: Mapping[str, Any], tasks: int, classes: int) -> dict[str, Any]:
    """Return what was measured, from points back to shares, with a gap for the task to come."""
    matrix, per_class = (np.array(result[name], np.float64) / 100 for name in ("matrix", "per_class"))
    if matrix.shape != (tasks, tasks) or per_class.shape != (tasks, classes):
        raise ValueError("its matrix is not one of its tasks")
    return {
        "matrix": matrix,
        "per_class": per_class,
        "task_seconds": [float(s) for s in result["task_seconds"]],
    }


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
        f"{data.name}-extended", names, train, test, fingerprint, augmentation=data.augmentation
    )
    return ExtendedBenchmark(config.benchmark, dataset, (*tasks, last))


def new_classes(base: Base, data: Dataset) -> tuple[Dataset, NDArray[np.int64]]:
    """Return the data set and the columns of its classes that the run does not know yet."""
    if data.train.inputs.shape[1:] != base.trained.input_shape:
        raise InputError(
            f"{data.name} has inputs of shape {data.train.inputs.shape[1:]}, but the network was trained on "
            f"{base.trained.input_shape}."
        )
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
        record = read_object(base.folder / "environment.json", limit=1 << 20)["data"]
        if (base.folder / EXTENDS).is_file():
            found: Benchmark = extended_benchmark(base_of(base.folder), config)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # told when the run was made
                found = load_benchmark(config)
        if found.dataset.fingerprint == record["fingerprint"]:
            return found
        reason = "they have another fingerprint now"
    except (InputError, KeyError, TypeError) as error:
        reason = str(error)
    warnings.warn(
        f"the data of {base.folder} were not found ({reason.rstrip('.')}), so its tasks are not tested again.",
        UserWarning,
        stacklevel=3,
    )
    return None


def base_of(folder: Path) -> Base:
    """Return the run that an extended one began from, if it is still the same."""
    record = read_object(folder / EXTENDS, limit=1 << 20)
    if not isinstance(record.get("run"), str):
        raise InputError(f"{folder / EXTENDS}: names no run.")
    base = load_base(Path(record["run"]))
    if base.fingerprint != record.get("fingerprint"):
        raise InputError(f"{base.folder} is no longer the run that {folder} was extended from.")
    return base


def own_rows(memory: Memory) -> list[TaskSamples]:
    """Number the stored samples from 0, as their inputs lie in the run folder."""
    ends = np.cumsum([len(samples) for samples in memory.tasks])
    return [
        dataclasses.replace(samples, rows=np.arange(end - len(samples), end, dtype=np.int64))
        for samples, end in zip(memory.tasks, ends, strict=True)
    ]


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
    return Split(cast("NDArray[Any]", Joined(inputs, added.inputs)), wide)


def begin(learner: Learner, base: Base) -> None:
    """Bring a new learner of an extended benchmark to where the run before ended."""
    try:
        learner.load_state(_start(learner, base))
    except InputError:
        raise
    except Exception as error:  # names and shapes come from files
        reason = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        raise InputError(f"{base.folder} does not fit its own settings: {reason}.") from None


def _start(learner: Learner, base: Base) -> State:
    fresh = learner.network.state_dict()
    tensors = {
        f"network.{name}": grown(value.cpu(), fresh.get(name))
        for name, value in base.trained.network.state_dict().items()
    }
    memory = Memory.from_state(base.memory.state())
    memory.tasks = tuple(own_rows(memory))
    tensors |= {f"memory.{name}": torch.from_numpy(value) for name, value in memory.state().items()}
    for name, value in base.regulariser.items():
        like = fresh.get(
            name.split(".", 1)[-1]
        )  # importance and anchor of a parameter: new classes have none
        tensors[f"regulariser.{name}"] = grown(value, None if like is None else torch.zeros_like(like))
    tensors["normaliser.scale"] = base.trained.normaliser.scale.cpu()
    tensors["normaliser.shift"] = base.trained.normaliser.shift.cpu()
    done, added = len(base.trained.tasks), len(learner.data.classes) - len(base.trained.classes)
    nothing = {"macro_auc": float("nan"), "map": float("nan")}
    for name, more in (("matrix", 1), ("per_class", added)):
        wide = np.pad(base.measured[name], ((0, 0), (0, more)), constant_values=np.nan)
        tensors[f"measured.{name}"] = torch.from_numpy(wide)
    values = {
        "position": [done, 0, 0, False],
        "pooled": [nothing] * done,
        "task_seconds": base.measured["task_seconds"],
        "labels": learner.parts.labels.state(),
        "weights": base.trained.network.backbone.provenance,
    }
    return State(tensors, values)


def grown(value: Tensor, like: Tensor | None) -> Tensor:
    """Return ``value`` with the further rows of ``like``, if that has more: a head with more classes.

    >>> grown(torch.ones(2), torch.zeros(3))
    tensor([1., 1., 0.])
    """
    if like is None or value.shape == like.shape or value.shape[1:] != like.shape[1:]:
        return value
    out = like.detach().cpu().clone()
    out[: len(value)] = value
    return out
