"""What is measured on: the real labels of COCO and NUS-WIDE where they are at hand, else matrices of their shape.

Set ``MLCL_DATA`` to the folder that holds ``coco2017/labels_all.npz`` and ``nuswide/labels_all.npz``, or leave it at
``../shared/data`` from the project's root.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mlcl.labels import Labels
from mlcl.memories import TaskSamples
from mlcl.streams.orders import PAPER_ORDERS

DATA = Path(os.environ.get("MLCL_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
_SHAPES = {"coco2017": (122_218, 80), "nuswide": (209_347, 81)}
_TRAIN = {"coco2017": 117_266, "nuswide": 125_449}


def is_real(name: str) -> bool:
    """Say whether the real labels are at hand."""
    return (DATA / name / "labels_all.npz").is_file()


def source() -> str:
    """Say in words which labels are used."""
    real = [name for name in _SHAPES if is_real(name)]
    made = [name for name in _SHAPES if name not in real]
    words = [f"real labels of {' and '.join(real)}"] if real else []
    words += [f"random label matrices of the shape of {' and '.join(made)}"] if made else []
    return "; ".join(words)


def synthetic(n: int, classes: int, *, labels: float = 3.0, seed: int = 0) -> Labels:
    """Return a label matrix with a long tail, at least one label a row, ``labels`` a row in the mean."""
    rng = np.random.default_rng(seed)
    share = 1.0 / np.arange(1, classes + 1)
    share *= min(labels, classes / 2) / share.sum()
    matrix = np.empty((n, classes), dtype=np.uint8)
    for start in range(0, n, 50_000):
        part = matrix[start : start + 50_000]
        part[:] = rng.random(part.shape, dtype=np.float32) < np.minimum(share, 0.6).astype(np.float32)
    empty = np.flatnonzero(~matrix.any(axis=1))
    matrix[empty, rng.integers(0, classes, len(empty))] = 1
    return matrix


@cache
def _all(name: str) -> tuple[Labels, NDArray[np.bool_]]:
    """Return all labelled rows of a data set, and which of them are for training."""
    if not is_real(name):
        matrix = synthetic(*_SHAPES[name])
        return matrix, np.arange(len(matrix)) < _TRAIN[name]
    with np.load(DATA / name / "labels_all.npz") as file:
        matrix = np.unpackbits(file["labels_packed"], axis=1)[:, : int(file["n_classes"])]
        if name == "coco2017":
            return matrix, file["split2017"] == b"train"
        return matrix[file["labelled"]], ~file["is_test"][file["labelled"]]


def labels_of(name: str, rows: int) -> Labels:
    """Return the first rows of a data set's labels."""
    return _all(name)[0][:rows]


def tasks_of(name: str) -> list[TaskSamples]:
    """Return a data set's training rows as tasks: the paper's class order, rows with at least one class of the task."""
    matrix, train = _all(name)
    matrix = matrix[train]
    tasks = []
    for number, classes in enumerate(PAPER_ORDERS[matrix.shape[1]]):
        own = matrix[:, list(classes)]
        rows = np.flatnonzero(own.any(axis=1))
        tasks.append(TaskSamples.of(number, classes, rows, own[rows]))
    return tasks


def scores_for(labels: Labels, *, seed: int = 0, ties: bool = False) -> NDArray[np.float32]:
    """Return probabilities as a fair model would give them: positives higher by 1.5 deviations, rare classes low.

    With ``ties``, as many digits are kept as bfloat16 has.
    """
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=labels.shape).astype(np.float32)
    logits += 1.5 * labels
    logits += np.log(labels.mean(axis=0) + 1e-3).astype(np.float32)
    scores = (1 / (1 + np.exp(-logits))).astype(np.float32)
    if ties:
        scores = (scores.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    return scores
