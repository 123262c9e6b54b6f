"""What a run says of its test rows, row by row: measures per label, mistakes, confusions, suspected labels.

A run folder keeps no scores of test rows; they are computed again from its weights, as ``mlcl predict`` does.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets import Dataset, find_dataset, load_dataset, read_ids
from mlcl.datasets.base import ConcatRows
from mlcl.errors import InputError
from mlcl.labels import Labels
from mlcl.metrics import (
    Reliability,
    average_precision,
    brier_score,
    calibration_error,
    log_loss,
    macro_auc,
    reliability,
)
from mlcl.metrics.bootstrap import bootstrap_class_auc
from mlcl.metrics.suspicion import suspected_errors
from mlcl.reports.data import load_quietly
from mlcl.runs.folder import read_environment
from mlcl.runs.gate import check_inputs
from mlcl.runs.trained import Trained, load_trained

RESAMPLES = 400
LEVEL = 0.95
Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Examined:
    """Test rows with their labels, and what the run says of them.

    Attributes:
        where: the data, in words.
        classes: names of the labels, ``K``.
        positive: training rows with each label, ``[K]``.
        ids: names of the rows, ``n``.
        inputs: uint8 images ``[N, C, H, W]`` or features ``[N, D]``, read as they are asked for.
        places: of the rows in ``inputs``, ``[n]``.
        labels: 0 or 1, ``[n, K]``.
        probabilities: ``[n, K]``.
        thresholds: the probability above which a label is given, ``[K]``.
    """

    where: str
    classes: tuple[str, ...]
    positive: NDArray[np.int64]
    ids: Sequence[str]
    inputs: NDArray[Any] | ConcatRows
    places: Rows
    labels: Labels
    probabilities: NDArray[np.floating[Any]]
    thresholds: NDArray[np.float64]

    @property
    def given(self) -> NDArray[np.bool_]:
        """Return which labels the run gives, bool ``[n, K]``."""
        return np.asarray(self.probabilities > self.thresholds)

    @property
    def images(self) -> bool:
        """Return whether the rows are images."""
        return self.inputs.ndim == 4

    def image(self, row: int) -> NDArray[np.uint8]:
        """Return the image of a row, uint8 ``[C, H, W]``."""
        return np.asarray(self.inputs[self.places[row : row + 1]][0])


@dataclass(frozen=True)
class LabelLine:
    """The measures of one label; nan where undefined. AUC and its interval, AP, precision, recall are from 0 to 1."""

    name: str
    positive: int
    test_positive: int
    auc: float
    low: float
    high: float
    ap: float
    threshold: float
    precision: float
    recall: float
    brier: float
    log_loss: float
    error: float
    reliability: Reliability


@dataclass(frozen=True, eq=False)
class Mistakes:
    """Rows of one label, each list the surest (or the most doubtful) first, and how many there are in all."""

    false: Rows
    missed: Rows
    doubtful: Rows
    false_count: int
    missed_count: int


@dataclass(frozen=True)
class Confusion:
    """Rows with the label ``missed`` that is not given and without the label ``instead`` that is.

    Attributes:
        missed: name of the label that the rows have.
        instead: name of the label that they are given.
        rows: how many.
        expected: how many there would be if misses and false alarms had nothing to do with each other.
    """

    missed: str
    instead: str
    rows: int
    expected: float


def examine(folder: str | Path, *, on: str | None = None, images: str | None = None) -> Examined:
    """Score the test rows of a finished run.

    Args:
        folder: the folder of the run.
        on: a store whose test rows are scored instead of the run's own; its labels are matched by name.
        images: a store of images with the same ids, which are shown for rows that are features.
    """
    trained = load_trained(folder, current=False)
    data, rows, ids, where = _own_rows(trained) if on is None else _rows_of(on)
    check_inputs(trained, data, where)
    names = [name for name in trained.classes if name in data.classes]
    if not names:
        raise InputError(f"{where} has no label that {folder} knows.")
    own, theirs = (
        np.array([known.index(name) for name in names]) for known in (trained.classes, data.classes)
    )
    shown, places = (
        (data.test.inputs, rows) if images is None else _images(images, [ids[row] for row in rows])
    )
    return Examined(
        where=where,
        classes=tuple(names),
        positive=trained.result.positive[own],
        ids=[ids[row] for row in rows],
        inputs=shown,
        places=places,
        labels=data.test.labels[np.ix_(rows, theirs)],
        probabilities=trained.probabilities(data.test.inputs)[np.ix_(rows, own)],
        thresholds=trained.thresholds.values[own],
    )


def examine_or_say(
    folder: Path, *, on: str | None = None, images: str | None = None
) -> tuple[Examined | None, str]:
    """Return the test rows of a run, or None and why: what else is reported does not depend on them.

    Where a store is named, its absence is an `InputError`.

    Args:
        folder: as in `examine`, like the other arguments.
        on: a store whose test rows are scored.
        images: a store of images.
    """
    try:
        return examine(folder, on=on, images=images), ""
    except InputError as error:
        if on is not None or images is not None:
            raise
        warnings.warn(f"the test rows are left out: {error}", stacklevel=2)
        return None, f"The test rows of this run are not at hand: {error}"


def label_lines(found: Examined, *, resamples: int = RESAMPLES, seed: int = 0) -> list[LabelLine]:
    """Return the measures of each label on the rows, with a bootstrap interval of its AUC."""
    p, y = found.probabilities, found.labels
    draws = bootstrap_class_auc(p, y, resamples=resamples, seed=seed)
    auc = macro_auc(p, y, average=None)
    ap = average_precision(p, y, average=None)
    brier, loss = brier_score(p, y, average=None), log_loss(p, y, average=None)
    error = calibration_error(p, y, average=None)
    hits = (found.given & (y > 0)).sum(axis=0)
    lines = []
    for k, name in enumerate(found.classes):
        known = draws[~np.isnan(draws[:, k]), k]
        tails = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
        low, high = np.quantile(known, tails).tolist() if len(known) else (np.nan, np.nan)
        lines.append(
            LabelLine(
                name=name,
                positive=int(found.positive[k]),
                test_positive=int(y[:, k].sum()),
                auc=float(auc[k]),
                low=low,
                high=high,
                ap=float(ap[k]),
                threshold=float(found.thresholds[k]),
                precision=_share(hits[k], found.given[:, k].sum()),
                recall=_share(hits[k], y[:, k].sum()),
                brier=float(brier[k]),
                log_loss=float(loss[k]),
                error=float(error[k]),
                reliability=reliability(p[:, [k]], y[:, [k]]),
            )
        )
    return lines


def mistakes(found: Examined, k: int, count: int) -> Mistakes:
    """Return the surest false positives, the surest misses and the most doubtful rows of label ``k``."""
    p, truth, given = found.probabilities[:, k], found.labels[:, k] > 0, found.given[:, k]
    false, missed = np.flatnonzero(given & ~truth), np.flatnonzero(truth & ~given)
    distance = np.abs(_log_odds(p) - _log_odds(found.thresholds[k]))
    return Mistakes(
        false=false[np.argsort(-p[false], kind="stable")][:count],
        missed=missed[np.argsort(p[missed], kind="stable")][:count],
        doubtful=np.argsort(distance, kind="stable")[:count],
        false_count=len(false),
        missed_count=len(missed),
    )


def confusions(found: Examined, *, limit: int = 20) -> list[Confusion]:
    """Return the pairs of labels where one is missed and the other given instead more often than by chance."""
    missed = ((found.labels > 0) & ~found.given).astype(np.float64)
    false = ((found.labels == 0) & found.given).astype(np.float64)
    counts = missed.T @ false
    expected = np.outer(missed.sum(axis=0), false.sum(axis=0)) / max(len(missed), 1)
    excess = np.where(counts >= 2, counts - expected, 0.0)
    order = np.argsort(-excess, axis=None, kind="stable")[:limit]
    places = [np.unravel_index(int(place), excess.shape) for place in order]
    names = found.classes
    return [
        Confusion(names[a], names[b], int(counts[a, b]), float(expected[a, b]))
        for a, b in places
        if excess[a, b] > 0
    ]


def suspects(found: Examined) -> NDArray[np.int64]:
    """Return the suspected label errors as rows and labels, the most suspected first, ``[m, 2]``."""
    return suspected_errors(found.probabilities, found.labels)


def _own_rows(trained: Trained) -> tuple[Dataset, Rows, Sequence[str], str]:
    """Return the data of a run, the test rows of its tasks, and their names."""
    config = trained.config
    benchmark, _ = load_quietly(config)  # the run has warned of what its tasks lack
    data = benchmark.dataset
    recorded = read_environment(trained.folder).get("data")
    expected = recorded.get("fingerprint") if isinstance(recorded, dict) else None
    if expected is not None and expected != data.fingerprint:
        raise InputError(
            f"{config.data} has the fingerprint {data.fingerprint}, but {trained.folder} was made with {expected}."
        )
    rows = np.unique(np.concatenate([task.test for task in benchmark.tasks]))
    numbered = config.validate or config.data == "digits"  # rows that a store has no names for
    ids = [f"row {row}" for row in range(len(data.test))] if numbered else _test_ids(config.data, data)
    return data, rows, ids, config.data + (" (validation rows)" if config.validate else "")


def _rows_of(store: str) -> tuple[Dataset, Rows, Sequence[str], str]:
    data = load_dataset(store)
    ids = [f"row {row}" for row in range(len(data.test))] if store == "digits" else _test_ids(store, data)
    return data, np.arange(len(data.test)), ids, store


def _test_ids(store: str, data: Dataset) -> list[str]:
    return read_ids(find_dataset(store))[len(data.train) :]


def _images(store: str, ids: Sequence[str]) -> tuple[ConcatRows, Rows]:
    """Return the images of both splits of a store, and the places of some ids among them."""
    data = load_dataset(store)
    if data.kind != "images":
        raise InputError(f"{store} has {data.kind}, but images were expected.")
    place = {name: row for row, name in enumerate(read_ids(find_dataset(store)))}
    absent = [name for name in ids if name not in place]
    if absent:
        raise InputError(
            f"{store} has no image {absent[0]!r}; expected one for each of {len(ids)} test rows."
        )
    return ConcatRows(data.train.inputs, data.test.inputs), np.array([place[name] for name in ids])


def _share(part: Any, whole: Any) -> float:
    return float(part / whole) if whole else float("nan")


def _log_odds(p: Any) -> Any:
    clipped = np.clip(np.asarray(p, np.float64), 1e-9, 1 - 1e-9)
    return np.log(clipped) - np.log1p(-clipped)
