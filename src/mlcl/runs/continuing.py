"""A finished run goes on: what it keeps of the past, a learner that stands where it ended, and one more store to learn.

All that is needed of the past is in the run folder: weights, the stored samples with their inputs and the constants of
every task, what the regulariser keeps, and the sums of an exact head. The store's classes are one more task: more rows
of labels that the run knows, new labels, or both. Old tasks are evaluated as well where their data can still be found.
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
from mlcl.datasets import Dataset, Split, absolute_data, is_given_arrays, load_dataset, shown_data
from mlcl.datasets.base import ConcatRows, known_labels
from mlcl.engines.launching import launched
from mlcl.errors import InputError, one_line
from mlcl.exact import ExactLearner
from mlcl.labels import Labels
from mlcl.memories import Memory, own_rows
from mlcl.models.network import grown
from mlcl.models.provenance import check_encoder
from mlcl.runs import folder as files
from mlcl.runs.recording import Recorder, load_benchmark, train_and_record
from mlcl.runs.result import Result
from mlcl.runs.trained import Trained, load_trained
from mlcl.runs.versions import current_folder
from mlcl.streams import Benchmark, Task, build_tasks, keep_out
from mlcl.training.callbacks import Callback
from mlcl.training.learner import Learner
from mlcl.training.processes import settled
from mlcl.training.state import State, with_prefix

FREE = ("data", "benchmark", "held_out", "train", "checkpoint")
"""Settings that may differ from those of the run before."""


@dataclass(frozen=True)
class Base:
    """A finished run, with all that it keeps of the past.

    Attributes:
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

    @property
    def sums(self) -> ExactLearner:
        """Return what an exact head keeps."""
        return ExactLearner.from_arrays({name: value.numpy() for name, value in self.kept.exact.items()})

    def with_sums(self, learner: ExactLearner, memory: Memory) -> Base:
        """Return the run with other sums, and the constants of tasks that fit them."""
        exact = {name: torch.from_numpy(value) for name, value in learner.arrays().items()}
        return dataclasses.replace(self, kept=dataclasses.replace(self.kept, memory=memory, exact=exact))

    @property
    def stored(self) -> Split:
        """Return the stored samples; labels that are not known are 0, and those of another task need no mask."""
        labels = np.zeros((len(self.memory), len(self.trained.classes)), np.uint8)
        known = np.ones(labels.shape, np.bool_)
        for samples in own_rows(self.memory):
            own = np.ix_(samples.rows, samples.classes)
            labels[own], known[own] = samples.labels, samples.extra.get("known", True)
        return Split(self.inputs, *known_labels(labels, known, name=str(self.folder)))


def load_base(folder: Path) -> Base:
    """Load a finished run, this very one, with its memory; one that cannot be gone on from is an `InputError`."""
    trained = load_trained(folder, current=False)
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
    if result.matrix.shape != (tasks, tasks) or result.per_class.shape != (tasks, classes):
        raise InputError(f"{folder / files.RESULT}: its matrix is not one of its {tasks} tasks.")
    inputs = files.inputs_of_memory(kept, trained.config, trained.input_shape, path=folder)
    return Base(trained, kept, inputs, files.fingerprint(folder))


def read_base(folder: Path) -> Base:
    """Return the run that another one began from, if it is still the same."""
    record = files.read_extends(folder)
    if record is None:
        raise InputError(f"{folder} began from no other run.")
    base = load_base(record.run)
    if base.fingerprint != record.fingerprint:
        raise InputError(f"{base.folder} is no longer the run that {folder} began from.")
    return base


def begin_from(learner: Learner, base: Base) -> None:
    """Move a new learner, whose first tasks are those of the run before, to where that run ended."""
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
    if base.trained.committee is not None:
        members = learner.head.members.state_dict()
        tensors |= {
            f"committee.{name}": grown(value.cpu(), members.get(name))
            for name, value in base.trained.committee.members.state_dict().items()
        }
    memory = Memory.from_state(base.memory.state())
    memory.tasks = tuple(own_rows(memory))
    tensors |= {f"memory.{name}": torch.from_numpy(value) for name, value in memory.state().items()}
    for name, value in base.kept.regulariser.items():
        # Importance and anchor of a parameter: new classes have none.
        like = fresh.get(name.split(".", 1)[-1])
        tensors[f"regulariser.{name}"] = grown(value, None if like is None else torch.zeros_like(like))
    tensors |= with_prefix("exact", base.kept.exact)
    tensors["normaliser.scale"] = base.trained.normaliser.scale.cpu()
    tensors["normaliser.shift"] = base.trained.normaliser.shift.cpu()
    result, done = base.trained.result, len(base.trained.tasks)
    nothing = {"macro_auc": float("nan"), "map": float("nan")}
    for name, table, more in (
        ("matrix", result.matrix, len(learner.tasks) - done),
        ("per_class", result.per_class, len(learner.data.classes) - len(base.trained.classes)),
    ):  # from points back to shares, with a gap for what is to come
        wide = np.pad(table / 100, ((0, 0), (0, more)), constant_values=np.nan)
        tensors[f"measured.{name}"] = torch.from_numpy(wide)
    values = {
        "position": [done, 0, 0, False],
        "pooled": [nothing] * done,
        "task_seconds": result.task_seconds.tolist(),
        "compute": [int(np.nan_to_num(result.values[name])) for name in ("steps", "rows")],
        "labels": learner.parts.labels.state(),
        "weights": base.trained.network.backbone.provenance,
        "encoder_weights": base.trained.result.encoder_weights,
    }
    return State(tensors, values)


