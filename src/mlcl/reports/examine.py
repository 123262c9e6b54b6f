"""What a run says of its test rows, row by row: measures per label, mistakes, confusions, suspected labels.

A run folder keeps no scores of test rows; they are computed again from its weights, as ``mlcl predict`` does.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

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
from mlcl.metrics.columns import ratio
from mlcl.metrics.influence import auc_intervals
from mlcl.metrics.scaling import log_odds
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
    """Test rows with their labels, and what the run says of them; ``n`` rows, ``K`` labels."""

    where: str  # the data, in words
    classes: tuple[str, ...]
    positive: NDArray[np.int64]  # training rows with each label
    ids: Sequence[str]
    inputs: (
        NDArray[Any] | ConcatRows
    )  # uint8 images [N, C, H, W] or features [N, D], read as they are asked for
    places: Rows  # of the rows in the inputs
    labels: Labels
    probabilities: NDArray[np.floating[Any]]
    thresholds: NDArray[np.float64]  # the probability above which a label is given
    known: NDArray[np.bool_] | None = None  # which labels the rows were annotated for, [n, K]; None for all

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


class LabelLine(NamedTuple):
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


class Mistakes(NamedTuple):
    """Rows of one label, each list the surest (or the most doubtful) first, and how many there are in all."""

    false: Rows
    missed: Rows
    doubtful: Rows
    false_count: int
    missed_count: int


class Confusion(NamedTuple):
    """How many rows have the label ``missed`` but are given ``instead``, and how many would be expected by chance."""

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
    """Return `examine`, or None and why: what else is reported does not depend on the rows, unless a store is named."""
    try:
        return examine(folder, on=on, images=images), ""
    except InputError as error:
        if on is not None or images is not None:
            raise
        warnings.warn(f"the test rows are left out: {error}", stacklevel=2)
        return None, f"The test rows of this run are not at hand: {error}"


def label_lines(found: Examined) -> list[LabelLine]:
    """Return the measures of each label on the rows, with an interval of its AUC."""
    p, y, known = found.probabilities, found.labels, found.known
    given = found.given & found.annotated
    hits = (given & (y > 0)).sum(axis=0)
    columns = (
        found.positive,
        y.sum(axis=0),
        macro_auc(p, y, average=None, mask=known),
        *auc_intervals(p, y, level=LEVEL, mask=known),
        average_precision(p, y, average=None, mask=known),
        found.thresholds,
        ratio(hits, given.sum(axis=0)),
        ratio(hits, y.sum(axis=0)),
        *(score(p, y, average=None, mask=known) for score in (brier_score, log_loss, calibration_error)),
    )
    bins = [
        reliability(p[:, [k]], y[:, [k]], mask=found.annotated[:, [k]]) for k in range(len(found.classes))
    ]
    rows = zip(found.classes, *(column.tolist() for column in columns), bins, strict=True)
    return [LabelLine(*row) for row in rows]


def mistakes(found: Examined, k: int, count: int) -> Mistakes:
    """Return the surest false positives, the surest misses and the most doubtful rows of label ``k``."""
    p, truth, given = found.probabilities[:, k], found.labels[:, k] > 0, found.given[:, k]
    known = found.annotated[:, k]
    false, missed = np.flatnonzero(given & ~truth & known), np.flatnonzero(truth & ~given)
    odds = (
        log_odds(np.clip(np.asarray(each, np.float64), 1e-9, 1 - 1e-9)) for each in (p, found.thresholds[k])
    )
    distance = np.abs(np.subtract(*odds))
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
    pairs = np.stack(np.unravel_index(order[excess.ravel()[order] > 0], excess.shape), axis=1).tolist()
    names = found.classes
    return [Confusion(names[a], names[b], int(counts[a, b]), float(expected[a, b])) for a, b in pairs]


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
