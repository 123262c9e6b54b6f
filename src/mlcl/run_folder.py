"""A run's folder: who may write it, what it holds, how it is taken up again.

A run folder holds ``config.yaml`` (every setting), ``environment.json`` (versions, commit, machine, data fingerprint),
``metrics.jsonl`` (one line a measured value), ``result.json``, ``weights.safetensors`` and ``memory.safetensors``.
While it is not finished it also holds ``checkpoints`` and the lock of the process that works on it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import uuid
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mlcl.batches import gather, reduced
from mlcl.checkpoints import (
    Identity,
    newest_checkpoint,
    refuse_changes,
    restore,
    warn_of_versions,
    write_checkpoint,
)
from mlcl.config import Config, to_dict
from mlcl.environment import environment
from mlcl.errors import InputError
from mlcl.files import LOCK, FolderLock, plain, read_object, write_bytes, write_json, write_text
from mlcl.observers import Observer
from mlcl.results import Result, result_json
from mlcl.settings import to_yaml
from mlcl.streams import Benchmark
from mlcl.training import Learner

EXTENDS = "extends.json"
"""In the folder of an extended run: which run it began from."""
FILES = (
    "config.yaml",
    "environment.json",
    "metrics.jsonl",
    "result.json",
    "weights.safetensors",
    "memory.safetensors",
    EXTENDS,
)
EXPORTS = ("model.pt2", "model.onnx")
"""What ``mlcl export`` puts beside them; it goes when the run is replaced."""


class RunFolder(Observer):
    """Writes a run's folder while it goes on, and holds its lock. Made by `create` or `reopen`, used in a ``with``.

    Attributes:
        path: the folder.
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
        extends: Mapping[str, str] | None = None,
    ) -> RunFolder:
        """Make the folder, or say why not. Only a folder that holds a run, or nothing, is ever replaced."""
        _refuse_folder(path, overwrite=overwrite)
        _make_folder(path)
        lock = FolderLock(path)  # before anything of an earlier run goes
        try:
            _clear_folder(path)
            identity = Identity.of(uuid.uuid4().hex, config, benchmark)
            write_json(path / "environment.json", environment(benchmark) | {"run": identity.run})
            if extends is not None:
                write_json(path / EXTENDS, dict(extends))
            made = (
                "mlcl run" if extends is None else f"mlcl extend {extends['run']} --data {config.data}; not:"
            )
            write_text(path / "config.yaml", f"# {made} {path / 'config.yaml'}\n{to_yaml(config)}")
            (path / "metrics.jsonl").touch()
        except BaseException:
            lock.release()
            raise
        return cls(path, lock, identity, config.checkpoint.every)

    @classmethod
    def reopen(
        cls, path: Path, learner: Learner, *, begin: Callable[[], None] = lambda: None
    ) -> RunFolder | None:
        """Take up a folder whose run was stopped: bring the learner and ``metrics.jsonl`` to the newest checkpoint.

        Without a checkpoint ``begin`` brings the learner to where the run began. Of several processes the first one
        holds the folder, and gets it; the others get None.
        """
        processes = learner.processes
        lock = processes.on_first(lambda: FolderLock(path))
        try:
            config, tasks = learner.config, learner.benchmark
            found = processes.from_first(lambda: newest_checkpoint(path / "checkpoints"))
            if found is None:
                before = processes.from_first(lambda: _begun(path / "environment.json", config))
                source = path / "environment.json"
            else:
                before, source = found.identity, found.path
            identity = Identity.of(before.run, config, tasks)
            refuse_changes(before, identity, source=source)
            if found is not None:
                warn_of_versions(found, identity)
                restore(learner, found)
            else:
                begin()
            size = 0 if found is None else found.metrics_bytes
            processes.on_first(lambda: _cut(path / "metrics.jsonl", size))
        except BaseException:
            if lock is not None:
                lock.release()
            raise
        return None if lock is None else cls(path, lock, identity, config.checkpoint.every)

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def on_step(self, learner: Learner, loss: float) -> None:  # noqa: ARG002
        """Write a checkpoint every so many steps of the task."""
        if self.every and (learner.epoch * len(learner.plan) + learner.step) % self.every == 0:
            self.save(learner)

    def save(self, learner: Learner) -> None:
        """Write a checkpoint, unless the newest one was taken right here."""
        position = (learner.task, learner.epoch, learner.step)
        if position == self._saved:
            return
        with (self.path / "metrics.jsonl").open("ab") as file:
            os.fsync(file.fileno())
            size = file.tell()
        write_checkpoint(self.path / "checkpoints", learner.state(), self.identity, metrics_bytes=size)
        self._saved = position

    def on_epoch(self, learner: Learner, loss: float, seconds: float) -> None:
        """Write the epoch's mean loss, learning rate and time."""
        position = {"task": learner.task, "epoch": learner.epoch}
        values = {"train/loss": loss, "train/lr": learner.lr, "train/seconds": round(seconds, 4)}
        self.log([{"name": name, "value": value, **position} for name, value in values.items()])

    def on_task_end(self, learner: Learner) -> None:
        """Write the row of the matrix, the per-class values and the pooled measures, then a checkpoint."""
        measured, task = learner.measured, learner.task
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
        self.log(lines)
        self.save(learner)

    def log(self, lines: list[dict[str, Any]]) -> None:
        """Append measured values."""
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write("".join(json.dumps(plain(line)) + "\n" for line in lines))

    def finish(self, result: Result) -> None:
        """Write weights, memory, and last the result, so that a folder with ``result.json`` is a whole run."""
        from safetensors.numpy import save as save_arrays
        from safetensors.torch import save as save_tensors

        learner = result.learner
        tensors = {name: value.contiguous() for name, value in learner.network.state_dict().items()}
        tensors["normaliser.scale"] = learner.normaliser.scale.contiguous()
        tensors["normaliser.shift"] = learner.normaliser.shift.contiguous()
        contents = {"weights.safetensors": save_tensors(tensors)}
        # All that is kept of the past: stored samples with their inputs, and what the regulariser holds on to.
        kept = learner.memory.state()
        stored = gather(learner.data.train.inputs, learner.memory.rows)
        kept["inputs"] = reduced(stored, learner.config.memory.downscale).numpy()
        for name, value in learner.parts.regulariser.state().items():
            kept[f"regulariser.{name}"] = value.detach().cpu().contiguous().numpy()
        contents["memory.safetensors"] = save_arrays(kept)
        for name, content in contents.items():
            write_bytes(self.path / name, content)
        sums = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
        write_json(self.path / "result.json", result_json(result) | {"sha256": sums})
        shutil.rmtree(self.path / "checkpoints", ignore_errors=True)


