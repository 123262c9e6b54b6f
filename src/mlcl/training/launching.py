"""Launching the processes of a run: the others call the same function as this one does, and end with it.

Fabric's own launcher starts the whole command again and kills this process when another one fails. Here a run can be
started from a script, a notebook or a test, a failure of any process becomes an exception of this one, and the others
end when this one does, in whatever way. Under ``torchrun`` nothing is started. Only the standard library is imported.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from mlcl.errors import InputError
from mlcl.plugins import ensure_loaded, loaded_plugins
from mlcl.texts import visible
from mlcl.training.cores import waiting_threads

HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)
"""What a terminal that closes sends; Windows has none."""
PATIENCE = 20.0
"""Seconds after which this process ends itself if another one failed and it did not notice: it hangs in a transfer."""
_LEFT_BEHIND = ("MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS")
"""What torch and Fabric put into the environment when processes meet."""


class ProcessError(RuntimeError):
    """Another process of the run failed."""


@dataclass(frozen=True)
class Member:
    """One of several processes.

    Attributes:
        rank: its number, from 0.
        size: how many there are.
        port: where the first one listens on this machine.
        meet: to be called when it is ready for the others; fails if one of them cannot come.
    """

    rank: int
    size: int
    port: int
    meet: Callable[[], None]


_member: Member | None = None


def member() -> Member | None:
    """Return which process of several this is, if `launched` made them."""
    return _member


def torchrun() -> tuple[int, int, int] | None:
    """Return rank, number of processes, and processes on this machine, if torchrun started this one."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    rank, size, here = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    return rank, size, here


def rank() -> int:
    """Return the number of this process; the first one, 0, writes files and talks to the user.

    >>> rank()
    0
    """
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
    children = _Children(devices, _packed(function, args, kwargs))
    before = {name: os.environ.get(name) for name in _LEFT_BEHIND}
    _member = Member(0, devices, children.port, children.wait_until_ready)
    threads = _threads()
    try:
        yield
        children.wait_until_done()
        leave()  # while the others are still there
    except Exception as error:
        # Only a broken connection is a consequence; every other failure is this process's own, and comes first.
        broken = type(error) is RuntimeError or type(error).__module__ == "torch.distributed"
        if broken and (failure := children.failure(wait=PATIENCE)) is not None:
            raise failure from error
        raise
    finally:
        _member = None
        children.end()
        leave()
        if threads is not None:
            sys.modules["torch"].set_num_threads(threads)
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


