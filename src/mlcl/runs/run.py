"""Run a config, and resume a run that was stopped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlcl.config.resolve import config_from
from mlcl.config.schema import Config
from mlcl.engines.launching import launched, rank
from mlcl.errors import InputError
from mlcl.runs.continuing import begin_from, extended_benchmark, read_base
from mlcl.runs.folder import RESULT, is_finished, read_config, read_extends, read_receipt, write_extends
from mlcl.runs.recording import (
    Recorder,
    config_of_arrays,
    load_benchmark,
    train_and_record,
)
from mlcl.runs.result import Result
from mlcl.streams import Benchmark
from mlcl.training.callbacks import Callback
from mlcl.training.learner import Learner
from mlcl.training.processes import settled


def run(
    config: Config | Mapping[str, Any] | str | Path = "c-digits",
    *,
    benchmark: Benchmark | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    callback: Callback | None = None,
) -> Result:
    """Train and evaluate one method on one benchmark.

    Args:
        config: a `Config`, a dict of settings, the name of a shipped config, or a YAML file.
        benchmark: tasks to use instead of those that the config names, such as `Benchmark.from_arrays`. The run
            records its name, fingerprint and shape; a model that the config does not choose fits its data.
        out: folder to write; nothing is written without it.
        callback: called while training; with several processes (``train.devices``) in this one only.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y = rng.random((300, 4)) < 0.3
    >>> x = y @ rng.normal(size=(4, 8)) + rng.normal(size=(300, 8))
    >>> tasks = Benchmark.from_arrays(x[:200], y[:200], x[200:], y[200:], tasks=2)
    >>> result = run({"method": "exact"}, benchmark=tasks)
    >>> round(result.macro_auc), result.matrix.shape
    (89, (2, 2))
    """
    config = settled(config_from(config, kind=None if benchmark is None else benchmark.dataset.kind))
    if benchmark is not None:
        config = config_of_arrays(config, benchmark)
    with launched(config.train.devices, run, config, benchmark=benchmark, out=out, overwrite=overwrite):
        tasks = load_benchmark(config, benchmark)
        learner = Learner(config, tasks)  # before the folder: parts that do not fit leave nothing behind
        if out is None:
            return train_and_record(learner, None, callback)
        path = Path(out)
        recorder = learner.processes.on_first(
            lambda: Recorder.create(path, config, tasks, overwrite=overwrite)
        )
        return train_and_record(learner, recorder, callback)


def resume(
    folder: str | Path,
    *,
    benchmark: Benchmark | None = None,
    callback: Callback | None = None,
) -> Result:
    """Resume a run that was stopped, from its newest good checkpoint, or from the start if there is none yet.

    On a CPU the result is the same, bit for bit, as that of a run in one go. A run that is finished, and one whose
    settings, data or tasks changed, is an `InputError`; so is a plugin that changed, unless it was loaded anew.

    Args:
        benchmark: the tasks, if they were given as an object when the run began.

    >>> import tempfile
    >>> import numpy as np
    >>> rows, labels = np.eye(4).repeat(20, axis=0), np.eye(4, dtype=int).repeat(20, axis=0)
    >>> tasks = Benchmark.from_arrays(rows, labels, rows, labels, tasks=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = run({"method": "exact"}, benchmark=tasks, out=f"{folder}/run")
    ...     try:
    ...         _ = resume(f"{folder}/run")
    ...     except InputError as error:
    ...         print(str(error).replace(folder, "runs"))
    runs/run is finished; its result is in runs/run/result.json.
    """
    path = Path(folder)
    if is_finished(path):
        raise InputError(f"{path} is finished; its result is in {path / RESULT}.")
    config = settled(read_config(path))
    with launched(config.train.devices, resume, path, benchmark=benchmark):
        if read_receipt(path) is not None:
            raise InputError(f"{path} was to forget and was stopped; delete it and do that again.")
        if (extends := read_extends(path)) is not None:
            base = read_base(path)
            decisions = base.trained.decisions
            learner = Learner(config, extended_benchmark(base, config, known=extends.known), pretrained=False)
            recorder = Recorder.reopen(path, learner, begin=lambda: begin_from(learner, base))
            if extends.thresholds and not rank():
                write_extends(path, replace(extends, thresholds=base.trained.thresholds_print))
        else:
            decisions = None
            tasks = load_benchmark(config, benchmark)
            learner = Learner(config, tasks, pretrained=False)
            recorder = Recorder.reopen(path, learner, begin=learner.load_pretrained)
        return train_and_record(learner, recorder, callback, decisions)
