"""Runs: from a config to a result, and to a folder with everything that was measured (`run_folder`)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from mlcl.config import Config, options
from mlcl.datasets import load_dataset
from mlcl.errors import InputError
from mlcl.launching import started
from mlcl.observers import Both, Interrupted, Observer
from mlcl.processes import settled
from mlcl.results import Result, summarise
from mlcl.run_folder import EXTENDS, RunFolder, is_finished
from mlcl.settings import config_from
from mlcl.streams import Benchmark, build_benchmark, hold_out
from mlcl.training import Learner, train


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
        observer: told what happens while training; of several processes (``train.devices``) in this one only.
    """
    config = settled(config_from(config))
    with started(config.train.devices, run, config, benchmark=benchmark, out=out, overwrite=overwrite):
        tasks = benchmark if benchmark is not None else load_benchmark(config)
        learner = Learner(config, tasks)  # before the folder: parts that do not fit leave nothing behind
        if out is None:
            return go_on(learner, None, observer)
        path = Path(out)
        folder = learner.processes.on_first(
            lambda: RunFolder.create(path, config, tasks, overwrite=overwrite)
        )
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
    config = settled(config_from(path / "config.yaml"))
    with started(config.train.devices, resume, path, benchmark=benchmark):
        if (path / EXTENDS).is_file():
            from mlcl import extend

            base = extend.base_of(path)
            learner = Learner(config, extend.extended_benchmark(base, config), pretrained=False)
            opened = RunFolder.reopen(path, learner, begin=lambda: extend.begin(learner, base))
        else:
            tasks = benchmark if benchmark is not None else load_benchmark(config)
            learner = Learner(config, tasks, pretrained=False)
            opened = RunFolder.reopen(path, learner, begin=learner.load_pretrained)
        return go_on(learner, opened, observer)


def go_on(learner: Learner, folder: RunFolder | None, observer: Observer | None) -> Result:
    """Train from where the learner stands to the end, and write the result to the folder, if there is one."""
    observer = observer or Observer()
    with folder or nullcontext():
        try:
            train(learner, observer=observer if folder is None else Both(folder, observer))
        except Interrupted:
            if folder is not None:
                folder.save(learner)
            raise
        result = summarise(learner.config, learner, None if folder is None else folder.path)
        if folder is not None:
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
