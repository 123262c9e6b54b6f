"""Tables of labels: how a version changed each of them, and versions with different labels side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mlcl.datasets import load_dataset
from mlcl.errors import InputError
from mlcl.metrics.changes import auc_changes
from mlcl.reports.rendering import PrintedTable, decimals, points, signed
from mlcl.runs.folder import read_result
from mlcl.runs.trained import load_trained
from mlcl.taggers.gate import Verdict, check_inputs

SHOWN = 40
"""Labels that a table on the terminal shows at most."""


def change_table(verdict: Verdict) -> PrintedTable:
    """Return the labels of a verdict, the largest losses first."""
    changes, rows = verdict.changes, []
    for k in np.argsort(changes.change)[:SHOWN]:
        name = verdict.labels[k]
        word = "lost" if name in verdict.lost else "unsure" if name in verdict.unsure else ""
        values = [decimals(100 * column[k]) for column in (changes.before, changes.after)]
        ends = f"{signed(100 * changes.low[k])} to {signed(100 * changes.high[k])}"
        rows.append([name, *values, signed(100 * changes.change[k]), ends, word])
    title = f"AUC on {verdict.rows} test rows of {verdict.store}, in points"
    return PrintedTable(
        title, ("label", "before", "after", "change", "interval", ""), rows, left=("label", "")
    )


def change_lines(verdict: Verdict) -> list[str]:
    """Return what stands below the table."""
    lines = []
    if len(verdict.labels) > SHOWN:
        lines.append(f"{len(verdict.labels) - SHOWN} labels that changed for the better are not shown")
    if verdict.new:
        lines.append(f"new labels: {', '.join(verdict.new)}")
    if verdict.gone:
        lines.append(f"labels that are gone: {', '.join(verdict.gone)}")
    if verdict.unsure:
        lines.append(
            f"lost more than {points(verdict.allow)}, but perhaps by chance: {', '.join(verdict.unsure)}"
        )
    lines.append(
        f"the gate {'passed' if verdict.passed else 'refused'} it: {len(verdict.lost)} of {len(verdict.labels)} labels "
        f"lost more than {points(verdict.allow)} beyond chance ({100 * verdict.changes.level:g} % for all together)"
    )
    return lines


@dataclass(frozen=True)
class LabelAucs:
    """The AUC of labels under several runs.

    Attributes:
        titles: of the runs.
        values: for each run label to AUC, in points; nan where undefined.
        ends: for each run label to the ends of its change against the first run, in points; empty if not known.
        note: on which rows it was measured.
    """

    titles: tuple[str, ...]
    values: tuple[Mapping[str, float], ...]
    ends: tuple[Mapping[str, tuple[float, float]], ...]
    note: str


def measured_aucs(folders: Sequence[Path]) -> LabelAucs:
    """Return what each run measured of its own labels on its own test rows."""
    results = [read_result(folder) for folder in folders]
    values = tuple(dict(zip(each.classes, each.per_class[-1].tolist(), strict=True)) for each in results)
    note = "each label on the test rows of its tasks; --on STORE measures all on the same rows"
    return LabelAucs(_titles(folders), values, tuple({} for _ in results), note)


def aucs_on(folders: Sequence[Path], store: str) -> LabelAucs:
    """Return the AUC of every label of a store that a run knows, on the test rows of the store."""
    data = load_dataset(store)
    values: list[dict[str, float]] = []
    ends: list[dict[str, tuple[float, float]]] = []
    first = None
    for folder in folders:
        trained = load_trained(folder, current=False)
        check_inputs(trained, data, store)
        names = [name for name in data.classes if name in trained.classes]
        if not names:
            raise InputError(f"{store} has no label that {folder} knows.")
        scores = trained.logits(data.test.inputs)
        own = {name: scores[:, trained.classes.index(name)] for name in names}
        first = own if first is None else first
        common = [name for name in names if name in first]
        alone = [name for name in names if name not in first]
        found: dict[str, float] = {}
        between: dict[str, tuple[float, float]] = {}
        for part, before in ((common, first), (alone, own)):
            if not part:
                continue
            columns = np.array([data.classes.index(name) for name in part])
            cells = data.test.cells(np.arange(len(data.test)), columns)
            old, new = (np.stack([side[name] for name in part], axis=1) for side in (before, own))
            changes = auc_changes(old, new, **cells)
            found |= {name: 100 * float(changes.after[k]) for k, name in enumerate(part)}
            if part is common:
                between = {
                    name: (100 * float(changes.low[k]), 100 * float(changes.high[k]))
                    for k, name in enumerate(part)
                }
        values.append(found)
        ends.append(between)
    return LabelAucs(
        _titles(folders), tuple(values), tuple(ends), f"on {len(data.test)} test rows of {store}"
    )


def label_table(found: LabelAucs) -> PrintedTable:
    """Return labels by runs, with the mean over the labels that all runs know, and over each run's own."""
    names = list(dict.fromkeys(name for values in found.values for name in values))
    rows = [[name, *(_cell(found, run, name) for run in range(len(found.titles)))] for name in names]
    common = [name for name in names if all(name in values for values in found.values)]
    below = (
        (f"mean of the {len(common)} labels of all", [common] * len(found.values)),
        ("mean of its labels", None),
    )
    for title, chosen in below:
        means = [
            _mean([values[name] for name in (list(values) if chosen is None else chosen[run])])
            for run, values in enumerate(found.values)
        ]
        rows.append([title, *map(decimals, means)])
    heads = ("label", *found.titles)
    return PrintedTable(f"AUC in points, {found.note}", heads, rows, left=heads[:1], below=len(below))


def _cell(found: LabelAucs, run: int, name: str) -> str:
    value = found.values[run].get(name)
    if value is None:
        return ""
    text = decimals(value)
    if run and name in found.ends[run]:
        low, high = found.ends[run][name]
        text += f" ({signed(low)} to {signed(high)})"
    return text


def _titles(folders: Sequence[Path]) -> tuple[str, ...]:
    return tuple(str(folder) for folder in folders)


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else float("nan")
