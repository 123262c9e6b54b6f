"""An exact run forgets rows, or a label: a new version that is as if it had never seen them, with a receipt.

The exact learner keeps sums over rows and nothing else, so that what a row added can be taken away again; the rows
themselves must be given once more. A network that was trained by gradients cannot do this, and is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from mlcl.datasets import Split, find_dataset, is_given_arrays, load_dataset, read_ids
from mlcl.errors import InputError, nearest
from mlcl.files import read_bounded
from mlcl.labels import LabelCounts, numbers_without
from mlcl.memories import Memory, TaskSamples
from mlcl.metrics import HeldOut, LogOddsLines
from mlcl.runs import folder as files
from mlcl.runs.calibration import Decisions, calibrate, input_hashes
from mlcl.runs.continuing import Base, begin_from, benchmark_of, load_base, remembered_benchmark
from mlcl.runs.recording import Recorder
from mlcl.runs.versions import chain, current_folder, now_text
from mlcl.streams.benchmark import RowView
from mlcl.training.heads import SolvedHead
from mlcl.training.learner import Learner

MAX_IDS_BYTES = 64 << 20


@dataclass(frozen=True, eq=False)
class Taught:
    """What one task of a run learnt from a store.

    Attributes:
        store: its folder.
        ids: of the store's rows, training rows first.
        split: its training rows, with labels for the task's classes.
        rows: the rows of the task.
        names: of the task's classes, as far as they are still known.
    """

    store: Path
    ids: list[str]
    split: Split
    rows: NDArray[np.int64]
    names: tuple[str, ...]

    def without(self, label: str) -> Taught:
        """Return the task after a label was forgotten."""
        if label not in self.names:
            return self
        left = tuple(name for name in self.names if name != label)
        return replace(self, split=self.split.without(self.names.index(label)), names=left)

    def renamed(self, names: Mapping[str, str]) -> Taught:
        """Return the task after labels were given other names."""
        return replace(self, names=tuple(names.get(name, name) for name in self.names))


def forget(
    folder: str | Path,
    *,
    out: str | Path,
    rows: str | Path | None = None,
    data: str | Path | None = None,
    label: str | None = None,
) -> dict[str, Any]:
    """Write a version of an exact run that never saw some rows, or a label, and return the receipt.

    Args:
        folder: the run; of one with versions the current one. It stays as it is, with all that it knows.
        out: folder to write.
        rows: a text file with the ids of rows, one per line, as in the stores that the run learnt from.
        data: the store that the ids are of, where stores that the run learnt from have ids in common.
        label: the label to remove instead; its rows stay, as rows of the other labels.
    """
    if (rows is None) == (label is None):
        raise InputError("expected either --rows FILE or --label NAME.")
    base = load_base(current_folder(Path(folder)))
    held_out = base.trained.decisions.held_out
    if base.trained.config.model.head != "exact":
        raise InputError(
            f"{base.folder} is a trained network (method {base.trained.result.method!r}), from which no row can be "
            "taken out again; expected a run of the exact learner (mlcl run --method exact)."
        )
    if label is not None:
        if label not in base.trained.classes:
            raise InputError(
                f"--label {label!r} is no label of {base.folder}.{nearest(label, base.trained.classes)}"
            )
        receipt = {"what": "label", "label": label, "count": 1}
        if held_out is not None:
            kept = np.delete(np.arange(len(base.trained.classes)), base.trained.classes.index(label))
            held_out = held_out.of_classes(kept)
        edited, benchmark = _without_label(base, label), remembered_benchmark(base).without(label)
    else:
        wanted = _read_wanted(Path(str(rows)))
        edited, held_out, count = _without_rows(base, held_out, wanted, data=data, source=str(rows))
        receipt = {"what": "rows", "count": count, "rows": sorted(map(_hashed, wanted))}
        benchmark = remembered_benchmark(edited)
    learner = Learner(base.trained.config, benchmark, pretrained=False)
    begin_from(learner, edited)
    _solve_again(learner)
    extends = files.Extends(base.folder, base.fingerprint, thresholds=base.trained.thresholds_print)
    with Recorder.create(Path(out), base.trained.config, benchmark, extends=extends) as recorder:
        receipt |= {"time": now_text(), "before": base.fingerprint, "parent": base.trained.result.sha256}
        files.write_receipt(recorder.path, receipt)
        with np.errstate(invalid="ignore"):  # shares of no rows, which those of the run before replace
            calibrated = calibrate(
                learner, Decisions(edited.trained.calibration, edited.trained.thresholds, held_out)
            )
        files.write_result(recorder.path, learner, calibrated, receipt=receipt)
    return receipt | {"after": files.fingerprint(Path(out))}


def _read_wanted(path: Path) -> list[str]:
    content = read_bounded(path, limit=MAX_IDS_BYTES, expected="the ids of rows, one per line")
    try:
        found = [line.strip() for line in content.decode("utf-8").splitlines()]
    except UnicodeDecodeError:
        raise InputError(f"--rows {path} is no text; expected the ids of rows, one per line.") from None
    wanted = [line for line in dict.fromkeys(found) if line]
    if not wanted:
        raise InputError(f"--rows {path} has no id; expected the ids of rows, one per line.")
    return wanted


def _hashed(row: str) -> str:
    """Return what a receipt remembers of an id: enough to know it again, and not the id itself."""
    return hashlib.sha256(row.encode()).hexdigest()[:32]


def _without_rows(
    base: Base, held_out: HeldOut | None, wanted: list[str], *, data: str | Path | None, source: str
) -> tuple[Base, HeldOut | None, int]:
    """Return the run, and its held-out rows, as if it had never seen these rows, and how many of them it had."""
    done = {
        row for folder in chain(base.folder) for row in (files.read_receipt(folder) or {}).get("rows", ())
    }
    again = [row for row in wanted if _hashed(row) in done]
    if again:
        raise InputError(f"{source}: {again[0]!r} was forgotten before.")
    taught = list(_taught(base))
    stores = {one.store: set(one.ids) for one in taught}
    if data is not None:
        chosen_store = find_dataset(str(data)).resolve()
        if chosen_store not in stores:
            raise InputError(f"--data {data} is no store that {base.folder} learnt from.")
        stores = {chosen_store: stores[chosen_store]}
    for row in wanted:
        places = [store for store, ids in stores.items() if row in ids]
        if not places:
            raise InputError(f"{source}: {row!r} is in no store that {base.folder} learnt from.")
        if len(places) > 1:
            raise InputError(
                f"{source}: {row!r} is in {places[0]} and in {places[1]}; say which one: --data STORE."
            )
    names, rows = base.trained.classes, set(wanted)
    learner = base.sums
    tasks, learnt = list(base.memory.tasks), set[str]()
    kept = input_hashes([] if held_out is None else held_out.inputs)
    left = np.ones(len(kept), np.bool_)
    for place, one in enumerate(taught):
        if len(kept):
            named = [one.store in stores and name in rows for name in one.ids[: len(one.split)]]
            at = np.flatnonzero(named)
            hashes = input_hashes(RowView(one.split.inputs, at))
            learnt |= {one.ids[row] for row in at[np.isin(hashes, kept)]}
            left &= ~np.isin(kept, hashes)
        chosen = np.array([row for row in one.rows if one.store in stores and one.ids[row] in rows], np.int64)
        if not len(chosen):
            continue
        learnt |= {one.ids[row] for row in chosen}
        ids, cells = [names.index(name) for name in one.names], one.split.cells(chosen)
        features = base.trained.features(one.split.inputs, chosen)
        learner = learner.forget(features, cells["labels"], ids, annotated=cells["mask"], names=names)
        before, gone = tasks[place].counts, one.split.counts(chosen)
        tasks[place] = replace(
            tasks[place],
            counts=LabelCounts(
                before.positive - gone.positive, before.negative - gone.negative, before.total - gone.total
            ),
        )
    if not learnt:
        raise InputError(
            f"{source}: none of its {len(wanted)} rows was learnt from; nothing is to be forgotten."
        )
    memory = Memory.from_state(base.memory.state())
    memory.tasks = tuple(tasks)
    unseen = None if held_out is None else held_out.with_inputs.take(left)
    return base.with_sums(learner, memory), unseen, len(learnt)


def _without_label(base: Base, label: str) -> Base:
    """Return an exact run as if it had never known a label; a task that had no other is gone."""
    trained = base.trained
    k = trained.classes.index(label)
    left = np.delete(np.arange(len(trained.classes)), k)
    tasks = np.array([t for t, ids in enumerate(trained.tasks) if set(ids.tolist()) != {k}], np.int64)
    if not len(tasks):
        raise InputError(f"{label!r} is the only label of {base.folder}; without it nothing is left.")
    memory = Memory.from_state(base.memory.state())
    memory.tasks = tuple(_samples_without(memory.tasks[t], number, k) for number, t in enumerate(tasks))
    # Its weights are solved from the sums.
    trained.network.head.linear = nn.Linear(trained.network.backbone.width, len(left))
    result, calibration, thresholds = trained.result, trained.calibration, trained.thresholds
    edited = replace(
        trained,
        classes=tuple(trained.classes[i] for i in left),
        tasks=tuple(samples.classes for samples in memory.tasks),
        result=replace(
            result,
            matrix=result.matrix[np.ix_(tasks, tasks)],
            per_class=result.per_class[np.ix_(tasks, left)],
            task_seconds=result.task_seconds[tasks],
        ),
        calibration=replace(
            calibration,
            lines=LogOddsLines(calibration.lines.slope[left], calibration.lines.offset[left]),
            prior=calibration.prior[left],
            own=calibration.own[left],
        ),
        thresholds=replace(
            thresholds,
            **{name: getattr(thresholds, name)[left] for name in ("values", "own", "reached")},
        ),
    )
    return replace(base, trained=edited).with_sums(base.sums.remove(k), memory)


def _samples_without(samples: TaskSamples, index: int, k: int) -> TaskSamples:
    keep = samples.classes != k
    return replace(
        samples,
        task=index,
        classes=numbers_without(samples.classes, k),
        counts=samples.counts.select(keep),
        labels=samples.labels[:, keep],
        extra={name: one[:, keep] if name == "known" else one for name, one in samples.extra.items()},
    )


def _taught(base: Base) -> list[Taught]:
    """Return the tasks of a run, in the order of its memory, each with the rows that it was learnt from."""
    found: list[Taught] = []
    for folder in reversed(list(chain(base.folder))):
        receipt = files.read_receipt(folder)
        if receipt is None:
            found += _of_version(base if folder == base.folder else load_base(folder))
        elif "label" in receipt:
            found = [left for left in (one.without(str(receipt["label"])) for one in found) if left.names]
        elif receipt.get("what") == "names":
            found = [one.renamed(receipt["names"]) for one in found]
    return found


def _of_version(base: Base) -> Iterator[Taught]:
    """Iterate over the tasks that one version learnt itself."""
    config, folder = base.trained.config, base.folder
    if config.validate or is_given_arrays(config.data):
        raise InputError(f"the rows of {folder} have no ids; expected a run on a store, without validate.")
    store, data, benchmark = find_dataset(config.data), load_dataset(config.data), benchmark_of(base)
    if benchmark.dataset.fingerprint != files.read_data_record(folder).get("fingerprint"):
        raise InputError(f"the data of {folder} have another fingerprint now, so its rows are not known.")
    first = files.read_extends(folder) is None
    offset = 0 if first else len(benchmark.dataset.train) - len(data.train)
    for task in benchmark.tasks if first else benchmark.tasks[-1:]:
        names = tuple(benchmark.classes[k] for k in task.classes)
        split = data.train.select(np.array([data.classes.index(name) for name in names]))
        yield Taught(store.resolve(), read_ids(store), split, task.train - offset, names)


def _solve_again(learner: Learner) -> None:
    """Give the head the weights that follow from the sums that are left, and measure its last row anew."""
    if not isinstance(learner.head, SolvedHead):
        raise InputError("the run has no exact head.")
    learner.head.solve()
    learner.network.eval()
    learner.evaluations.measure_again(
        learner.test_scores(), learner.benchmark, threshold=learner.config.decision_threshold
    )
