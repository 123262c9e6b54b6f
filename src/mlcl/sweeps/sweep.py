"""Execute the runs of a sweep: finished runs are kept, and a run that fails does not stop the others.

`attempt` executes one run, in a process of this machine or on a node of a cluster; `run_all` all of them.
"""

from __future__ import annotations

import contextlib
import tempfile
import traceback
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from mlcl.config.schema import Config
from mlcl.datasets import load_dataset
from mlcl.engines.cluster import Cluster, choose_engine
from mlcl.engines.pool import Engine, LocalWorkers, Lost, Needs
from mlcl.errors import InputError, one_line
from mlcl.files import FolderLock, write_text
from mlcl.plugins import ensure_loaded
from mlcl.runs.folder import (
    CHECKPOINTS,
    has_result,
    is_run,
    keep_record,
    pack_folder,
    read_config,
    read_result_json,
    unpack_folder,
    write_diverged,
)
from mlcl.runs.run import resume
from mlcl.runs.run import run as start
from mlcl.runs.trackers import tracked
from mlcl.streams import hold_out
from mlcl.sweeps.plan import TUNING, PlannedRun, earlier, refuse_linked_run
from mlcl.training.callbacks import Callback, CallbackList
from mlcl.training.learner import Learner
from mlcl.training.optimisation import TrainingError
from mlcl.training.portable import ENVIRONMENT

DIVERGED = (
    *(TrainingError, ArithmeticError, np.linalg.LinAlgError),
    torch.linalg.LinAlgError,  # type: ignore[attr-defined]
)
"""What a run fails with whose numbers are no longer finite."""


@dataclass(frozen=True)
class Position:
    """The progress of a run: tasks and epochs done, and their total numbers."""

    task: int
    tasks: int
    epoch: int
    epochs: int

    @property
    def share(self) -> float:
        """Return the fraction of the run that is done."""
        return min(1.0, (self.task + self.epoch / max(self.epochs, 1)) / self.tasks)


@dataclass(frozen=True)
class Finished:
    """How a run ended: with its ``result.json``, or an error in one sentence; or it was there before the sweep."""

    run: PlannedRun
    result: dict[str, Any] | None
    error: str = ""
    was_there: bool = False


class SweepCallback:
    """Called at events of a sweep. Each method does nothing by default; override those you need."""

    def on_run_start(self, run: PlannedRun) -> None:
        """Called when a run is sent to a worker."""

    def on_progress(self, run: PlannedRun, position: Position) -> None:
        """Called when a run starts a task or ends an epoch."""

    def on_run_end(self, finished: Finished) -> None:
        """Called when a run has ended, or was finished before the sweep."""


def attempt(
    run: PlannedRun, report: Callable[[Position], None] | None = None
) -> tuple[dict[str, Any] | None, str]:
    """Execute one run in this process; return its result, or None and the error in one sentence.

    The plugins of the run are loaded first. The traceback of an unexpected error is written to its ``error_file``.
    """
    run.error_file.unlink(missing_ok=True)
    try:
        for plugin in run.plugins:
            ensure_loaded(plugin)
        with tracked(run.track, run.folder, run.config) as trackers:
            _run_or_resume(run, CallbackList(_Reporting(report), trackers) if report else trackers)
        if run.tuning:
            keep_record(run.folder)
        return read_result_json(run.folder), ""
    except Exception as error:
        if run.tuning and isinstance(error, DIVERGED) and is_run(run.folder):
            write_diverged(run.folder, run.config, error=one_line(error, limit=500))
            return read_result_json(run.folder), ""
        if isinstance(error, InputError | TrainingError):
            return None, one_line(error, limit=500)
        return None, _unexpected(run, error)


def attempt_on_node(run: PlannedRun) -> tuple[dict[str, bytes] | None, str, str]:
    """Execute a run on a node, in a temporary folder; return its files, or the error and its traceback."""
    with tempfile.TemporaryDirectory(prefix="mlcl-") as folder:
        here = replace(run, folder=Path(folder) / run.folder.name)
        result, error = attempt(here)
        if result is None:
            trace = here.error_file.read_text(encoding="utf-8") if here.error_file.exists() else ""
            return None, error, trace
        return pack_folder(here.folder), "", ""


