"""Two writers: a command is stopped at a call of the system, another runs from begin to end, and the first goes on."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from torture.faults import Outcome
from torture.scenes import Scene, command, complaint
from torture.shim import Shim

PATIENCE = 5.0
"""Seconds that the second may wait for a lock of the first."""


def attack(first: Scene, seconds: Sequence[Scene], root: Path, *, every: int = 1) -> Iterator[Outcome]:
    """Let each of some commands run at each ``every``-th place of the first one."""
    first.begin(root)
    with Shim(root).installed() as shim:
        first.run(root)
    for second in seconds:
        for at in range(len(shim.calls))[::every]:
            where = f"{second.name} at {shim.calls[at]}"
            yield Outcome(first.name, "two writers", where, _one(first, second, root, at))


def _one(first: Scene, second: Scene, root: Path, at: int) -> str:
    first.begin(root)
    pid, go, said_by_it = _waiting(lambda: complaint(*second.run(root)))
    heard: list[str] = []

    def other() -> None:
        """Let the second command run; where it waits for the first one's lock, the first goes on."""
        os.write(go, b"+")
        heard.append(_heard(said_by_it, PATIENCE))

    with Shim(root, at=at, act=other).installed():
        code, said = first.run(root)
    if heard == [""]:
        heard = [_heard(said_by_it, 12 * PATIENCE)]
    os.kill(pid, signal.SIGKILL)  # it has said what it has to say
    os.waitpid(pid, 0)
    os.close(go)
    os.close(said_by_it)
    if wrong := complaint(code, said):
        return f"the first {wrong}"
    if heard != ["+"]:
        return f"the second {heard[0] if heard and heard[0] else 'waits for ever'}"
    if (worth := first.worth(root)).startswith("refused"):
        return f"does not load: {worth}"
    wrong = complaint(*command("check", root, "--repair"))
    return "" if "without a sentence" in wrong else wrong


def _waiting(work: Callable[[], str]) -> tuple[int, int, int]:
    """Start a process that waits for a word, works and answers; it is made before any lock that it would inherit.

    Returns:
        its number, where to write the word, and where to read what is wrong, or ``+``.
    """
    told, go = os.pipe()
    answer, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            os.close(go)
            if os.read(told, 1):
                os.write(writer, work().encode()[:4000] or b"+")
        os._exit(0)
    os.close(told)
    os.close(writer)
    return pid, go, answer


def _heard(reader: int, seconds: float) -> str:
    return os.read(reader, 4096).decode() if select.select([reader], [], [], seconds)[0] else ""
