"""Two writers: a command is stopped at a call of the system, another runs from begin to end, and the first goes on."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from torture.faults import Outcome
from torture.scenes import Scene, command, complaint
from torture.shim import Shim

PATIENCE = 60.0
"""Seconds that the second may take, or wait for a lock while the first goes on."""


def attack(
    first: Scene, second: Scene, root: Path, *, every: int = 1, share: float = 0.0
) -> Iterator[Outcome]:
    """Let each of two commands run at about each ``every``-th place of the other, from a ``share`` of the first on.

    Where both succeed it must be as if one had followed the other.
    """
    ends = {_in_turn(one, other, root) for one, other in ((first, second), (second, first))}
    for one, other in {first.name: (first, second), second.name: (second, first)}.values():
        one.begin(root)
        with Shim(root).installed() as shim:
            one.run(root)
        count = -(-len(shim.calls) // every)
        for at in sorted({int((share + n) / count * len(shim.calls)) for n in range(count)}):
            where = f"{other.name} at {shim.calls[at]}"
            yield Outcome(one.name, "two writers", where, _one(one, other, root, at, ends))


def _in_turn(first: Scene, second: Scene, root: Path) -> str:
    first.begin(root)
    first.run(root)
    second.run(root)
    return first.worth(root)


def _one(first: Scene, second: Scene, root: Path, at: int, ends: set[str]) -> str:
    first.begin(root)
    pid, go, said_by_it = _waiting(lambda: _said(*second.run(root)))
    heard: list[str] = []

    def other() -> None:
        """Let the second command run; where it waits for the first one's lock, the first goes on."""
        os.write(go, b"+")
        heard.append(_heard(said_by_it, pid))

    with Shim(root, at=at, act=other).installed():
        code, said = first.run(root)
    if heard == [""]:
        heard = [_heard(said_by_it, 0)]
    os.kill(pid, signal.SIGKILL)  # it has said what it has to say
    os.waitpid(pid, 0)
    os.close(go)
    os.close(said_by_it)
    if wrong := complaint(code, said):
        return f"the first {wrong}"
    if not heard or not heard[0].startswith("+"):
        return f"the second {heard[0] if heard and heard[0] else 'waits for ever'}"
    worth = first.worth(root)
    if worth.startswith("refused"):
        return f"does not load: {worth}"
    if code == 0 and heard == ["+0"] and worth not in ends:
        return (
            f"both succeeded, and it is {worth}; one after the other it would be {' or '.join(sorted(ends))}"
        )
    return complaint(*command("check", root, "--repair"))


def _said(code: int, said: str) -> str:
    return complaint(code, said) or f"+{code}"


def _waiting(work: Callable[[], str]) -> tuple[int, int, int]:
    """Start a process that waits for a word, works and answers; it is made before any lock that it would inherit.

    Returns:
        its number, where to write the word, and where to read what is wrong, or ``+`` and the exit code.
    """
    told, go = os.pipe()
    answer, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            os.close(go)
            if os.read(told, 1):
                os.write(writer, work().encode()[:4000])
        os._exit(0)
    os.close(told)
    os.close(writer)
    return pid, go, answer


def _heard(reader: int, pid: int) -> str:
    """Return what a process answers; nothing if it waits for a lock, or for too long."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if select.select([reader], [], [], 0.02)[0]:
            return os.read(reader, 4096).decode()
        if pid and re.search(rf"-> FLOCK .* {pid} ", Path("/proc/locks").read_text()):
            return ""
    return ""
