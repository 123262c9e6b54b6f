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

from mlcl.config.schema import Config
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
from mlcl.runs.continuing import benchmark_of, load_base
from mlcl.runs.folder import read_config, read_data_record, read_extends, read_receipt
from mlcl.runs.trained import Trained, load_trained
from mlcl.streams import Benchmark
from mlcl.taggers.gate import check_inputs

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
        known: which labels the rows were annotated for, ``[n, K]``; None for all.
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
    known: NDArray[np.bool_] | None = None

    @property
    def annotated(self) -> NDArray[np.bool_]:
        """Return which labels the rows were annotated for, bool ``[n, K]``."""
        return np.ones(self.labels.shape, np.bool_) if self.known is None else self.known

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
    data, rows, ids, where, known = _own_rows(trained) if on is None else _rows_of(on)
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
        known=None if known is None else known[np.ix_(rows, theirs)],
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
    p, y, known = found.probabilities, found.labels, found.known
    draws = _drawn_aucs(found, resamples, seed)
    auc = macro_auc(p, y, average=None, mask=known)
    ap = average_precision(p, y, average=None, mask=known)
    brier, loss = brier_score(p, y, average=None, mask=known), log_loss(p, y, average=None, mask=known)
    error = calibration_error(p, y, average=None, mask=known)
    given = found.given & found.annotated
    hits = (given & (y > 0)).sum(axis=0)
    lines = []
    for k, name in enumerate(found.classes):
        defined = draws[~np.isnan(draws[:, k]), k]
        tails = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
        low, high = np.quantile(defined, tails).tolist() if len(defined) else (np.nan, np.nan)
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
                precision=_share(hits[k], given[:, k].sum()),
                recall=_share(hits[k], y[:, k].sum()),
                brier=float(brier[k]),
                log_loss=float(loss[k]),
                error=float(error[k]),
                reliability=reliability(p[:, [k]], y[:, [k]], mask=None if known is None else known[:, [k]]),
            )
        )
    return lines


def _drawn_aucs(found: Examined, resamples: int, seed: int) -> NDArray[np.floating[Any]]:
    """Return the AUC of each label on resampled rows, of those that were annotated for it, ``[resamples, K]``."""
    known = found.annotated
    alike: dict[bytes, list[int]] = {}  # labels by the rows that were annotated for them
    for k in range(len(found.classes)):
        alike.setdefault(known[:, k].tobytes(), []).append(k)
    draws = np.full((resamples, len(found.classes)), np.nan)
    for columns in alike.values():
        rows = known[:, columns[0]]
        if rows.any():
            p, y = (table[rows][:, columns] for table in (found.probabilities, found.labels))
            draws[:, columns] = bootstrap_class_auc(p, y, resamples=resamples, seed=seed)
    return draws


def mistakes(found: Examined, k: int, count: int) -> Mistakes:
    """Return the surest false positives, the surest misses and the most doubtful rows of label ``k``."""
    p, truth, given = found.probabilities[:, k], found.labels[:, k] > 0, found.given[:, k]
    known = found.annotated[:, k]
    false, missed = np.flatnonzero(given & ~truth & known), np.flatnonzero(truth & ~given)
    distance = np.abs(_log_odds(p) - _log_odds(found.thresholds[k]))
    return Mistakes(
        false=false[np.argsort(-p[false], kind="stable")][:count],
        missed=missed[np.argsort(p[missed], kind="stable")][:count],
        doubtful=np.argsort(np.where(known, distance, np.inf), kind="stable")[: min(count, known.sum())],
        false_count=len(false),
        missed_count=len(missed),
    )


def confusions(found: Examined, *, limit: int = 20) -> list[Confusion]:
    """Return the pairs of labels where one is missed and the other given instead more often than by chance."""
    known = found.annotated.astype(np.float64)
    missed = ((found.labels > 0) & ~found.given).astype(np.float64)
    false = ((found.labels == 0) & found.given) * known
    counts = missed.T @ false
    expected = (missed.T @ known) * (known.T @ false) / np.maximum(known.T @ known, 1)
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
    return suspected_errors(found.probabilities, found.labels, mask=found.known)


_Found = tuple[Dataset, Rows, Sequence[str], str, NDArray[np.bool_] | None]
"""Data, the rows of its test split that are looked at, their names, the data in words, and which labels are known."""


def _own_rows(trained: Trained) -> _Found:
    """Return the data of a run, and the test rows of its tasks; of a later version also those of the ones before."""
    benchmark = _own_benchmark(trained)
    data = benchmark.dataset
    expected = read_data_record(trained.folder).get("fingerprint")
    if expected is not None and expected != data.fingerprint:
        more = "" if read_extends(trained.folder) is None else ", with the data of the versions before it,"
        raise InputError(
            f"{trained.config.data}{more} has the fingerprint {data.fingerprint}, but {trained.folder} was made with "
            f"{expected}."
        )
    rows = np.unique(np.concatenate([task.test for task in benchmark.tasks]))
    if not len(rows):
        raise InputError(f"the data of {trained.folder} have no test rows.")
    known = data.test.known
    if not benchmark.complete:  # a row is annotated for the labels of its own tasks
        every, known = known, np.zeros(data.test.labels.shape, np.bool_)
        for task in benchmark.tasks:
            known[np.ix_(task.test, task.classes)] = True
        known = known if every is None else known & every
    names, stores = _names_of(trained.folder, trained.config, len(data.test))
    return data, rows, names, " and ".join(stores), known


def _own_benchmark(trained: Trained) -> Benchmark:
    if read_extends(trained.folder) is None:
        return load_quietly(trained.config)[0]  # the run has warned of what its tasks lack
    try:
        return benchmark_of(load_base(trained.folder))
    except InputError as error:
        raise InputError(f"the data of {trained.folder} were not found: {str(error).rstrip('.')}.") from None


def _names_of(folder: Path, config: Config, count: int) -> tuple[list[str], list[str]]:
    """Return names of the last test rows of a version and of those before it, and the data that they are of."""
    extends = read_extends(folder)
    if read_receipt(folder) is not None:  # it learnt nothing
        names, stores = [], []
    elif extends is not None:
        names, stores = _test_ids(config.data, load_dataset(config.data)), [config.data]
    elif config.validate or config.data == "digits":  # rows that a store has no names for
        names = [f"row {row}" for row in range(count)]
        stores = [config.data + " (validation rows)" * config.validate]
    else:
        names, stores = read_ids(find_dataset(config.data))[-count:], [config.data]
    if extends is not None and len(names) < count:
        before, others = _names_of(extends.run, read_config(extends.run), count - len(names))
        names, stores = before + names, list(dict.fromkeys([*stores, *others]))
    return names, stores


def _rows_of(store: str) -> _Found:
    data = load_dataset(store)
    ids = [f"row {row}" for row in range(len(data.test))] if store == "digits" else _test_ids(store, data)
    return data, np.arange(len(data.test)), ids, store, None


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
