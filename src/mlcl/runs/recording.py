"""Recording a run: the callback that fills a run folder during training, and `train_and_record`."""

from __future__ import annotations

import dataclasses
import json
import uuid
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from mlcl.config.parts import used_plugins
from mlcl.config.preparing import label_differences, preparation
from mlcl.config.schema import Config, StreamConfig, to_dict
from mlcl.datasets import given_arrays, load_dataset, published_differences
from mlcl.errors import InputError
from mlcl.files import FolderLock, remove_temporary
from mlcl.runs import folder as files
from mlcl.runs.calibration import Decisions, calibrate
from mlcl.runs.checkpoints import (
    Identity,
    newest_checkpoint,
    refuse_changes,
    restore,
    warn_of_versions,
    write_checkpoint,
)
from mlcl.runs.environment import environment
from mlcl.runs.result import Result, summarise
from mlcl.streams import Benchmark, build_benchmark, hold_out, keep_out
from mlcl.training.callbacks import Callback, CallbackList, Interrupted
from mlcl.training.learner import Learner
from mlcl.training.loop import train


def load_benchmark(config: Config, given: Benchmark | None = None) -> Benchmark:
    """Return the tasks of a config without held-out rows; warn where data are not what the benchmark's name promises.

    Args:
        config: of the run.
        given: tasks to use instead of those that the config names.
    """
    found = _named_benchmark(config) if given is None else given
    return found if config.held_out is None else keep_out(found, share=config.held_out, seed=config.seed)


def _named_benchmark(config: Config) -> Benchmark:
    data = load_dataset(config.data, in_memory=config.train.in_memory, commands=preparation(config))
    counts = {"train": len(data.train), "test": len(data.test)}
    for note in (
        *published_differences(
            config.benchmark, data=data.name, classes=data.classes, dropped=data.dropped, **counts
        ),
        *label_differences(config.benchmark, data.name, data.options),
    ):
        warnings.warn(f"{note}.", UserWarning, stacklevel=4)
    if config.validate:
        data = hold_out(data, seed=config.seed)
    stream = {name: value for name, value in to_dict(config.stream).items() if name != "seed"}
    seed = config.seed if config.stream.seed is None else config.stream.seed
    return build_benchmark(data, name=config.benchmark, seed=seed, **stream)


def config_of_arrays(config: Config, benchmark: Benchmark) -> Config:
    """Return the settings of a run whose benchmark was given as an object: they name it, and how it was cut.

    What the config says of data and tasks does not hold then, and whoever runs it again must not get other data.
    """
    stream = config.stream if benchmark.stream is None else StreamConfig(**benchmark.stream)
    data = given_arrays(benchmark.dataset)
    return dataclasses.replace(config, benchmark=benchmark.name, data=data, stream=stream)


def warn_of_headline(benchmark: Benchmark) -> None:
    """Warn before training where the headline of the run will be undefined, or leaves out tasks."""
    if problem := benchmark.headline_problem:
        warnings.warn(f"{problem}.", UserWarning, stacklevel=3)


def train_and_record(
    learner: Learner,
    recorder: Recorder | None,
    callback: Callback | None,
    before: Decisions | None = None,
) -> Result:
    """Train the remaining tasks, calibrate (as the run before did), and write the result to the folder, if any."""
    callback = callback or Callback()
    warn_of_headline(learner.benchmark)
    with recorder or nullcontext():
        try:
            train(learner, callback=callback if recorder is None else CallbackList(recorder, callback))
        except Interrupted:
            if recorder is not None:
                recorder.save(learner)
            raise
        calibrated = calibrate(learner, before)
        if recorder is None:
            return summarise(learner, calibrated)
        return files.write_result(recorder.path, learner, calibrated)


