"""Expand an experiment into runs with stable folders, and find which of them were done before."""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcl.config.parts import part_settings, used_plugins
from mlcl.config.resolve import Layer, merge, resolve
from mlcl.config.schema import PARTS, Config, flat, from_dict, to_dict
from mlcl.config.unused import unused_settings
from mlcl.errors import InputError, nearest
from mlcl.files import refuse_link, slug
from mlcl.plugins import Plugin
from mlcl.runs.folder import has_result, read_environment, read_result_json
from mlcl.sweeps.experiment import Experiment, TableRow

# These settings define a method; rows choose them, so they cannot be set for all rows at once.
ROWS_OWN = (
    "method",
    "protocol",
    "seed",
    *(f"{p}.kind" for p in ("loss", "memory", "regulariser", "labels")),
    "model.head",
)

TUNING = "tuning"
"""Where in the folder of a sweep its tuning runs are."""


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """One run of an experiment; its folder is the same every time. Compared by identity.

    It logs to the trackers ``track``; a worker loads ``plugins`` before it runs. A run for ``tuning`` only measures a
    value of a setting: of its folder the record alone is kept, and that it diverges is a result.
    """

    label: str
    seed: int
    config: Config
    folder: Path
    track: tuple[str, ...] = ()
    plugins: tuple[Plugin, ...] = ()
    tuning: bool = False

    @property
    def name(self) -> str:
        """Return the name of the run in messages."""
        return f"{self.label}, seed {self.seed}"

    @property
    def error_file(self) -> Path:
        """Return the file that the traceback of a failure is written to."""
        return self.folder.with_name(f"{self.folder.name}.error.txt")


def refuse_linked_run(run: PlannedRun) -> None:
    """Refuse a run whose folder in that of the sweep, or the folder of all runs, is a link."""
    refuse_link(run.folder.parent)
    refuse_link(run.folder)


@dataclass(frozen=True)
class Earlier:
    """What the folder of a planned run holds from before: its ``result.json``, or how the finished run in it differs
    from the planned one, or why its result cannot be read; all are empty where there is none.
    """

    result: dict[str, Any] | None = None
    other: str = ""
    broken: str = ""


def plan_runs(
    experiment: Experiment, *, benchmark: str, seeds: int, out: Path, given: Layer | None = None
) -> tuple[tuple[TableRow, ...], list[PlannedRun]]:
    """Expand an experiment into rows and runs, seed by seed, so that all rows have their first seed early.

    Every run uses one CPU thread unless ``given`` sets another number, so that results do not depend on the number
    of jobs. Settings of ``given``, such as fewer epochs, override those of all rows.
    """
    if seeds < 1:
        raise InputError(f"--seeds is {seeds}; expected at least 1.")
    rows, layers = plan_rows(experiment, benchmark=benchmark, given=given)
    runs = make_runs(rows, layers, seeds=seeds, out=out)
    _warn_of_unused(given or {}, [run.config for run in runs], experiment.name)
    return rows, runs


def plan_rows(
    experiment: Experiment, *, benchmark: str, given: Layer | None = None
) -> tuple[tuple[TableRow, ...], list[Layer]]:
    """Expand an experiment into rows, and the settings of each row's runs except for the seed."""
    given = given or {}
    rows = experiment.rows_on(resolve(given={"benchmark": benchmark}).benchmark)
    _check_given(given, rows, experiment.name)
    fitting = [_fitting(given, row, benchmark) for row in rows]
    unused = set(flat(given)) - {key for layer in fitting for key in flat(layer)}
    if unused:
        raise InputError(f"--{min(unused)} is an option of no row of {experiment.name}.")
    fixed: Layer = {"benchmark": benchmark, "train": {"threads": 1}}
    return rows, [merge(fixed, row.settings, own) for row, own in zip(rows, fitting, strict=True)]


