"""A gate between versions: a new one that lost more than allowed is not taken into use.

Both versions score the test rows of one store. Losses are looked for in three ways, each beyond the noise of the test
rows: of every label alone; of means over all labels and over thirds by frequency (AUC, average precision, Brier skill,
and the F1 of all tags); and of all labels together, where many small losses add up. A version that lost nothing is
refused in at most one of twenty cases. The new version is compared with the one that it began from and with a baseline,
the first version or a pinned one, so that small losses of many updates do not go unseen. What the gate could not see
is said: the smallest loss that it notices, and labels with too few test rows.

A version replaces the one in use only if it began from it: what another process has taken into use meanwhile is not
lost. What came too late is kept, as what a gate refused is.

Before rows are learnt, `unlike` asks whether their labels fit what was learnt before: the old version ranks rows that
it held out, and new ones, for the same labels. Where it ranks the new ones far worse, and what half of them teaches
does not rank the other half well either, their labels may be shuffled.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets import Dataset, absolute_data, find_dataset, load_dataset, read_ids, shown_data
from mlcl.datasets.table import is_table
from mlcl.errors import InputError, check_number
from mlcl.exact import ExactLearner, solve
from mlcl.metrics.changes import LEAST, AucChanges, ModelAnswers, PooledChange, auc_changes, pooled_changes
from mlcl.metrics.influence import auc_influence, auc_intervals
from mlcl.models.provenance import check_encoder
from mlcl.runs import folder as files
from mlcl.runs.continuing import same_encoder
from mlcl.runs.trained import Trained, load_trained
from mlcl.runs.versions import (
    baseline_number,
    current_number,
    history,
    locked,
    now_text,
    parent_number,
    root_of,
    use_version,
    version_folder,
)
from mlcl.taggers.predict import read_groups

ALLOW = 1.0
"""Points of AUC that a label may lose by default."""
POINTS = {"Brier skill": 2.0}
"""Points of a mean that count as one of AUC: AUC goes from 50, chance, to 100, and Brier skill from 0 to 100."""
LEVEL = 0.95
"""How often a version that lost nothing passes, at least."""
ALIKE = 0.85
"""New rows are ranked at least so well as held-out ones, where 0 is chance and 1 as well."""


@dataclass(frozen=True, eq=False)
class Verdict:
    """How a version compares with an earlier one.

    Attributes:
        against: number of the earlier version; None if it has none.
        store: whose test rows were scored.
        rows: how many.
        allow: points of AUC that a label, or a mean over labels, may lose; twice as many of Brier skill (`POINTS`).
        level: how often this comparison passes where nothing was lost.
        labels: the labels of the store that both versions know.
        changes: of their AUC, between 0 and 1.
        pooled: of measures over many labels.
        new: labels of the store that only the new version knows.
        worse_than_chance: those of the new labels that are ranked worse than by chance, beyond noise.
        gone: labels of the store that only the old version knows.
    """

    against: int | None
    store: str
    rows: int
    allow: float
    level: float
    labels: tuple[str, ...]
    changes: AucChanges
    pooled: tuple[PooledChange, ...]
    new: tuple[str, ...]
    worse_than_chance: tuple[str, ...]
    gone: tuple[str, ...]

    @property
    def lost(self) -> tuple[str, ...]:
        """Return the labels that lost more than allowed, beyond noise."""
        return self._where(100 * self.changes.high < -self.allow)

    @property
    def unsure(self) -> tuple[str, ...]:
        """Return the labels whose loss is larger than allowed, but may be noise."""
        beyond = 100 * self.changes.change < -self.allow
        return self._where(beyond & ~(100 * self.changes.high < -self.allow))

    @property
    def not_gated(self) -> tuple[str, ...]:
        """Return the labels with too few positives or negatives among the test rows."""
        return self._where(~self.changes.gated)

    @property
    def smallest(self) -> NDArray[np.float64]:
        """Return the loss of each label, in points, that is noticed in four of five cases; infinite if not gated."""
        return 100 * self.changes.smallest(self.allow / 100)

    @property
    def lost_together(self) -> tuple[str, ...]:
        """Return what many labels together lost more of than allowed, beyond noise."""
        share = (1 - self.level) / 2 / (len(self.pooled) + 1)
        found = [
            f"the F1 of all tags ({100 * one.change:+.1f})"
            if one.measure == "F1"
            else f"the {one.measure} of {one.part} labels ({100 * one.change:+.1f})"
            for one in self.pooled
            if one.p_value(POINTS.get(one.measure, 1.0) * self.allow / 100) < share
        ]
        if self.changes.together(self.allow / 100) < share:
            found.append("labels that lost a little each")
        return tuple(found)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return why the new version is refused; nothing if it is not."""
        labels = f"{', '.join(self.lost[:10])}{', ...' * (len(self.lost) > 10)}"
        worse = f"the new labels {', '.join(self.worse_than_chance)}, ranked worse than by chance"
        return (
            *([labels] if self.lost else []),
            *self.lost_together,
            *([worse] if self.worse_than_chance else []),
        )

    @property
    def passed(self) -> bool:
        """Return whether the new version may be used."""
        return not self.reasons

    def _where(self, marks: Any) -> tuple[str, ...]:
        return tuple(self.labels[k] for k in np.flatnonzero(marks))

    def record(self) -> dict[str, Any]:
        """Return the verdict as a version's folder holds it; AUC values and changes are in points."""
        changes = self.changes
        columns = {
            name: 100 * getattr(changes, name) for name in ("before", "after", "change", "low", "high")
        } | {"smallest": self.smallest}
        return {
            "time": now_text(),
            "passed": self.passed,
            "against": self.against,
            "store": self.store,
            "rows": self.rows,
            "allow": self.allow,
            "level": self.level,
            "reasons": self.reasons,
            "lost": self.lost,
            "unsure": self.unsure,
            "not_gated": self.not_gated,
            "new": self.new,
            "gone": self.gone,
            "pooled": [asdict(one) for one in self.pooled],
            "labels": {
                label: {name: column[k] for name, column in columns.items()}
                for k, label in enumerate(self.labels)
            },
        }


