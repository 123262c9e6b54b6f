"""A job of two processes in which the second one fails; nothing heavy is imported before it does."""

from __future__ import annotations

import os

from mlcl.errors import InputError
from mlcl.launching import member, started


def failing(kind):
    """Fail in the second process: before it is ready, or without a word in the middle of an exchange."""
    with started(2, failing, kind):
        second = member().rank == 1
        if second and kind == "input":
            raise InputError("the second cannot come.")
        if second and kind == "error":
            raise ValueError("the second has enough")
        if kind != "dead":
            return member().meet()
        from mlcl.config import TrainConfig
        from mlcl.processes import join

        processes = join(TrainConfig(device="cpu", devices=2))
        if second:
            os._exit(9)
        return processes.exchange(1)
