"""A job of two processes in which the second one fails; nothing heavy is imported before it does."""

from __future__ import annotations

import os
import signal
import sys
import time

from children import FOREVER
from mlcl.engines.launching import launched, member
from mlcl.errors import InputError


def exchange(value):
    """Return what each of two processes gave, in their order."""
    import torch.distributed as dist

    found = [None, None]
    dist.all_gather_object(found, value)
    return found


def failing(kind):
    """Fail in the second process: before it is ready, or without a word in the middle of an exchange."""
    with launched(2, failing, kind):
        second = member().rank == 1
        if second and kind == "input":
            raise InputError("the second cannot come.")
        if second and kind == "error":
            raise ValueError("the second has enough")
        if kind != "dead":
            return member().meet()
        from mlcl.config.schema import TrainConfig
        from mlcl.training.processes import join_processes

        join_processes(TrainConfig(device="cpu", devices=2))
        if second:
            os._exit(9)
        return exchange(1)


def unnoticed():
    """Let the second process end while the first one is busy with something else, as in a transfer that hangs."""
    with launched(2, unnoticed):
        if member().rank == 1:
            os._exit(9)
        time.sleep(FOREVER)


def abandoned():
    """Kill the first process while the second one is busy; its number is printed before."""
    with launched(2, abandoned):
        if member().rank == 1:
            sys.stderr.write(f"{os.getpid()}\n")
            member().meet()
            time.sleep(FOREVER)
        member().meet()
        os.kill(os.getpid(), signal.SIGKILL)
