"""The training loop (Algorithm 1 of the paper), from top to bottom.

For each task, a batch of the task and a batch of the memory go through the network together (`Learner.learn`). Every
row contributes to the loss for the classes that the label policy assigns to it, and the losses of the tasks are added
with the memory weights. At the end of a task the memory is updated and every task is evaluated (`Learner.finish_task`).
"""

from __future__ import annotations

import time

from mlcl.training.callbacks import Callback, synchronised
from mlcl.training.learner import Learner
from mlcl.training.portable import deterministic


def train(learner: Learner, *, callback: Callback | None = None) -> Learner:
    """Learn the remaining tasks one after the other, and evaluate all tasks after each.

    Two learners with equal arguments give identical numbers on a CPU, also if one was saved and loaded on its way.
    """
    with deterministic(learner.config.train):
        return _train(learner, synchronised(callback or Callback(), learner.processes))


def _train(learner: Learner, callback: Callback) -> Learner:
    for task in learner.tasks[learner.task_index :]:
        if not learner.in_task:
            learner.start_task(task)
        callback.on_task_start(learner, task, len(learner.plan))
        while learner.epoch < learner.epochs:
            started = time.perf_counter()
            learner.start_epoch(task)
            while learner.step < len(learner.plan):
                loss = learner.learn(*learner.plan.step(learner.step))
                callback.on_step(learner, loss)
            callback.on_epoch(learner, learner.epoch_loss / len(learner.plan), time.perf_counter() - started)
            learner.finish_epoch()
        learner.finish_task(task)
        callback.on_task_end(learner)
    return learner