def extended_benchmark(base: Base, config: Config, *, known: bool = False) -> Benchmark:
    """Put the remembered tasks and the new one side by side: old columns first, stored rows first.

    Args:
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
    stream, seed = config.stream, config.seed if config.stream.seed is None else config.stream.seed
    (added,) = build_tasks(data, [columns], negatives=stream.negatives, imbalance=stream.imbalance, seed=seed)
    last = Task(
        index=len(past.tasks),
        classes=ids,
        train=len(past.dataset.train) + added.train,
        test=len(past.dataset.test) + added.test,
        counts=added.counts,
    )
    parts = [base.fingerprint, data.fingerprint, past.dataset.fingerprint or None]
    dataset = Dataset(
        f"{data.name}-extended",
        names,
        _joined(past.dataset.train, data.train, columns=columns, ids=ids, classes=len(names)),
        _joined(past.dataset.test, data.test, columns=columns, ids=ids, classes=len(names)),
        hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16],
        augmentation=data.augmentation,
        origin=data.origin,
        encoder=base.trained.encoder,
    )
    found = Benchmark(config.benchmark, dataset, (*past.tasks, last), complete=False, added=1)
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
        base.stored,
        empty if before is None else before.dataset.test,
        "" if before is None else before.dataset.fingerprint,
        origin=base.trained.result.features,
        encoder=base.trained.encoder,
    )
    complete = before is not None and before.complete
    return Benchmark(base.trained.config.benchmark, dataset, tasks, complete=complete, added=0)


def same_encoder(trained: Trained, data: Dataset, store: str) -> None:
    """Refuse vectors that another encoder of texts made, and warn of those of an unknown one."""
    if trained.encoder is None and data.encoder is not None:
        raise InputError(f"{store} has vectors of texts; {trained.folder} takes no texts")
    if trained.encoder is not None and data.encoder is None:
        warnings.warn(f"{store} does not record which encoder made its vectors.", UserWarning, stacklevel=3)
    elif data.encoder != trained.encoder:
        raise InputError(
            f"{store} has vectors that another encoder made than the one of {trained.folder}; expected texts, or "
            "vectors that its own encoder made"
        )


def added_classes(base: Base, data: Dataset, *, store: str, known: bool) -> NDArray[np.int64]:
    """Return the columns of a dataset's classes that the new task has: all, or those that the run does not know.

    Messages name the store and not the dataset, of which there may be several stores.
    """
    same_encoder(base.trained, data, store)
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
        return benchmark_of(read_base(base.folder)).renamed(receipt["names"])
    if receipt is not None:
        found = remembered_benchmark(read_base(base.folder))
        return found.without(str(receipt["label"])) if "label" in receipt else found
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
    known = np.ones(wide.shape, np.bool_)
    if before.known is not None:
        known[: len(before), : before.labels.shape[1]] = before.known
    if added.known is not None:
        known[len(before) :, ids] = added.known[:, columns]
    inputs = cast("NDArray[Any]", ConcatRows(before.inputs, added.inputs))
    return Split(inputs, *known_labels(wide, known, name="known"))


def update(
    folder: str | Path,
    data: str | Path | None = None,
    *,
    out: str | Path,
    config: Config | None = None,
    known: bool = True,
    gate: files.Gate | None = None,
    overwrite: bool = False,
    callback: Callback | None = None,
) -> Result:
    """Train a finished run on the classes of a dataset, as one more task, and write the result to a new folder.

    Args:
        folder: the finished run; of one with versions the current one. It stays as it is.
        data: a store, by folder or name.
        out: folder to write; ``mlcl resume`` continues there if it is stopped.
        config: settings instead of those of the run; only data, benchmark, held_out, train and checkpoint may differ.
        known: learn the store's classes that the run knows already too; else its new classes alone.
        gate: what `mlcl.taggers.gate.release` compares the result on, see `mlcl.taggers.gate.check_gate`.
        overwrite: replace ``out`` if it holds an earlier run.
    """
    now = current_folder(Path(folder))
    if Path(out).resolve() in (now.resolve(), Path(folder).resolve()):
        raise InputError(f"--out {out} is the run that is extended; expected another folder.")
    files.require_finished(now)
    settings = config or dataclasses.replace(files.read_config(now), data=absolute_data(str(data)))
    return _train(now, settings, callback, out=Path(out), known=known, gate=gate, overwrite=overwrite)


def _train(
    parent: Path,
    config: Config,
    callback: Callback | None = None,
    *,
    out: Path,
    known: bool,
    gate: files.Gate | None,
    overwrite: bool,
) -> Result:
    """Train on from this very run, in every process: the version in use may change meanwhile."""
    base = load_base(parent)
    _refuse_settings(base.trained.config, config)
    config = settled(config)
    given = {"out": out, "known": known, "gate": gate, "overwrite": overwrite}
    with launched(config.train.devices, _train, parent, config, **given):
        learner = Learner(config, extended_benchmark(base, config, known=known), pretrained=False)
        begin_from(learner, base)
        for note in learner.benchmark.notes:
            warnings.warn(note, UserWarning, stacklevel=2)
        extends = files.Extends(
            base.folder, base.fingerprint, known, gate, thresholds=base.trained.thresholds_print
        )
        recorder = learner.processes.on_first(
            lambda: Recorder.create(out, config, learner.benchmark, overwrite=overwrite, extends=extends)
        )
        return train_and_record(learner, recorder, callback, base.trained.decisions)


def _refuse_settings(before: Config, now: Config) -> None:
    old, new = to_dict(before), to_dict(now)
    for name in sorted({*old, *new} - set(FREE)):
        if old.get(name) != new.get(name):
            raise InputError(
                f"{name} was {old.get(name)} and is {new.get(name)}; an extended run may change only "
                f"{', '.join(FREE)}."
            )