def _begun(path: Path, config: Config) -> Identity:
    """Return what a run without a checkpoint belongs to; its settings are those in its folder now."""
    found = read_object(path, limit=1 << 20)
    data = found.get("data")
    if not isinstance(data, dict) or not isinstance(found.get("run"), str):
        raise InputError(f"{path}: names no run and no data; expected the record of a run.")
    settings = json.loads(json.dumps(to_dict(config)))
    return Identity(found["run"], settings, str(data.get("fingerprint")), str(data.get("tasks")))


def _cut(path: Path, size: int) -> None:
    """Cut a file back to the size it had when the checkpoint was taken."""
    found = path.stat().st_size if path.exists() else 0
    if found < size:
        warnings.warn(
            f"{path} has {found} bytes, but had {size} when the checkpoint was taken: earlier lines are lost.",
            UserWarning,
            stacklevel=2,
        )
    else:
        with path.open("ab") as file:
            file.truncate(size)


def claim_folder(path: Path, *, overwrite: bool) -> None:
    """Make an empty run folder; an existing one is refused, or replaced if it holds nothing but a run."""
    _refuse_folder(path, overwrite=overwrite)
    _make_folder(path)
    _clear_folder(path)


def _refuse_folder(path: Path, *, overwrite: bool) -> None:
    if path.exists() and not path.is_dir():
        raise InputError(f"--out {path} is a file; expected a folder to make.")
    names = {entry.name for entry in path.iterdir()} - {LOCK} if path.is_dir() else set()
    if names and not overwrite:
        raise InputError(
            f"--out {path} exists; choose another folder, or add --overwrite to replace the run."
        )
    ours = {*FILES, *(f"{name}.tmp" for name in FILES), "checkpoints"}
    if not names <= ours and "config.yaml" not in names:
        raise InputError(f"--out {path} holds files that are no run of mlcl; nothing was overwritten.")


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {path} cannot be made: {error.strerror}.") from None
    if not os.access(path, os.W_OK):
        raise InputError(f"--out {path} cannot be written to.")


def _clear_folder(path: Path) -> None:
    for name in (*FILES, *EXPORTS):
        (path / name).unlink(missing_ok=True)
        (path / f"{name}.tmp").unlink(missing_ok=True)
    shutil.rmtree(path / "checkpoints", ignore_errors=True)


def is_finished(path: Path) -> bool:
    """Return whether a folder holds a finished run; a folder that holds none, or a damaged one, is an `InputError`."""
    # Not Path.is_file: that raises where a name is too long to be one.
    if not os.path.isfile(path / "config.yaml"):  # noqa: PTH113
        raise InputError(f"{path} holds no run: {path / 'config.yaml'} was looked for and does not exist.")
    if not (path / "result.json").exists():
        return False
    try:
        found = read_object(path / "result.json", limit=1 << 30)
        if not isinstance(found.get("matrix"), list):
            raise InputError(f"{path / 'result.json'}: has no matrix.")
    except InputError as error:
        if (path / "checkpoints").is_dir():
            return False  # the last checkpoint makes it again
        raise InputError(
            f"{str(error).rstrip('.')}; to do the run again: mlcl run {path / 'config.yaml'} --out {path} --overwrite"
        ) from None
    return True


def default_folder(config: Config, root: Path = Path("runs")) -> Path:
    """Return a folder that does not exist yet, named after benchmark, method and seed."""
    base = root / f"{config.benchmark}-{config.method}-seed{config.seed}"
    candidates = (base if n == 1 else base.with_name(f"{base.name}-{n}") for n in range(1, sys.maxsize))
    return next(path for path in candidates if not path.exists())
