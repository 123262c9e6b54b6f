"""Who is told while training: an observer writes files, shows progress, or stops the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlcl.streams import Task
    from mlcl.training import Learner


class Interrupted(Exception):
    """An observer asks the run to stop here; a run that has a folder writes a checkpoint first."""


class Observer:
    """What is told while training; override what is of interest. `runs` writes files and shows progress with it."""

    def on_task_start(self, learner: Learner, stage: Task, steps: int) -> None:
        """A task begins; it will take ``steps`` steps an epoch."""

    def on_step(self, learner: Learner, loss: float) -> None:
        """A step was made. `Interrupted`, raised here or at the end of a task, stops the run so that it can go on."""

    def on_epoch(self, learner: Learner, loss: float, seconds: float) -> None:
        """An epoch is over; ``loss`` is its mean."""

    def on_task_end(self, learner: Learner) -> None:
        """A task is learnt, the memory updated, all tasks tested."""


class Both(Observer):
    """Tells two observers."""

    def __init__(self, first: Observer, second: Observer) -> None:
        self.observers = (first, second)

    def on_task_start(self, *args: Any) -> None:
        """Pass it on."""
        for observer in self.observers:
            observer.on_task_start(*args)

    def on_step(self, *args: Any) -> None:
        """Pass it on."""
        for observer in self.observers:
            observer.on_step(*args)

    def on_epoch(self, *args: Any) -> None:
        """Pass it on."""
        for observer in self.observers:
            observer.on_epoch(*args)

    def on_task_end(self, *args: Any) -> None:
        """Pass it on."""
        for observer in self.observers:
            observer.on_task_end(*args)
