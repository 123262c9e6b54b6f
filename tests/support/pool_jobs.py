"""Functions that workers import by name."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from mlcl.errors import InputError


def square(job: Any) -> Any:
    print("what is printed stays away from the messages")
    return job * job


def big(job: Any) -> Any:
    return bytes(job)


def process(job: Any) -> Any:
    return os.getpid(), os.environ.get("OMP_NUM_THREADS"), os.environ.get("POOL_TEST")


def die_at_three(job: Any) -> Any:
    if job == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return job


def die_once(job: Any) -> Any:
    mark = Path(os.environ["POOL_MARKS"]) / str(job)
    if not mark.exists():
        mark.touch()
        os._exit(7)
    return job


def refuse(job: Any) -> Any:
    if job == 2:
        raise InputError("the second is bad")
    return job


def full(job: Any) -> Any:
    raise OSError(28, "No space left on device", "somewhere")


def odd(job: Any) -> Any:
    raise KeyError("an odd one")


def count_up(job: Any, report: Any) -> Any:
    for number in range(job):
        report(number)
    return job


def sleep(job: Any) -> None:
    Path(job).write_text(str(os.getpid()))
    time.sleep(6000)
