"""A finished run, read back from its folder. Files may come from anywhere: all is bounded and checked."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.errors import InputError
from mlcl.files import read_object
from mlcl.memories import Memory
from mlcl.metrics import ResultMatrix
from mlcl.sweeps.plan import read_result

MAX_METRICS_BYTES = 256 << 20
MAX_MEMORY_BYTES = 1 << 30
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Run:
    """What a run measured. AUC values are in points.

    Attributes:
        folder: where it is.
        benchmark: name of the benchmark.
        method: name of the method.
        seed: its seed.
        config: all its settings.
        environment: what made it; empty if it is not known.
        matrix: A[t, i], ``[S, T]``.
        per_class: AUC of each class after each task, ``[S, K]``.
        classes: names of the classes.
        positive: P_k in each class's own task, ``[K]``.
        tasks: class ids of each task.
        values: metric to value: those of `mlcl.sweeps.experiment.METRICS` and ``seconds``; nan if undefined.
        task_seconds: time of each task.
        weights: where the backbone's pre-trained weights come from, if it has any.
        features: where the features of the data set come from, if a model computed them.
    """

    folder: Path
    benchmark: str
    method: str
    seed: int
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    matrix: ResultMatrix
    per_class: Floats
    classes: tuple[str, ...]
    positive: NDArray[np.int64]
    tasks: tuple[tuple[int, ...], ...]
    values: Mapping[str, float]
    task_seconds: Floats
    weights: Mapping[str, Any] | None = None
    features: Mapping[str, Any] | None = None

    @property
    def joint(self) -> bool:
        """Return whether everything was learnt at once."""
        return len(self.matrix.values) == 1 and self.matrix.tasks > 1

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of the data, or an empty string if it is not known."""
        data = self.environment.get("data")
        return str(data.get("fingerprint", "")) if isinstance(data, dict) else ""

    @property
    def commit(self) -> str:
        """Return the commit that made the run, or an empty string."""
        return str(self.environment.get("commit") or "")

    @cached_property
    def losses(self) -> Floats:
        """Return the mean training loss of each epoch, task after task; empty if it was not kept."""
        found: dict[tuple[int, int], float] = {}
        for line in _lines(self.folder / "metrics.jsonl"):
            position = (line.get("task"), line.get("epoch"))
            if line.get("name") == "train/loss" and all(isinstance(p, int) for p in position):
                found[position] = _number(line.get("value"))  # type: ignore[index]
        return np.array([found[position] for position in sorted(found)])

    @cached_property
    def memory(self) -> Memory | None:
        """Return what the memory held in the end, or None if it held nothing or cannot be read."""
        path = self.folder / "memory.safetensors"
        try:
            if path.stat().st_size > MAX_MEMORY_BYTES:
                raise InputError(f"larger than {MAX_MEMORY_BYTES} bytes")
            from safetensors.numpy import load

            memory = Memory.from_state(load(path.read_bytes()))
            if any(max(s.classes, default=0) >= len(self.classes) for s in memory.tasks):
                raise InputError("has classes that the run does not have")
        except FileNotFoundError:
            return None
        except Exception as error:
            # Whatever a damaged file makes the readers say, the page goes on without it.
            warnings.warn(
                f"{path}: the memory is left out: {' '.join(str(error).split())[:200]}", stacklevel=2
            )
            return None
        return memory if len(memory) else None


