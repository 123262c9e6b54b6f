"""Complete a committed table with runs of other committed tables: run folders are not committed, their numbers are.

    python tools/join.py results/TABLE-BENCHMARK OTHER [OTHER ...]

The first folder gives the title, the command and the settings; its rows are today's of the experiment. Runs that it
does not have are taken from the other folders, by label and seed, the first that has them. Files of all folders are
``sweep.yaml``, ``runs.csv`` and ``classes.csv``. Other data, other settings than those of the first folder's command,
a table of validation rows beside one of test rows, and a row whose runs have other settings (their hash in
``runs.csv``) are refused. Older tables have no hash, and settings may mean something else to other code: there a
warning names the row, and whether it is the same is for the one who joins to know.
"""

from __future__ import annotations

import argparse
import csv
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from mlcl.errors import InputError
from mlcl.files import write_bytes, write_text
from mlcl.reports.drawing import to_file
from mlcl.reports.figures import table_figure
from mlcl.reports.gather import RunGroup, Section
from mlcl.reports.records import Run
from mlcl.reports.tables import NAMES, runs_csv, table_csv, table_lines, table_markdown
from mlcl.sweeps import load_experiment
from mlcl.sweeps.record import SweepRecord, read_record, write_record

Place = tuple[str, int]
"""Label and seed of a run."""


@dataclass(frozen=True)
class KeptRun:
    """What ``runs.csv`` keeps of a run: as much as a table needs."""

    label: str
    seed: int
    values: dict[str, float]
    version: str
    settings_hash: str
    commit: str
    fingerprint: str
    folder: Path
    settings: dict[str, Any]


def read_runs(folder: Path, record: SweepRecord) -> dict[Place, KeptRun]:
    """Return the runs of a committed table."""
    found = {}
    for line in _lines(folder / "runs.csv"):
        values = {name: float(line.get(name) or "nan") for name in NAMES}
        run = KeptRun(
            label=line["label"],
            seed=int(line["seed"]),
            values=values,
            version=line.get("version") or "",
            settings_hash=line.get("settings") or "",
            commit=line["commit"],
            fingerprint=line["fingerprint"],
            folder=Path(line["folder"]),
            settings={"validate": bool(record.settings.get("validate"))},
        )
        found[run.label, run.seed] = run
    return found


def join(first: Path, others: Sequence[Path], *, made_again: bool = False) -> list[Place]:
    """Write the joined table into the first folder and return which runs were taken from the others.

    Args:
        first: the table to complete.
        others: where to take missing runs from.
        made_again: take runs whose data have another fingerprint, too.
    """
    record = read_record(first)
    runs, classes = read_runs(first, record), _classes(first)
    rows = load_experiment(record.table).rows_on(record.benchmark)
    labels = {row.label for row in rows}
    taken, commits = [], set(record.commits)
    for folder in others:
        other = read_record(folder)
        _check(first, record, folder, other)
        for place, run in read_runs(folder, other).items():
            if place not in runs and run.label in labels:
                if not made_again:
                    _check_data(first, runs, folder, run)
                _check_settings(runs, folder, run)
                runs[place] = run
                classes |= {place: _classes(folder).get(place, [])}
                taken.append(place)
                commits.add(run.commit)
    for label in dict.fromkeys(label for label, _ in taken):
        for doubt in doubts(label, [run for run in runs.values() if run.label == label]):
            warnings.warn(doubt, UserWarning, stacklevel=2)
    groups = [
        RunGroup(row, tuple(cast(Run, runs[place]) for place in sorted(runs) if place[0] == row.label))
        for row in rows
    ]
    section = Section(
        record.title,
        record.benchmark,
        tuple(group for group in groups if group.runs),
        record.metric,
        record.figure,
        record.axis,
        record,
    )
    kept = [run for group in section.groups for run in group.runs]
    places = [(group.label, run.seed) for group in section.groups for run in group.runs]
    record = replace(
        record,
        rows=rows,
        seeds=max(run.seed for run in kept) + 1,
        runs=tuple((label, seed, runs[label, seed].folder.as_posix()) for label, seed in places),
        commits=tuple(sorted(commits)),
    )
    lines = table_lines(section)
    write_record(record, first)
    write_text(first / "table.csv", table_csv(section, lines))
    write_text(first / "runs.csv", runs_csv(section))
    write_text(first / "table.md", table_markdown(section, lines))
    heads = "label,seed,class,task,positive,auc\n"
    write_text(
        first / "classes.csv", heads + "".join(text for place in places for text in classes.get(place, []))
    )
    write_bytes(first / "figure.svg", to_file(table_figure(section, lines), "svg"))
    return taken


def _check(first: Path, record: SweepRecord, folder: Path, other: SweepRecord) -> None:
    for name in ("benchmark", "settings"):
        ours, theirs = getattr(record, name), getattr(other, name)
        if ours != theirs:
            raise InputError(f"{folder} has {name} {theirs!r}; expected {ours!r}, as {first}.")


def _check_data(first: Path, runs: dict[Place, KeptRun], folder: Path, run: KeptRun) -> None:
    known = {one.fingerprint for one in runs.values() if not one.settings["validate"] and one.fingerprint}
    if known and run.fingerprint and not run.settings["validate"] and run.fingerprint not in known:
        raise InputError(f"{folder}: {run.label}, seed {run.seed} is of other data than {first}.")


def _check_settings(runs: dict[Place, KeptRun], folder: Path, run: KeptRun) -> None:
    """Refuse a run of other settings than those of its row, where both are recorded."""
    known = {one.settings_hash for one in runs.values() if one.label == run.label and one.settings_hash}
    if known and run.settings_hash and run.settings_hash not in known:
        raise InputError(
            f"{folder / 'runs.csv'}: {run.label}, seed {run.seed} has settings {run.settings_hash}; expected "
            f"{min(known)}, as the other runs of its row."
        )


def doubts(label: str, row: Sequence[KeptRun]) -> Iterator[str]:
    """Yield why the runs of a row may not be of the same settings and code."""
    if missing := sum(not run.settings_hash for run in row):
        yield f"{label}: {missing} of {len(row)} runs have no hash of their settings, which were not compared"
    for what in ("version", "commit"):
        found = sorted({getattr(run, what) for run in row} - {""})
        if len(found) > 1:
            yield f"{label}: its runs are of several {what}s: {', '.join(found)}"


def _lines(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _classes(folder: Path) -> dict[Place, list[str]]:
    """Return the lines of ``classes.csv`` by run, as text; older tables have none."""
    path = folder / "classes.csv"
    found: dict[Place, list[str]] = {}
    if path.is_file():
        with path.open(newline="") as file:
            for row in list(csv.reader(file))[1:]:
                found.setdefault((row[0], int(row[1])), []).append(_text(row))
    return found


def _text(row: Sequence[str]) -> str:
    quoted = [f'"{cell}"' if "," in cell else cell for cell in row]
    return ",".join(quoted) + "\n"


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("first", type=Path, help="the table to complete")
    parser.add_argument("others", type=Path, nargs="+", help="where to take missing runs from")
    parser.add_argument(
        "--made-again",
        action="store_true",
        help="also where fingerprints differ: the same data, made again on another machine (runs.csv shows them)",
    )
    given = parser.parse_args()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            taken = join(given.first, given.others, made_again=given.made_again)
    except InputError as error:
        sys.stderr.write(f"join: {error}\n")
        return 2
    for one in caught:
        sys.stderr.write(f"join: warning: {one.message}\n")
    for label, seed in taken:
        sys.stdout.write(f"taken: {label}, seed {seed}\n")
    sys.stdout.write(f"{given.first}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
