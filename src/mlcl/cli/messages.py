"""Messages on stderr: one line each."""

from __future__ import annotations

import sys
from typing import Any

from mlcl.training.launching import rank


def fail(message: str, code: int) -> int:
    """Print an error in one line and return the exit code."""
    where = f"process {rank()}: " if rank() else ""
    sys.stderr.write(f"mlcl: error: {where}{message.replace(chr(10), ' ')}\n")
    return code


_SHOWN: set[str] = set()


def new_warnings() -> None:
    """Begin a command: what an earlier one has shown is shown again."""
    _SHOWN.clear()


def show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Print a warning of ours in one line, once; those of other packages are not for the user of the command line."""
    text = str(message)
    if issubclass(category, UserWarning) and text not in _SHOWN:
        _SHOWN.add(text)  # Python forgets what it has shown whenever somebody changes the filters
        sys.stderr.write(f"mlcl: warning: {text}\n")