class _Children:
    """The other processes, each with a thread that listens to what it reports."""

    def __init__(self, devices: int, job: bytes) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.changed = threading.Condition()
        self.over = threading.Event()
        self.ready: set[int] = set()
        self.done: set[int] = set()
        self.failed: dict[int, tuple[str, str, str]] = {}  # rank -> kind, sentence, traceback
        paths = {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}  # noqa: PTH109
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        for rank in range(1, devices):
            self.processes[rank] = subprocess.Popen(
                [sys.executable, "-c", "from mlcl.training.launching import follow; follow()"],
                env={**os.environ, **waiting_threads(), **paths},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for the first process, which stops the others
            )
            threading.Thread(target=self._listen, args=(rank,), daemon=True).start()
        for rank, process in self.processes.items():
            head = json.dumps({"rank": rank, "size": devices, "port": self.port}).encode() + b"\n"
            with contextlib.suppress(BrokenPipeError):  # it is gone; what it reported says why
                assert process.stdin is not None  # noqa: S101
                process.stdin.write(head + job)
                process.stdin.flush()

    def _listen(self, rank: int) -> None:
        process = self.processes[rank]
        assert process.stdout is not None  # noqa: S101
        for line in process.stdout:
            report = json.loads(line)
            with self.changed:
                if "ready" in report:
                    self.ready.add(rank)
                elif "done" in report:
                    self.done.add(rank)
                else:
                    self.failed[rank] = (report["kind"], report["sentence"], report["trace"])
                self.changed.notify_all()
        code = process.wait()
        with self.changed:
            if code:
                self.failed.setdefault(rank, ("", f"it ended with code {code}", ""))
            self.changed.notify_all()
        if code and not self.over.wait(PATIENCE):
            sys.stderr.write(visible(f"mlcl: error: {self.failure()}") + "\n")
            sys.stderr.flush()
            os._exit(1)

    def failure(self, wait: float = 0.0) -> Exception | None:
        """Return the failure of another process, waiting some seconds for it."""
        with self.changed:
            self.changed.wait_for(lambda: self.failed, wait)
            for rank, (kind, sentence, trace) in self.failed.items():
                if kind == "InputError":
                    return InputError(sentence)
                error = ProcessError(
                    f"process {rank} of the run failed: {f'{kind}: ' if kind else ''}{sentence}"
                )
                if trace:
                    error.add_note(trace)
                return error
        return None

    def wait_until_ready(self) -> None:
        """Wait for all others, or raise what keeps one of them from coming."""
        with self.changed:
            self.changed.wait_for(lambda: self.failed or len(self.ready) == len(self.processes))
        if (failure := self.failure()) is not None:
            raise failure

    def wait_until_done(self) -> None:
        """Wait until all others have done their job; one that fails after this process is done is of no interest."""
        with self.changed:
            self.changed.wait_for(lambda: len(self.done | set(self.failed)) == len(self.processes))

    def end(self) -> None:
        """End the others: they hold nothing that this process does not have."""
        self.over.set()
        for process in self.processes.values():
            process.kill()
            process.wait()
            if process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.close()


def endings() -> list[signal.Signals]:
    """Return the signals that ask a program to end; ``nohup`` has it outlive its terminal."""
    hangup = [] if HANGUP is None or signal.getsignal(HANGUP) == signal.SIG_IGN else [HANGUP]
    return [signal.SIGTERM, *hangup]


def follow() -> None:
    """Be one of the other processes: take the job from stdin, do it, and report on stdout how it went."""
    global _member
    reports = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for number in (signal.SIGINT, signal.SIGTERM, *([] if HANGUP is None else [HANGUP])):
        signal.signal(number, signal.SIG_IGN)  # the first process decides when to stop
    warnings.simplefilter("ignore")  # the first process shows them

    def report(**fields: Any) -> None:
        with contextlib.suppress(OSError):
            reports.write(json.dumps(fields) + "\n")
            reports.flush()

    source = os.fdopen(os.dup(0), "rb")
    place = json.loads(source.readline())
    _member = Member(place["rank"], place["size"], place["port"], lambda: report(ready=True))
    try:
        # From the process that started this one, which gave it its program as well.
        for plugin in pickle.load(source):  # noqa: S301
            ensure_loaded(plugin)
        function, args, kwargs = pickle.load(source)  # noqa: S301
        threading.Thread(target=_end_with_the_first, daemon=True).start()
        function(*args, **kwargs)
        report(done=True)
        # Until the first process ends this one: whoever leaves the group early may abort, or break its last transfer.
        threading.Event().wait()
    except Exception as error:
        sentence = str(error) or type(error).__name__
        report(kind=type(error).__name__, sentence=sentence, trace=traceback.format_exc())
    sys.stderr.flush()
    os._exit(1)  # threads of a broken transfer would abort an orderly end


def _end_with_the_first() -> None:
    """End this process when the one that started it has gone, even if it hangs in a transfer."""
    os.read(0, 1)  # not sys.stdin, whose lock Python wants when it ends
    os._exit(1)


def _packed(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    try:
        # The plugins on their own and first: what they define must be there before arguments of theirs are read.
        return pickle.dumps(loaded_plugins()) + pickle.dumps((function, args, kwargs))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError(
            f"train.devices is above 1, but the arguments cannot be sent to other processes ({error}); use plain "
            "arrays or a store, or start all processes with torchrun."
        ) from None


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