def make_runs(
    rows: Sequence[TableRow], layers: Sequence[Layer], *, seeds: int, out: Path
) -> list[PlannedRun]:
    """Return the runs of rows with these settings, seed by seed."""
    runs = []
    for seed in range(seeds):
        for row, layer in zip(rows, layers, strict=True):
            config = resolve(given=merge(layer, {"seed": seed}))
            folder = out / "runs" / f"{slug(row.label)}-seed{seed}"
            runs.append(PlannedRun(row.label, seed, config, folder, plugins=used_plugins(config)))
    return runs


def choose_rows(rows: Sequence[TableRow], names: Sequence[str]) -> set[str]:
    """Return the labels of the chosen rows, each named by its label, with or without its value on the axis."""
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


def _check_given(given: Layer, rows: Sequence[TableRow], table: str) -> None:
    """Refuse settings in which the rows differ: all rows would become the same."""
    taken = {key for row in rows for key in flat(row.settings)} | set(ROWS_OWN)
    for key in flat(given):
        if key in taken:
            hint = "; the number of seeds is set with --seeds" if key == "seed" else ""
            raise InputError(f"--{key} is what the rows of {table} choose; it cannot be set for all{hint}.")


def _warn_of_unused(given: Layer, configs: Sequence[Config], table: str) -> None:
    """Warn of settings for all rows that change none of them, such as ``--train.lr`` where no row is trained."""
    unused = [unused_settings(config) for config in configs]
    for key, value in flat(given).items():
        if all(key in reasons for reasons in unused):
            warnings.warn(
                f"{key} is {value!r}, which has no effect in any row of {table}: {unused[0][key]}",
                UserWarning,
                stacklevel=3,
            )


def _fitting(given: Layer, row: TableRow, benchmark: str) -> Layer:
    """Return the settings for all rows that this row takes: BCE has no ``--loss.margin``."""
    plain = to_dict(resolve(given=merge({"benchmark": benchmark}, row.settings)))
    out = merge(given)
    for part in PARTS:
        if part in out:
            takes = part_settings(part, out[part].get("kind", plain[part]["kind"]))
            out[part] = {key: value for key, value in out[part].items() if key in takes}
    return out


def earlier(run: PlannedRun, fingerprint: str) -> Earlier:
    """Find out whether a run with the same settings, plugins and data, of that fingerprint now, is in its folder."""
    if not has_result(run.folder):
        return Earlier()
    try:
        result = read_result_json(run.folder)
        environment = read_environment(run.folder)
    except InputError as error:
        return Earlier(broken=str(error))
    # Settings that are newer than the run had their defaults; those of a section that is in use are known to it alone.
    then = merge(to_dict(Config()), result["config"])
    with contextlib.suppress(InputError, TypeError):  # settings that there are no longer
        then = to_dict(from_dict(then))
    then, now = (flat(json.loads(json.dumps(one))) for one in (then, to_dict(run.config)))
    for key in sorted({*then, *now}):
        if then.get(key) != now.get(key) and not key.startswith("checkpoint."):
            return Earlier(other=f"{key} is {_shown(then.get(key))} there and {_shown(now.get(key))} here")
    data = environment.get("data")
    before = data.get("fingerprint") if isinstance(data, dict) else None
    if before != fingerprint:
        return Earlier(other=f"its data had the fingerprint {before}, now it is {fingerprint}")
    if changed := _changed_plugin(environment.get("plugins"), run.plugins):
        return Earlier(other=changed)
    return Earlier(result=result)


def _changed_plugin(records: Any, plugins: Sequence[Plugin]) -> str:
    """Return which plugin had another content when the run was made; an empty string if none had."""
    then = [record.get("sha256") for record in records or () if isinstance(record, dict)]
    changed = [plugin.source for plugin in plugins if plugin.sha256 not in then]
    return f"the plugin {changed[0]} has changed since" if changed else ""


def _shown(value: Any) -> str:
    return "not set" if value is None else str(value)
