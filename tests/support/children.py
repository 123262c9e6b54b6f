"""Child processes of tests: waits are for events, limits are for bugs, and no child outlives its test.

A test must pass on a machine that is ten times busier than the author's. So nothing here measures time: a wait ends
with its event, and `LIMIT` only turns a hang into a failure.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

LIMIT = 600.0
"""Seconds after which a wait is a bug and not a busy machine."""
FOREVER = 10 * LIMIT
"""Seconds that a child sleeps which must be ended by something else."""
TOKEN = "MLCL_TESTS"
"""The environment variable by which the descendants of a test process are found (see `conftest`)."""
_STAY = (b"multiprocessing.resource_tracker", b"multiprocessing.forkserver", b"loky.backend")
"""Helpers that Python keeps for the life of a process."""


def wait_until(happened: Callable[[], object], process: subprocess.Popen[Any] | None = None) -> None:
    """Wait for an event; fail if the process that should bring it about ends before."""
    deadline = time.monotonic() + LIMIT
    while not happened():
        if process is not None and process.poll() is not None and not happened():
            raise AssertionError(f"ended with code {process.returncode}: {process.communicate()}")
        assert time.monotonic() < deadline, f"did not happen within {LIMIT} seconds"
        time.sleep(0.02)


@contextlib.contextmanager
def child(command: Sequence[Any], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Start a process that leads a group of its own; the group is killed at the end, stopped processes too.

    It is killed after `LIMIT` seconds as well, so a test may read its pipes without a limit.
    """
    process = subprocess.Popen(command, start_new_session=True, **options)
    alarm = threading.Timer(LIMIT, _kill, [process])
    alarm.daemon = True
    alarm.start()
    try:
        yield process
    finally:
        alarm.cancel()
        _end(process)


def _kill(process: subprocess.Popen[Any]) -> None:
    with contextlib.suppress(
        ProcessLookupError, PermissionError
    ):  # macOS: not permitted once all are zombies
        os.killpg(process.pid, signal.SIGKILL)


def _end(process: subprocess.Popen[Any]) -> None:
    """Kill what is left of a process and its group, and close its pipes."""
    _kill(process)
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def complete(command: Sequence[Any], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and return what it wrote, as text; nothing of it is left, however the test ends."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with child(command, **{**pipes, **options}) as process:
        stdout, stderr = process.communicate()
        return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def descendants(token: str) -> dict[int, str]:
    """Return the living processes that came from a process with this token, with their commands (Linux only).

    A process that was executed has the token in its environment, even as an orphan; one that was only forked is found
    as a child of this process.
    """
    found = {}
    mark = f"{TOKEN}={token}".encode()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal() or int(folder.name) == os.getpid():
            continue
        try:
            state, parent = (folder / "stat").read_bytes().rpartition(b")")[2].split()[:2]
            own = int(parent) == os.getpid() or mark in (folder / "environ").read_bytes().split(b"\0")
            command = (folder / "cmdline").read_bytes() if own else b""
        except OSError:  # it has ended meanwhile, or is another user's
            continue
        if own and state != b"Z" and not any(word in command for word in _STAY):
            found[int(folder.name)] = command.replace(b"\0", b" ").decode(errors="replace").strip()[:200]
    return found