def judge(
    old: Trained,
    new: Trained,
    store: str | Path,
    *,
    allow: float = ALLOW,
    level: float = LEVEL,
    groups: str | None = None,
) -> Verdict:
    """Compare two versions, label by label and over all labels, on the test rows of a store.

    Args:
        old: the earlier version.
        new: the version that would replace the one in use.
        store: by folder or name; both versions must know at least one of its labels.
        allow: points that a label, or a mean over labels, may lose.
        level: how often the verdict passes where nothing was lost; half of the rest goes to labels alone.
        groups: a table with the columns ``id`` and ``group``: rows of one group depend on one another, such as images
            of one burst, and count as one.
    """
    check_number("--allow", allow, high=100)
    data = load_dataset(str(store))
    for trained in (old, new):
        check_inputs(trained, data, store)
    both = [name for name in data.classes if name in old.classes and name in new.classes]
    if not both:
        raise InputError(f"{store} has no label that both {old.folder} and {new.folder} know.")
    sides = _scored(old, data, both), _scored(new, data, both)
    cells = _cells(data, both)
    together = None if groups is None else _groups(str(store), len(data.test), groups)
    added = [name for name in data.classes if name in new.classes and name not in old.classes]
    goals = (each.thresholds.goal for each in (old, new))
    withheld = any(goal is not None and goal.certified for goal in goals)  # tags, for want of a certificate
    number = int(old.folder.name) if root_of(old.folder) != old.folder else 1
    return Verdict(
        against=number,
        store=shown_data(str(store)),
        rows=len(data.test),
        allow=float(allow),
        level=level,
        labels=tuple(both),
        changes=auc_changes(
            sides[0].scores, sides[1].scores, **cells, level=(1 + level) / 2, groups=together
        ),
        pooled=tuple(
            one
            for one in pooled_changes(*sides, **cells, groups=together)
            if one.measure != "F1" or not withheld
        ),
        new=tuple(added),
        worse_than_chance=_worse_than_chance(new, data, added),
        gone=tuple(name for name in data.classes if name in old.classes and name not in new.classes),
    )


