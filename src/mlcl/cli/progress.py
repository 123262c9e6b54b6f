"""The console, how far work is, and how long it will still take by how long it has taken so far."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from mlcl.runs.durations import estimated
from mlcl.texts import visible

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


class PlainConsole(Console):
    """A console on which a string is a line of text: labels and errors come from outside and may look like markup."""

    def render_str(self, text: str, **given: Any) -> Text:
        """Return what every string, also one in a table, is shown as."""
        return super().render_str(
            visible(text), **(given | {"markup": False, "emoji": False, "highlight": False})
        )


def make_console(file: TextIO) -> PlainConsole:
    """Return a console; where the output is no terminal, lines are plain and as long as they are."""
    return PlainConsole(
        file=file, width=None if file.isatty() else 160, highlight=False, soft_wrap=not file.isatty()
    )


@contextmanager
def progress_shown(text: str, *, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Show how far work is, with the time left: a bar in a terminal, a line now and then elsewhere."""
    if quiet or not sys.stderr.isatty():
        yield None if quiet else ProgressLines(text, sys.stderr)
        return
    columns = (
        TextColumn(text, markup=False),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=make_console(sys.stderr), transient=True) as bar:
        task = bar.add_task(text, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
