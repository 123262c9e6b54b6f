"""Launching the processes of a run: the others call the same function as this one does, and end with it.

Fabric's own launcher starts the whole command again and kills this process when another one fails. Here a run can be
started from a script, a notebook or a test, a failure of any process becomes an exception of this one, and the others
end when this one does, in whatever way. Under ``torchrun`` nothing is started. Only the standard library is imported.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from mlcl.engines.children import Channel, Child, Exit, Failure, ProcessError
from mlcl.engines.cores import waiting_threads
from mlcl.errors import InputError
from mlcl.texts import visible

HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)
"""What a terminal that closes sends; Windows has none."""
PATIENCE = 20.0
"""Seconds after which this process ends itself if another one failed and it did not notice: it hangs in a transfer."""
_SERVED = "TORCHELASTIC_USE_AGENT_STORE"
"""In the environment of torch: processes meet at a store that is there already."""
_LEFT_BEHIND = ("MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "OMP_NUM_THREADS", "WORLD_SIZE", _SERVED)
"""What is put into the environment where processes meet."""


@dataclass(frozen=True)
class Place:
    """One of several processes, which meet where the first one, of rank 0, listens on this machine.

    ``meet`` is to be called when it is ready for the others; it fails if one of them cannot come.
    """

    rank: int
    size: int
    port: int
    meet: Callable[[], None]

    def announce(self) -> None:
        """Put into the environment what Fabric and torch read there."""
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.port), "LOCAL_RANK": str(self.rank)}
        os.environ.update(place | {_SERVED: "True"})


_member: Place | None = None


def member() -> Place | None:
    """Return which process of several this is, if `launched` made them."""
    return _member


def torchrun() -> tuple[int, int, int] | None:
    """Return rank, number of processes, and processes on this machine, if torchrun started this one."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    rank, size, here = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    return rank, size, here


def rank() -> int:
    """Return the number of this process; the first one, 0, writes files and talks to the user."""
    found = torchrun()
    return found[0] if found is not None else 0 if _member is None else _member.rank


