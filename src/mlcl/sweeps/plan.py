"""From an experiment to runs with stable names, and what is known of each from an earlier time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcl.config.parts import part_settings, used_plugins
from mlcl.config.resolve import Layer, merge, resolve
from mlcl.config.schema import PARTS, Config, flat, to_dict
from mlcl.errors import InputError, nearest
from mlcl.files import slug
from mlcl.plugins import Plugin
from mlcl.runs.folder import has_result, read_data_record, read_result_json
from mlcl.sweeps.experiment import Experiment, Row

# What makes a method: rows choose it, so it cannot be set over all of them.
_ROWS_OWN = (
    "method",
    "protocol",
    "seed",
    *(f"{p}.kind" for p in ("loss", "memory", "regulariser", "labels")),
    "model.head",
)


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """One run of an experiment, with a folder that is the same every time. Equal means identical."""

    label: str
    seed: int
    config: Config
    folder: Path
    track: tuple[str, ...] = ()
    plugins: tuple[Plugin, ...] = ()

    @property
    def name(self) -> str:
        """Return what the run is called in messages."""
        return f"{self.label}, seed {self.seed}"

    @property
    def error_file(self) -> Path:
        """Return where a failure is told in full."""
        return self.folder.with_name(f"{self.folder.name}.error.txt")


@dataclass(frozen=True)
class Earlier:
    """What a run's folder holds: the result of this very run, or why what is there is none.

    Attributes:
        result: the finished run's ``result.json``.
        other: the folder holds a finished run that differs; how.
        broken: the folder holds a result that cannot be read; why.
    """

    result: dict[str, Any] | None = None
    other: str = ""
    broken: str = ""


def plan_runs(
    experiment: Experiment, *, benchmark: str, seeds: int, out: Path, given: Layer | None = None
) -> tuple[tuple[Row, ...], list[PlannedRun]]:
    """Expand an experiment into rows and runs, seed by seed, so that the first seed's table is whole first.

    Every run has one CPU thread unless ``given`` says otherwise, so that numbers do not depend on the
    number of jobs.

    Args:
        experiment: the table.
        benchmark: a shipped benchmark's name or the folder of a store.
        seeds: number of seeds, from 0.
        out: folder of the sweep.
        given: settings that go over all rows (shorter training, say).
    """
    if seeds < 1:
        raise InputError(f"--seeds is {seeds}; expected at least 1.")
    given = given or {}
    name = resolve(given={"benchmark": benchmark}).benchmark
    rows = experiment.rows_on(name)
    _check_given(given, rows, experiment.name)
    fitting = [_fitting(given, row, benchmark) for row in rows]
    unused = set(flat(given)) - {key for layer in fitting for key in flat(layer)}
    if unused:
        raise InputError(f"--{min(unused)} is an option of no row of {experiment.name}.")
    runs = []
    for seed in range(seeds):
        for row, own in zip(rows, fitting, strict=True):
            fixed: Layer = {"benchmark": benchmark, "seed": seed, "train": {"threads": 1}}
            config = resolve(given=merge(fixed, row.settings, own))
            folder = out / "runs" / f"{slug(row.label)}-seed{seed}"
            runs.append(PlannedRun(row.label, seed, config, folder, plugins=used_plugins(config)))
    return rows, runs


def choose_rows(rows: Sequence[Row], names: Sequence[str]) -> set[str]:
    """Return the labels of the rows that are named, each by its label, with or without its value on the axis.

    >>> from mlcl.sweeps.experiment import load_experiment
    >>> rows = load_experiment("table3").rows_on("c-voc-small")
    >>> sorted(choose_rows(rows, ["er", "rldam-wru, M 500"]))
    ['er, M 200', 'er, M 2000', 'er, M 500', 'rldam-wru, M 500']
    """
    chosen: set[str] = set()
    for name in names:
        found = {row.label for row in rows if slug(name) in (slug(row.label), slug(row.series))}
        if not found:
            labels = [row.label for row in rows]
            raise InputError(
                f"--rows: no row {name!r}; rows are: {'; '.join(labels)}.{nearest(name, labels)}"
            )
        chosen |= found
    return chosen


def _check_given(given: Layer, rows: Sequence[Row], table: str) -> None:
    """Refuse to set what the rows differ in: all rows would become the same."""
    taken = {key for row in rows for key in flat(row.settings)} | set(_ROWS_OWN)
    for key in flat(given):
        if key in taken:
            hint = "; the number of seeds is set with --seeds" if key == "seed" else ""
            raise InputError(f"--{key} is what the rows of {table} choose; it cannot be set for all{hint}.")


def _fitting(given: Layer, row: Row, benchmark: str) -> Layer:
    """Return what fits a row of settings that go over all: ``--loss.margin`` means nothing to BCE."""
    plain = to_dict(resolve(given=merge({"benchmark": benchmark}, row.settings)))
    out = merge(given)
    for part in PARTS:
        if part in out:
            takes = part_settings(part, out[part].get("kind", plain[part]["kind"]))
            out[part] = {key: value for key, value in out[part].items() if key in takes}
    return out


def earlier(run: PlannedRun, fingerprint: str) -> Earlier:
    """Look at a run's folder: was this run, with these settings on these data, done before?

    Args:
        run: the planned run.
        fingerprint: of the data that the run would use now; the same settings on other data are another run.
    """
    if not has_result(run.folder):
        return Earlier()
    try:
        result = read_result_json(run.folder)
        data = read_data_record(run.folder)
    except InputError as error:
        return Earlier(broken=str(error))
    then = flat(
        merge(to_dict(Config()), result["config"])
    )  # settings that are newer than the run had their defaults
    now = flat(json.loads(json.dumps(to_dict(run.config))))
    for key in sorted({*then, *now}):
        if then.get(key) != now.get(key) and not key.startswith("checkpoint."):
            return Earlier(other=f"{key} is {_shown(then.get(key))} there and {_shown(now.get(key))} here")
    if data.get("fingerprint") != fingerprint:
        return Earlier(
            other=f"its data had the fingerprint {data.get('fingerprint')} and have {fingerprint} now"
        )
    return Earlier(result=result)


def _shown(value: Any) -> str:
    return "not set" if value is None else str(value)
