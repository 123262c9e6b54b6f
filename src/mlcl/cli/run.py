"""``mlcl run``: train and evaluate one method on one benchmark."""

from __future__ import annotations

import shlex
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from mlcl.cli.messages import fail, note, say
from mlcl.cli.options import parse_run
from mlcl.cli.progress import make_console
from mlcl.cli.terminal import Terminal, result_lines, result_table
from mlcl.engines.children import ProcessError
from mlcl.engines.launching import endings, rank
from mlcl.runs.folder import default_folder
from mlcl.runs.result import Result
from mlcl.runs.run import run
from mlcl.runs.trackers import parse_trackers, tracked
from mlcl.streams import Task
from mlcl.training.callbacks import Callback, CallbackList, Interrupted
from mlcl.training.learner import Learner
from mlcl.training.optimisation import TrainingError
from mlcl.training.portable import require_portable


def main(arguments: list[str]) -> int:
    """Run: ``mlcl run [NAME | FILE.yaml] [--method M] [--memory.size N] ... [--out DIR]``."""
    command = parse_run(arguments)
    if command is None:
        return 0
    require_portable(command.config.train)  # before anything is opened: it may start this command anew
    names = parse_trackers(command.track)
    out = command.out or default_folder(command.config)

    def start(callback: Callback) -> Result:
        with tracked(names, out, command.config) as tracking:
            return run(
                command.config,
                out=out,
                overwrite=command.overwrite,
                callback=CallbackList(tracking, callback),
            )

    return follow(start, out, quiet=command.quiet)


def follow(
    start: Callable[[Callback], Result],
    out: Path,
    *,
    quiet: bool,
    summary: Callable[[], str] | None = None,
) -> int:
    """Do a run, show its progress, and turn its end into an exit code; ``summary`` stands for the table of tasks."""
    signals = Signals()
    again = f"resume with: mlcl resume {shlex.quote(str(out))}"
    try:
        with signals:
            if quiet or rank() > 0:
                start(signals)
            else:
                with Terminal() as terminal:
                    result = start(CallbackList(terminal, signals))
                console = make_console(sys.stdout)
                if summary is None:
                    console.print(result_table(result))
                for line in result_lines(result) if summary is None else [summary()]:
                    console.print(line)
    except TrainingError as error:
        return fail(f"{error} What was measured so far is in {out}.", 1)
    except (Interrupted, KeyboardInterrupt):
        if not signals.listening:
            raise
        return 3 if rank() else fail(f"interrupted; {again}", 3)
    except ProcessError as error:
        for line in "".join(getattr(error, "__notes__", ())).splitlines():
            note(line)
        return fail(f"{error}; {again}" if signals.listening else str(error), 1)
    except BrokenPipeError:
        raise
    except OSError as error:
        if not signals.listening:
            raise
        return fail(
            f"{error.filename or out}: {error.strerror or error}; the last good checkpoint stays; {again}", 1
        )
    say(out)
    return 0


class Signals(Callback):
    """Stops the run after the step in which SIGTERM, SIGHUP or SIGINT came. Used in a ``with``, which puts all back.

    It listens from the first task on: before it there is nothing to save, and signals do what they always do.

    Attributes:
        listening: whether training has begun.
    """

    def __init__(self) -> None:
        self.listening = False
        self._before: dict[signal.Signals, Any] = {}
        self._caught = False

    def __enter__(self) -> Signals:
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._caught and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._caught = True
        if rank() == 0:
            note("stopping after this step; a second Ctrl-C does not wait")

    def on_task_start(self, learner: Learner, task: Task, steps: int) -> None:  # noqa: ARG002
        """Begin to listen; only the main thread can."""
        if not self.listening and threading.current_thread() is threading.main_thread():
            self._before = {n: signal.signal(n, self._handle) for n in (signal.SIGINT, *endings())}
        self.listening = True

    def on_step(self, learner: Learner, loss: float) -> None:  # noqa: ARG002
        """Stop here if a signal came."""
        if self._caught:
            raise Interrupted

    def on_task_end(self, learner: Learner) -> None:
        """Stop here if a signal came, and there is more to do."""
        if self._caught and learner.task_index < len(learner.tasks):
            raise Interrupted
