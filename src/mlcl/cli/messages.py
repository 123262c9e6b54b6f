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


def show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Print a warning of ours in one line; those of other packages are not for the user of the command line."""
    if issubclass(category, UserWarning):
        sys.stderr.write(f"mlcl: warning: {message}\n")
