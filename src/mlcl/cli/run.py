"""Runs: begin one, continue one, and follow it to its end."""

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
from mlcl.cli.progress import make_console
from mlcl.cli.releasing import finish
from mlcl.cli.settings import config_of
from mlcl.cli.terminal import Terminal, result_lines, result_table
from mlcl.cli.verbs import Settings
from mlcl.engines.children import ProcessError
from mlcl.engines.launching import endings, rank
from mlcl.runs.folder import default_folder, is_finished, read_config, read_extends
from mlcl.runs.result import Result
from mlcl.runs.run import resume as go_on
from mlcl.runs.run import run as train
from mlcl.runs.trackers import known_trackers, parse_trackers, tracked
from mlcl.streams import Task
from mlcl.taggers.gate import is_waiting
from mlcl.training.callbacks import Callback, CallbackList, Interrupted
from mlcl.training.learner import Learner
from mlcl.training.optimisation import TrainingError
from mlcl.training.portable import require_portable


def run(
    source: str | None = None,
    *,
    out: Path | None = None,
    overwrite: bool = False,
    quiet: bool = False,
    track: str = "",
    settings: Settings,
) -> int:
    """Train and evaluate one method on one benchmark.

    Args:
        source (NAME | FILE.yaml): a shipped config (`mlcl ls configs`), or one of your own (default: c-digits).
        out (DIR): folder to write (default: runs/BENCHMARK-METHOD-seedN).
        overwrite: replace the folder if it holds a run.
        quiet: print the folder's path only.
        track (T,...): trackers to report to: tensorboard, wandb, mlflow (extras).
        settings: override those of the config; --loss ru is short for --loss.kind ru.
    """
    config = config_of(source, settings)
    require_portable(config.train)  # before anything is opened: it may start this command anew
    names = parse_trackers(track)
    folder = out or default_folder(config)

    def start(callback: Callback) -> Result:
        with tracked(names, folder, config) as tracking:
            return train(config, out=folder, overwrite=overwrite, callback=CallbackList(tracking, callback))

    return follow(start, folder, quiet=quiet)


def resume(folder: Path, *, quiet: bool = False, track: str | None = None) -> int:
    """Continue a run from its newest checkpoint; the result is that of a run in one go.

    A version that `mlcl update` began is then taken into use as there: behind the same gate, and if no other came into
    use meanwhile.

    Args:
        folder (DIR): the folder of the run.
        quiet: print the folder's path only.
        track (T,...): trackers to report to (default: those that the run began with).
    """
    extends = read_extends(folder)
    if is_finished(folder):
        waiting = is_waiting(folder)
        if not waiting:
            note(f"mlcl: {folder} is finished; there is nothing to resume")
        say(folder)
        return finish(folder, quiet=quiet) if waiting else 0
    require_portable(read_config(folder).train)
    names = parse_trackers(",".join(known_trackers(folder)) if track is None else track)

    def start(callback: Callback) -> Result:
        with tracked(names, folder, read_config(folder)) as tracking:
            return go_on(folder, callback=CallbackList(tracking, callback))

    code = follow(start, folder, quiet=quiet)
    if code or extends is None:
        return code
    if not extends.gate_known:  # begun by an older mlcl
        note(f"mlcl: {folder} does not say which gate it must pass, so it is not taken into use")
        return 0
    return finish(folder, quiet=quiet)


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
