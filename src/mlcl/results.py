"""What a run measured, in points, and as ``result.json``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.config import Config, to_dict
from mlcl.files import plain
from mlcl.metrics import ResultMatrix, by_frequency
from mlcl.training import Learner

RESULT_FORMAT = 1


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
        "weights": result.learner.network.backbone.provenance,
        "features": benchmark.dataset.origin,
        "config": to_dict(result.config),
    }
    found: dict[str, Any] = plain(values)
    return found