def received(run: PlannedRun, files: dict[str, bytes] | None, error: str, trace: str) -> Finished:
    """Write what a node has sent into the folder of the run: its files, or the traceback of its failure."""
    if files is not None:
        unpack_folder(files, run.folder)
        return Finished(run, read_result_json(run.folder))
    if trace:
        run.error_file.parent.mkdir(parents=True, exist_ok=True)
        write_text(run.error_file, trace)
        error = f"{error} (traceback in {run.error_file})"
    return Finished(run, None, error)


def _unexpected(run: PlannedRun, error: Exception) -> str:
    """Write the traceback of an error that is being handled, and return it in one sentence."""
    run.error_file.parent.mkdir(parents=True, exist_ok=True)
    write_text(run.error_file, traceback.format_exc())
    return one_line(f"{type(error).__name__}: {error}", limit=500)


def _run_or_resume(run: PlannedRun, callback: Callback) -> None:
    """Resume an interrupted attempt at the same run from its newest checkpoint, or else run from the start."""
    if (run.folder / CHECKPOINTS).is_dir():
        try:
            if read_config(run.folder) == run.config:
                resume(run.folder, callback=callback)
                return
        except InputError:
            pass  # made with other data or tasks, or corrupt: it is replaced
    start(run.config, out=run.folder, overwrite=True, callback=callback)


class _Reporting(Callback):
    """Reports the position at the start of each task and after each epoch."""

    def __init__(self, report: Callable[[Position], None]) -> None:
        self.report = report

    def on_task_start(self, learner: Learner, task: Any, steps: int) -> None:  # noqa: ARG002
        self.report(Position(learner.task_index, len(learner.tasks), 0, learner.epochs))

    def on_epoch(self, learner: Learner, loss: float, seconds: float) -> None:  # noqa: ARG002
        self.report(Position(learner.task_index, len(learner.tasks), learner.epoch + 1, learner.epochs))


def run_all(
    runs: Sequence[PlannedRun],
    *,
    jobs: int | None = None,
    engine: Literal["local", "ray"] = "local",
    address: str | None = None,
    overwrite: bool = False,
    callback: SweepCallback | None = None,
) -> list[Finished]:
    """Execute all runs that are not done yet; return how each ended, in the order of ``runs``.

    Args:
        runs: the planned runs.
        jobs: number of runs at a time; one per core if not given.
        engine: processes of this machine, or Ray.
        address: address of a Ray cluster.
        overwrite: replace finished runs with other settings or other data; by default they are an error.
        callback: called when a run starts, progresses and ends.
    """
    workers = choose_engine(engine, jobs=jobs, address=address)
    if jobs is None and engine == "local" and runs and _shares_gpu(runs[0]):
        workers = LocalWorkers(1)
    callback = callback or SweepCallback()
    ends: dict[PlannedRun, Finished] = {}
    todo = []
    for run, finished in _with_earlier(runs, overwrite=overwrite):
        if finished is None:
            todo.append(run)
        else:
            ends[run] = finished
            callback.on_run_end(finished)
    if todo:
        # Closed explicitly: an interruption ends the workers at once, not when garbage is collected.
        with contextlib.closing(_execute(workers, todo, callback)) as stream:
            for finished in stream:
                ends[finished.run] = finished
                callback.on_run_end(finished)
    return [ends[run] for run in runs]


def _shares_gpu(run: PlannedRun) -> bool:
    device = run.config.train.device
    return device != "cpu" and (torch.cuda.is_available() or device != "auto")


def _needs(run: PlannedRun) -> Needs:
    train = run.config.train
    return Needs(train.threads or 1, train.device != "cpu", ENVIRONMENT if train.portable else {})


