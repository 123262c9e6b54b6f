"""How long work will still take, by how long it has taken so far."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from mlcl.runs.durations import estimated

LEAST = 2.0
"""Seconds to watch before an estimate is shown: the first steps are slower than the rest."""
EVERY = 10.0
"""Seconds between lines where there is no terminal for a bar."""


class TimeLeft:
    """The time that a run will still take: its steps are alike, so those to come take as long as those so far.

    >>> clock = iter([0.0, 30.0]).__next__
    >>> left = TimeLeft(clock)
    >>> left.begin(0, rest=10, later=20)
    >>> for _ in range(5):
    ...     left.step()
    >>> str(left)  # 5 of 30 steps took 30 s
    'about 3 min left'
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.made = self.rest = 0
        self.started: float | None = None

    def begin(self, done: int, *, rest: int, later: int) -> None:
        """Begin a task of which ``done`` steps of ``rest`` were made before, with ``later`` steps in tasks to come."""
        if self.started is None:
            self.started = self.clock()
        self.rest = rest - done + later

    def step(self) -> None:
        """Count a step."""
        self.made, self.rest = self.made + 1, self.rest - 1

    def __str__(self) -> str:
        seconds = 0.0 if self.started is None else self.clock() - self.started
        return (
            f"about {estimated(seconds / self.made * self.rest)} left"
            if self.made and seconds >= LEAST
            else ""
        )


class ProgressLines:
    """A line now and then, with the time left, where there is no terminal: for ``progress`` of preparing a store.

    >>> import sys
    >>> clock = iter([0.0, 4.0, 20.0, 21.0]).__next__
    >>> lines = ProgressLines("preparing", sys.stdout, clock=clock)
    >>> for done in (10, 50, 60):
    ...     lines(done, 100)
    preparing: 50 of 100, about 20 s left
    """

    def __init__(self, text: str, file: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.text, self.file, self.clock = text, file, clock
        self.started = self.last = clock()

    def __call__(self, done: int, total: int) -> None:
        """Take note of how far the work is."""
        now = self.clock()
        if now - self.last < EVERY or not 0 < done < total:
            return
        self.last = now
        left = estimated((now - self.started) / done * (total - done))
        self.file.write(f"{self.text}: {done} of {total}, about {left} left\n")
        self.file.flush()
