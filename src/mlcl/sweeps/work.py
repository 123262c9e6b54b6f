"""One run of a sweep: done, followed, and its end reported. Engines differ only in where they call `attempt`."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from mlcl.errors import InputError, one_line
from mlcl.plugins import ensure_loaded
from mlcl.runs.folder import CHECKPOINTS, read_config, read_result_json
from mlcl.runs.run import resume
from mlcl.runs.run import run as start
from mlcl.runs.trackers import tracked
from mlcl.sweeps.plan import PlannedRun
from mlcl.training.callbacks import Callback, CallbackList
from mlcl.training.learner import Learner
from mlcl.training.optimisation import TrainingError


@dataclass(frozen=True)
class Position:
    """How far a run is: tasks and epochs done, of how many."""

    task: int
    tasks: int
    epoch: int
    epochs: int

    @property
    def share(self) -> float:
        """Return the part of the run that is done.

        >>> Position(task=1, tasks=4, epoch=5, epochs=10).share
        0.375
        """
        return min(1.0, (self.task + self.epoch / self.epochs) / self.tasks)


@dataclass(frozen=True)
class Finished:
    """How a run ended: its result, or its error in one sentence."""

    run: PlannedRun
    result: dict[str, Any] | None
    error: str = ""
    was_there: bool = False


class Watch(Protocol):
    """Called while a sweep goes on."""

    def started(self, run: PlannedRun) -> None:
        """A run was given to a worker."""

    def moved(self, run: PlannedRun, position: Position) -> None:
        """A run has come so far."""

    def ended(self, finished: Finished) -> None:
        """A run is over, or was found done."""


def attempt(
    run: PlannedRun, report: Callable[[Position], None] | None = None
) -> tuple[dict[str, Any] | None, str]:
    """Do one run in this process; return its result, or None and what went wrong.

    The traceback of an unforeseen error is written to the run's ``error_file``.
    """
    run.error_file.unlink(missing_ok=True)
    try:
        for plugin in run.plugins:
            ensure_loaded(plugin)
        with tracked(run.track, run.folder, run.config) as trackers:
            _do(run, CallbackList(_Reporting(report), trackers) if report else trackers)
        return read_result_json(run.folder), ""
    except (InputError, TrainingError) as error:
        return None, one_line(error, limit=500)
    except Exception as error:
        run.error_file.parent.mkdir(parents=True, exist_ok=True)
        run.error_file.write_text(traceback.format_exc(), encoding="utf-8")
        return None, one_line(f"{type(error).__name__}: {error}", limit=500)


def _do(run: PlannedRun, callback: Callback) -> None:
    """Resume from the newest checkpoint of an earlier attempt at this very run, or else start anew."""
    if (run.folder / CHECKPOINTS).is_dir():
        try:
            if read_config(run.folder) == run.config:
                resume(run.folder, callback=callback)
                return
        except InputError:
            pass  # of other data or tasks, or damaged: what is left of it is replaced
    start(run.config, out=run.folder, overwrite=True, callback=callback)


class _Reporting(Callback):
    """Reports the position after each epoch."""

    def __init__(self, report: Callable[[Position], None]) -> None:
        self.report = report

    def on_task_start(self, learner: Learner, task: Any, steps: int) -> None:  # noqa: ARG002
        self.report(Position(learner.task_index, len(learner.tasks), 0, learner.config.train.epochs))

    def on_epoch(self, learner: Learner, loss: float, seconds: float) -> None:  # noqa: ARG002
        epochs = learner.config.train.epochs
        self.report(Position(learner.task_index, len(learner.tasks), learner.epoch + 1, epochs))
