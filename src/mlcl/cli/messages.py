"""What a command writes: lines on stdout, messages on stderr. No text in them is ever more than text."""

from __future__ import annotations

import io
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from mlcl.engines.launching import rank
from mlcl.texts import visible

WIDTH, COLUMN = 110, 30
"""Of a help: its width, and where meanings begin."""


def say(*cells: object) -> None:
    """Write a line to stdout; several cells are separated by tabs."""
    sys.stdout.write("\t".join(map(visible, cells)) + "\n")


def page(text: str) -> None:
    """Write several lines of our own to stdout, such as a help."""
    for line in text.splitlines():
        say(line)


def note(text: object) -> None:
    """Write a line to stderr; that nobody reads it any more does not end the work."""
    try:
        sys.stderr.write(visible(text) + "\n")
        sys.stderr.flush()
    except OSError:
        nowhere(2)


def nowhere(stream: int) -> None:
    """Let what is written to a standard stream, by its number, vanish from now on."""
    null = os.open(os.devnull, os.O_RDWR)
    if null != stream:
        os.dup2(null, stream)
        os.close(null)


def open_streams() -> None:
    """Begin a program: a standard stream that is closed leads nowhere, and every text can be written."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            nowhere(number)  # or the next file that is opened would be taken for it
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def close_streams() -> None:
    """End a program: what nobody reads is dropped, where Python would end in a traceback."""
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            nowhere(number)


def fail(message: str, code: int) -> int:
    """Print an error in one line and return the exit code."""
    where = f"process {rank()}: " if rank() else ""
    note(f"mlcl: error: {where}{message.replace(chr(10), ' ')}")
    return code


_SHOWN: set[str] = set()
_WORDS: list[str] = []


def new_command(words: Sequence[str]) -> None:
    """Begin a command: warnings that an earlier one has shown are shown again."""
    _SHOWN.clear()
    _WORDS[:] = words


def command_words() -> list[str]:
    """Return the words of the command that runs, the verb first."""
    return list(_WORDS)


def again() -> str:
    """Return the command that goes on where this one was stopped: the same, which begins nothing anew."""
    return shlex.join(["mlcl", *(word for word in _WORDS if word != "--overwrite")])


def show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Print a warning of ours in one line, once; those of other packages are not for the user of the command line."""
    text = str(message)
    if issubclass(category, UserWarning) and text not in _SHOWN:
        _SHOWN.add(text)  # Python forgets what it has shown whenever somebody changes the filters
        note(f"mlcl: warning: {text}")
