"""``sweep.yaml``: what a sweep was, so that its table can be made again and its numbers can be cited."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from mlcl.config.resolve import Layer
from mlcl.errors import InputError
from mlcl.files import read_bounded
from mlcl.runs.folder import read_environment
from mlcl.sweeps.experiment import FIGURES, METRICS, Experiment, Row
from mlcl.sweeps.work import Finished

FILE = "sweep.yaml"
_MAX_BYTES = 16 << 20


@dataclass(frozen=True)
class SweepRecord:
    """What ``sweep.yaml`` holds.

    Attributes:
        table: name of the experiment.
        title: what stands above the table.
        claim: what the paper says.
        benchmark: name of the benchmark.
        command: what was typed.
        seeds: number of seeds.
        metric: what rows are judged by.
        figure: how it is drawn.
        axis: name of the axis, or empty.
        rows: the rows, without their settings, which the runs have.
        runs: label, seed and folder (inside the sweep's) of each finished run.
        failed: label, seed and error of each run that failed.
        machine: where the table was made: commit, platform, cores, versions.
        commits: the commits that made the runs.
        settings: what was set over all rows.
    """

    table: str
    title: str
    claim: str
    benchmark: str
    command: str
    seeds: int
    metric: str
    figure: str
    axis: str
    rows: tuple[Row, ...]
    runs: tuple[tuple[str, int, str], ...]
    failed: tuple[tuple[str, int, str], ...] = ()
    machine: Mapping[str, Any] = field(default_factory=dict)
    commits: tuple[str, ...] = ()
    settings: Layer = field(default_factory=dict)


def make_record(
    experiment: Experiment,
    rows: Sequence[Row],
    ends: Sequence[Finished],
    *,
    out: Path,
    arguments: Sequence[str],
    seeds: int,
    given: Layer,
) -> SweepRecord:
    """Describe a sweep that has come to its end."""
    done = [end.run for end in ends if end.result is not None]
    made = [_environment(run.folder) for run in done]
    return SweepRecord(
        table=experiment.name,
        title=experiment.title,
        claim=experiment.claim,
        benchmark=ends[0].run.config.benchmark,
        command=shlex.join(["mlcl", "reproduce", *arguments]),
        seeds=seeds,
        metric=experiment.metric,
        figure=experiment.figure,
        axis=experiment.axis.name if experiment.axis else "",
        rows=tuple(rows),
        runs=tuple((run.label, run.seed, run.folder.relative_to(out).as_posix()) for run in done),
        failed=tuple((end.run.label, end.run.seed, end.error) for end in ends if end.result is None),
        machine=_machine(),
        commits=tuple(sorted({str(found["commit"]) for found in made if found.get("commit")})),
        settings=given,
    )


def write_record(record: SweepRecord, out: Path) -> None:
    """Write ``sweep.yaml``."""
    from mlcl.files import write_text

    rows = [
        {
            "label": row.label,
            "series": row.series,
            "x": row.x,
            "reference": row.reference,
            "published": dict(row.published),
        }
        for row in record.rows
    ]
    content = {
        "table": record.table,
        "title": record.title,
        "claim": record.claim,
        "benchmark": record.benchmark,
        "command": record.command,
        "seeds": record.seeds,
        "settings": dict(record.settings),
        "metric": record.metric,
        "figure": record.figure,
        "axis": record.axis,
        "machine": dict(record.machine),
        "commits": list(record.commits),
        "rows": [{key: value for key, value in row.items() if value not in (None, {})} for row in rows],
        "runs": [{"label": label, "seed": seed, "folder": folder} for label, seed, folder in record.runs],
        "failed": [{"label": label, "seed": seed, "error": error} for label, seed, error in record.failed],
    }
    write_text(out / FILE, yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110))


def read_record(folder: Path) -> SweepRecord:
    """Read ``sweep.yaml``; anything missing or wrong is an `InputError` of one sentence."""
    path = folder / FILE
    text = read_bounded(path, limit=_MAX_BYTES, expected="the record of a sweep")
    try:
        content = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise InputError(f"{path}: not valid YAML: {' '.join(str(error).split())[:200]}.") from None
    try:
        rows = tuple(_row(row) for row in content["rows"])
        labels = {row.label for row in rows}
        record = SweepRecord(
            **{
                name: str(content[name])
                for name in ("table", "title", "claim", "benchmark", "command", "axis")
            },
            seeds=int(content["seeds"]),
            metric=_one_of(content["metric"], METRICS),
            figure=_one_of(content["figure"], FIGURES),
            rows=rows,
            runs=tuple((str(r["label"]), int(r["seed"]), _inside(r["folder"])) for r in content["runs"]),
            failed=tuple((str(r["label"]), int(r["seed"]), str(r["error"])) for r in content["failed"]),
            machine=dict(content["machine"]),
            commits=tuple(str(commit) for commit in content["commits"]),
            settings=dict(content["settings"]),
        )
        if unknown := ({run[0] for run in record.runs} | {row.reference for row in rows}) - labels:
            raise ValueError(f"{min(unknown)!r} is no row")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path}: no record of a sweep: {' '.join(str(error).split())[:200]}.") from None
    return record


def _row(content: Any) -> Row:
    published = {
        _one_of(metric, METRICS): float(value) for metric, value in content.get("published", {}).items()
    }
    x = content.get("x")
    if x is not None and not isinstance(x, str | int | float):
        raise ValueError(f"x is {x!r}")
    return Row(str(content["label"]), {}, str(content["series"]), x, str(content["reference"]), published)


def _one_of(value: Any, known: Sequence[str]) -> str:
    if value not in known:
        raise ValueError(f"{value!r} is none of {', '.join(known)}")
    return str(value)


def _inside(folder: Any) -> str:
    """Refuse folders outside the sweep's own."""
    path = Path(str(folder))
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"folder {str(folder)!r} is outside the sweep")
    return path.as_posix()


def _environment(folder: Path) -> Mapping[str, Any]:
    try:
        return read_environment(folder)
    except InputError:
        return {}


def _machine() -> dict[str, Any]:
    """Return what a number in the documentation is cited with."""
    import importlib.metadata as metadata
    import os
    import platform

    from mlcl.runs.environment import source_commit

    packages = ("mlcl", "torch", "numpy", "scikit-learn", "lightning-fabric", "matplotlib")
    return {
        "commit": source_commit(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "versions": {"python": platform.python_version()}
        | {name: metadata.version(name) for name in packages},
    }
