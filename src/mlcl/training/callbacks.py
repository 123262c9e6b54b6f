"""Callbacks: what takes part in a run without changing it, by writing files, showing progress or stopping it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from mlcl.engines.children import ProcessError
from mlcl.streams import Task
from mlcl.training.learner import Learner
from mlcl.training.processes import Processes


class Interrupted(Exception):
    """A callback asks the run to stop here; a run that has a folder writes a checkpoint first."""


class Callback:
    """Hooks that are called while training; override those of interest.

    >>> import numpy as np
    >>> from mlcl import Benchmark, run
    >>> class Say(Callback):
    ...     def on_task_start(self, learner, task, steps):
    ...         print(len(task.classes), "labels")
    >>> rows, labels = np.eye(4).repeat(20, axis=0), np.eye(4, dtype=int).repeat(20, axis=0)
    >>> benchmark = Benchmark.from_arrays(rows, labels, rows, labels, tasks=2)
    >>> _ = run({"method": "er", "train": {"epochs": 1, "lr": 0.5}}, benchmark=benchmark, callback=Say())
    2 labels
    2 labels
    """

    def on_task_start(self, learner: Learner, task: Task, steps: int) -> None:
        """A task begins; it will take ``steps`` steps per epoch."""

    def on_step(self, learner: Learner, loss: float) -> None:
        """A step was made. `Interrupted`, raised here or at the end of a task, stops the run so that it can resume."""

    def on_epoch(self, learner: Learner, loss: float, seconds: float) -> None:
        """An epoch is over; ``loss`` is its mean."""

    def on_task_end(self, learner: Learner) -> None:
        """A task is learnt, the memory updated, all tasks evaluated."""


HOOKS = ("on_task_start", "on_step", "on_epoch", "on_task_end")


class _Forwarding(Callback):
    """Forwards every hook, with its name, to `forward`."""

    def __init__(self) -> None:
        for hook in HOOKS:
            setattr(self, hook, partial(self.forward, hook))

    def forward(self, hook: str, *args: Any) -> None:
        raise NotImplementedError


class CallbackList(_Forwarding):
    """Calls several callbacks, in order."""

    def __init__(self, *callbacks: Callback) -> None:
        super().__init__()
        self.callbacks = callbacks

    def forward(self, hook: str, *args: Any) -> None:
        """Call every callback."""
        for callback in self.callbacks:
            getattr(callback, hook)(*args)


class _Synchronised(_Forwarding):
    """Calls a callback; what the callback of any process raises ends the step, epoch or task for all processes."""

    def __init__(self, callback: Callback, processes: Processes) -> None:
        super().__init__()
        self.callback, self.processes = callback, processes

    def forward(self, hook: str, *args: Any) -> None:
        call: Callable[..., None] = getattr(self.callback, hook)
        failure: Exception | None = None
        try:
            call(*args)
        except Exception as error:
            failure = error
        wish = 0 if failure is None else 1 if isinstance(failure, Interrupted) else 2
        found = torch.tensor(wish, device=self.processes.fabric.device)
        dist.all_reduce(found, dist.ReduceOp.MAX)
        if failure is not None:
            raise failure
        if int(found) == 1:
            raise Interrupted
        if int(found) == 2:
            raise ProcessError("another process of the run failed")


def synchronised(callback: Callback, processes: Processes) -> Callback:
    """Return a callback for this process that stops all processes where one of them is to stop."""
    return callback if processes.size == 1 else _Synchronised(callback, processes)
