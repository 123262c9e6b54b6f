"""How everything here is timed, and what one line of the table is."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

Job = Callable[[], object]
_LEAST = 2e-3  # seconds: what is over sooner is done several times in a row


@dataclass(frozen=True)
class Row:
    """One comparison.

    Attributes:
        subject: what was measured.
        size: on what.
        ours: seconds of mlcl, or the measured value itself where ``unit`` is not a ratio.
        rival: what it is compared with, in words.
        other: seconds of the rival; None where there is none.
        value: what the goal is about.
        goal: the goal; None where something is told without one.
        above: whether the value must be at least the goal; otherwise at most.
        unit: of value and goal: ``x`` for a ratio, or another.
        note: what a reader should know.
    """

    subject: str
    size: str
    ours: float
    rival: str
    other: float | None
    value: float
    goal: float | None
    above: bool
    unit: str = "x"
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Say whether the goal is met; None without one."""
        if self.goal is None:
            return None
        return self.value >= self.goal if self.above else self.value <= self.goal

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "met": self.met}


def faster(
    subject: str, size: str, ours: float, rival: str, other: float, goal: float, note: str = ""
) -> Row:
    """Compare: the rival takes at least ``goal`` times as long."""
    return Row(subject, size, ours, rival, other, other / ours, goal, above=True, note=note)


def within(
    subject: str, size: str, ours: float, rival: str, other: float, goal: float, note: str = ""
) -> Row:
    """Compare: we take at most ``goal`` times as long as the rival."""
    return Row(subject, size, ours, rival, other, ours / other, goal, above=False, note=note)


def limit(subject: str, size: str, value: float, goal: float, unit: str, note: str = "") -> Row:
    """Judge a value that has a limit of its own."""
    return Row(subject, size, value, "-", None, value, goal, above=False, unit=unit, note=note)


def told(subject: str, size: str, seconds: float, note: str = "") -> Row:
    """Tell how long something takes, without a goal."""
    return Row(subject, size, seconds, "-", None, seconds, None, above=False, unit="s", note=note)


def best(jobs: Mapping[str, Job], *, repeats: int = 7) -> dict[str, float]:
    """Return the seconds of the fastest of some runs of each job; the jobs take turns, so that a busy moment hits all.

    Each job runs before, so that nothing is timed while it loads, and a short one once at each turn, so that it does
    not pay for what the others left in the caches.
    """
    often = {}
    for name, job in jobs.items():
        job()
        often[name] = max(1, int(_LEAST / _quickest(job)))
    found = dict.fromkeys(jobs, float("inf"))
    collecting = gc.isenabled()
    gc.disable()
    try:
        for _ in range(repeats):
            for name, job in jobs.items():
                if often[name] > 1:
                    job()
                start = time.perf_counter()
                for _ in range(often[name]):
                    job()
                found[name] = min(found[name], (time.perf_counter() - start) / often[name])
            gc.collect()
    finally:
        if collecting:
            gc.enable()
    return found


def _quickest(job: Job) -> float:
    """Return the seconds of the quickest of some runs, as long as they are short."""
    found = float("inf")
    for _ in range(10):
        start = time.perf_counter()
        job()
        found = min(found, max(time.perf_counter() - start, 1e-9))
        if found > _LEAST:
            break
    return found


def once(job: Job) -> tuple[float, Any]:
    """Return the seconds of one run of a job, and what it returned: for what takes seconds."""
    start = time.perf_counter()
    result = job()
    return time.perf_counter() - start, result
