"""The console, and how far work is that is no run: a bar in a terminal, lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from mlcl.cli.estimates import ProgressLines
from mlcl.texts import visible


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
