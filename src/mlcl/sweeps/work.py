"""One run of a sweep: executed, its progress and its end reported. Engines differ in where they call `attempt`."""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mlcl.errors import InputError, one_line
from mlcl.files import write_text
from mlcl.plugins import ensure_loaded
from mlcl.runs.folder import (
    CHECKPOINTS,
    is_run,
    keep_record,
    pack_folder,
    read_config,
    read_result_json,
    unpack_folder,
    write_diverged,
)
from mlcl.runs.run import resume
from mlcl.runs.run import run as start
from mlcl.runs.trackers import tracked
from mlcl.sweeps.plan import PlannedRun
from mlcl.training.callbacks import Callback, CallbackList
from mlcl.training.learner import Learner
from mlcl.training.optimisation import TrainingError

DIVERGED = (
    *(TrainingError, ArithmeticError, np.linalg.LinAlgError),
    torch.linalg.LinAlgError,  # type: ignore[attr-defined]
)
"""What a run fails with whose numbers are no longer finite."""


@dataclass(frozen=True)
class Position:
    """The progress of a run: tasks and epochs done, and their total numbers."""

    task: int
    tasks: int
    epoch: int
    epochs: int

    @property
    def share(self) -> float:
        """Return the fraction of the run that is done.

        >>> Position(task=1, tasks=4, epoch=5, epochs=10).share
        0.375
        """
        return min(1.0, (self.task + self.epoch / max(self.epochs, 1)) / self.tasks)


@dataclass(frozen=True)
class Finished:
    """How a run ended: with its ``result.json``, or an error in one sentence; or it was there before the sweep."""

    run: PlannedRun
    result: dict[str, Any] | None
    error: str = ""
    was_there: bool = False


class SweepCallback:
    """Called at events of a sweep. Each method does nothing by default; override those you need."""

    def on_run_start(self, run: PlannedRun) -> None:
        """Called when a run is sent to a worker."""

    def on_progress(self, run: PlannedRun, position: Position) -> None:
        """Called when a run starts a task or ends an epoch."""

    def on_run_end(self, finished: Finished) -> None:
        """Called when a run has ended, or was finished before the sweep."""


def attempt(
    run: PlannedRun, report: Callable[[Position], None] | None = None
) -> tuple[dict[str, Any] | None, str]:
    """Execute one run in this process; return its result, or None and the error in one sentence.

    The plugins of the run are loaded first. The traceback of an unexpected error is written to its ``error_file``.
    """
    run.error_file.unlink(missing_ok=True)
    try:
        for plugin in run.plugins:
            ensure_loaded(plugin)
        with tracked(run.track, run.folder, run.config) as trackers:
            _run_or_resume(run, CallbackList(_Reporting(report), trackers) if report else trackers)
        if run.tuning:
            keep_record(run.folder)
        return read_result_json(run.folder), ""
    except Exception as error:
        if run.tuning and isinstance(error, DIVERGED) and is_run(run.folder):
            write_diverged(run.folder, run.config, error=one_line(error, limit=500))
            return read_result_json(run.folder), ""
        if isinstance(error, InputError | TrainingError):
            return None, one_line(error, limit=500)
        return None, _unexpected(run, error)


def attempt_on_node(run: PlannedRun) -> tuple[dict[str, bytes] | None, str, str]:
    """Execute a run on a node, in a temporary folder; return its files, or the error and its traceback."""
    with tempfile.TemporaryDirectory(prefix="mlcl-") as folder:
        here = replace(run, folder=Path(folder) / run.folder.name)
        result, error = attempt(here)
        if result is None:
            trace = here.error_file.read_text(encoding="utf-8") if here.error_file.exists() else ""
            return None, error, trace
        return pack_folder(here.folder), "", ""


def received(run: PlannedRun, files: dict[str, bytes] | None, error: str, trace: str) -> Finished:
    """Write what a node has sent into the folder of the run: its files, or the traceback of its failure."""
    if files is not None:
        unpack_folder(files, run.folder)
        return Finished(run, read_result_json(run.folder))
    if trace:
        run.error_file.parent.mkdir(parents=True, exist_ok=True)
        write_text(run.error_file, trace)
        error = f"{error} (traceback in {run.error_file})"
    return Finished(run, None, error)


def _unexpected(run: PlannedRun, error: Exception) -> str:
    """Write the traceback of an error that is being handled, and return it in one sentence."""
    run.error_file.parent.mkdir(parents=True, exist_ok=True)
    write_text(run.error_file, traceback.format_exc())
    return one_line(f"{type(error).__name__}: {error}", limit=500)


def _run_or_resume(run: PlannedRun, callback: Callback) -> None:
    """Resume an interrupted attempt at the same run from its newest checkpoint, or else run from the start."""
    if (run.folder / CHECKPOINTS).is_dir():
        try:
            if read_config(run.folder) == run.config:
                resume(run.folder, callback=callback)
                return
        except InputError:
            pass  # made with other data or tasks, or corrupt: it is replaced
    start(run.config, out=run.folder, overwrite=True, callback=callback)


class _Reporting(Callback):
    """Reports the position at the start of each task and after each epoch."""

    def __init__(self, report: Callable[[Position], None]) -> None:
        self.report = report

    def on_task_start(self, learner: Learner, task: Any, steps: int) -> None:  # noqa: ARG002
        self.report(Position(learner.task_index, len(learner.tasks), 0, learner.epochs))

    def on_epoch(self, learner: Learner, loss: float, seconds: float) -> None:  # noqa: ARG002
        self.report(Position(learner.task_index, len(learner.tasks), learner.epoch + 1, learner.epochs))
