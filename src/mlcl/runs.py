"""Runs: from a config to a folder with everything that was measured, and what made it.

A run folder holds ``config.yaml`` (every setting), ``environment.json`` (versions, commit, machine, data fingerprint),
``metrics.jsonl`` (one line a measured value), ``result.json``, ``weights.safetensors`` and ``memory.safetensors``.
While it is not finished it also holds ``checkpoints`` and the lock of the process that works on it.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
import uuid
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.batches import gather
from mlcl.checkpoints import (
    Identity,
    newest_checkpoint,
    refuse_changes,
    restore,
    tasks_fingerprint,
    warn_of_versions,
    write_checkpoint,
)
from mlcl.config import Config, options, to_dict
from mlcl.datasets import load_dataset
from mlcl.errors import InputError
from mlcl.files import LOCK, FolderLock, plain, read_object, write_bytes, write_json, write_text
from mlcl.metrics import ResultMatrix, by_frequency
from mlcl.settings import config_from, to_yaml
from mlcl.streams import Benchmark, build_benchmark, hold_out
from mlcl.training import Interrupted, Learner, Observer, train

__all__ = [
    "Both",
    "Interrupted",
    "Result",
    "RunFolder",
    "claim_folder",
    "is_finished",
    "load_benchmark",
    "resume",
    "run",
    "write_bytes",
    "write_json",
    "write_text",
]

RESULT_FORMAT = 1
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


@dataclass(frozen=True)
class Result:
    """What a run measured. AUC values are in points (x 100); positive forgetting is a loss.

    Attributes:
        config: every setting of the run.
        matrix: Macro-AUC of test task i (column) after learning task t (row); one row for joint training.
        per_class: AUC of each class after each task, on its own task's test images; nan where undefined.
        pooled: Macro-AUC and mAP over all classes on all test images, after the last task.
        thirds: final Macro-AUC of the head, medium and tail third of the classes by P_k.
        positive: P_k of each class in its own task.
        seconds: time of each task.
        learner: the network with its memory, to go on with.
        folder: where the run was written, if it was.
    """

    config: Config
    matrix: NDArray[np.float64]
    per_class: NDArray[np.float64]
    pooled: dict[str, float]
    thirds: dict[str, float]
    positive: NDArray[np.int64]
    seconds: tuple[float, ...]
    learner: Learner
    folder: Path | None = None

    @property
    def macro_auc(self) -> float:
        """Return the mean over tasks of the final Macro-AUC, in points: the headline."""
        return ResultMatrix(self.matrix).overall

    @property
    def forgetting(self) -> float:
        """Return the mean drop from the best earlier to the final Macro-AUC (nan for joint training), in points."""
        return ResultMatrix(self.matrix).forgetting()


def run(
    config: Config | Mapping[str, Any] | str | Path = "c-digits",
    *,
    benchmark: Benchmark | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    observer: Observer | None = None,
) -> Result:
    """Train and test one method on one benchmark.

    Args:
        config: a `Config`, a dict of settings, the name of a shipped config, or a YAML file.
        benchmark: tasks to use instead of those that the config names, such as `Benchmark.from_arrays`.
        out: folder to write; nothing is written without it.
        overwrite: replace ``out`` if it holds an earlier run.
        observer: told what happens while training.
    """
    config = config_from(config)
    tasks = benchmark if benchmark is not None else load_benchmark(config)
    learner = Learner(config, tasks)  # before the folder: parts that do not fit leave nothing behind
    if out is None:
        return summarise(config, train(learner, observer=observer), None)
    with RunFolder.create(Path(out), config, tasks, overwrite=overwrite) as folder:
        return go_on(learner, folder, observer)


def resume(
    folder: str | Path, *, benchmark: Benchmark | None = None, observer: Observer | None = None
) -> Result:
    """Go on with a run that was stopped, from its newest good checkpoint, or from the start if there is none yet.

    On a CPU the result is the same, bit for bit, as that of a run in one go. A run that is finished, and one whose
    settings, data or tasks changed, is an `InputError`.

    Args:
        folder: the folder of the run.
        benchmark: the tasks, if they were given as an object when the run was begun.
        observer: told what happens while training.
    """
    path = Path(folder)
    if is_finished(path):
        raise InputError(f"{path} is finished; its result is in {path / 'result.json'}.")
    config = config_from(path / "config.yaml")
    if (path / EXTENDS).is_file():
        from mlcl import extend

        base = extend.base_of(path)
        learner = Learner(config, extend.extended_benchmark(base, config))
        with RunFolder.reopen(path, learner, begin=lambda: extend.begin(learner, base)) as opened:
            return go_on(learner, opened, observer)
    learner = Learner(config, benchmark if benchmark is not None else load_benchmark(config))
    with RunFolder.reopen(path, learner) as opened:
        return go_on(learner, opened, observer)


def go_on(learner: Learner, folder: RunFolder, observer: Observer | None) -> Result:
    """Train from where the learner stands to the end, and write the result."""
    try:
        train(learner, observer=Both(folder, observer or Observer()))
    except Interrupted:
        folder.save(learner)
        raise
    result = summarise(learner.config, learner, folder.path)
    folder.finish(result)
    return result


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


def load_benchmark(config: Config) -> Benchmark:
    """Load the data of a config and cut it into tasks."""
    data = load_dataset(config.data, in_memory=config.train.in_memory)
    if config.validate:
        data = hold_out(data, seed=config.seed)
    stream = options(config.stream, without=("seed",))
    seed = config.seed if config.stream.seed is None else config.stream.seed
    return build_benchmark(data, name=config.benchmark, seed=seed, **stream)


def summarise(config: Config, learner: Learner, folder: Path | None) -> Result:
    """Turn what was measured into points and derived values."""
    measured = learner.measured
    per_class = 100 * np.array(measured.per_class)
    positive = learner.counts.positive
    return Result(
        config=config,
        matrix=100 * np.array(measured.matrix),
        per_class=per_class,
        pooled={name: 100 * value for name, value in measured.pooled[-1].items()},
        thirds=by_frequency(per_class[-1], positive),
        positive=positive,
        seconds=tuple(measured.task_seconds),
        learner=learner,
        folder=folder,
    )


def result_json(result: Result) -> dict[str, Any]:
    """Return what ``result.json`` holds; undefined values are null."""
    matrix = ResultMatrix(result.matrix)
    benchmark = result.learner.benchmark
    values = {
        "format": RESULT_FORMAT,
        "benchmark": result.config.benchmark,
        "method": result.config.method,
        "seed": result.config.seed,
        "macro_auc": matrix.overall,
        "forgetting": matrix.forgetting(),
        "forgetting_last": matrix.forgetting("last"),
        "backward_transfer": matrix.backward_transfer,
        "forward_transfer": matrix.forward_transfer(50.0),
        "pooled": result.pooled,
        "thirds": result.thirds,
        "undefined_classes": int(np.isnan(result.per_class[-1]).sum()),
        "matrix": result.matrix,
        "per_class": result.per_class,
        "classes": list(benchmark.dataset.classes),
        "input_shape": list(benchmark.dataset.train.inputs.shape[1:]),
        "positive": result.positive,
        "tasks": [task.classes for task in benchmark.tasks],
        "memory": [len(samples.rows) for samples in result.learner.memory.tasks],
        "task_seconds": result.seconds,
        "seconds": sum(result.seconds),
        "config": to_dict(result.config),
    }
    found: dict[str, Any] = plain(values)
    return found


class Both(Observer):
    """Tells two observers."""

    def __init__(self, first: Observer, second: Observer) -> None:
        self.observers = (first, second)

    def on_task_start(self, *args: Any) -> None:
        """Pass it on."""
        for observer in self.observers:
            observer.on_task_start(*args)

    def on_step(self, *args: Any) -> None:
        """Pass it on."""
        for observer in self.observers:
            observer.on_step(*args)

    def on_epoch(self, *args: Any) -> None:
        """Pass it on."""
        for observer in self.observers:
            observer.on_epoch(*args)

    def on_task_end(self, *args: Any) -> None:
        """Pass it on."""
        for observer in self.observers:
            observer.on_task_end(*args)


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
    def reopen(cls, path: Path, learner: Learner, *, begin: Callable[[], None] = lambda: None) -> RunFolder:
        """Take up a folder whose run was stopped: bring the learner and ``metrics.jsonl`` to the newest checkpoint.

        Without a checkpoint ``begin`` brings the learner to where the run began.
        """
        lock = FolderLock(path)
        try:
            config, tasks = learner.config, learner.benchmark
            found = newest_checkpoint(path / "checkpoints")
            if found is None:
                before = _begun(path / "environment.json", config)
                source = path / "environment.json"
            else:
                before, source = found.identity, found.path
            identity = Identity.of(before.run, config, tasks)
            refuse_changes(before, identity, source=source)
            if found is not None:
                warn_of_versions(found)
                restore(learner, found)
            else:
                begin()
            _cut(path / "metrics.jsonl", 0 if found is None else found.metrics_bytes)
        except BaseException:
            lock.release()
            raise
        return cls(path, lock, identity, config.checkpoint.every)

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
        kept["inputs"] = gather(learner.data.train.inputs, learner.memory.rows).numpy()
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


def default_folder(config: Config, root: Path = Path("runs")) -> Path:
    """Return a folder that does not exist yet, named after benchmark, method and seed."""
    base = root / f"{config.benchmark}-{config.method}-seed{config.seed}"
    candidates = (base if n == 1 else base.with_name(f"{base.name}-{n}") for n in range(1, sys.maxsize))
    return next(path for path in candidates if not path.exists())


def environment(benchmark: Benchmark) -> dict[str, Any]:
    """Return what made the run: versions, commit, machine, and the fingerprint of the data."""
    import importlib.metadata as metadata

    import torch

    packages = ("mlcl", "torch", "numpy", "scikit-learn", "lightning-fabric")
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "versions": {"python": platform.python_version()}
        | {name: metadata.version(name) for name in packages},
        "commit": source_commit(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "data": {
            "name": benchmark.dataset.name,
            "fingerprint": benchmark.dataset.fingerprint,
            "tasks": tasks_fingerprint(benchmark),
        },
        "command": sys.argv,
    }


def source_commit() -> str | None:
    """Return the commit of the source tree that is running, with ``-dirty`` after local changes; None outside one."""
    git = shutil.which("git")
    here = Path(__file__).parent
    if git is None or not (here.parent.parent / ".git").exists():
        return None
    command = [git, "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    return found.stdout.strip() or None
