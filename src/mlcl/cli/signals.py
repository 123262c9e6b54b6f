"""Stopping from outside: SIGTERM, SIGHUP and the first Ctrl-C let the step finish, a second Ctrl-C does not wait."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

from mlcl.cli.messages import note
from mlcl.engines.launching import endings, rank
from mlcl.streams import Task
from mlcl.training.callbacks import Callback, Interrupted
from mlcl.training.learner import Learner


class Signals(Callback):
    """Stops the run after the step in which SIGTERM, SIGHUP or SIGINT came. Used in a ``with``, which puts all back.

    It listens from the first task on: before it there is nothing to save, and signals do what they always do.

    Attributes:
        listening: whether training has begun.
    """

    def __init__(self) -> None:
        self.listening = False
        self._before: dict[signal.Signals, Any] = {}
        self._caught = False

    def __enter__(self) -> Signals:
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._caught and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._caught = True
        if rank() == 0:
            note("stopping after this step; a second Ctrl-C does not wait")

    def on_task_start(self, learner: Learner, task: Task, steps: int) -> None:  # noqa: ARG002
        """Begin to listen; only the main thread can."""
        if not self.listening and threading.current_thread() is threading.main_thread():
            self._before = {n: signal.signal(n, self._handle) for n in (signal.SIGINT, *endings())}
        self.listening = True

    def on_step(self, learner: Learner, loss: float) -> None:  # noqa: ARG002
        """Stop here if a signal came."""
        if self._caught:
            raise Interrupted

    def on_task_end(self, learner: Learner) -> None:
        """Stop here if a signal came, and there is more to do."""
        if self._caught and learner.task_index < len(learner.tasks):
            raise Interrupted
