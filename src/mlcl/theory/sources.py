"""Diagnoses of a benchmark, with the memory that a run would have, and of a finished run, with its own memory."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.config.parts import build_memory
from mlcl.config.resolve import config_from
from mlcl.config.schema import Config
from mlcl.datasets import is_given_arrays
from mlcl.errors import InputError
from mlcl.memories import Memory, TaskSamples
from mlcl.runs.folder import read_data_record, read_extends, read_memory
from mlcl.runs.recording import load_benchmark
from mlcl.runs.trained import Trained, load_trained
from mlcl.streams import Benchmark, Task, joint_task
from mlcl.theory.bounds import DirectionCheck, check_directions
from mlcl.theory.diagnosis import Diagnosis, RiskSettings, Scored, diagnose_task

_NO_CLASS = "no class has positives and negatives"
_IMAGES = "images become feature vectors only in a run, so give the folder of a run of method exact"
_TRAINED = "the features of this run were trained, and the closed form is for fixed ones"
_NO_DATA = "the data were not found"


def diagnose(
    config: Config | Mapping[str, Any] | str | Path = "c-digits", *, benchmark: Benchmark | None = None
) -> Diagnosis:
    """Return the diagnostics of a benchmark and of the memory that a run would have at its end; nothing is trained.

    Args:
        config: a `Config`, a dict of settings, the name of a shipped config, or a YAML file, as for `mlcl.run`.
        benchmark: tasks to use instead of those that the config names.

    >>> found = diagnose({"memory": {"size": 100}})
    >>> found.memory, found.stored, len(found.tasks)
    ('wru', 100, 5)
    >>> max(task.proposition.difference for task in found.tasks) < 1e-6
    True
    """
    config = config_from(config)
    memory = build_memory(config)
    if memory.needs:
        raise InputError(
            f"memory.kind is {memory.kind!r}, which chooses by the {memory.needs[0]} of a trained network; "
            f"expected another memory, or the folder of a finished run."
        )
    found = benchmark if benchmark is not None else load_benchmark(config)
    for task in _trained_tasks(found, config):
        labels = found.task_labels(task)
        memory.update(TaskSamples(task.index, task.classes, task.counts, task.train, labels))
    directions = check_directions(found)
    why = "" if directions is not None else _NO_CLASS if found.dataset.kind == "features" else _IMAGES
    return replace(_diagnosis(config, memory, found.classes), directions=directions, unchecked=why)


def diagnose_run(folder: str | Path) -> Diagnosis:
    """Return the diagnostics of a finished run: of its own memory, with the risks of its trained network.

    Terms and gaps need the run folder alone. The full risk needs the data; if they are not found, or the run was
    extended and the data of old tasks are not kept, there is a warning, and risks are left out.
    """
    path = Path(folder)
    trained = load_trained(path)
    memory = read_memory(path, trained.result).memory
    benchmark = _data_of(path, trained.config, memory)
    logits = None if benchmark is None else trained.logits(benchmark.dataset.train.inputs)
    directions, why = _checked(trained, benchmark)
    found = _diagnosis(trained.config, memory, trained.classes, benchmark, logits)
    return replace(found, directions=directions, unchecked=why)


def _checked(trained: Trained, benchmark: Benchmark | None) -> tuple[DirectionCheck | None, str]:
    """Return the check of the exact learner on the features of a run, or why there is none.

    Vectors are checked as they are, whatever the method; images as the fixed features of an exact run.
    """
    if benchmark is None:
        return None, _NO_DATA
    inputs = benchmark.dataset.train.inputs
    if benchmark.dataset.kind == "features":
        directions = check_directions(benchmark)
    elif trained.config.model.head == "exact":
        directions = check_directions(benchmark, vectors=lambda rows: trained.features(inputs, rows))
    else:
        return None, _TRAINED
    return directions, "" if directions is not None else _NO_CLASS


def _diagnosis(
    config: Config,
    memory: Memory,
    classes: Sequence[str],
    benchmark: Benchmark | None = None,
    logits: NDArray[Any] | None = None,
) -> Diagnosis:
    settings = RiskSettings.of(config.loss)
    trained_on = None if benchmark is None else _trained_tasks(benchmark, config)
    tasks = []
    for number, samples in enumerate(memory.tasks):
        scored = None
        if benchmark is not None and trained_on is not None and logits is not None:
            task = trained_on[number]
            own = np.ix_(task.train, task.classes)
            labels = benchmark.dataset.train.labels[own]
            scored = Scored(logits[own], labels, logits[np.ix_(samples.rows, task.classes)])
        names = [classes[k] for k in samples.classes]
        tasks.append(diagnose_task(samples, classes=names, settings=settings, scored=scored))
    return Diagnosis(
        benchmark=config.benchmark,
        memory=memory.kind,
        size=memory.size,
        seed=config.seed,
        loss=config.loss.kind,
        trained=logits is not None,
        settings=settings,
        tasks=tuple(tasks),
    )


def _data_of(folder: Path, config: Config, memory: Memory) -> Benchmark | None:
    """Return the benchmark of a finished run if its data are still there and still the same."""
    try:
        if read_extends(folder) is not None:
            raise InputError("the run was extended, and the data of its old tasks are not kept")
        record = read_data_record(folder)
        if is_given_arrays(config.data):
            raise InputError("they are arrays that were given in Python")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # shown when the run was made
            found = load_benchmark(config)
        if found.dataset.fingerprint != record.get("fingerprint"):
            raise InputError("they have another fingerprint now")
        _check_rows(memory, found, config)
    except InputError as error:
        warnings.warn(
            f"the data of {folder} were not found ({str(error).rstrip('.')}), so risks are left out.",
            UserWarning,
            stacklevel=3,
        )
        return None
    return found


def _trained_tasks(benchmark: Benchmark, config: Config) -> tuple[Task, ...]:
    """Return the tasks as a run trains them: joint training has a single one."""
    masked = config.protocol == "joint-masked"
    return (joint_task(benchmark, masked=masked),) if config.joint else benchmark.tasks


def _check_rows(memory: Memory, benchmark: Benchmark, config: Config) -> None:
    """Refuse a memory whose rows are not those of the benchmark."""
    tasks = _trained_tasks(benchmark, config)
    if len(tasks) != len(memory.tasks) or not all(map(_fits, tasks, memory.tasks, repeat(benchmark))):
        raise InputError("the memory holds rows of other tasks")


def _fits(task: Task, samples: TaskSamples, benchmark: Benchmark) -> bool:
    labels = benchmark.dataset.train.labels
    return (
        np.array_equal(task.classes, samples.classes)
        and task.counts == samples.counts
        and bool(np.isin(samples.rows, task.train).all())
        and np.array_equal(labels[np.ix_(samples.rows, task.classes)], samples.labels)
    )
