"""Where a learner stands, as tensors and plain values: what a checkpoint holds (`checkpoints` writes it)."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from mlcl.errors import InputError
from mlcl.evaluation import Measured
from mlcl.memories import Memory
from mlcl.models import frozen_copy

if TYPE_CHECKING:
    from mlcl.training import Learner


@dataclass(frozen=True)
class State:
    """All that is needed to go on: tensors by name, and plain values that JSON can hold (but for nan).

    The tensors are those in use, not copies: write them, or copy them, before the learner goes on.
    """

    tensors: dict[str, Tensor]
    values: dict[str, Any]


def take_state(learner: Learner) -> State:
    """Return all that is needed to go on from here; random numbers follow from seed and position."""
    tensors = {f"network.{name}": value for name, value in learner.network.state_dict().items()}
    tensors |= {f"memory.{name}": torch.from_numpy(value) for name, value in learner.memory.state().items()}
    tensors |= {f"regulariser.{name}": value for name, value in learner.parts.regulariser.state().items()}
    # Tables go with the tensors: as text they would soon be longer than all the rest.
    for name in ("matrix", "per_class"):
        tensors[f"measured.{name}"] = torch.tensor(getattr(learner.measured, name), dtype=torch.float64)
    tensors |= {"normaliser.scale": learner.normaliser.scale, "normaliser.shift": learner.normaliser.shift}
    if learner.in_task:
        if learner.context.teacher is not None:
            tensors |= {
                f"teacher.{name}": value for name, value in learner.context.teacher.state_dict().items()
            }
        if learner.average is not None:
            tensors |= {f"average.{name}": value for name, value in learner.average.state().items()}
        for number, slot in learner.optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{number}.{k}": v for k, v in slot.items() if isinstance(v, Tensor)}
    values: dict[str, Any] = {
        "position": [learner.task, learner.epoch, learner.step, learner.in_task],
        "epoch_loss": learner.epoch_loss,
        "spent": learner.spent + time.perf_counter() - learner.started if learner.in_task else 0.0,
        "pooled": learner.measured.pooled,
        "task_seconds": learner.measured.task_seconds,
        "labels": learner.parts.labels.state(),
        "updates": learner.average.updates if learner.in_task and learner.average is not None else 0,
        "weights": learner.network.backbone.provenance,
    }
    if (scaler := _scaler(learner)) is not None:
        values["scaler"] = scaler.state_dict()
    return State(tensors, values)


def load_state(learner: Learner, state: State) -> None:
    """Go to where `state` was taken; the learner must be new, of the same config and benchmark.

    A state that does not fit is an `InputError`, or whatever PyTorch raises; the learner is of no use then.
    """
    task, epoch, step, in_task = state.values["position"]
    if not 0 <= task <= len(learner.stages) - bool(in_task):
        raise InputError(f"the state stands at task {task}, but there are {len(learner.stages)} tasks.")
    tensors = {name: value.to(learner.device, copy=True) for name, value in state.tensors.items()}
    learner.measured = Measured(
        matrix=state.tensors["measured.matrix"].tolist(),
        per_class=state.tensors["measured.per_class"].tolist(),
        pooled=[_with_nan(found) for found in state.values["pooled"]],
        task_seconds=list(state.values["task_seconds"]),
    )
    widths = (len(learner.benchmark.tasks), len(learner.data.classes))
    for table, width in zip((learner.measured.matrix, learner.measured.per_class), widths, strict=True):
        if [len(row) for row in table] != [width] * task:
            raise InputError(f"the state has no measures of {task} tasks.")
    learner.normaliser = replace(
        learner.normaliser, scale=tensors["normaliser.scale"], shift=tensors["normaliser.shift"]
    )
    stored = _section(state.tensors, "memory.")
    learner.memory = Memory.from_state({name: value.cpu().numpy() for name, value in stored.items()})
    _check_memory(learner, task)
    for stage in learner.stages[:task]:
        learner.add_classes(stage)
    learner.parts.regulariser.load_state(_section(tensors, "regulariser."))
    learner.parts.labels.load_state(state.values["labels"])
    learner.network.backbone.provenance = state.values.get("weights")
    learner.task = task
    if in_task:
        taught = _section(tensors, "teacher.")
        teacher = frozen_copy(learner.network) if taught else None
        if teacher is not None:
            teacher.load_state_dict(taught)
        learner.enter(learner.stages[task], teacher)
    learner.network.load_state_dict(_section(tensors, "network."))
    if in_task:
        learner.epoch, learner.step = epoch, step
        learner.epoch_loss, learner.spent = state.values["epoch_loss"], state.values["spent"]
        _load_optimiser(learner, _section(tensors, "optimiser."))
        if learner.average is not None:
            learner.average.load_state(_section(tensors, "average."), updates=state.values["updates"])
        learner.start_epoch(learner.stages[task])
        if not (0 <= epoch <= learner.epochs and 0 <= step <= len(learner.plan)):
            raise InputError(
                f"the state stands at epoch {epoch}, step {step}, but a task has {learner.epochs} epochs of "
                f"{len(learner.plan)} steps."
            )
    if (scaler := _scaler(learner)) is not None and "scaler" in state.values:
        scaler.load_state_dict(state.values["scaler"])


def _load_optimiser(learner: Learner, state: dict[str, Tensor]) -> None:
    """Give the optimiser its state back, in the memory layout of the parameters."""
    parameters = [p for group in learner.optimiser.param_groups for p in group["params"]]
    slots: dict[int, dict[str, Tensor]] = {}
    for key, value in state.items():
        number, name = key.split(".")
        like = parameters[int(number)]
        same = value if value.shape != like.shape else torch.empty_like(like).copy_(value)
        slots.setdefault(int(number), {})[name] = same
    learner.optimiser.load_state_dict(learner.optimiser.state_dict() | {"state": slots})


def _check_memory(learner: Learner, tasks: int) -> None:
    """Refuse a memory that is not one of the first ``tasks`` tasks of this benchmark."""
    rows, found = learner.memory.rows, [samples.task for samples in learner.memory.tasks]
    fits = found == [stage.index for stage in learner.stages[:tasks]] and all(
        np.array_equal(samples.classes, stage.classes)
        for samples, stage in zip(learner.memory.tasks, learner.stages, strict=False)
    )
    if not fits or (len(rows) and not 0 <= rows.min() <= rows.max() < len(learner.data.train)):
        raise InputError(f"the memory holds {len(rows)} rows of tasks {found}; they are not of this stream.")


def _scaler(learner: Learner) -> Any:
    """Return what scales the loss in half precision, or None."""
    return getattr(learner.fabric.strategy.precision, "scaler", None)


def _with_nan(values: dict[str, float | None]) -> dict[str, float]:
    """Turn null, JSON's word for an undefined measure, back into nan."""
    return {name: math.nan if value is None else value for name, value in values.items()}


def _section(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
