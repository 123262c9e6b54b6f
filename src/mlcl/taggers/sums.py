"""What was learnt by addition outside a run, as a run folder: every verb that uses a tagger then works on it.

`mlcl learn` and `mlcl.sklearn.ExactTagger` have no tasks, epochs or memory. What they know is what a run of the method
``exact`` knows: a feature map and sums. So they are written as such a run. Labels that were annotated for the same rows
are one task of it. What a run measures on test rows is measured here on rows that were held out, and is undefined
without any.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.config.resolve import resolve
from mlcl.config.schema import Config, to_dict
from mlcl.datasets import counted_data
from mlcl.errors import InputError, check_int, one_line
from mlcl.exact import ExactLearner, Options, Solution, solve
from mlcl.exact.held_rows import HeldOutRows
from mlcl.exact.learner import Form
from mlcl.labels import LabelCounts
from mlcl.memories import Memory, TaskSamples
from mlcl.metrics import (
    Calibration,
    Goal,
    HeldOut,
    LogOddsLines,
    Thresholds,
    average_precision,
    by_frequency,
    cross_fitted,
    macro_auc,
    measure,
)
from mlcl.metrics.inputs import Floats
from mlcl.runs import folder as files
from mlcl.runs.calibration import predicted_thresholds, with_inputs
from mlcl.runs.environment import machine_record
from mlcl.runs.result import SOLVED, Result
from mlcl.runs.versions import current_folder

METHOD = "exact"
_PREFIX = "exact."


@dataclass(frozen=True, eq=False)
class LearntSums:
    """What was learnt by addition.

    Attributes:
        learner: feature map and sums.
        classes: names of the classes.
        options: how the weights are solved.
        dimensions: more features than this were projected; None: never.
        form: of the sums.
        goal: what thresholds are chosen for.
        numbers: whether the names of the classes stand for whole numbers.
        features: names of the features, if they have names.
        seed: of directions that the first rows did not determine; None if it is not known.
        name: of the data.
        fingerprint: of the data; empty if it is not known.
        seconds: that learning took.
        share: of the rows, chosen by their content, that are not in the sums, see `mlcl.exact.held_rows`.
        held_out: rows to calibrate and measure on, if there are any.
        calibrate: so many of them are kept as more are learnt; None: as many as there are.
        encoder: the file of what made the vectors of other inputs, if anything did.
    """

    learner: ExactLearner
    classes: tuple[str, ...]
    options: Options
    dimensions: int | None = 256
    form: Form = "auto"
    goal: Goal = field(default_factory=Goal)
    numbers: bool = False
    features: tuple[str, ...] | None = None
    seed: int | None = 0
    name: str = "rows"
    fingerprint: str = ""
    seconds: float = 0.0
    share: float = 0.0
    held_out: HeldOutRows | None = None
    calibrate: int | None = None
    encoder: bytes | None = None

    def __post_init__(self) -> None:
        if len(self.classes) != self.learner.classes or not self.classes:
            raise InputError(
                f"the sums have {self.learner.classes} classes and there are {len(self.classes)} names; expected as "
                "many, and at least one"
            )


def write_sums(out: str | Path, learnt: LearntSums, *, command: str) -> Result:
    """Write what was learnt into a folder as a finished run of the exact learner, and return what was measured.

    Files of that name are replaced, the result last; whoever calls it has made sure that they may be.

    Args:
        out: the folder, which exists.
        learnt: what was learnt.
        command: that learnt it, for people.
    """
    path, config = Path(out), _config(learnt)
    solution = solve(learnt.learner, learnt.options)
    scored = None if learnt.held_out is None else _scored(learnt.held_out, solution)
    calibration, thresholds = _calibrated(solution, scored, learnt.goal)
    tasks = _tasks(learnt.learner)
    result = _result(learnt, config, solution, scored, tasks)
    files.remove_result(path)
    files.write_config(path, config, command=f"{command}; not:")
    files.write_environment(path, machine_record() | {"run": uuid.uuid4().hex, "data": result.data})
    contents = files.packed(_weights(solution), _kept(learnt, config, tasks)) | files.encoder_file(
        learnt.encoder
    )
    files.write_finished(path, contents, result, calibration, thresholds, scored)
    return result


def chosen_goal(folder: Path) -> Goal | None:
    """Return what the thresholds of a finished run are chosen for; None without any, or without a run."""
    if not files.is_run(folder) or not files.has_result(folder):
        return None
    return files.read_thresholds(folder, files.read_result(folder)).goal


def load_sums(folder: str | Path) -> LearntSums:
    """Return the sums of a run of the exact learner; of one with versions, those of the version in use."""
    path = current_folder(Path(folder))
    files.require_finished(path)
    config, result = files.read_config(path), files.read_result(path)
    if config.model.head != "exact" or config.model.kind != "fixed":
        raise InputError(
            f"{path} is a run of the method {result.method!r}; expected one of the exact learner on vectors."
        )
    kept = files.read_memory(path, result)
    learner = ExactLearner.from_arrays({name: value.numpy() for name, value in kept.exact.items()})
    exact, thresholds = config.exact, files.read_thresholds(path, result)
    more = result.sums or {}
    try:
        names = more.get("feature_names")
        features = None if names is None else tuple(str(name) for name in names)
        if features is not None and len(features) != learner.features.features:
            raise InputError(f"there are {len(features)} names for {learner.features.features} features")
        numbers, seed = bool(more.get("numbers")), more.get("seed", 0)
        if seed is not None:
            check_int("seed", seed, 0)
        if numbers and not all(name.lstrip("-").isdecimal() for name in result.classes):
            raise InputError("the names of the classes are no numbers")
        calibrate, share = more.get("calibrate"), float(more.get("held_out") or 0)
        if calibrate is not None:
            check_int("calibrate", calibrate, 1)
    except (AttributeError, TypeError, InputError) as error:
        raise InputError(f"{path / files.RESULT}: sums: {one_line(error)}.") from None
    return LearntSums(
        learner,
        result.classes,
        Options(**{field.name: getattr(exact, field.name) for field in fields(Options)}),
        exact.dimensions,
        exact.form,
        thresholds.goal or Goal(),
        numbers,
        features,
        seed,
        result.benchmark,
        share=share,
        held_out=_kept_rows(files.read_held_out(path, result)),
        calibrate=calibrate,
        encoder=files.read_encoder(path, result),
    )


def merge_sums(first: LearntSums, second: LearntSums) -> LearntSums:
    """Return what one would know that had learnt the rows of both; classes of the same name are the same class."""
    if first.encoder != second.encoder or first.features != second.features:
        what = "encoders" if first.encoder != second.encoder else "names of features"
        raise InputError(f"{first.name} and {second.name} have other {what}; expected the same")
    names = tuple(dict.fromkeys([*first.classes, *second.classes]))
    ids = [names.index(name) for name in second.classes]
    merged = first.learner.merge(second.learner, ids)
    held = [
        one.held_out.placed(own, len(names))
        for one, own in ((first, range(len(first.classes))), (second, ids))
        if one.held_out is not None
    ]
    if len(held) == 2:
        held[0], more = held[0].joined(held[1], first.calibrate or len(held[0]) + len(held[1]))
        merged = merged.learn(more.inputs, more.labels, annotated=more.known) if len(more) else merged
    return replace(
        first,
        learner=merged,
        classes=names,
        numbers=first.numbers and second.numbers,
        held_out=held[0] if held else None,
    )


def _kept_rows(rows: HeldOut | None) -> HeldOutRows | None:
    if rows is None or not len(rows.inputs):
        return None
    some = rows.with_inputs
    return HeldOutRows(some.inputs, some.labels, some.known, some.keys)


def _config(learnt: LearntSums) -> Config:
    options = learnt.options
    exact = asdict(options) | {"form": learnt.form}
    if learnt.dimensions is not None:
        exact["dimensions"] = learnt.dimensions
    given = {
        "benchmark": learnt.name,
        "data": counted_data(learnt.fingerprint),
        "method": METHOD,
        "exact": exact,
        "stream": {"tasks": 1, "negatives": "all"},
    } | ({"held_out": learnt.share} if learnt.share else {})
    return resolve(file=given, kind="features")


def _scored(rows: HeldOutRows, solution: Solution) -> HeldOut:
    logits = solution.scores(rows.inputs).astype(np.float32)
    found = HeldOut(logits, rows.labels, rows.known, np.arange(len(logits)))
    return with_inputs(found, rows.keys, rows.inputs)


def _calibrated(solution: Solution, held_out: HeldOut | None, goal: Goal) -> tuple[Calibration, Thresholds]:
    """Return probabilities and thresholds, from the held-out rows or else from the sums alone."""
    identity = LogOddsLines.identity(len(solution.prior))
    if held_out is None:
        calibration = Calibration.from_counts(identity, solution.prior)
        return calibration, predicted_thresholds(solution, calibration, goal)
    calibration = Calibration.fit(held_out, start=identity, prior=solution.prior)
    return calibration, calibration.thresholds(held_out, goal)


def _tasks(learner: ExactLearner) -> list[TaskSamples]:
    """Return one task per group of classes that were annotated for the same rows, none of which is stored."""
    sums, found = learner.sums, []
    blocks = np.array(sums.block_of, np.int64)
    for number, block in enumerate(dict.fromkeys(blocks.tolist())):
        ids = np.flatnonzero(blocks == block)
        total = round(sums.annotated[block].count)  # of weighted rows: the sum of their weights
        positive = np.array([min(round(sums.positive[k].count), total) for k in ids.tolist()], np.int64)
        counts = LabelCounts(positive, total - positive, total)
        nothing = np.zeros(0, np.int64)
        found.append(TaskSamples(number, ids, counts, nothing, np.zeros((0, len(ids)), np.uint8)))
    return found


def _weights(solution: Solution) -> dict[str, NDArray[Any]]:
    weights = np.ascontiguousarray(solution.weights, np.float32)
    one = np.ones((1, weights.shape[1]), np.float32)
    return {
        "head.linear.weight": weights,
        "head.linear.bias": np.ascontiguousarray(solution.intercepts, np.float32),
        "normaliser.scale": one,
        "normaliser.shift": np.zeros_like(one),
    }


def _kept(learnt: LearntSums, config: Config, tasks: list[TaskSamples]) -> dict[str, NDArray[Any]]:
    """Return what ``memory.safetensors`` holds: the counts of every task, no row, and the sums."""
    memory = Memory(config.memory.kind, config.memory.size)
    memory.tasks = tuple(tasks)
    found = memory.state() | {"inputs": np.zeros((0, learnt.learner.features.features), np.float32)}
    sums = {
        f"{_PREFIX}{name}": np.ascontiguousarray(value) for name, value in learnt.learner.arrays().items()
    }
    return found | sums


def _result(
    learnt: LearntSums,
    config: Config,
    solution: Solution,
    held_out: HeldOut | None,
    tasks: list[TaskSamples],
) -> Result:
    """Return what was measured; what nothing was held out for is nan."""
    classes, width = len(learnt.classes), learnt.learner.features.features
    positive = np.zeros(classes, np.int64)
    for task in tasks:
        positive[task.classes] = task.counts.positive
    auc, precision = _ranked(held_out, classes)
    last = np.array([_mean(auc[task.classes]) for task in tasks])
    matrix = np.full((len(tasks), len(tasks)), np.nan)
    per_class = np.full((len(tasks), classes), np.nan)
    matrix[-1], per_class[-1] = 100 * last, 100 * auc
    seconds = np.zeros(len(tasks))
    seconds[-1] = learnt.seconds
    rows = round(learnt.learner.sums.total.count)
    held = 0 if held_out is None else len(held_out.labels)
    ids = tuple(tuple(task.classes.tolist()) for task in tasks)
    return Result(
        benchmark=config.benchmark,
        method=config.method,
        seed=config.seed,
        settings=to_dict(config),
        matrix=matrix,
        per_class=per_class,
        classes=learnt.classes,
        positive=positive,
        tasks=ids,
        task_seconds=seconds,
        pooled={"macro_auc": 100 * _mean(auc), "map": 100 * _mean(precision)},
        thirds=by_frequency(100 * auc, positive),
        steps=0,
        rows=rows,
        memory_bytes=learnt.learner.nbytes,
        stored=(0,) * len(tasks),
        input_shape=(width,),
        solved={"head": {name: getattr(solution.choice, name) for name in SOLVED}},
        data={
            "name": learnt.name,
            "fingerprint": learnt.fingerprint,
            "tasks": _digest(ids),
            "kind": "features",
            "train": [rows, width],
            "test": [held, width],
            "classes": classes,
        },
        calibration=None if held_out is None else _cross_fitted(solution, held_out),
        sums={
            "numbers": learnt.numbers,
            "feature_names": learnt.features,
            "seed": learnt.seed,
            "held_out": learnt.share,
            "calibrate": learnt.calibrate,
        },
    )


def _ranked(held_out: HeldOut | None, classes: int) -> tuple[Floats, Floats]:
    """Return AUC and AP of each class among the held-out rows that it is known for; nan where undefined."""
    if held_out is None:
        return np.full(classes, np.nan), np.full(classes, np.nan)
    scores, labels, known = held_out.logits, held_out.labels, held_out.known
    return (
        macro_auc(scores, labels, average=None, mask=known),
        average_precision(scores, labels, average=None, mask=known),
    )


def _cross_fitted(solution: Solution, held_out: HeldOut) -> Mapping[str, Any]:
    """Measure probabilities of each half of the held-out rows by lines that were fitted on the other half."""
    found = cross_fitted(held_out, start=LogOddsLines.identity(len(solution.prior)), prior=solution.prior)
    return measure(found, held_out.labels, prior=solution.prior, known=held_out.known)


def _mean(values: Floats) -> float:
    return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]