def _groups(store: str, rows: int, table: str) -> NDArray[np.str_]:
    """Return the group of each test row of a store."""
    if not is_table(Path(table)):
        raise InputError(f"--gate-groups is {table!r}; expected a .csv with the columns id and group.")
    names = read_ids(find_dataset(store))
    return np.array(read_groups(Path(store), names[len(names) - rows :], table))


def _cells(data: Dataset, names: list[str]) -> dict[str, Any]:
    return data.test.cells(np.arange(len(data.test)), np.array([data.classes.index(name) for name in names]))


def _scored(trained: Trained, data: Dataset, names: list[str]) -> ModelAnswers:
    """Return what a version says of the test rows of a store."""
    columns = [trained.classes.index(name) for name in names]
    logits = trained.logits(data.test.inputs)
    probabilities = trained.calibration.probabilities(logits)
    tags = trained.thresholds.tags(probabilities)
    return ModelAnswers(logits[:, columns], probabilities[:, columns], tags[:, columns])


def _worse_than_chance(trained: Trained, data: Dataset, names: list[str]) -> tuple[str, ...]:
    if not names:
        return ()
    scores = _scored(trained, data, names).scores
    _, high = auc_intervals(scores, **_cells(data, names), level=1 - 0.02 / len(names))
    return tuple(name for name, end in zip(names, high, strict=True) if end < 0.5)


@dataclass(frozen=True)
class Unlike:
    """New rows whose labels do not fit what was learnt before.

    Attributes:
        labels: how many labels were compared.
        held_out: their mean AUC on rows that were held out, in points.
        found: on the new rows.
    """

    labels: int
    held_out: float
    found: float

    def __str__(self) -> str:
        return (
            f"the labels of the new rows are unlike those learnt before: what is in use ranks rows that it held out "
            f"at a mean AUC of {self.held_out:.1f} over {self.labels} labels, and the new rows at {self.found:.1f}; "
            "their labels may be shuffled, or mean something else"
        )


def unlike(folder: str | Path, data: Dataset) -> Unlike | None:
    """Return how far the labels of training rows are from what a version knows; None where they fit.

    Nothing is said without held-out rows, nor of labels with fewer than 5 positives or negatives on either side.

    Args:
        folder: of the version in use.
        data: what is to be learnt.
    """
    trained = load_trained(folder)
    same_encoder(trained, data, data.name)
    held = files.read_held_out(trained.folder, trained.result)
    names = [name for name in data.classes if name in trained.classes]
    if held is None or not names or data.train.inputs.shape[1:] != trained.input_shape:
        return None
    columns = [trained.classes.index(name) for name in names]
    logits = trained.logits(data.train.inputs)[:, columns]
    cells = data.train.cells(
        np.arange(len(data.train)), np.array([data.classes.index(name) for name in names])
    )
    known = cells.get("mask")
    sides = (
        (held.logits[:, columns], held.labels[:, columns] > 0, held.known[:, columns]),
        (logits, cells["labels"] > 0, np.ones(logits.shape, np.bool_) if known is None else known),
    )
    counts = np.min([np.minimum((y & k).sum(0), (~y & k).sum(0)) for _, y, k in sides], axis=0)
    some = np.flatnonzero(counts >= LEAST)
    if not len(some):
        return None
    (before, noise_before), (now, noise_now) = (_mean_auc(s, y, k, some) for s, y, k in sides)
    # The agreement, 2 AUC - 1, in relation to that of held-out rows: beyond noise below what is alike?
    if not _is_below(before, noise_before, now, noise_now):
        return None
    # Rows of a new kind are ranked badly too, but their labels follow from one another.
    _, truth, seen = sides[1]
    own = _cross_fitted(trained.features(data.train.inputs, np.arange(len(truth))), truth, seen)
    if not _is_below(before, noise_before, *_mean_auc(own, truth, seen, some)):
        return None
    return Unlike(len(some), 100 * before, 100 * now)