@contextlib.contextmanager
def launched(devices: int, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Iterator[None]:
    """Have ``devices - 1`` further processes call ``function``; to be used around what this one does of it.

    Args:
        devices: processes in all. With 1, inside such a process, and under torchrun nothing is started.
        function: importable by name; it comes here again, in another process.
        *args: sent to the others.
        **kwargs: sent to the others.
    """
    global _member
    if devices == 1 or torchrun() is not None or (_member is not None and _member.rank > 0):
        yield
        return
    if _member is not None:
        raise InputError(
            "a run of several processes is under way here; another one needs a process of its own."
        )
    others = _start(devices, function, args, kwargs)
    before = {name: os.environ.get(name) for name in _LEFT_BEHIND}
    _member = Place(0, devices, others.port, others.meet)
    _member.announce()
    threads = _threads()
    try:
        yield
        others.wait_until_done()
        leave()  # while the others are still there
    except Exception as error:
        # Only a broken connection is a consequence; every other failure is this process's own, and comes first.
        broken = type(error) is RuntimeError or type(error).__module__ == "torch.distributed"
        if broken and (failure := others.failure(wait=PATIENCE)) is not None:
            raise failure from error
        raise
    finally:
        _member = None
        others.end()
        leave()
        if threads is not None:
            sys.modules["torch"].set_num_threads(threads)
        for name in before:
            os.environ.pop(name, None)
        os.environ.update({name: value for name, value in before.items() if value is not None})


def _start(devices: int, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> _Others:
    try:
        return _Others(devices, function, args, kwargs)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError(
            f"train.devices is above 1, but the arguments cannot be sent to other processes ({error}); use plain "
            "arrays or a store, or start all processes with torchrun."
        ) from None


class _Others:
    """The other processes of the run, and what they have reported."""

    def __init__(
        self, devices: int, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any
    ) -> None:
        # Held until the processes meet: a port that was only looked up may be somebody else's by then.
        self.meeting = socket.create_server(("127.0.0.1", 0), backlog=devices)
        self.port: int = self.meeting.getsockname()[1]
        self.changed = threading.Condition()
        self.over = threading.Event()
        self.ready: set[int] = set()
        self.done: set[int] = set()
        self.failed: dict[int, Exception] = {}
        self.store: Any = None
        self.children: list[Child] = []
        for rank in range(1, devices):
            place = (rank, devices, self.port)
            notify = partial(self._notify, rank)
            self.children.append(
                Child(_follow, place, function, args, kwargs, notify=notify, environment=waiting_threads())
            )

    def _notify(self, rank: int, _: Child, message: Any) -> None:
        """Take in a message, in a thread of the child; a failure that this process does not notice ends it."""
        with self.changed:
            if message in ("ready", "done"):
                (self.ready if message == "ready" else self.done).add(rank)
            elif isinstance(message, Failure):
                self.failed[rank] = message.exception(f"process {rank} of the run failed")
            elif message.code:
                ended = ProcessError(f"process {rank} of the run failed: it ended with code {message.code}")
                self.failed.setdefault(rank, ended)
            self.changed.notify_all()
        if isinstance(message, Exit) and message.code and not self.over.wait(PATIENCE):
            sys.stderr.write(visible(f"mlcl: error: {self.failure()}") + "\n")
            sys.stderr.flush()
            os._exit(1)

    def failure(self, wait: float = 0.0) -> Exception | None:
        """Return the failure of another process, waiting some seconds for it."""
        with self.changed:
            self.changed.wait_for(lambda: self.failed, wait)
            return next(iter(self.failed.values()), None)

    def meet(self) -> None:
        """Wait for all others, or raise what keeps one of them from coming; then serve them at the port."""
        with self.changed:
            self.changed.wait_for(lambda: self.failed or len(self.ready) == len(self.children))
        if (failure := self.failure()) is not None:
            raise failure
        if self.store is None:
            from torch.distributed import TCPStore  # type: ignore[attr-defined]

            size = len(self.children) + 1
            listening: dict[str, Any] = {"master_listen_fd": self.meeting.detach()}
            self.store = TCPStore("127.0.0.1", self.port, size, True, wait_for_workers=False, **listening)

    def wait_until_done(self) -> None:
        """Wait until all others have done their job; one that fails after this process is done is of no interest."""
        with self.changed:
            self.changed.wait_for(lambda: len(self.done | set(self.failed)) == len(self.children))

    def end(self) -> None:
        """End the others: they hold nothing that this process does not have."""
        self.over.set()
        for child in self.children:
            child.end()
        self.store = None
        self.meeting.close()


def endings() -> list[signal.Signals]:
    """Return the signals that ask a program to end; ``nohup`` has it outlive its terminal."""
    hangup = [] if HANGUP is None or signal.getsignal(HANGUP) == signal.SIG_IGN else [HANGUP]
    return [signal.SIGTERM, *hangup]


def _follow(
    channel: Channel, place: tuple[int, int, int], function: Callable[..., Any], args: Any, kwargs: Any
) -> None:
    """Be one of the other processes: do the job, and report how it went."""
    global _member
    for number in (signal.SIGTERM, *([] if HANGUP is None else [HANGUP])):
        signal.signal(number, signal.SIG_IGN)  # the first process decides when to stop
    _member = Place(*place, lambda: channel.send("ready"))
    _member.announce()
    function(*args, **kwargs)
    channel.send("done")
    # Until the first process ends this one: whoever leaves the group early may abort, or break its last transfer.
    threading.Event().wait()


def _threads() -> int | None:
    torch = sys.modules.get("torch")
    return None if torch is None else int(torch.get_num_threads())


def leave() -> None:
    """Leave the group of processes, so that this one can continue alone, or start others.

    A wrapped network and its group refer to each other in a cycle, so leaving alone does not end the group's threads.
    Collecting the cycle does; otherwise a thread that is still dropping its last transfer while Python ends aborts this
    process (about 3 % of runs under torchrun on a busy machine, torch 2.13).
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
        gc.collect()
