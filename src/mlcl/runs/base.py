"""A finished run that another one begins from: what it keeps of the past, and a learner that stands where it ended.

All that is needed of the past is in the run folder: weights, the stored samples with their inputs and the constants
of every task, what the regulariser keeps, and the sums of an exact head.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mlcl.errors import InputError, one_line
from mlcl.labels import Labels
from mlcl.memories import Memory, own_rows
from mlcl.models.network import grown
from mlcl.runs import folder as files
from mlcl.runs.trained import Trained, load_trained
from mlcl.training.learner import Learner
from mlcl.training.state import State, with_prefix


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

    @property
    def stored_labels(self) -> Labels:
        """Return the labels of the stored samples, [M, K]; those that are not known are 0."""
        labels = np.zeros((len(self.memory), len(self.trained.classes)), np.uint8)
        for samples in own_rows(self.memory):
            labels[np.ix_(samples.rows, samples.classes)] = samples.labels
        return labels


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
    if result.matrix.values.shape != (tasks, tasks) or result.per_class.shape != (tasks, classes):
        raise InputError(f"{folder / files.RESULT}: its matrix is not one of its {tasks} tasks.")
    inputs = files.stored_inputs(kept, trained.config, trained.input_shape, path=folder)
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
        members = learner.head.weights()
        tensors |= {
            f"committee.{name}": grown(value.cpu(), members.get(name))
            for name, value in base.trained.committee.members.state_dict().items()
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
    nothing = {"macro_auc": float("nan"), "map": float("nan")}
    for name, table, more in (
        ("matrix", result.matrix.values, len(learner.tasks) - done),
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
