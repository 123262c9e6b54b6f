"""Other thresholds for a finished run, without training: from its held-out rows, or from a store with labels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mlcl.datasets import load_dataset
from mlcl.datasets.base import joined_known
from mlcl.errors import InputError
from mlcl.metrics import Calibration, Goal, HeldOut, Thresholds
from mlcl.metrics.inputs import Bools, Floats
from mlcl.models.provenance import check_encoder
from mlcl.runs import folder as files
from mlcl.runs.trained import Trained, load_trained
from mlcl.runs.versions import current_folder, locked, root_of

FOLDS = 5


@dataclass(frozen=True, eq=False)
class Decided:
    """New thresholds of a run, and what such thresholds do on rows that they were not chosen on.

    Attributes:
        folder: of the run, or of its version in use.
        classes: names of the classes.
        thresholds: as they were written.
        positive: positives of each class among the rows, ``[K]``.
        precision: of each class, nan where it is never predicted, ``[K]``; each row by thresholds that were chosen
            without it and the rest of its fold.
        recall: likewise, nan without positives, ``[K]``.
        overall: likewise, the F1 over all decisions together.
    """

    folder: Path
    classes: tuple[str, ...]
    thresholds: Thresholds
    positive: Floats
    precision: Floats
    recall: Floats
    overall: float


def set_thresholds(
    folder: str | Path, goal: Goal | None = None, *, data: str | Path | None = None
) -> Decided:
    """Choose the thresholds of a finished run for a goal, and write them to its folder.

    Args:
        folder: the folder of the run.
        goal: what they are chosen for; the best F1 per class by default.
        data: a store, by folder or name, all of whose rows are used instead of the rows that the run held out. The run
            must not have been trained on them.
    """
    trained = load_trained(folder, thresholds=False)
    held_out = _held_out(trained) if data is None else _labelled(trained, str(data))
    thresholds = trained.calibration.thresholds(held_out, goal)
    with locked(root_of(trained.folder)):
        if current_folder(Path(folder)) != trained.folder:
            raise InputError(
                f"another version than {trained.folder} came into use meanwhile; nothing was written: give the same "
                "command again."
            )
        files.write_thresholds(trained.folder, thresholds, trained.classes)
    chosen = _tags_unseen(trained.calibration, held_out, thresholds.goal) & held_out.known
    truth = (held_out.labels > 0) & held_out.known
    hits, predicted, positive = (chosen & truth).sum(0), chosen.sum(0), truth.sum(0)
    total = predicted.sum() + positive.sum()
    return Decided(
        trained.folder,
        trained.classes,
        thresholds,
        positive,
        _ratio(hits, predicted),
        _ratio(hits, positive),
        float(2 * hits.sum() / total) if total else float("nan"),
    )


def _tags_unseen(calibration: Calibration, rows: HeldOut, goal: Goal | None) -> Bools:
    """Return the tags of each row by thresholds that were chosen on the rows of other folds."""
    fold, tags = np.arange(len(rows.labels)) % FOLDS, np.zeros(rows.labels.shape, np.bool_)
    for left_out in range(FOLDS):
        found = calibration.probabilities(rows.logits[fold == left_out])
        tags[fold == left_out] = calibration.thresholds(rows.take(fold != left_out), goal).tags(found)
    return tags


def _held_out(trained: Trained) -> HeldOut:
    found = files.read_held_out(trained.folder, trained.result)
    if found is None:
        raise InputError(
            f"{trained.folder} held out no rows to choose thresholds on; name a store that it was not trained on with "
            "--data, or run it again with --held_out 0.1."
        )
    return found


def _labelled(trained: Trained, name: str) -> HeldOut:
    """Score all rows of a store; labels of classes that the run does not know are left out."""
    data = load_dataset(name)
    if data.fingerprint == files.read_data_record(trained.folder).get("fingerprint"):
        raise InputError(f"--data {name} is what {trained.folder} was trained on; expected other rows.")
    if data.train.inputs.shape[1:] != trained.input_shape:
        raise InputError(
            f"--data {name} has inputs of shape {data.train.inputs.shape[1:]}, but the network was trained on "
            f"{trained.input_shape}."
        )
    check_encoder(trained.result.features, data.origin, run=str(trained.folder), data=name)
    columns = [data.classes.index(one) if one in data.classes else -1 for one in trained.classes]
    if max(columns) < 0:
        raise InputError(f"--data {name} has none of the classes of {trained.folder}.")
    logits = np.concatenate([trained.logits(part.inputs) for part in (data.train, data.test)])
    labels = np.concatenate([data.train.labels, data.test.labels])[:, columns]
    known: Bools = np.broadcast_to(np.array(columns) >= 0, labels.shape)
    some = joined_known(data.train, data.test)
    if some is not None:
        known = known & some[:, columns]
    return HeldOut(logits, np.where(known, labels, 0).astype(np.uint8), known, np.arange(len(labels)))


def _ratio(part: Floats, whole: Floats) -> Floats:
    return np.where(whole > 0, part / np.maximum(whole, 1), np.nan)
