"""A Python process that runs one function and exchanges messages with this one; it ends when this one does.

Not a fork: after it, the threads of torch, of pyarrow or of a progress bar may deadlock. And not multiprocessing's
spawn: it runs the user's script again, which must be guarded for it. Only the standard library is imported.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mlcl.errors import InputError, one_line
from mlcl.plugins import ensure_loaded, loaded_plugins

_COMMAND = [sys.executable, "-P", "-c", "from mlcl.engines.children import main; main()"]


class ProcessError(RuntimeError):
    """Another process failed."""


@dataclass(frozen=True)
class Failure:
    """An exception of another process: itself, if callers distinguish it, its class, message and place."""

    error: Exception | None
    kind: str
    sentence: str
    trace: str

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """Describe an exception that is being handled; what it refers to may not exist in another process."""
        sentence = str(error) or type(error).__name__
        kept: Exception | None = None
        if isinstance(error, InputError):
            kept = InputError(sentence)
        elif isinstance(error, OSError) and type(error).__module__ == "builtins":
            kept = error
        return cls(kept, type(error).__name__, sentence, traceback.format_exc())

    def exception(self, what: str) -> Exception:
        """Return what to raise here; ``what`` begins the message of an error that is nobody's input."""
        if self.error is not None:
            return self.error
        error = ProcessError(f"{what}: {self.kind}: {one_line(self.sentence, limit=500)}")
        error.add_note(self.trace)
        return error


@dataclass(frozen=True)
class Exit:
    """The last message of every child: the exit code of its process, negative for a signal."""

    code: int

    def __str__(self) -> str:
        """Say how it ended."""
        if self.code < 0:
            return f"the worker was ended by signal {-self.code}; running out of memory is a common cause of signal 9"
        return f"the worker ended with code {self.code} before its work was done"


class Channel:
    """The child's end: messages of the parent come in, its own go out."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)  # what is printed must not get between the messages
        self._source = os.fdopen(os.dup(0), "rb")
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def send(self, message: Any) -> None:
        """Send a message to the parent; if that is gone, this process ends anyway."""
        with contextlib.suppress(OSError):
            self._out.write(pickle.dumps(message))
            self._out.flush()

    def receive(self) -> Any:
        """Wait for the next message of the parent."""
        return self._inbox.get()

    def load(self) -> Any:
        """Read a message directly, before `listen`."""
        # From the process that started this one, which gave it its program as well.
        return pickle.load(self._source)  # noqa: S301

    def listen(self) -> None:
        """Read messages as they come; end this process when the parent has gone, even if it hangs in a transfer."""
        with contextlib.suppress(EOFError, OSError, pickle.UnpicklingError):
            while True:
                self._inbox.put(self.load())
        os._exit(1)


class Child:
    """The parent's end of a process."""

    def __init__(
        self,
        function: Callable[..., None],
        *args: Any,
        notify: Callable[[Child, Any], None],
        environment: Mapping[str, str],
    ) -> None:
        """Start the process, in which ``function``, importable by name, is called with its `Channel` and ``args``.

        ``notify`` is called in a thread of this process with each message of the child, at last with its `Exit`.
        """
        # The plugins on their own and first: what they define must be there before arguments of theirs are read.
        start = pickle.dumps(loaded_plugins()) + pickle.dumps((function, args))
        paths = {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}  # noqa: PTH109
        self.process = subprocess.Popen(  # noqa: S603  (this Python)
            _COMMAND,
            env={**os.environ, **environment, **paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the parent, which ends its children
        )
        self._notify = notify
        threading.Thread(target=self._listen, daemon=True).start()
        self._write(start)

    def send(self, message: Any) -> None:
        """Send a message; if the process is gone, its `Exit` says so."""
        self._write(pickle.dumps(message))

    def _write(self, content: bytes) -> None:
        assert self.process.stdin is not None  # noqa: S101
        with contextlib.suppress(BrokenPipeError, ValueError):  # gone, or ended from here
            self.process.stdin.write(content)
            self.process.stdin.flush()

    def _listen(self) -> None:
        assert self.process.stdout is not None  # noqa: S101
        with self.process.stdout as answers, contextlib.suppress(EOFError, OSError, pickle.UnpicklingError):
            while True:
                self._notify(self, pickle.load(answers))  # noqa: S301  (of our own process)
        self._notify(self, Exit(self.process.wait()))

    def end(self) -> None:
        """End the process, whatever it is doing."""
        self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()


def main() -> None:
    """Be a child: take the function from stdin, call it, and report its failure."""
    channel = Channel()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")  # the parent shows what concerns all
    code = 0
    try:
        for plugin in channel.load():
            ensure_loaded(plugin)
        function, args = channel.load()
        threading.Thread(target=channel.listen, daemon=True).start()
        function(channel, *args)
    except Exception as error:
        channel.send(Failure.of(error))
        code = 1
    sys.stderr.flush()
    os._exit(code)  # threads of a broken transfer would abort an orderly end