def _execute(
    engine: Engine, runs: Sequence[PlannedRun], callback: SweepCallback
) -> Generator[Finished, None, None]:
    """Execute runs and yield each as it ends; nodes of a cluster send the files of a run back."""
    away = isinstance(engine, Cluster)
    execute: Callable[..., Any] = attempt_on_node if away else attempt
    stream = engine.each(
        execute, runs, needs=_needs, started=callback.on_run_start, progress=callback.on_progress
    )
    with contextlib.closing(stream):
        for run, answer in stream:
            if isinstance(answer, Lost):
                yield Finished(run, None, f"{answer.reason}.")
            elif away:
                yield received(run, *answer)
            else:
                yield Finished(run, *answer)


def _with_earlier(
    runs: Sequence[PlannedRun], *, overwrite: bool
) -> Iterator[tuple[PlannedRun, Finished | None]]:
    """Yield each run with its earlier result, or None if it is to be executed; errors come before any change."""
    for run in runs:
        refuse_linked_run(run)
    fingerprints = Fingerprints()
    found = [(run, earlier(run, fingerprints.of(run.config))) for run in runs]
    for run, state in found:
        if state.other and not overwrite:
            raise InputError(
                f"{run.folder} holds a finished run that differs ({state.other}); "
                "choose another --out, or add --overwrite to run it again."
            )
        if state.broken:
            warnings.warn(f"{state.broken.rstrip('.')}; it is run again.", stacklevel=2)
    for run, state in found:
        yield run, Finished(run, state.result, was_there=True) if state.result else None


class Fingerprints:
    """The fingerprints of the data of runs; each dataset is loaded once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int | None], str] = {}

    def of(self, config: Config) -> str:
        """Return the fingerprint of the data of a run, as in its ``environment.json``."""
        key = (config.data, config.seed if config.validate else None)
        if key not in self._known:
            data = load_dataset(config.data)
            self._known[key] = (hold_out(data, seed=config.seed) if config.validate else data).fingerprint
        return self._known[key]


@contextlib.contextmanager
def sweep_lock(out: Path) -> Iterator[None]:
    """Lock the folder of a sweep for this process, so that two commands do not write the same runs."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(out)
    except OSError as error:
        raise InputError(f"--out {out} cannot be written to: {error.strerror}.") from None
    try:
        yield
    finally:
        lock.release()


def reuse(runs: Sequence[PlannedRun], folders: Sequence[Path]) -> int:
    """Copy those of the planned runs that other sweeps, in ``folders``, have finished; return how many were copied.

    Tables share rows. Runs are the same if their settings, the fingerprint of their data and their plugins are; labels
    may differ. A run that has a folder already is skipped.
    """
    finished = _finished(folders)
    fingerprints, copied = Fingerprints(), 0
    for run in runs:
        refuse_linked_run(run)
        if run.folder.exists():
            continue
        # Folders end in their seed, and those of tuning are named after all settings: others need not be read.
        end = run.folder.name if run.tuning else f"-seed{run.seed}"
        candidates = [path for path in finished[run.tuning] if path.name.endswith(end)]
        for candidate in candidates:
            if earlier(replace(run, folder=candidate), fingerprints.of(run.config)).result is not None:
                _copy(candidate, run.folder)
                copied += 1
                break
    return copied


def _finished(folders: Sequence[Path]) -> dict[bool, list[Path]]:
    """Return the folders of all finished runs of some sweeps: those of tables (False) and of tuning (True)."""
    found: dict[bool, list[Path]] = {False: [], True: []}
    for folder in folders:
        if not any((folder / name).is_dir() for name in ("runs", TUNING)):
            raise InputError(f"--reuse {folder} holds no runs; expected the folder of a sweep.")
        for tuning, name in ((False, "runs"), (True, TUNING)):
            paths = sorted((folder / name).iterdir()) if (folder / name).is_dir() else []
            found[tuning] += [path for path in paths if has_result(path)]
    return found


def _copy(source: Path, target: Path) -> None:
    """Copy a run; ``target`` is complete or does not exist."""
    partial = target.with_name(f".{target.name}.copy")
    unpack_folder(pack_folder(source), partial)
    partial.rename(target)
