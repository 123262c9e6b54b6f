"""The cores of this machine, and settings for torch's threads that leave them to other programs and change no result.

Only the standard library is imported, because OpenMP reads its settings when torch is loaded.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys

SPINS = "10000"
"""How often an OpenMP thread looks for work before it sleeps: with GNU's 300,000 a run beside other work is 1.5 to 7 x
slower, without any (``OMP_WAIT_POLICY=PASSIVE`` alone) a quiet machine is 1.5 x slower; see lab/decisions.md."""
BUSY_SPINS = "1000"
"""The same where other programs want all cores already: there a thread looks for one that is not running."""
SLICE = 100_000
"""Nanoseconds: the time slice to ask for, the shortest that Linux grants."""
_SCHED_SETATTR = 314  # the number of the system call on x86-64


def cores() -> int:
    """Return how many cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def share_cores() -> None:
    """Let OpenMP threads that wait leave their cores to others, unless the user has decided; before torch is loaded.

    The number of threads stays as it is, and so does every result.
    """
    os.environ.update(waiting_threads())
    ask_for_short_slices()


def waiting_threads() -> dict[str, str]:
    """Return the settings of OpenMP threads that wait, also for a process to launch; none if the user has decided."""
    if {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & set(os.environ):
        return {}
    spins = BUSY_SPINS if running() > (os.cpu_count() or 1) else SPINS
    return {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": spins}


def running(source: str = "/proc/loadavg") -> int:
    """Return how many threads of the machine want a core now, this one included; 0 where that is not known."""
    try:
        with open(source, encoding="ascii") as file:  # noqa: PTH123  (pathlib takes time to load)
            return int(file.read().split()[3].partition("/")[0])
    except (OSError, ValueError, IndexError):
        return 0


def ask_for_short_slices() -> bool:
    """Ask Linux (from 6.12 on) to run the threads of this process sooner and for a shorter time each; return whether.

    Its share of the cores stays the same. But a training step has hundreds of moments at which all threads wait for
    the last one, and beside other programs each of them would otherwise wait for a whole slice of such a program.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    try:
        if os.sched_getscheduler(0) != os.SCHED_OTHER:  # the user has decided
            return False
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        # struct sched_attr: size, policy, flags, nice, priority, runtime (the slice), deadline, period, utilisation
        given = struct.pack("=IIQiIQQQII", 56, os.SCHED_OTHER, 0, nice, 0, SLICE, 0, 0, 0, 0)
        return not ctypes.CDLL(None).syscall(_SCHED_SETATTR, 0, ctypes.create_string_buffer(given, 56), 0)
    except (OSError, AttributeError):  # another C library
        return False