def read_run(folder: Path) -> Run:
    """Read a run's folder; anything missing or wrong is an `InputError` of one sentence."""
    result = read_result(folder)
    path = folder / "result.json"
    try:
        environment = read_object(folder / "environment.json", limit=1 << 20)
    except InputError:
        environment = {}
    try:
        matrix = ResultMatrix(_matrix(result, "matrix", None))
        classes = tuple(str(name) for name in _list(result, "classes"))
        per_class = _matrix(result, "per_class", len(classes))
        positive = np.array([_integer(v, "positive") for v in _list(result, "positive")], dtype=np.int64)
        tasks = tuple(tuple(_integer(k, "tasks") for k in task) for task in _list(result, "tasks"))
        seconds = np.array([_number(value) for value in _list(result, "task_seconds")])
        _check_shapes(matrix, per_class, classes, positive, tasks, seconds)
        pooled, thirds = _mapping(result, "pooled"), _mapping(result, "thirds")
        values = {
            "macro_auc": _number(result["macro_auc"]),
            "forgetting": _number(result.get("forgetting")),
            "pooled_macro_auc": _number(pooled.get("macro_auc")),
            "pooled_map": _number(pooled.get("map")),
            "seconds": _number(result.get("seconds")),
        } | {part: _number(thirds.get(part)) for part in ("head", "medium", "tail")}
    except (InputError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{path}: {' '.join(str(error).split())[:300]}") from None
    return Run(
        folder=folder,
        benchmark=result["benchmark"],
        method=result["method"],
        seed=result["seed"],
        config=result["config"],
        environment=environment,
        matrix=matrix,
        per_class=per_class,
        classes=classes,
        positive=positive,
        tasks=tasks,
        values=values,
        task_seconds=seconds,
        weights=_record(result, "weights"),
        features=_record(result, "features"),
    )


def _record(result: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """Return a mapping that may be absent: runs of an earlier version have none."""
    found = result.get(name)
    return found if isinstance(found, dict) else None


def _check_shapes(
    matrix: ResultMatrix,
    per_class: Floats,
    classes: tuple[str, ...],
    positive: NDArray[np.int64],
    tasks: tuple[tuple[int, ...], ...],
    seconds: Floats,
) -> None:
    """Fields must be of one run: as many tasks, stages and classes in all of them."""
    stages = len(matrix.values)
    if len(tasks) != matrix.tasks:
        raise InputError(
            f"tasks has {len(tasks)} entries and matrix has {matrix.tasks} columns; expected as many."
        )
    if any(not 0 <= k < len(classes) for task in tasks for k in task):
        raise InputError(f"tasks names classes outside 0 to {len(classes) - 1}.")
    if len(per_class) != stages or len(seconds) != stages:
        raise InputError(f"per_class or task_seconds does not have the {stages} stages of matrix.")
    if len(positive) != len(classes):
        raise InputError(
            f"positive has {len(positive)} values; expected one for each of {len(classes)} classes."
        )


def _lines(path: Path) -> list[dict[str, Any]]:
    """Read JSON lines; what is none is skipped, as the last line of a run that was killed may be."""
    try:
        if path.stat().st_size > MAX_METRICS_BYTES:
            warnings.warn(
                f"{path}: larger than {MAX_METRICS_BYTES} bytes; training curves are left out.", stacklevel=2
            )
            return []
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def _number(value: Any) -> float:
    """Return a number; null, which JSON has for nan, becomes nan."""
    if value is None:
        return float("nan")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"holds {str(value)[:40]!r} where a number was expected.")
    return float(value)


def _integer(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**62:
        raise InputError(f"{name} holds {str(value)[:40]!r} where a count or a class id was expected.")
    return value


def _list(result: Mapping[str, Any], name: str) -> list[Any]:
    value = result.get(name)
    if not isinstance(value, list):
        raise InputError(f"{name} is {str(value)[:40]!r}; expected a list.")
    return value


def _mapping(result: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = result.get(name)
    if not isinstance(value, dict):
        raise InputError(f"{name} is {str(value)[:40]!r}; expected a mapping.")
    return value


def _matrix(result: Mapping[str, Any], name: str, width: int | None) -> Floats:
    rows = [[_number(value) for value in row] for row in _list(result, name)]
    if not rows or len({len(row) for row in rows}) != 1 or (width is not None and len(rows[0]) != width):
        raise InputError(f"{name} is not a matrix of the expected width.")
    return np.array(rows, dtype=np.float64)
