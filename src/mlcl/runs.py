"""Runs: from a config to a folder with everything that was measured, and what made it.

A run folder holds ``config.yaml`` (every setting), ``environment.json`` (versions, commit, machine, data fingerprint),
``metrics.jsonl`` (one line a measured value), ``result.json``, ``weights.safetensors`` and ``memory.safetensors``.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.config import Config, options, to_dict
from mlcl.datasets import load_dataset
from mlcl.errors import InputError
from mlcl.metrics import ResultMatrix, by_frequency
from mlcl.settings import config_from, to_yaml
from mlcl.streams import Benchmark, build_benchmark, hold_out
from mlcl.training import Learner, Observer, train

RESULT_FORMAT = 1
FILES = (
    "config.yaml",
    "environment.json",
    "metrics.jsonl",
    "result.json",
    "weights.safetensors",
    "memory.safetensors",
)


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
    folder = RunFolder.create(Path(out), config, tasks, overwrite=overwrite) if out is not None else None
    train(learner, observer=Both(folder, observer or Observer()) if folder else observer)
    result = summarise(config, learner, folder.path if folder else None)
    if folder:
        folder.finish(result)
    return result


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
        "positive": result.positive,
        "tasks": [task.classes for task in benchmark.tasks],
        "memory": [len(samples.rows) for samples in result.learner.memory.tasks],
        "task_seconds": result.seconds,
        "seconds": sum(result.seconds),
        "config": to_dict(result.config),
    }
    plain: dict[str, Any] = _plain(values)
    return plain


def _plain(value: Any) -> Any:
    """Turn arrays into lists, and numbers that JSON has no word for into null."""
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value


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
    """Writes a run's folder while it goes on."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(
        cls, path: Path, config: Config, benchmark: Benchmark, *, overwrite: bool = False
    ) -> RunFolder:
        """Make the folder, or say why not. Only a folder that holds a run, or nothing, is ever replaced."""
        claim_folder(path, overwrite=overwrite)
        folder = cls(path)
        write_text(path / "config.yaml", f"# mlcl run {path / 'config.yaml'}\n{to_yaml(config)}")
        write_json(path / "environment.json", environment(benchmark))
        (path / "metrics.jsonl").touch()
        return folder

    def on_epoch(self, learner: Learner, loss: float, seconds: float) -> None:
        """Write the epoch's mean loss, learning rate and time."""
        position = {"task": learner.task, "epoch": learner.epoch}
        self.log("train/loss", loss, **position)
        self.log("train/lr", learner.lr, **position)
        self.log("train/seconds", round(seconds, 4), **position)

    def on_task_end(self, learner: Learner) -> None:
        """Write the row of the matrix, the per-class values and the pooled measures."""
        measured, task = learner.measured, learner.task
        for other, value in enumerate(measured.matrix[-1]):
            self.log("test/macro_auc", 100 * value, task=task, test_task=other)
        for name, value in zip(learner.data.classes, measured.per_class[-1], strict=True):
            self.log("test/class_auc", 100 * value, task=task, **{"class": name})
        for name, value in measured.pooled[-1].items():
            self.log(f"test/pooled_{name}", 100 * value, task=task)
        self.log("memory/samples", len(learner.memory), task=task)
        self.log("time/task", round(measured.task_seconds[-1], 4), task=task)

    def log(self, name: str, value: float, **position: Any) -> None:
        """Append one measured value."""
        line = json.dumps(_plain({"name": name, "value": value, **position}))
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def finish(self, result: Result) -> None:
        """Write weights, memory, and last the result, so that a folder with ``result.json`` is a whole run."""
        from safetensors.numpy import save as save_arrays
        from safetensors.torch import save as save_tensors

        learner = result.learner
        tensors = {name: value.contiguous() for name, value in learner.network.state_dict().items()}
        tensors["normaliser.scale"] = learner.normaliser.scale.contiguous()
        tensors["normaliser.shift"] = learner.normaliser.shift.contiguous()
        write_bytes(self.path / "weights.safetensors", save_tensors(tensors))
        write_bytes(self.path / "memory.safetensors", save_arrays(learner.memory.state()))
        write_json(self.path / "result.json", result_json(result))


def claim_folder(path: Path, *, overwrite: bool) -> None:
    """Make an empty run folder; an existing one is refused, or replaced if it holds nothing but a run."""
    if path.exists() and not path.is_dir():
        raise InputError(f"--out {path} is a file; expected a folder to make.")
    if path.is_dir() and any(path.iterdir()):
        if not overwrite:
            raise InputError(
                f"--out {path} exists; choose another folder, or add --overwrite to replace the run."
            )
        if not (path / "config.yaml").is_file():
            raise InputError(f"--out {path} holds files that are no run of mlcl; nothing was overwritten.")
        for name in FILES:
            (path / name).unlink(missing_ok=True)
        shutil.rmtree(path / "checkpoints", ignore_errors=True)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {path} cannot be made: {error.strerror}.") from None
    if not os.access(path, os.W_OK):
        raise InputError(f"--out {path} cannot be written to.")


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
        "data": {"name": benchmark.dataset.name, "fingerprint": benchmark.dataset.fingerprint},
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


def write_json(path: Path, value: Any) -> None:
    """Write JSON, whole or not at all."""
    write_text(path, json.dumps(_plain(value), indent=1, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write text, whole or not at all."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file through a temporary one and a rename, so that no reader ever sees half of it."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
