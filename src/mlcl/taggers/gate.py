"""A gate between versions: a new one that lost more than allowed on any label is not taken into use.

Both versions score the test rows of one store. A label is *lost* where the upper end of the interval of its change
lies below what is allowed: the loss is then larger than allowed beyond the noise of the test rows. The ends hold for
all labels together, so a version that lost nothing is refused in at most one of twenty cases, however many labels
there are. A label whose loss is larger than allowed, but within the noise, is reported as *unsure* and does not refuse.

A version is compared with the one that is in use, and replaces it only if it began from it: what another process has
taken into use meanwhile is not lost. What came too late is kept, as what a gate refused is.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlcl.datasets import Dataset, absolute_data, load_dataset, shown_data
from mlcl.errors import InputError, check_number
from mlcl.metrics.changes import AucChanges, auc_changes
from mlcl.models.provenance import check_encoder
from mlcl.runs import folder as files
from mlcl.runs.continuing import same_encoder
from mlcl.runs.trained import Trained, load_trained
from mlcl.runs.versions import (
    current_number,
    history,
    locked,
    now_text,
    parent_number,
    root_of,
    use_version,
)

ALLOW = 1.0
"""Points of AUC that a label may lose by default."""


@dataclass(frozen=True, eq=False)
class Verdict:
    """How a version compares with the one before.

    Attributes:
        store: whose test rows were scored.
        rows: how many.
        allow: points of AUC that a label may lose.
        labels: the labels of the store that both versions know.
        changes: of their AUC, between 0 and 1.
        new: labels of the store that only the new version knows.
        gone: labels of the store that only the old version knows.
    """

    store: str
    rows: int
    allow: float
    labels: tuple[str, ...]
    changes: AucChanges
    new: tuple[str, ...]
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
    def passed(self) -> bool:
        """Return whether the new version may be used."""
        return not self.lost

    def _where(self, marks: Any) -> tuple[str, ...]:
        return tuple(self.labels[k] for k in np.flatnonzero(marks))

    def record(self) -> dict[str, Any]:
        """Return the verdict as a version's folder holds it; AUC values and changes are in points."""
        changes = self.changes
        columns = {
            name: 100 * getattr(changes, name) for name in ("before", "after", "change", "low", "high")
        }
        return {
            "time": now_text(),
            "passed": self.passed,
            "store": self.store,
            "rows": self.rows,
            "allow": self.allow,
            "level": changes.level,
            "lost": self.lost,
            "unsure": self.unsure,
            "new": self.new,
            "gone": self.gone,
            "labels": {
                label: {name: column[k] for name, column in columns.items()}
                for k, label in enumerate(self.labels)
            },
        }


def judge(old: Trained, new: Trained, store: str | Path, *, allow: float = ALLOW, seed: int = 0) -> Verdict:
    """Compare two versions, label by label, on the test rows of a store.

    Args:
        old: the version in use.
        new: the version that would replace it.
        store: by folder or name; both versions must know at least one of its labels.
        allow: points of AUC that a label may lose.
        seed: of the bootstrap.
    """
    check_number("--allow", allow, high=100)
    data = load_dataset(str(store))
    for trained in (old, new):
        check_inputs(trained, data, store)
    both = [name for name in data.classes if name in old.classes and name in new.classes]
    if not both:
        raise InputError(f"{store} has no label that both {old.folder} and {new.folder} know.")
    before, after = (
        trained.logits(data.test.inputs)[:, [trained.classes.index(name) for name in both]]
        for trained in (old, new)
    )
    cells = data.test.cells(np.arange(len(data.test)), np.array([data.classes.index(name) for name in both]))
    return Verdict(
        store=shown_data(str(store)),
        rows=len(data.test),
        allow=float(allow),
        labels=tuple(both),
        changes=auc_changes(before, after, **cells, seed=seed),
        new=tuple(name for name in data.classes if name in new.classes and name not in old.classes),
        gone=tuple(name for name in data.classes if name in old.classes and name not in new.classes),
    )


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
        verdict: of its gate; None without one, and where the version came too late for one.
        newer: the version that came into use since this one began, which is why this one did not; None otherwise.
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
    verdict = None if extends.gate is None else _compare(extends.run, path, extends.gate)
    if verdict is not None:
        files.write_gate(path, verdict.record())
    if root_of(path) == path or (verdict is not None and not verdict.passed):
        return Release(verdict)
    with locked(root_of(path)):
        newer = _newer(path)  # while the rows of the gate were scored
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


def _too_late(path: Path, verdict: Verdict | None, newer: int) -> Release:
    record = {"time": now_text()} if verdict is None else verdict.record()
    files.write_gate(path, {**record, "passed": False, "newer": newer})
    return Release(verdict, newer)


def _compare(old: Path, new: Path, gate: files.Gate) -> Verdict:
    found = load_dataset(gate.store).fingerprint
    if found != gate.fingerprint:
        raise InputError(
            f"{shown_data(gate.store)} has another fingerprint ({found}) than when it was named as the gate of {new} "
            f"({gate.fingerprint}); the version is kept, and not taken into use."
        )
    before, after = (load_trained(each, current=False) for each in (old, new))
    return judge(before, after, gate.store, allow=gate.allow)


def check_gate(folder: str | Path, store: str | Path, *, allow: float = ALLOW) -> files.Gate:
    """Return a gate as a version records it; one that cannot compare what follows from a run is refused.

    Args:
        folder: the run that follows from.
        store: whose test rows are scored, by folder or name.
        allow: points of AUC that a label may lose.
    """
    check_number("--allow", allow, high=100)
    trained, data = load_trained(folder), load_dataset(str(store))
    check_inputs(trained, data, store)
    if not set(data.classes) & set(trained.classes):
        raise InputError(f"{store} has no label that {folder} knows; expected one with its labels.")
    return files.Gate(absolute_data(str(store)), data.fingerprint, float(allow))
