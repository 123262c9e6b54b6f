"""A command line that trains only when it is told to: ``python update_when_told.py update DIR --data STORE ...``.

It writes a line when training is about to begin, so that its version has its number and its parent, and goes on when it
reads one: two of them meet at this place however busy the machine is.
"""

from __future__ import annotations

import sys
from typing import Any
from unittest import mock

from mlcl.cli.main import main
from mlcl.runs.continuing import update
from mlcl.runs.result import Result
from mlcl.streams import Task
from mlcl.training.callbacks import Callback, CallbackList
from mlcl.training.learner import Learner


class Meet(Callback):
    """Waits at the first task."""

    def __init__(self) -> None:
        self.met = False

    def on_task_start(self, learner: Learner, task: Task, steps: int) -> None:
        """Meet the others here."""
        if not self.met:
            self.met = True
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            sys.stdin.readline()


def update_later(*arguments: Any, callback: Callback, **options: Any) -> Result:
    """Do what `mlcl update` does, after the meeting."""
    return update(*arguments, callback=CallbackList(Meet(), callback), **options)


if __name__ == "__main__":
    with mock.patch("mlcl.runs.continuing.update", update_later):
        sys.exit(main(sys.argv[1:]))
