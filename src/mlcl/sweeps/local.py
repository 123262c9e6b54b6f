"""The local engine: executes runs in worker processes of this machine, which end with this process."""

from __future__ import annotations

import os
import warnings
from collections.abc import Generator, Sequence
from multiprocessing.connection import Connection, wait
from typing import cast

import torch

from mlcl.sweeps.plan import PlannedRun
from mlcl.sweeps.work import Finished, Position, SweepCallback, attempt
from mlcl.training.portable import ENVIRONMENT
from mlcl.training.workers import Worker, begin_serving, one_thread


def run_local(
    runs: Sequence[PlannedRun], *, jobs: int, callback: SweepCallback
) -> Generator[Finished, None, None]:
    """Execute runs in ``jobs`` worker processes and yield each as it ends.

    If a worker is killed, for example because memory runs out, only its own run fails.
    """
    queue = iter(runs)
    workers: list[Worker[PlannedRun]] = []
    portable = any(run.config.train.portable for run in runs)  # a worker takes one run after the other
    environment = {**one_thread(), **(ENVIRONMENT if portable else {})}

    def feed(worker: Worker[PlannedRun]) -> None:
        worker.job = None
        if (run := next(queue, None)) is not None:
            worker.give(run)
            callback.on_run_start(run)

    try:
        for _ in range(min(jobs, len(runs))):
            workers.append(Worker.start(_serve, environment))
            feed(workers[-1])
        while busy := {worker.pipe: (worker, worker.job) for worker in workers if worker.job is not None}:
            for pipe in wait(list(busy)):
                worker, run = busy[cast(Connection, pipe)]
                try:
                    message = worker.pipe.recv()
                except (EOFError, OSError):
                    ended = worker.buried()
                    successor: Worker[PlannedRun] = Worker.start(_serve, environment)
                    workers[workers.index(worker)] = successor
                    feed(successor)
                    yield Finished(run, None, ended)
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
    begin_serving()
    warnings.simplefilter("ignore", UserWarning)  # the parent has shown warnings that concern all runs
    try:
        while True:
            pipe.send(attempt(pipe.recv(), pipe.send))
    except (EOFError, OSError):
        return
