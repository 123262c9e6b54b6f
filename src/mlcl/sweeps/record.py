"""``sweep.yaml``: the record of a sweep, from which its table can be made again and its numbers be cited."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from mlcl.config.resolve import Layer
from mlcl.config.schema import flat
from mlcl.config.values import load_yaml
from mlcl.errors import InputError, check_choice, one_line
from mlcl.files import read_bounded, write_text
from mlcl.runs.environment import machine_record
from mlcl.runs.folder import read_environment
from mlcl.sweeps.experiment import FIGURES, METRICS, Experiment, TableRow
from mlcl.sweeps.sweep import Finished

FILE = "sweep.yaml"
_MAX_BYTES = 16 << 20
_OF_ONE_RUN = ("seed", "data", "train.in_memory")
"""Settings in which the runs of a row may differ."""


@dataclass(frozen=True)
class TuningRecord:
    """How settings of rows were chosen: by which metric on validation rows, at which seeds, and what for each row.

    A row that has none of the settings has an empty entry in ``chosen``.
    """

    settings: tuple[str, ...]
    metric: str
    seeds: tuple[int, ...]
    chosen: Mapping[str, Mapping[str, str | int | float]]


@dataclass(frozen=True, kw_only=True)
class SweepRecord:
    """The content of ``sweep.yaml``, in its order.

    Attributes:
        table: name of the experiment; title, claim, metric, figure and the name of the axis (or "") are its own.
        benchmark: name of the benchmark.
        command: the command line.
        seeds: number of seeds.
        settings: the settings that override those of all rows.
        tuning: how settings of the rows were chosen, if they were.
        machine: what made the table: commit, platform, cores, versions.
        commits: the commits that made the runs.
        rows: the rows, without their settings, which are in the run folders.
        runs: label, seed and folder (inside the sweep's) of each finished run.
        failed: label, seed and error of each run that failed.
    """

    table: str
    title: str
    claim: str
    benchmark: str
    command: str
    seeds: int
    settings: Layer = field(default_factory=dict)
    tuning: TuningRecord | None = None
    metric: str
    figure: str
    axis: str
    machine: Mapping[str, Any] = field(default_factory=dict)
    commits: tuple[str, ...] = ()
    rows: tuple[TableRow, ...]
    runs: tuple[tuple[str, int, str], ...]
    failed: tuple[tuple[str, int, str], ...] = ()


def settings_hash(settings: Mapping[str, Any]) -> str:
    """Return 12 hexadecimal digits of a SHA-256 over the resolved settings of a run: the same for all runs of a row.

    The seed does not count, nor does what may change in a run that is resumed: where the data are (``runs.csv`` has
    their fingerprint), whether they are copied into memory, and checkpoints. That a setting means the same to other
    code is not known by it.

    >>> settings_hash({"seed": 0, "data": "/a", "memory": {"size": 5}})
    '9538a17ff4f0'
    >>> settings_hash({"memory": {"size": 5.0}, "seed": 1, "data": "/b"})
    '9538a17ff4f0'
    """
    kept = {
        name: _plain_number(value)
        for name, value in flat(settings).items()
        if name not in _OF_ONE_RUN and not name.startswith("checkpoint.")
    }
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:12]


def _plain_number(value: Any) -> Any:
    """Return whole numbers as floats: 1 and 1.0 are the same setting."""
    if isinstance(value, list | tuple):
        return [_plain_number(one) for one in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def make_record(
    experiment: Experiment,
    rows: Sequence[TableRow],
    ends: Sequence[Finished],
    *,
    out: Path,
    arguments: Sequence[str],
    seeds: int,
    given: Layer,
    tuning: TuningRecord | None = None,
) -> SweepRecord:
    """Describe a sweep that has ended; the command line comes without ``--plugin``, which the runs know."""
    done = [end.run for end in ends if end.result is not None]
    return SweepRecord(
        table=experiment.name,
        title=experiment.title,
        claim=experiment.claim,
        benchmark=ends[0].run.config.benchmark,
        command=_command(arguments, ends),
        seeds=seeds,
        metric=experiment.metric,
        figure=experiment.figure,
        axis=experiment.axis.name if experiment.axis else "",
        rows=tuple(rows),
        runs=tuple((run.label, run.seed, run.folder.relative_to(out).as_posix()) for run in done),
        failed=tuple((end.run.label, end.run.seed, end.error) for end in ends if end.result is None),
        machine=_machine(),
        commits=tuple(sorted({commit for run in done if (commit := _commit(run.folder))})),
        settings=given,
        tuning=tuning,
    )


def _command(arguments: Sequence[str], ends: Sequence[Finished]) -> str:
    """Return the whole command line, with the plugins that its runs use."""
    sources = dict.fromkeys(plugin.source for end in ends for plugin in end.run.plugins)
    options = [word for source in sources for word in ("--plugin", source)]
    return shlex.join(["mlcl", "reproduce", *arguments, *options])


def write_record(record: SweepRecord, out: Path) -> None:
    """Write ``sweep.yaml``."""
    content = asdict(record)
    if record.tuning is None:
        del content["tuning"]
    for row in content["rows"]:
        del row["settings"]
    content["rows"] = [{k: v for k, v in row.items() if v not in (None, {})} for row in content["rows"]]
    for name, last in (("runs", "folder"), ("failed", "error")):
        content[name] = [dict(zip(("label", "seed", last), run, strict=True)) for run in content[name]]
    write_text(out / FILE, yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110))


def _tuning(content: Any) -> TuningRecord:
    return TuningRecord(
        settings=tuple(str(name) for name in content["settings"]),
        metric=check_choice("tuning metric", content["metric"], METRICS),
        seeds=tuple(int(seed) for seed in content["seeds"]),
        chosen={
            str(label): {str(name): _tuned_value(value) for name, value in values.items()}
            for label, values in content["chosen"].items()
        },
    )


def _tuned_value(value: Any) -> str | int | float:
    if not isinstance(value, str | int | float):
        raise InputError(f"a chosen value is {str(value)[:40]!r}; expected a number or a name")
    return value


def read_record(folder: Path) -> SweepRecord:
    """Read ``sweep.yaml``; missing or wrong content raises an `InputError` of one sentence."""
    path = folder / FILE
    content = load_yaml(read_bounded(path, limit=_MAX_BYTES, expected="the record of a sweep"), str(path))
    try:
        record = _parse(content)
        labels = {row.label for row in record.rows}
        named = {label for label, _, _ in record.runs} | {row.reference for row in record.rows}
        if unknown := named - labels:
            raise InputError(f"{min(unknown)!r} is not a row")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path} is not the record of a sweep: {one_line(error)}.") from None
    return record


def _parse(content: Any) -> SweepRecord:
    texts = ("table", "title", "claim", "benchmark", "command", "axis")
    return SweepRecord(
        **{name: str(content[name]) for name in texts},
        seeds=int(content["seeds"]),
        metric=check_choice("metric", content["metric"], METRICS),
        figure=check_choice("figure", content["figure"], FIGURES),
        rows=tuple(_row(row) for row in content["rows"]),
        runs=tuple((str(r["label"]), int(r["seed"]), _inside(r["folder"])) for r in content["runs"]),
        failed=tuple((str(r["label"]), int(r["seed"]), str(r["error"])) for r in content["failed"]),
        machine=dict(content["machine"]),
        commits=tuple(str(commit) for commit in content["commits"]),
        settings=dict(content["settings"]),
        tuning=_tuning(content["tuning"]) if "tuning" in content else None,
    )


def _row(content: Any) -> TableRow:
    found = content.get("published", {})
    published = {check_choice("published metric", key, METRICS): float(value) for key, value in found.items()}
    x = content.get("x")
    if x is not None and not isinstance(x, str | int | float):
        raise InputError(f"x is {x!r}; expected a number or a name")
    return TableRow(
        str(content["label"]), {}, str(content["series"]), x, str(content["reference"]), published
    )


def _inside(folder: Any) -> str:
    """Refuse a folder outside that of the sweep."""
    path = Path(str(folder))
    if path.is_absolute() or ".." in path.parts:
        raise InputError(f"folder {str(folder)!r} is outside the sweep")
    return path.as_posix()


def _commit(folder: Path) -> str:
    """Return the commit that made a run, or an empty string."""
    with contextlib.suppress(InputError):
        return str(read_environment(folder).get("commit") or "")
    return ""


def _machine() -> dict[str, Any]:
    """Return the commit, platform, cores and versions, which are cited with the numbers."""
    record = machine_record()
    record["versions"] |= {"matplotlib": importlib.metadata.version("matplotlib")}
    return {name: record[name] for name in ("commit", "platform", "cores", "versions")}
