"""A finished run learns from one more store: more rows of labels it knows, labels that are new, or both.

The store's classes are one more task; the rows it stored stand for the past, or the sums of an exact head.
"""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path

from mlcl.config.schema import Config, to_dict
from mlcl.datasets import absolute_data
from mlcl.engines.launching import launched
from mlcl.errors import InputError
from mlcl.runs import folder as files
from mlcl.runs.added import extended_benchmark
from mlcl.runs.base import begin_from, load_base
from mlcl.runs.recording import Recorder, train_and_record
from mlcl.runs.result import Result
from mlcl.runs.versions import current_folder
from mlcl.training.callbacks import Callback
from mlcl.training.learner import Learner
from mlcl.training.processes import settled

FREE = ("data", "benchmark", "held_out", "train", "checkpoint")
"""Settings that may differ from those of the run before."""


def update(
    folder: str | Path,
    data: str | Path | None = None,
    *,
    out: str | Path,
    config: Config | None = None,
    known: bool = True,
    gate: files.Gate | None = None,
    overwrite: bool = False,
    callback: Callback | None = None,
) -> Result:
    """Train a finished run on the classes of a dataset, as one more task, and write the result to a new folder.

    Args:
        folder: the finished run; of one with versions the current one. It stays as it is.
        data: a store, by folder or name.
        out: folder to write; ``mlcl resume`` continues there if it is stopped.
        config: settings instead of those of the run; only data, benchmark, held_out, train and checkpoint may differ.
        known: learn the store's classes that the run knows already too; else its new classes alone.
        gate: what `mlcl.runs.gate.release` compares the result on, see `mlcl.runs.gate.check_gate`.
        overwrite: replace ``out`` if it holds an earlier run.
        callback: called while training.
    """
    now = current_folder(Path(folder))
    if Path(out).resolve() in (now.resolve(), Path(folder).resolve()):
        raise InputError(f"--out {out} is the run that is extended; expected another folder.")
    files.require_finished(now)
    settings = config or dataclasses.replace(files.read_config(now), data=absolute_data(str(data)))
    return _train(now, settings, callback, out=Path(out), known=known, gate=gate, overwrite=overwrite)


def _train(
    parent: Path,
    config: Config,
    callback: Callback | None = None,
    *,
    out: Path,
    known: bool,
    gate: files.Gate | None,
    overwrite: bool,
) -> Result:
    """Train on from this very run, in every process: the version in use may change meanwhile."""
    base = load_base(parent)
    _refuse_settings(base.trained.config, config)
    config = settled(config)
    given = {"out": out, "known": known, "gate": gate, "overwrite": overwrite}
    with launched(config.train.devices, _train, parent, config, **given):
        learner = Learner(config, extended_benchmark(base, config, known=known), pretrained=False)
        begin_from(learner, base)
        for note in learner.benchmark.notes:
            warnings.warn(note, UserWarning, stacklevel=2)
        extends = files.Extends(base.folder, base.fingerprint, known, gate)
        recorder = learner.processes.on_first(
            lambda: Recorder.create(out, config, learner.benchmark, overwrite=overwrite, extends=extends)
        )
        return train_and_record(
            learner,
            recorder,
            callback,
            before=base.trained.calibration,
            decided=base.trained.thresholds,
        )


def _refuse_settings(before: Config, now: Config) -> None:
    old, new = to_dict(before), to_dict(now)
    for name in sorted({*old, *new} - set(FREE)):
        if old.get(name) != new.get(name):
            raise InputError(
                f"{name} was {old.get(name)} and is {new.get(name)}; an extended run may change only "
                f"{', '.join(FREE)}."
            )
