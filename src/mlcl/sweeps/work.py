"""One run of a sweep: done, followed, and its end told. Engines differ only in where they call `attempt`."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from mlcl.sweeps.plan import PlannedRun, read_result

if TYPE_CHECKING:
    from mlcl.observers import Observer


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
    """What is told while a sweep goes on."""

    def started(self, run: PlannedRun) -> None:
        """A run was given to a process."""

    def moved(self, run: PlannedRun, position: Position) -> None:
        """A run has come so far."""

    def ended(self, finished: Finished) -> None:
        """A run is over, or was found done."""


def attempt(
    run: PlannedRun, tell: Callable[[Position], None] | None = None
) -> tuple[dict[str, Any] | None, str]:
    """Do one run in this process; return its result, or None and what went wrong.

    The trace of an error that nobody foresaw is written to the run's ``error_file``.
    """
    from mlcl.errors import InputError
    from mlcl.observers import Both
    from mlcl.sweeps.trackers import tracked
    from mlcl.training import TrainingError

    run.error_file.unlink(missing_ok=True)
    try:
        with tracked(run.track, run.folder, run.config) as trackers:
            _do(run, Both(_follower(tell), trackers) if tell else trackers)
        return read_result(run.folder), ""
    except (InputError, TrainingError) as error:
        return None, _one_line(str(error))
    except Exception as error:
        run.error_file.parent.mkdir(parents=True, exist_ok=True)
        run.error_file.write_text(traceback.format_exc(), encoding="utf-8")
        return None, _one_line(f"{type(error).__name__}: {error}")


def _do(run: PlannedRun, observer: Observer) -> None:
    """Go on from the newest checkpoint of an earlier attempt at this very run, or else start anew."""
    from mlcl.errors import InputError
    from mlcl.runs import resume
    from mlcl.runs import run as start
    from mlcl.settings import config_from

    if (run.folder / "checkpoints").is_dir():
        try:
            if config_from(run.folder / "config.yaml") == run.config:
                resume(run.folder, observer=observer)
                return
        except InputError:
            pass  # of other data or tasks, or damaged: what is left of it is replaced
    start(run.config, out=run.folder, overwrite=True, observer=observer)


def _follower(tell: Callable[[Position], None]) -> Observer:
    from mlcl.observers import Observer as Base
    from mlcl.training import Learner

    class Follower(Base):
        """Tells the position after each epoch."""

        def on_task_start(self, learner: Learner, stage: Any, steps: int) -> None:  # noqa: ARG002
            """Tell it."""
            tell(Position(learner.task, len(learner.stages), 0, learner.config.train.epochs))

        def on_epoch(self, learner: Learner, loss: float, seconds: float) -> None:  # noqa: ARG002
            """Tell it."""
            tell(Position(learner.task, len(learner.stages), learner.epoch + 1, learner.config.train.epochs))

    follower: Observer = Follower()
    return follower


def _one_line(text: str) -> str:
    return " ".join(text.split())[:500]
