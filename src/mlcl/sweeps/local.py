"""The local engine: runs on a few processes of this machine, which die with it."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, cast

from mlcl.sweeps.plan import PlannedRun
from mlcl.sweeps.work import Finished, Position, Watch, attempt

_SPAWN = multiprocessing.get_context("spawn")  # a fork of a process that has used torch's threads may hang


@dataclass
class _Worker:
    """A process that does one run after the other, and the pipe to it."""

    process: Any
    pipe: Connection
    run: PlannedRun | None = field(default=None)

    @classmethod
    def start(cls) -> _Worker:
        ours, theirs = _SPAWN.Pipe()
        process = _SPAWN.Process(target=_serve, args=(theirs,), daemon=True)
        with _environment(OMP_NUM_THREADS="1", OMP_WAIT_POLICY="PASSIVE"):
            process.start()
        theirs.close()  # or the pipe would not end with the process
        return cls(process, ours)

    def give(self, run: PlannedRun) -> None:
        self.run = run
        self.pipe.send(run)

    def stop(self) -> None:
        self.process.terminate()
        self.process.join()
        self.pipe.close()


@contextlib.contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Set variables for a process that is started meanwhile: OpenMP reads its own when torch is loaded."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def run_local(runs: Sequence[PlannedRun], *, jobs: int, watch: Watch) -> Generator[Finished, None, None]:
    """Do runs on ``jobs`` processes and yield each as it ends.

    A process that is killed (for want of memory, say) takes its run with it, and no other.
    """
    queue = iter(runs)
    workers: list[_Worker] = []

    def feed(worker: _Worker) -> None:
        worker.run = None
        if (run := next(queue, None)) is not None:
            worker.give(run)
            watch.started(run)

    try:
        for _ in range(min(jobs, len(runs))):
            workers.append(_Worker.start())
            feed(workers[-1])
        while busy := {worker.pipe: (worker, worker.run) for worker in workers if worker.run is not None}:
            for pipe in wait(list(busy)):
                worker, run = busy[cast(Connection, pipe)]
                try:
                    message = worker.pipe.recv()
                except (EOFError, OSError):
                    worker.process.join()
                    worker.pipe.close()
                    workers[workers.index(worker)] = successor = _Worker.start()
                    feed(successor)
                    yield Finished(run, None, _obituary(worker.process.exitcode))
                    continue
                if isinstance(message, Position):
                    watch.moved(run, message)
                    continue
                feed(worker)  # first, so that no core waits while the caller looks at the result
                yield Finished(run, *message)
    finally:
        for worker in workers:
            worker.stop()


def default_jobs(device: str) -> int:
    """Return the number of processes: one a core, or one in all where the runs share an accelerator."""
    import torch

    if device != "cpu" and (torch.cuda.is_available() or device != "auto"):
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _serve(pipe: Connection) -> None:
    """Be a worker: take runs from the pipe, tell positions and ends."""
    import signal
    import threading
    import warnings

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    threading.Thread(target=_die_with_parent, daemon=True).start()
    warnings.simplefilter("ignore", UserWarning)  # the parent has told what holds for all runs
    try:
        while True:
            pipe.send(attempt(pipe.recv(), pipe.send))
    except (EOFError, OSError):
        return


def _die_with_parent() -> None:
    """End this process at once when its parent is gone, even by SIGKILL: nobody would read its result."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _obituary(code: int | None) -> str:
    if code is not None and code < 0:
        return f"the process was ended by signal {-code}; too little memory is a common cause of 9."
    return f"the process ended with code {code} before the run was done."
