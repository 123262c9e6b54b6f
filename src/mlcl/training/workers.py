"""Worker processes of this machine that do one job after the other, and end with this process."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar

Job = TypeVar("Job")
_SPAWN = multiprocessing.get_context("spawn")  # after a fork, torch's threads may deadlock


@dataclass
class Worker(Generic[Job]):
    """A process that does one job after the other, and the pipe to it.

    Attributes:
        process: the process.
        pipe: jobs go in, results come out; it closes when the process ends.
        job: what it is doing; None if nothing.
    """

    process: Any
    pipe: Connection
    job: Job | None = None

    @classmethod
    def start(cls, serve: Callable[[Connection], None], environment: Mapping[str, str]) -> Worker[Job]:
        """Start a process.

        Args:
            serve: importable by name; called in the process with its end of the pipe.
            environment: further variables; those of libraries are read when they are loaded.
        """
        ours, theirs = _SPAWN.Pipe()
        process = _SPAWN.Process(target=serve, args=(theirs,), daemon=True)
        with _environment(environment):
            process.start()
        theirs.close()  # so that the pipe closes when the process ends
        return cls(process, ours)

    def give(self, job: Job) -> None:
        """Send a job."""
        self.job = job
        self.pipe.send(job)

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        self.process.terminate()
        self.process.join()
        self.pipe.close()

    def buried(self) -> str:
        """Return how a process came to its end that closed its pipe."""
        self.process.join()
        self.pipe.close()
        return exit_message(self.process.exitcode)


def one_thread() -> dict[str, str]:
    """Return the environment of a worker that shares the machine with as many others as there are cores."""
    policy = os.environ.get("OMP_WAIT_POLICY", "PASSIVE")  # threads that spin take the cores of other workers
    return {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": policy}


def begin_serving() -> None:
    """Prepare a worker process: Ctrl-C is for its parent, and it ends when that does, even by SIGKILL."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it reaches the whole process group
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def exit_message(code: int | None) -> str:
    """Say how a worker ended.

    >>> exit_message(1)
    'the worker ended with code 1 before its work was done.'
    """
    if code is not None and code < 0:
        return f"the worker was ended by signal {-code}; running out of memory is a common cause of signal 9."
    return f"the worker ended with code {code} before its work was done."


def _exit_with_parent() -> None:
    """End this process when its parent ends, even by SIGKILL: nothing would receive its result."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables while a process is started: OpenMP reads its own when torch is loaded."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
