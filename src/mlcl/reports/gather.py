"""Read folders and group their runs: rows under labels, in sections of one benchmark each."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mlcl.config.schema import flat
from mlcl.errors import InputError
from mlcl.reports.records import Run, read_run
from mlcl.runs.folder import RESULT, has_result, is_run
from mlcl.sweeps.experiment import TableRow
from mlcl.sweeps.record import FILE, SweepRecord, read_record

Key = tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class RunGroup:
    """The runs of one row of a table: the same settings, one seed each."""

    row: TableRow
    runs: tuple[Run, ...]

    @property
    def label(self) -> str:
        """Return the row's label."""
        return self.row.label


@dataclass(frozen=True, eq=False)
class Section:
    """Runs that can be compared in one table: of one benchmark, with the same number of tasks.

    Of a sweep it has the record; ``metric`` is what rows are compared by, ``axis`` the name of their axis, or empty.
    """

    title: str
    benchmark: str
    groups: tuple[RunGroup, ...]
    metric: str = "macro_auc"
    figure: str = "points"
    axis: str = ""
    record: SweepRecord | None = field(default=None)

    @property
    def headline(self) -> str:
        """Return the heading: the title with the benchmark, or what was run on it.

        >>> Section("Table 1", "c-digits", ()).headline
        'Table 1 on c-digits'
        """
        if self.title != self.benchmark:
            return self.title if self.benchmark in self.title else f"{self.title} on {self.benchmark}"
        return f"{self.groups[0].label if len(self.groups) == 1 else 'Runs'} on {self.benchmark}"

    @property
    def runs(self) -> tuple[Run, ...]:
        """Return all runs, row by row."""
        return tuple(run for group in self.groups for run in group.runs)


def sections(folders: Sequence[Path]) -> list[Section]:
    """Read folders of runs, of sweeps, and of many runs: one section per sweep, and one per benchmark for the rest.

    A folder that cannot be read is left out with a warning; if nothing is left, that is an `InputError`.
    """
    found: list[Section] = []
    loose: list[Run] = []
    problems: list[str] = []
    for folder in folders:
        try:
            if (folder / FILE).is_file():
                found.append(_sweep(folder, problems))
            else:
                loose += _runs(folder, problems)
        except InputError as error:
            problems.append(str(error))
    by_key: dict[Key, list[Run]] = {}
    for run in loose:
        by_key.setdefault(comparable(run), []).append(run)
    for runs in by_key.values():
        groups = group([(run.method, run) for run in runs], problems)
        found.append(Section(_title(runs[0], by_key), runs[0].benchmark, groups))
    if not found:
        raise InputError(
            problems[0] if len(problems) == 1 else f"no finished run in {len(folders)} folders: {problems[0]}"
        )
    _warn(problems)
    return found


def one_table(found: Sequence[Section]) -> Section:
    """Join sections into one table; several benchmarks raise an `InputError`."""
    if len(found) == 1:
        return found[0]
    pairs = [(each.label, run) for section in found for each in section.groups for run in each.runs]
    first = pairs[0][1]
    for _, run in pairs:
        if comparable(run) != comparable(first):
            raise InputError(
                f"{first.folder} is of {_described(first)} and {run.folder} of {_described(run)}; "
                "expected runs of one benchmark for one table."
            )
    problems: list[str] = []
    groups = group(pairs, problems, reference=found[0].groups[0].row.reference)
    _warn(problems)
    return Section(first.benchmark, first.benchmark, groups)


def _warn(problems: Sequence[str]) -> None:
    for problem in problems:
        warnings.warn(problem, stacklevel=3)


def comparable(run: Run) -> Key:
    """Return what the runs of one table have in common: benchmark, data, tasks, and test or validation."""
    validate = bool(run.settings.get("validate"))
    # Validation splits depend on the seed, so each seed has a fingerprint of its own.
    return run.benchmark, validate, run.summary.tasks, len(run.classes), "" if validate else run.fingerprint


