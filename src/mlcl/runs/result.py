"""What a run measured, and as ``result.json``: one value, made by `summarise`, or read by `Result.from_json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from mlcl.config.schema import Config, to_dict
from mlcl.errors import InputError, one_line
from mlcl.files import plain
from mlcl.metrics import ResultMatrix, by_frequency, precision_forgetting, session_means
from mlcl.metrics.sessions import MEASURES
from mlcl.runs.calibration import Calibrated
from mlcl.runs.environment import data_record
from mlcl.training.batches import gather, reduced
from mlcl.training.learner import Learner
from mlcl.training.state import with_prefix

RESULT_FORMAT = 1
SESSION_MEASURES = ("map", "cf1", "of1", "fpr")
"""What tables have of the sessions: their mean (``map_avg``) and the last (``map_last``)."""
SOLVED = ("unlabelled", "ridge", "exponent")
"""What a layer is solved with (specification.md#exact)."""
RECORDS = ("weights", "encoder_weights", "features", "calibration", "sums")
"""Fields that are kept as they are."""
NAN = float("nan")
Floats = NDArray[np.float64]
T = TypeVar("T")
KINDS: dict[type, str] = {list: "list", dict: "mapping"}


@dataclass(frozen=True, eq=False)
class Result:
    """What a run measured, in memory or read from its folder. AUC values are in points (x 100).

    >>> from mlcl import Benchmark, run
    >>> rows, labels = np.eye(4).repeat(20, axis=0), np.eye(4, dtype=int).repeat(20, axis=0)
    >>> result = run({"method": "exact"}, benchmark=Benchmark.from_arrays(rows, labels, rows, labels, tasks=2))
    >>> result.macro_auc, result.matrix.shape, result.classes
    (100.0, (2, 2), ('class-0', 'class-1', 'class-2', 'class-3'))

    Attributes:
        settings: of the run, as ``config.yaml`` has them.
        matrix: Macro-AUC of test task i (column) after learning task t (row); one row for joint training.
        per_class: AUC of each class after each task, on its own task's test images; nan where undefined.
        positive: P_k of each class, over the rows annotated for it.
        tasks: class ids of each task, in the order in which they were learnt.
        pooled: over all classes on all test images, after the last task: Macro-AUC, mAP, and precision, recall, F1 and
            false-positive rate of decisions.
        sessions: the same after each task, over the classes seen by then on the test images of seen tasks.
        threshold: of these decisions.
        map_forgetting: the mean drop of a task's mAP on all test images from the best earlier to the last session.
        thirds: final Macro-AUC of the head, medium and tail third of the classes by P_k.
        rows: rows that were trained on in the steps, each time they were, rows of the memory included.
        memory_bytes: size of all that the run keeps of the past: stored inputs and labels, what the regulariser keeps,
            the sums of an exact head.
        stored: number of stored samples of each task.
        input_shape: of one raw input; None in results of mlcl before 0.1.
        solved: what each solved layer was solved with after the last task, see `describe_solved`.
        data: name, fingerprints and shapes of the data.
        weights: where the backbone's weights come from, if they are not its own; those of a committee's encoder and of
            features that a model computed are ``encoder_weights`` and ``features``.
        calibration: Brier score, log-loss and calibration error on the test rows.
        sums: how they were counted, of sums that no run made.
        sha256: checksums of the files beside ``result.json``.
        folder: of the run, if it has one.
        made_by: the network with its memory; None if the result was read.
        calibrated: how its logits become probabilities and tags; None if the result was read.
    """

    benchmark: str
    method: str
    seed: int
    settings: Mapping[str, Any]
    matrix: Floats
    per_class: Floats
    classes: tuple[str, ...]
    positive: NDArray[np.int64]
    tasks: tuple[tuple[int, ...], ...]
    task_seconds: Floats
    pooled: Mapping[str, float]
    thirds: Mapping[str, float]
    sessions: tuple[Mapping[str, float], ...] = ()
    threshold: float = NAN
    map_forgetting: float = NAN
    steps: float = NAN
    rows: float = NAN
    memory_bytes: float = NAN
    stored: tuple[int, ...] = ()
    input_shape: tuple[int, ...] | None = None
    solved: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    weights: Mapping[str, Any] | None = None
    encoder_weights: Mapping[str, Any] | None = None
    features: Mapping[str, Any] | None = None
    calibration: Mapping[str, Any] | None = None
    sums: Mapping[str, Any] | None = None
    sha256: Mapping[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    made_by: Learner | None = None
    calibrated: Calibrated | None = None

    @property
    def learner(self) -> Learner:
        """Return the network with its memory, to continue with, of a run that was made just now."""
        if self.made_by is None:
            raise InputError("a result that was read has no learner; see `mlcl.load`")
        return self.made_by

    @property
    def config(self) -> Config:
        """Return the settings of a run that was made just now."""
        return self.learner.config

    @property
    def summary(self) -> ResultMatrix:
        """Return the matrix with its summaries."""
        return ResultMatrix(self.matrix)

    @property
    def macro_auc(self) -> float:
        """Return the mean over tasks of the final Macro-AUC, in points: the headline."""
        return self.summary.overall

    @property
    def forgetting(self) -> float:
        """Return the mean drop from the best earlier to the final Macro-AUC (nan for joint training), in points."""
        return self.summary.forgetting()

    @property
    def seconds(self) -> float:
        """Return how long all tasks took."""
        return float(self.task_seconds.sum())

    @cached_property
    def values(self) -> dict[str, float]:
        """Return what tables show, by metric: `mlcl.sweeps.experiment.METRICS`, and size and time; nan if undefined."""
        last = self.sessions[-1] if self.sessions else {}
        sessions = {"avg": session_means(self.sessions), "last": last}
        own = ("macro_auc", "forgetting", "map_forgetting", "seconds", "steps", "rows", "memory_bytes")
        return {
            **{name: float(getattr(self, name)) for name in own},
            **{f"pooled_{name}": self.pooled.get(name, NAN) for name in ("macro_auc", "map")},
            **{name: self.thirds.get(name, NAN) for name in ("head", "medium", "tail")},
            **{
                f"{name}_{when}": found.get(name, NAN)
                for when, found in sessions.items()
                for name in SESSION_MEASURES
            },
        }

    def to_json(self) -> dict[str, Any]:
        """Return what ``result.json`` holds; undefined values are null, and tasks and classes count from 0."""
        matrix = self.summary
        same = ("pooled", "thirds", "matrix", "per_class", "classes", "input_shape", "positive")
        sessions = {
            "threshold": self.threshold,
            "each": self.sessions,
            "mean": session_means(self.sessions),
            "last": self.sessions[-1] if self.sessions else None,
            "map_forgetting": self.map_forgetting,
        }
        values = {
            "format": RESULT_FORMAT,
            **{name: getattr(self, name) for name in ("benchmark", "method", "seed", "macro_auc")},
            "forgetting": matrix.forgetting(),
            "forgetting_last": matrix.forgetting("last"),
            "backward_transfer": matrix.backward_transfer,
            "forward_transfer": matrix.forward_transfer(50.0),
            "sessions": sessions,
            **{name: getattr(self, name) for name in same},
            "undefined_classes": int(np.isnan(self.per_class[-1]).sum()),
            "tasks": self.tasks,
            "memory": self.stored,
            **{name: getattr(self, name) for name in ("task_seconds", "seconds", "steps", "rows")},
            "memory_bytes": self.memory_bytes,
            "solved": self.solved or None,
            **{name: getattr(self, name) for name in ("data", *RECORDS)},
            "config": self.settings,
        }
        found: dict[str, Any] = plain(values)
        return found

    @classmethod
    def from_json(cls, content: Mapping[str, Any], *, source: Path) -> Self:
        """Check and convert every field; anything missing or wrong is an `InputError` of one sentence."""
        check_result(content, source=source)
        try:
            found = cls._parsed(content)
            found._check_shapes()
        except (InputError, TypeError, ValueError, OverflowError) as error:
            raise InputError(f"{source}: {one_line(error, limit=300)}.") from None
        return found

    @classmethod
    def _parsed(cls, content: Mapping[str, Any]) -> Self:
        classes = tuple(str(name) for name in _of(list, content, "classes"))
        sessions = _optional(content, "sessions") or {}  # runs of an earlier version have none
        simple: dict[str, Any] = {name: content[name] for name in ("benchmark", "method", "seed")}
        simple |= {name: _optional(content, name) for name in RECORDS}
        simple |= {name: _number(content.get(name)) for name in ("steps", "rows", "memory_bytes")}
        simple |= {name: _numbers(_of(dict, content, name)) for name in ("pooled", "thirds")}
        return cls(
            **simple,
            settings=content["config"],
            data=_optional(content, "data") or {},
            sha256=_optional(content, "sha256") or {},
            matrix=_matrix(content, "matrix", None),
            per_class=_matrix(content, "per_class", len(classes)),
            classes=classes,
            positive=np.array([_integer(v, "positive") for v in _of(list, content, "positive")], np.int64),
            tasks=tuple(tuple(_integer(k, "tasks") for k in task) for task in _of(list, content, "tasks")),
            task_seconds=np.array([_number(value) for value in _of(list, content, "task_seconds")]),
            stored=tuple(_integer(count, "memory") for count in content.get("memory") or ()),
            input_shape=_shape(content.get("input_shape")),
            sessions=tuple(_session(each) for each in sessions.get("each") or ()),
            threshold=_number(sessions.get("threshold")),
            map_forgetting=_number(sessions.get("map_forgetting")),
            solved={
                str(layer): dict.fromkeys(SOLVED, NAN) | _numbers(_of(dict, {"solved": values}, "solved"))
                for layer, values in (_optional(content, "solved") or {}).items()
            },
        )

    def _check_shapes(self) -> None:
        """Refuse fields that are not of one run: as many tasks, rows and classes in all of them."""
        rows, width = len(self.matrix), self.summary.tasks
        if len(self.tasks) != width:
            raise InputError(
                f"tasks has {len(self.tasks)} entries and matrix has {width} columns; expected as many"
            )
        if any(not 0 <= k < len(self.classes) for task in self.tasks for k in task):
            raise InputError(f"tasks names classes outside 0 to {len(self.classes) - 1}")
        if len(self.per_class) != rows or len(self.task_seconds) != rows:
            raise InputError(f"per_class or task_seconds does not have the {rows} rows of matrix")
        if len(self.positive) != len(self.classes):
            raise InputError(
                f"positive has {len(self.positive)} values; expected one for each of {len(self.classes)} classes"
            )

    def layout(self, *, source: Path) -> tuple[tuple[NDArray[np.int64], ...], tuple[int, ...]]:
        """Return tasks and input shape, for those who build the network again; a contradiction is an `InputError`."""
        if self.input_shape is None:
            raise InputError(f"{source}: has no field 'input_shape'; the run was made by an older mlcl.")
        ids = {k for task in self.tasks for k in task}
        twice = any(len(set(task)) != len(task) for task in self.tasks)
        if len(ids) != len(self.classes) or twice or not all(self.tasks):
            raise InputError(f"{source}: classes and tasks contradict each other; the file is damaged.")
        return tuple(np.array(task, np.int64) for task in self.tasks), self.input_shape


def summarise(learner: Learner, calibrated: Calibrated, folder: Path | None = None) -> Result:
    """Turn what a learner has measured into points and derived values."""
    measured, benchmark, config = learner.evaluations, learner.benchmark, learner.config
    per_class = 100 * np.array(measured.per_class)
    positive = learner.counts.positive
    ids = tuple(tuple(task.classes.tolist()) for task in benchmark.tasks)
    forgotten = precision_forgetting(measured.precision, [task.classes.tolist() for task in learner.tasks])
    return Result(
        benchmark=config.benchmark,
        method=config.method,
        seed=config.seed,
        settings=to_dict(config),
        matrix=100 * np.array(measured.matrix),
        per_class=per_class,
        classes=tuple(benchmark.dataset.classes),
        positive=positive,
        tasks=ids,
        task_seconds=np.array(measured.task_seconds),
        pooled=_points(measured.pooled[-1]),
        thirds=by_frequency(per_class[-1], positive),
        sessions=tuple(_points(session) for session in measured.pooled),
        threshold=config.decision_threshold,
        map_forgetting=100 * forgotten,
        steps=learner.steps,
        rows=learner.rows,
        memory_bytes=sum(value.nbytes for value in kept_arrays(learner).values()),
        stored=tuple(len(samples.rows) for samples in learner.memory.tasks),
        input_shape=benchmark.dataset.train.inputs.shape[1:],
        solved=learner.head.choices(),
        data=data_record(benchmark),
        weights=learner.network.backbone.provenance,
        encoder_weights=learner.encoder_provenance,
        features=benchmark.dataset.origin,
        calibration=calibrated.measured,
        folder=folder,
        made_by=learner,
        calibrated=calibrated,
    )


def _points(values: Mapping[str, float]) -> dict[str, float]:
    return {name: 100 * value for name, value in values.items()}


def kept_arrays(learner: Learner) -> dict[str, NDArray[Any]]:
    """Return the memory with the inputs of its samples, what the regulariser keeps, and the sums of what is solved."""
    found = dict(learner.memory.state())
    stored = gather(learner.data.train.inputs, learner.memory.rows)
    found["inputs"] = reduced(stored, learner.config.memory.downscale).numpy()
    tensors = with_prefix("regulariser", learner.parts.regulariser.state())
    tensors |= with_prefix("exact", learner.head.state())
    return found | {name: value.detach().cpu().contiguous().numpy() for name, value in tensors.items()}


def describe_solved(solved: Mapping[str, Mapping[str, float]]) -> str:
    """Return in one line what solved layers were solved with.

    >>> describe_solved({"head": {"unlabelled": 0.1, "ridge": 10**-0.5, "exponent": 0.5}})
    'unlabelled 0.1, ridge 0.316, exponent 0.5'
    >>> describe_solved({name: {"unlabelled": 1.0, "ridge": 1.0, "exponent": 0.0} for name in ("encoder", "moments")})
    'encoder: unlabelled 1, ridge 1, exponent 0; moments: unlabelled 1, ridge 1, exponent 0'
    """
    return "; ".join(
        ("" if layer == "head" else f"{layer}: ") + ", ".join(f"{name} {values[name]:.3g}" for name in SOLVED)
        for layer, values in solved.items()
    )


REQUIRED: dict[str, Any] = {
    "macro_auc": int | float | None,
    "matrix": list,
    "config": dict,
    "benchmark": str,
    "method": str,
    "seed": int,
}
"""The fields that every result has, with their types; files come from anywhere, so all is checked."""


def check_result(content: Mapping[str, Any], *, source: Path) -> None:
    """Refuse what is no result of a run; ``source`` is its file."""
    for key, kind in REQUIRED.items():
        if key not in content:
            raise InputError(f"{source}: has no field {key!r}; expected the result of a run.")
        if not isinstance(content[key], kind) or isinstance(content[key], bool):
            raise InputError(f"{source}: {key} is {str(content[key])[:40]!r}; expected the result of a run.")


def _session(content: Any) -> dict[str, float]:
    """Return the measures of one session; those that it does not have are nan."""
    if not isinstance(content, dict):
        raise InputError(f"sessions hold {str(content)[:40]!r}; expected the measures of a session")
    return dict.fromkeys(MEASURES, NAN) | _numbers(content)


def _shape(value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    if (
        not isinstance(value, list)
        or len(value) not in (1, 3)
        or any(type(side) is not int or not 0 < side < 1 << 20 for side in value)
    ):
        raise InputError(f"input_shape is {str(value)[:40]!r}; expected [C, H, W] or [D]")
    return tuple(value)


def _optional(content: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """Return a mapping that may be absent: runs of an earlier version have none."""
    found = content.get(name)
    return found if isinstance(found, dict) else None


def _numbers(content: Mapping[str, Any]) -> dict[str, float]:
    return {str(name): _number(value) for name, value in content.items()}


def _number(value: Any) -> float:
    """Return a number; null, which JSON has for nan, becomes nan."""
    if value is None:
        return float("nan")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"holds {str(value)[:40]!r} where a number was expected")
    return float(value)


def _integer(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**62:
        raise InputError(f"{name} holds {str(value)[:40]!r} where a count or a class id was expected")
    return value


def _of(kind: type[T], content: Mapping[str, Any], name: str) -> T:
    value = content.get(name)
    if not isinstance(value, kind):
        raise InputError(f"{name} is {str(value)[:40]!r}; expected a {KINDS[kind]}")
    return value


def _matrix(content: Mapping[str, Any], name: str, width: int | None) -> Floats:
    rows = [[_number(value) for value in row] for row in _of(list, content, name)]
    if not rows or len({len(row) for row in rows}) != 1 or (width is not None and len(rows[0]) != width):
        raise InputError(f"{name} is not a matrix of the expected width")
    return np.array(rows, dtype=np.float64)