class Recorder(Callback):
    """Writes a run's folder during training, and holds its lock; made by `create` or `reopen`, for a ``with``.

    Attributes:
        identity: what its checkpoints belong to.
        every: steps between checkpoints inside a task, or None.
    """

    def __init__(self, path: Path, lock: FolderLock, identity: Identity, every: int | None) -> None:
        self.path, self.identity, self.every = path, identity, every
        self._lock = lock
        self._saved: tuple[int, int, int] | None = None

    @classmethod
    def create(
        cls,
        path: Path,
        config: Config,
        benchmark: Benchmark,
        *,
        overwrite: bool = False,
        extends: files.Extends | None = None,
    ) -> Recorder:
        """Make the folder, or say why not. Only a folder that holds a run, or nothing, is ever replaced."""
        files.refuse_folder(path, overwrite=overwrite)
        files.make_folder(path)
        lock = FolderLock(path)  # before anything of an earlier run goes
        try:
            files.clear_folder(path)
            identity = Identity.of(uuid.uuid4().hex, config, benchmark)
            plugins = used_plugins(config)
            record = environment(benchmark) | {"run": identity.run}
            if plugins:
                record["plugins"] = [plugin.record() for plugin in plugins]
            files.write_environment(path, record)
            command = "mlcl run"
            if extends is not None:
                files.write_extends(path, extends)
                verb = "update" if extends.known else "extend"
                command = f"mlcl {verb} {extends.run} --data {config.data}; not:"
            files.write_config(path, config, command=command, plugins=plugins)
            files.write_warnings(path, benchmark.notes)
            files.append_metrics(path, [])
        except BaseException:
            lock.release()
            raise
        return cls(path, lock, identity, config.checkpoint.every)

    @classmethod
    def reopen(
        cls, path: Path, learner: Learner, *, begin: Callable[[], None] = lambda: None
    ) -> Recorder | None:
        """Resume in the folder of a stopped run: move the learner and ``metrics.jsonl`` to the newest checkpoint.

        Without a checkpoint ``begin`` moves the learner to where the run began. Of several processes the first one
        holds the folder, and gets it; the others get None.
        """
        processes = learner.processes
        lock = processes.on_first(lambda: FolderLock(path))
        try:
            config, benchmark = learner.config, learner.benchmark
            found = processes.from_first(lambda: newest_checkpoint(path / files.CHECKPOINTS))
            if found is None:
                before = processes.from_first(lambda: _first_identity(path, config))
                source = path / files.ENVIRONMENT
            else:
                before, source = found.identity, found.path
            identity = Identity.of(before.run, config, benchmark)
            refuse_changes(before, identity, source=source)
            if found is not None:
                warn_of_versions(found, identity)
                restore(learner, found)
            else:
                begin()
            size = 0 if found is None else found.metrics_bytes
            processes.on_first(lambda: remove_temporary(path))
            processes.on_first(lambda: _record_plugins(path, config))
            processes.on_first(lambda: files.cut_metrics(path, size))
        except BaseException:
            if lock is not None:
                lock.release()
            raise
        return None if lock is None else cls(path, lock, identity, config.checkpoint.every)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def on_step(self, learner: Learner, loss: float) -> None:  # noqa: ARG002
        """Write a checkpoint every so many steps of the task."""
        if self.every and (learner.epoch * len(learner.plan) + learner.step) % self.every == 0:
            self.save(learner)

    def save(self, learner: Learner) -> None:
        """Write a checkpoint, unless the newest one was taken right here."""
        position = (learner.task_index, learner.epoch, learner.step)
        if position == self._saved:
            return
        size = files.flush_metrics(self.path)
        write_checkpoint(self.path / files.CHECKPOINTS, learner.state(), self.identity, metrics_bytes=size)
        self._saved = position

    def on_epoch(self, learner: Learner, loss: float, seconds: float) -> None:
        """Write the epoch's mean loss, learning rate and time."""
        position = {"task": learner.task_index, "epoch": learner.epoch}
        values = {"train/loss": loss, "train/lr": learner.lr, "train/seconds": round(seconds, 4)}
        files.append_metrics(
            self.path, [{"name": name, "value": value, **position} for name, value in values.items()]
        )

    def on_task_end(self, learner: Learner) -> None:
        """Write the row of the matrix, the per-class values and the pooled measures, then a checkpoint."""
        measured = learner.evaluations
        task = learner.task_index - 1  # the learner stands at the next task already
        lines: list[dict[str, Any]] = [
            {"name": "test/macro_auc", "value": 100 * value, "task": task, "test_task": other}
            for other, value in enumerate(measured.matrix[-1])
        ]
        lines += [
            {"name": "test/class_auc", "value": 100 * value, "task": task, "class": name}
            for name, value in zip(learner.data.classes, measured.per_class[-1], strict=True)
        ]
        lines += [
            {"name": f"test/pooled_{name}", "value": 100 * value, "task": task}
            for name, value in measured.pooled[-1].items()
        ]
        lines.append({"name": "memory/samples", "value": len(learner.memory), "task": task})
        lines.append({"name": "time/task", "value": round(measured.task_seconds[-1], 4), "task": task})
        files.append_metrics(self.path, lines)
        self.save(learner)


def _record_plugins(path: Path, config: Config) -> None:
    """Record the plugins that a run resumes with, where those it began with have changed and were given anew."""
    now = [plugin.record() for plugin in used_plugins(config)]
    record = files.read_environment(path)
    if now and now != record.get("plugins"):
        files.write_environment(path, record | {"plugins": now, "plugins_before": record.get("plugins")})


def _first_identity(path: Path, config: Config) -> Identity:
    """Return what a run without a checkpoint belongs to; its settings are those in its folder now."""
    found, data = files.read_environment(path), files.read_data_record(path)
    if not data or not isinstance(found.get("run"), str):
        raise InputError(
            f"{path / files.ENVIRONMENT}: names no run and no data; expected the record of a run."
        )
    settings = json.loads(json.dumps(to_dict(config)))
    return Identity(found["run"], settings, str(data.get("fingerprint")), str(data.get("tasks")))
