"""Tables of labels: how a version changed each of them, and versions with different labels side by side."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets import Dataset, load_dataset
from mlcl.errors import InputError
from mlcl.metrics import Interval
from mlcl.metrics.changes import LEAST, auc_changes
from mlcl.metrics.columns import mean_defined
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
    seen = verdict.smallest[np.isfinite(verdict.smallest)]
    if len(seen):
        lines.append(
            f"the smallest loss of a label that would be seen in four of five cases: {points(np.median(seen))} (median)"
        )
    if verdict.not_gated:
        lines.append(
            f"not gated, with fewer than {LEAST} positives or negatives: {', '.join(verdict.not_gated)}"
        )
    lines += [
        f"{one.measure} of {one.part} labels: {decimals(100 * one.before)} -> {decimals(100 * one.after)}"
        for one in verdict.pooled
        if one.part == "all"
    ]
    against = "" if verdict.against is None else f" against version {verdict.against}"
    lines.append(
        f"the gate passed it{against}: nothing lost more than {points(verdict.allow)} beyond chance"
        if verdict.passed
        else f"the gate refused it{against}: more than {points(verdict.allow)} lost on {'; '.join(verdict.reasons)}"
    )
    return lines


Scores = Mapping[str, NDArray[Any]]
Aucs = Mapping[str, Interval]
"""Label to AUC, in points, with the ends of its change against the first run, if they are known."""


def measured_aucs(folders: Sequence[Path]) -> PrintedTable:
    """Return the AUCs that each run measured of its own labels on its own test rows."""
    found = []
    for result in map(read_result, folders):
        pairs = zip(result.classes, result.per_class[-1].tolist(), strict=True)
        found.append({name: Interval(value, math.nan, math.nan, 0.95) for name, value in pairs})
    note = "each label on the test rows of its tasks; --on STORE measures all on the same rows"
    return _label_table(folders, found, note)


def aucs_on(folders: Sequence[Path], store: str) -> PrintedTable:
    """Return the AUC of every label of a store that a run knows, on the test rows of the store."""
    data = load_dataset(store)
    found: list[Aucs] = []
    first: Scores = {}
    for folder in folders:
        trained = load_trained(folder, current=False)
        check_inputs(trained, data, store)
        names = [name for name in data.classes if name in trained.classes]
        if not names:
            raise InputError(f"{store} has no label that {folder} knows.")
        scores = trained.logits(data.test.inputs)
        own = {name: scores[:, trained.classes.index(name)] for name in names}
        first = first or own
        common = [name for name in names if name in first]
        alone = [name for name in names if name not in first]
        found.append(_aucs(data, common, first, own) | _aucs(data, alone, own, own))
    return _label_table(folders, found, f"on {len(data.test)} test rows of {store}")


def _aucs(data: Dataset, names: Sequence[str], before: Scores, after: Scores) -> dict[str, Interval]:
    if not names:
        return {}
    columns = np.array([data.classes.index(name) for name in names])
    old, new = (np.stack([side[name] for name in names], axis=1) for side in (before, after))
    changes = auc_changes(old, new, **data.test.cells(np.arange(len(data.test)), columns))
    hidden = math.nan if before is after else 0.0
    low, high = (100 * end + hidden for end in (changes.low, changes.high))
    rows = zip(names, (100 * changes.after).tolist(), low.tolist(), high.tolist(), strict=True)
    return {name: Interval(auc, start, end, changes.level) for name, auc, start, end in rows}


def _label_table(folders: Sequence[Path], found: Sequence[Aucs], note: str) -> PrintedTable:
    """Return labels by runs, with the mean over the labels that all runs know, and over each run's own."""
    names = dict.fromkeys(name for values in found for name in values)
    rows = [[name, *(_cell(values.get(name)) for values in found)] for name in names]
    common = [name for name in names if all(name in values for values in found)]
    rows.append([f"mean of the {len(common)} labels of all", *(_mean(values, common) for values in found)])
    rows.append(["mean of its labels", *(_mean(values, values) for values in found)])
    heads = ("label", *map(str, folders))
    return PrintedTable(f"AUC in points, {note}", heads, rows, left=heads[:1], below=2)


def _cell(found: Interval | None) -> str:
    if found is None:
        return ""
    ends = "" if math.isnan(found.low) else f" ({signed(found.low)} to {signed(found.high)})"
    return decimals(found.estimate) + ends


def _mean(values: Aucs, names: Iterable[str]) -> str:
    return decimals(mean_defined(np.array([values[name].estimate for name in names])))
