"""A command line that trains only when it is told to: ``python update_when_told.py update DIR --data STORE ...``.

It writes a line when training is about to begin, so that its version has its number and its parent, and goes on when it
reads one: two of them meet at this place however busy the machine is.
"""

from __future__ import annotations

import sys

from mlcl.cli import update as verb
from mlcl.cli.main import main
from mlcl.training.callbacks import Callback, CallbackList

train = verb.update


class Meet(Callback):
    """Waits at the first task."""

    def __init__(self):
        self.met = False

    def on_task_start(self, learner, task, steps):
        if not self.met:
            self.met = True
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            sys.stdin.readline()


def update(*arguments, callback, **options):
    """Do what `mlcl update` does, after the meeting."""
    return train(*arguments, callback=CallbackList(Meet(), callback), **options)


if __name__ == "__main__":
    verb.update = update
    sys.exit(main(sys.argv[1:]))
