"""The local engine: executes runs in worker processes of this machine, which end with this process."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, cast

import torch

from mlcl.sweeps.plan import PlannedRun
from mlcl.sweeps.work import Finished, Position, SweepCallback, attempt
from mlcl.training.portable import ENVIRONMENT

_SPAWN = multiprocessing.get_context("spawn")  # after a fork, torch's threads may deadlock


@dataclass
class _Worker:
    """A process that executes one run after the other, and the pipe to it."""

    process: Any
    pipe: Connection
    run: PlannedRun | None = field(default=None)

    @classmethod
    def start(cls, *, portable: bool) -> _Worker:
        ours, theirs = _SPAWN.Pipe()
        process = _SPAWN.Process(target=_serve, args=(theirs,), daemon=True)
        policy = os.environ.get(
            "OMP_WAIT_POLICY", "PASSIVE"
        )  # threads that spin take the cores of other workers
        more = ENVIRONMENT if portable else {}
        with _environment({"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": policy, **more}):
            process.start()
        theirs.close()  # so that the pipe closes when the process ends
        return cls(process, ours)

    def give(self, run: PlannedRun) -> None:
        self.run = run
        self.pipe.send(run)

    def stop(self) -> None:
        self.process.terminate()
        self.process.join()
        self.pipe.close()


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


def run_local(
    runs: Sequence[PlannedRun], *, jobs: int, callback: SweepCallback
) -> Generator[Finished, None, None]:
    """Execute runs in ``jobs`` worker processes and yield each as it ends.

    If a worker is killed, for example because memory runs out, only its own run fails.
    """
    queue = iter(runs)
    workers: list[_Worker] = []
    portable = any(run.config.train.portable for run in runs)  # a worker takes one run after the other

    def feed(worker: _Worker) -> None:
        worker.run = None
        if (run := next(queue, None)) is not None:
            worker.give(run)
            callback.on_run_start(run)

    try:
        for _ in range(min(jobs, len(runs))):
            workers.append(_Worker.start(portable=portable))
            feed(workers[-1])
        while busy := {worker.pipe: (worker, worker.run) for worker in workers if worker.run is not None}:
            for pipe in wait(list(busy)):
                worker, run = busy[cast(Connection, pipe)]
                try:
                    message = worker.pipe.recv()
                except (EOFError, OSError):
                    worker.process.join()
                    worker.pipe.close()
                    workers[workers.index(worker)] = successor = _Worker.start(portable=portable)
                    feed(successor)
                    yield Finished(run, None, _exit_message(worker.process.exitcode))
                    continue
                if isinstance(message, Position):
                    callback.on_progress(run, message)
                    continue
                feed(worker)  # first, so that the worker is not idle while the caller handles the result
                yield Finished(run, *message)
    finally:
        for worker in workers:
            worker.stop()


def default_jobs(device: str) -> int:
    """Return the number of workers: one per core, or a single one where runs share an accelerator."""
    if device != "cpu" and (torch.cuda.is_available() or device != "auto"):
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _serve(pipe: Connection) -> None:
    """Run a worker: receive runs through the pipe; send their positions and results."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole process group; the parent handles it
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    warnings.simplefilter("ignore", UserWarning)  # the parent has shown warnings that concern all runs
    try:
        while True:
            pipe.send(attempt(pipe.recv(), pipe.send))
    except (EOFError, OSError):
        return


def _exit_with_parent() -> None:
    """End this process when its parent ends, even by SIGKILL: nothing would receive its result."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _exit_message(code: int | None) -> str:
    if code is not None and code < 0:
        return f"the worker was ended by signal {-code}; running out of memory is a common cause of signal 9."
    return f"the worker ended with code {code} before the run was done."
