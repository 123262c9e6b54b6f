"""Callbacks: every hook in its place, lists in order, and a stop that reaches the caller."""

from __future__ import annotations

import pytest

from helpers import settings_for, small_benchmark
from mlcl.training.callbacks import Callback, CallbackList, Interrupted
from mlcl.training.learner import Learner
from mlcl.training.loop import train


class Log(Callback):
    """Writes down its calls; stops at one of them."""

    def __init__(self, name, calls, *, stop=None):
        self.name, self.calls, self.stop = name, calls, stop

    def note(self, hook):
        self.calls.append((self.name, hook))
        if len([call for call in self.calls if call[0] == self.name]) == self.stop:
            raise Interrupted

    def on_task_start(self, learner, task, steps):
        self.steps = steps
        self.note("task")

    def on_step(self, learner, loss):
        self.note("step")

    def on_epoch(self, learner, loss, seconds):
        self.note("epoch")

    def on_task_end(self, learner):
        self.note("end")


def test_every_hook_is_called_in_its_place_and_lists_keep_their_order():
    calls: list[tuple[str, str]] = []
    first, second = Log("a", calls), Log("b", calls)
    learner = Learner(settings_for("ft", train={"epochs": 2}), small_benchmark(tasks=1))
    train(learner, callback=CallbackList(first, second))
    epoch = ["step"] * first.steps + ["epoch"]
    assert [hook for name, hook in calls if name == "a"] == ["task", *epoch, *epoch, "end"]
    assert calls[::2] == [("a", hook) for _, hook in calls[1::2]]
    assert {name for name, _ in calls[1::2]} == {"b"}


def test_an_interruption_ends_the_training_there():
    calls: list[tuple[str, str]] = []
    learner = Learner(settings_for("ft"), small_benchmark())
    with pytest.raises(Interrupted):
        train(learner, callback=CallbackList(Log("a", calls, stop=3), Log("b", calls)))
    assert calls == [("a", "task"), ("b", "task"), ("a", "step"), ("b", "step"), ("a", "step")]