def _is_below(before: float, noise_before: float, now: float, noise_now: float) -> bool:
    missing = ALIKE * (before - 0.5) - (now - 0.5)
    return bool(missing >= 2 * np.hypot(ALIKE * noise_before, noise_now))


def _cross_fitted(
    features: NDArray[np.float32], truth: NDArray[np.bool_], known: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return the scores of each half of rows by what the exact learner learns from the other half."""
    found, halves = np.zeros(truth.shape), np.arange(len(truth)) % 2 == 0
    for half in (halves, ~halves):
        learner = ExactLearner.begin(features[~half], form="auto")
        learner = learner.learn(features[~half], truth[~half], range(truth.shape[1]), annotated=known[~half])
        found[half] = solve(learner).scores(features[half])
    return found


def _mean_auc(
    logits: NDArray[Any], truth: NDArray[np.bool_], known: NDArray[np.bool_], columns: NDArray[np.int64]
) -> tuple[float, float]:
    """Return the mean AUC of some labels and its standard error."""
    influence, total = np.zeros(len(logits)), 0.0
    for k in columns:
        rows = known[:, k]
        value, moved = auc_influence(logits[rows, k], truth[rows, k])
        influence[rows] += moved / len(columns)
        total += value / len(columns)
    return total, float(np.sqrt(np.square(influence).sum()))


def check_inputs(trained: Trained, data: Dataset, store: str | Path) -> None:
    """Refuse a store whose test rows a network cannot score, or that has none."""
    if data.test.inputs.shape[1:] != trained.input_shape:
        raise InputError(
            f"{store} has inputs of shape {data.test.inputs.shape[1:]}, but {trained.folder} was trained on "
            f"{trained.input_shape}."
        )
    if not len(data.test):
        raise InputError(f"{store} has no test rows; expected some that no version was trained on.")
    same_encoder(trained, data, str(store))
    check_encoder(trained.result.features, data.origin, run=str(trained.folder), data=str(store))


@dataclass(frozen=True, eq=False)
class Release:
    """What became of a finished version.

    Attributes:
        verdict: of its gate, against the parent or, where that passed, against the baseline; None without one, and
            where the version came too late for one.
        newer: the version that came into use since this one began, or its parent, if thresholds of that were chosen
            anew since: why this one did not come into use; None otherwise.
    """

    verdict: Verdict | None = None
    newer: int | None = None

    @property
    def passed(self) -> bool:
        """Return whether nothing refused the version."""
        return self.newer is None and (self.verdict is None or self.verdict.passed)


def release(folder: str | Path) -> Release:
    """Take a finished version into use if it passes its gate and its parent is in use; else nothing changes.

    A version that lies in the folder ``versions`` of its run becomes the current one; one that was written elsewhere
    is only compared. What refused it, and the verdict of its gate, is kept in the version's folder.

    Args:
        folder: of the new version; it names the version before, and its gate.
    """
    path = Path(folder)
    extends = files.read_extends(path)
    if extends is None:
        raise InputError(f"{path} began from no other run, so there is no version to compare it with.")
    if (newer := _newer(path)) is not None:
        return _too_late(path, None, newer)
    verdict = None
    if extends.gate is not None:
        verdicts = _compare(extends.run, path, extends.gate)
        verdict = next((one for one in verdicts if not one.passed), verdicts[0])
        baseline = {"baseline": verdicts[1].record()} if len(verdicts) > 1 else {}
        files.write_gate(path, verdicts[0].record() | baseline | {"passed": verdict.passed})
    if root_of(path) == path or (verdict is not None and not verdict.passed):
        return Release(verdict)
    with locked(root_of(path)):
        newer = _newer(path)  # while the rows of the gate were scored
        if newer is None and _decided_anew(extends):
            newer = parent_number(path)
        if newer is None and current_number(root_of(path)) != int(path.name):
            receipt = files.read_receipt(path)
            why = "update" if receipt is None else "rename" if receipt.get("what") == "names" else "forget"
            use_version(root_of(path), int(path.name), why=why)
    return Release(verdict) if newer is None else _too_late(path, verdict, newer)


def is_waiting(path: Path) -> bool:
    """Return whether a finished version has yet to be released: whoever made it was stopped just before."""
    extends, gate, root = files.read_extends(path), files.read_gate(path), root_of(path)
    if extends is None or not extends.gate_known or (gate is not None and not gate.get("passed")):
        return False
    if root == path:
        return extends.gate is not None and gate is None
    used = [entry.get("to") for entry in history(root) if isinstance(entry, dict)]
    return int(path.name) not in used


def _newer(path: Path) -> int | None:
    """Return the version in use, unless it is this one or its parent."""
    root = root_of(path)
    if root == path:
        return None
    now = current_number(root)
    return None if now in (int(path.name), parent_number(path)) else now


def _decided_anew(extends: files.Extends) -> bool:
    """Return whether a version's parent has other thresholds than when it was read: they would be lost."""
    if not extends.thresholds:
        return False
    result = files.read_result(extends.run)
    now = files.thresholds_print(files.read_thresholds(extends.run, result), result.classes)
    return now != extends.thresholds


def _too_late(path: Path, verdict: Verdict | None, newer: int) -> Release:
    record = {"time": now_text()} if verdict is None else verdict.record()
    files.write_gate(path, {**record, "passed": False, "newer": newer})
    return Release(verdict, newer)


def _compare(old: Path, new: Path, gate: files.Gate) -> list[Verdict]:
    """Return how a version compares with its parent and, where that is another one, with the baseline."""
    found = load_dataset(gate.store).fingerprint
    if found != gate.fingerprint:
        raise InputError(
            f"{shown_data(gate.store)} has another fingerprint ({found}) than when it was named as the gate of {new} "
            f"({gate.fingerprint}); the version is kept, and not taken into use."
        )
    baseline = version_folder(root_of(old), baseline_number(root_of(old)))
    earlier = [load_trained(each, current=False) for each in dict.fromkeys((old, baseline))]
    later = load_trained(new, current=False)
    known = [
        one
        for one in earlier
        if set(one.classes) & set(later.classes) & set(load_dataset(gate.store).classes)
    ]
    level = 1 - (1 - LEVEL) / max(len(known), 1)
    options: dict[str, Any] = {"allow": gate.allow, "level": level, "groups": gate.groups}
    return [judge(one, later, gate.store, **options) for one in known or earlier[:1]]


def check_gate(
    folder: str | Path, store: str | Path, *, allow: float = ALLOW, groups: Path | None = None
) -> files.Gate:
    """Return a gate as a version records it; one that cannot compare what follows from a run is refused.

    Args:
        folder: the run that follows from.
        store: whose test rows are scored, by folder or name.
        allow: points of AUC that a label may lose.
        groups: a table of ids and groups, see `judge`.
    """
    check_number("--allow", allow, high=100)
    trained, data = load_trained(folder), load_dataset(str(store))
    check_inputs(trained, data, store)
    if not set(data.classes) & set(trained.classes):
        raise InputError(f"{store} has no label that {folder} knows; expected one with its labels.")
    where = None if groups is None else str(groups.resolve())
    if where is not None:
        _groups(str(store), len(data.test), where)
    return files.Gate(absolute_data(str(store)), data.fingerprint, float(allow), where)
