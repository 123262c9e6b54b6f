"""What a run measured: in memory (`Result`), as ``result.json`` (`result_json`), and read back (`SavedResult`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

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
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Result:
    """What a run measured. AUC values are in points (x 100); positive forgetting is a loss.

    Attributes:
        matrix: Macro-AUC of test task i (column) after learning task t (row); one row for joint training.
        per_class: AUC of each class after each task, on its own task's test images; nan where undefined.
        pooled: over all classes on all test images, after the last task: Macro-AUC, mAP, and precision, recall, F1 and
            false-positive rate of decisions.
        sessions: the same after each task, over the classes seen by then on the test images of seen tasks.
        map_forgetting: the mean drop of a task's mAP on all test images from the best earlier to the last session.
        thirds: final Macro-AUC of the head, medium and tail third of the classes by P_k.
        positive: P_k of each class, over the rows annotated for it.
        rows: rows that were trained on in them, each time they were, rows of the memory included.
        memory_bytes: size of all that the run keeps of the past: stored inputs and labels, what the regulariser keeps,
            the sums of an exact head.
        learner: the network with its memory, to continue with.
        calibrated: how its logits become probabilities and tags, and how good the probabilities are on the test rows.
    """

    config: Config
    matrix: Floats
    per_class: Floats
    pooled: dict[str, float]
    sessions: tuple[dict[str, float], ...]
    map_forgetting: float
    thirds: dict[str, float]
    positive: NDArray[np.int64]
    seconds: tuple[float, ...]
    steps: int
    rows: int
    memory_bytes: int
    learner: Learner
    calibrated: Calibrated
    folder: Path | None = None

    @property
    def macro_auc(self) -> float:
        """Return the mean over tasks of the final Macro-AUC, in points: the headline."""
        return ResultMatrix(self.matrix).overall

    @property
    def forgetting(self) -> float:
        """Return the mean drop from the best earlier to the final Macro-AUC (nan for joint training), in points."""
        return ResultMatrix(self.matrix).forgetting()


def summarise(learner: Learner, calibrated: Calibrated, folder: Path | None = None) -> Result:
    """Turn what a learner has measured into points and derived values."""
    measured = learner.evaluations
    per_class = 100 * np.array(measured.per_class)
    positive = learner.counts.positive
    return Result(
        config=learner.config,
        matrix=100 * np.array(measured.matrix),
        per_class=per_class,
        pooled=_points(measured.pooled[-1]),
        sessions=tuple(_points(session) for session in measured.pooled),
        map_forgetting=100
        * precision_forgetting(measured.precision, [task.classes.tolist() for task in learner.tasks]),
        thirds=by_frequency(per_class[-1], positive),
        positive=positive,
        seconds=tuple(measured.task_seconds),
        steps=learner.steps,
        rows=learner.rows,
        memory_bytes=sum(value.nbytes for value in kept_arrays(learner).values()),
        learner=learner,
        calibrated=calibrated,
        folder=folder,
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


def result_json(result: Result) -> dict[str, Any]:
    """Return what ``result.json`` holds; undefined values are null, and tasks and classes count from 0."""
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
        "sessions": {
            "threshold": result.config.decision_threshold,
            "each": list(result.sessions),
            "mean": session_means(result.sessions),
            "last": result.sessions[-1],
            "map_forgetting": result.map_forgetting,
        },
        "thirds": result.thirds,
        "calibration": result.calibrated.measured,
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
        "steps": result.steps,
        "rows": result.rows,
        "memory_bytes": result.memory_bytes,
        "solved": result.learner.head.choices() or None,
        "weights": result.learner.network.backbone.provenance,
        "encoder_weights": result.learner.encoder_provenance,
        "features": benchmark.dataset.origin,
        "data": data_record(benchmark),
        "config": to_dict(result.config),
    }
    found: dict[str, Any] = plain(values)
    return found


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


@dataclass(frozen=True, eq=False)
class SavedResult:
    """A ``result.json`` that was read and checked; what has a name of `Result` means the same.

    Attributes:
        matrix: A[t, i], ``[S, T]``.
        tasks: class ids of each task, in the order in which they were learnt.
        values: metric to value: those of `mlcl.sweeps.experiment.METRICS`, and ``seconds``, ``steps``, ``rows``,
            ``memory_bytes``; nan if undefined.
        encoder_weights: the same of a committee's encoder.
        features: where the features of the dataset come from, if a model computed them.
        calibration: Brier score, log-loss and calibration error on the test rows, if the run was made with an mlcl that
            measures them.
        input_shape: of one raw input; None in results of mlcl before 0.1.
        solved: what each solved layer was solved with after the last task, see `describe_solved`; none in others.
        sha256: checksums of the files beside it.
    """

    benchmark: str
    method: str
    seed: int
    config: Mapping[str, Any]
    matrix: ResultMatrix
    per_class: Floats
    classes: tuple[str, ...]
    positive: NDArray[np.int64]
    tasks: tuple[tuple[int, ...], ...]
    values: Mapping[str, float]
    task_seconds: Floats
    weights: Mapping[str, Any] | None = None
    encoder_weights: Mapping[str, Any] | None = None
    features: Mapping[str, Any] | None = None
    calibration: Mapping[str, Any] | None = None
    input_shape: tuple[int, ...] | None = None
    sessions: tuple[Mapping[str, float], ...] = ()
    solved: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    sha256: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, content: Mapping[str, Any], *, source: Path) -> Self:
        """Check and convert every field; anything missing or wrong is an `InputError` of one sentence."""
        check_result(content, source=source)
        try:
            found = cls._parse(content)
            found._check_shapes()
        except (InputError, TypeError, ValueError, OverflowError) as error:
            raise InputError(f"{source}: {one_line(error, limit=300)}.") from None
        return found

    @classmethod
    def _parse(cls, content: Mapping[str, Any]) -> Self:
        classes = tuple(str(name) for name in _list(content, "classes"))
        pooled, thirds = _mapping(content, "pooled"), _mapping(content, "thirds")
        sessions = _optional(content, "sessions") or {}  # runs of an earlier version have none
        means, last = _optional(sessions, "mean") or {}, _optional(sessions, "last") or {}
        own = ("macro_auc", "forgetting", "seconds", "steps", "rows", "memory_bytes")
        places: tuple[tuple[str, Mapping[str, Any], Sequence[str]], ...] = (
            ("{}", content, own),
            ("pooled_{}", pooled, ("macro_auc", "map")),
            ("{}", sessions, ("map_forgetting",)),
            ("{}", thirds, ("head", "medium", "tail")),
            ("{}_avg", means, SESSION_MEASURES),
            ("{}_last", last, SESSION_MEASURES),
        )
        values = {
            form.format(name): _number(place.get(name)) for form, place, names in places for name in names
        }
        records = ("weights", "encoder_weights", "features", "calibration")
        as_they_are: dict[str, Any] = {
            name: content[name] for name in ("benchmark", "method", "seed", "config")
        }
        as_they_are |= {name: _optional(content, name) for name in records}
        return cls(
            **as_they_are,
            matrix=ResultMatrix(_matrix(content, "matrix", None)),
            per_class=_matrix(content, "per_class", len(classes)),
            classes=classes,
            positive=np.array([_integer(v, "positive") for v in _list(content, "positive")], np.int64),
            tasks=tuple(tuple(_integer(k, "tasks") for k in task) for task in _list(content, "tasks")),
            values=values,
            task_seconds=np.array([_number(value) for value in _list(content, "task_seconds")]),
            input_shape=_shape(content.get("input_shape")),
            sessions=tuple(_session(each) for each in sessions.get("each") or ()),
            solved={
                str(layer): {
                    name: _number(_mapping({"solved": values}, "solved").get(name)) for name in SOLVED
                }
                for layer, values in (_optional(content, "solved") or {}).items()
            },
            sha256=_optional(content, "sha256") or {},
        )

    def _check_shapes(self) -> None:
        """Refuse fields that are not of one run: as many tasks, rows and classes in all of them."""
        rows = len(self.matrix.values)
        if len(self.tasks) != self.matrix.tasks:
            raise InputError(
                f"tasks has {len(self.tasks)} entries and matrix has {self.matrix.tasks} columns; expected as many"
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


def _session(content: Any) -> dict[str, float]:
    """Return the measures of one session; those that it does not have are nan."""
    if not isinstance(content, dict):
        raise InputError(f"sessions hold {str(content)[:40]!r}; expected the measures of a session")
    return {name: _number(content.get(name)) for name in MEASURES}


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


def _list(content: Mapping[str, Any], name: str) -> list[Any]:
    value = content.get(name)
    if not isinstance(value, list):
        raise InputError(f"{name} is {str(value)[:40]!r}; expected a list")
    return value


def _mapping(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = content.get(name)
    if not isinstance(value, dict):
        raise InputError(f"{name} is {str(value)[:40]!r}; expected a mapping")
    return value


def _matrix(content: Mapping[str, Any], name: str, width: int | None) -> Floats:
    rows = [[_number(value) for value in row] for row in _list(content, name)]
    if not rows or len({len(row) for row in rows}) != 1 or (width is not None and len(rows[0]) != width):
        raise InputError(f"{name} is not a matrix of the expected width")
    return np.array(rows, dtype=np.float64)