def group(
    pairs: Iterable[tuple[str, Run]], problems: list[str], *, reference: str | None = None
) -> tuple[RunGroup, ...]:
    """Group runs with the same label and the same settings (except for the seed) into rows.

    Rows that would have the same label are distinguished by the settings in which they differ. Each is compared with
    the row labelled ``reference``, or else with the first.
    """
    rows: dict[tuple[str, str], dict[int, Run]] = {}
    for label, run in pairs:
        kept = {key: value for key, value in run.settings.items() if key not in ("seed", "checkpoint")}
        runs = rows.setdefault((label, json.dumps(kept, sort_keys=True)), {})
        first = runs.setdefault(run.seed, run)
        if first.folder.resolve() != run.folder.resolve():
            problems.append(f"{run.folder} repeats {first.folder} (same settings and seed); it is left out.")
    settings = {key: flat(next(iter(runs.values())).settings) for key, runs in rows.items()}
    groups: list[RunGroup] = []
    for (label, own), runs in rows.items():
        others = differing([layer for (name, _), layer in settings.items() if name == label])
        values = {key.removesuffix(".kind"): settings[label, own].get(key, "default") for key in others}
        full = label + "".join(f", {key} {value}" for key, value in values.items())
        groups.append(
            RunGroup(TableRow(full, {}, label, None, full, {}), tuple(runs[seed] for seed in sorted(runs)))
        )
    labels = [each.label for each in groups]
    against = reference if reference in labels else labels[0]
    return tuple(replace(each, row=replace(each.row, reference=against)) for each in groups)


def differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the settings, except for the seed, that do not have the same value everywhere."""
    keys = sorted({key for layer in settings for key in layer} - {"seed"})
    return [key for key in keys if len({json.dumps(each.get(key), sort_keys=True) for each in settings}) > 1]


def _sweep(folder: Path, problems: list[str]) -> Section:
    record = read_record(folder)
    runs: dict[str, list[Run]] = {row.label: [] for row in record.rows}
    for label, seed, place in record.runs:
        run = _read(folder / place, problems)
        if run is None:
            continue
        if run.benchmark != record.benchmark or run.seed != seed:
            problems.append(
                f"{run.folder} is of {run.benchmark}, seed {run.seed}; expected {record.benchmark}, "
                f"seed {seed}; it is left out."
            )
            continue
        runs[label].append(run)
    groups = tuple(RunGroup(row, tuple(runs[row.label])) for row in record.rows if runs[row.label])
    if not groups:
        raise InputError(f"{folder}: the sweep has no finished run.")
    return Section(record.title, record.benchmark, groups, record.metric, record.figure, record.axis, record)


def _runs(folder: Path, problems: list[str]) -> list[Run]:
    if not folder.is_dir():
        raise InputError(
            f"{folder}: {'is a file' if folder.exists() else 'does not exist'}; expected a run's folder."
        )
    if has_result(folder):
        return [read_run(folder)]
    inner = sorted(path for path in folder.iterdir() if has_result(path))
    if not inner:
        what = "the run is not finished" if is_run(folder) else "no run and no sweep"
        raise InputError(f"{folder}: {what}; expected a folder with {RESULT} or {FILE}.")
    return [run for path in inner if (run := _read(path, problems)) is not None]


def _read(folder: Path, problems: list[str]) -> Run | None:
    """Return a run, or None with a line more of problems."""
    try:
        return read_run(folder)
    except InputError as error:
        problems.append(str(error))
        return None


def _described(run: Run) -> str:
    part = ", validation" if run.settings.get("validate") else ""
    return f"{run.benchmark} ({run.summary.tasks} tasks{part}, data {run.fingerprint or 'unknown'})"


def _title(run: Run, keys: Mapping[Key, Any]) -> str:
    """Return the name of the benchmark, with more detail where another section has the same name."""
    same = [key for key in keys if key[0] == run.benchmark]
    return run.benchmark if len(same) == 1 else _described(run)
