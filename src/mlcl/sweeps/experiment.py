"""An experiment describes a table in a YAML file: rows are choices of settings, optionally repeated along an axis.

`Experiment` is the content of the file; `Experiment.rows_on` makes the rows of the table on one benchmark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlcl.config.resolve import Layer, checked, merge, read_text, resolve, shipped
from mlcl.config.schema import Config
from mlcl.config.values import load_yaml
from mlcl.errors import InputError, check_choice, nearest
from mlcl.files import slug
from mlcl.methods.presets import PRESETS

SESSION_METRICS = (
    *("map_avg", "map_last", "cf1_avg", "cf1_last", "of1_avg", "of1_last"),
    *("fpr_avg", "fpr_last", "map_forgetting"),
)
"""The field's: means over the sessions of class-incremental learning, and values after the last."""

METRICS = (
    *("macro_auc", "forgetting", "pooled_macro_auc", "pooled_map", "head", "medium", "tail"),
    *SESSION_METRICS,
)
"""The metrics that a table may show; ``metric`` of an experiment is the one that rows are compared by."""

LOWER_IS_BETTER = ("forgetting", "map_forgetting", "fpr_avg", "fpr_last")

FIGURES = ("points", "lines", "curves", "imbalance")
_FIELDS = ("title", "claim", "benchmark", "rows", "reference", "common", "metric", "figure", "axis")
_AXIS_FIELDS = ("setting", "name", "values", "benchmarks")

Value = str | int | float
Published = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Axis:
    """A setting that the rows are repeated along: its dotted name, such as ``memory.size``, its name in labels and
    figures, its values, and others for some benchmarks.
    """

    setting: str
    name: str
    values: tuple[Value, ...]
    benchmarks: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Series:
    """An entry of ``rows``, before the axis multiplies it.

    ``benchmarks`` are settings that override its own on some of them, ``published`` is what the paper reports:
    benchmark to metric to number.
    """

    label: str
    settings: Layer
    benchmarks: Mapping[str, Layer] = field(default_factory=dict)
    published: Published = field(default_factory=dict)


@dataclass(frozen=True)
class TableRow:
    """One row of a table.

    The rows of a ``series``, its label without the axis, are one line in a figure; ``x`` is its value on the axis, if
    there is one. It is compared with the row labelled ``reference``. ``published`` has the paper's numbers by metric.
    """

    label: str
    settings: Layer
    series: str
    x: Value | None
    reference: str
    published: Mapping[str, float]


@dataclass(frozen=True)
class Experiment:
    """A table of the paper, or one of ours.

    Differences are taken against ``reference``: a series (then each row is compared with the row of that series at its
    own value of the axis) or one row. ``benchmark`` is what it runs on where no other is chosen.
    """

    name: str
    title: str
    claim: str
    series: tuple[Series, ...]
    reference: str
    metric: str = "macro_auc"
    figure: str = "points"
    axis: Axis | None = None
    benchmark: str = Config.benchmark

    def rows_on(self, benchmark: str) -> tuple[TableRow, ...]:
        """Return the rows on a benchmark, with the paper's numbers for it.

        >>> [(row.label, row.reference) for row in load_experiment("table3").rows_on("c-digits")][:3]
        [('er, M 50', 'er, M 50'), ('rldam-wru, M 50', 'er, M 50'), ('er, M 200', 'er, M 200')]
        """
        axis, values = self.axis, (None,)
        if axis is not None:
            values = of_benchmark(axis.benchmarks, benchmark, axis.values)
        one_each = axis is not None and self.reference in [one.label for one in self.series]
        rows = []
        for value in values:
            at = "" if axis is None else f", {axis.name} {value}"
            own = {} if axis is None else nested(axis.setting, value)
            for one in self.series:
                settings = merge(one.settings, of_benchmark(one.benchmarks, benchmark, {}), own)
                reference = self.reference + at * one_each
                published = _published(one.published, benchmark, value)
                rows.append(TableRow(one.label + at, settings, one.label, value, reference, published))
        if rows[0].reference not in [row.label for row in rows]:
            raise InputError(
                f"{self.name}: reference {self.reference!r} is not a row on {benchmark}; "
                f"rows are: {', '.join(row.label for row in rows)}."
            )
        return tuple(rows)


def nested(dotted: str, value: Any) -> Layer:
    """Return a setting as a layer."""
    section, _, name = dotted.rpartition(".")
    return {section: {name: value}} if section else {name: value}


def of_benchmark(table: Mapping[str, Any], benchmark: str, default: Any) -> Any:
    """Return the entry for a benchmark or the family that it belongs to, the longest name first."""
    found = [name for name in table if benchmark == name or benchmark.startswith(f"{name}-")]
    return table[max(found, key=len)] if found else default


def experiments() -> dict[str, str]:
    """Return the shipped experiments: name to YAML text."""
    return shipped("mlcl.sweeps", "experiments")


def load_experiment(name: str) -> Experiment:
    """Return a shipped experiment by name, or the one in a YAML file.

    >>> [row.label for row in load_experiment("core").rows_on("c-digits")]
    ['ft', 'ft-rldam', 'er', 'rldam-wru']
    """
    if name.endswith((".yaml", ".yml")):
        return parse_experiment(Path(name).stem, read_text(Path(name)), source=name)
    known = experiments()
    if name not in known:
        raise InputError(f"unknown table {name!r}; known are: {', '.join(known)}.{nearest(name, known)}")
    return parse_experiment(name, known[name], source=f"{name}.yaml")


def parse_experiment(name: str, text: str, *, source: str) -> Experiment:
    """Read an experiment from YAML; an error in it raises an `InputError` of one sentence that names ``source``."""
    content = load_yaml(text, source)
    if not isinstance(content, dict) or "rows" not in content:
        raise InputError(f"{source}: expected a mapping with a list of 'rows'.")
    _known(content, _FIELDS, source)
    axis = _axis(content.get("axis"), source)
    series = _series(content["rows"], _layer(content.get("common", {}), source, "common"), source)
    labels = [one.label for one in series]
    metric = check_choice(f"{source}: metric", content.get("metric", "macro_auc"), METRICS)
    figure = check_choice(f"{source}: figure", content.get("figure", "points"), FIGURES)
    reference = str(content.get("reference", labels[0]))
    if axis is None and reference not in labels:
        raise InputError(f"{source}: reference {reference!r} is not a row; rows are: {', '.join(labels)}.")
    if figure in ("lines", "imbalance") and axis is None:
        raise InputError(f"{source}: figure {figure!r} needs an 'axis'.")
    for one in series:
        if axis is not None and any(
            _has(own, axis.setting) for own in (one.settings, *one.benchmarks.values())
        ):
            raise InputError(f"{source}: row {one.label!r} sets {axis.setting}, which is the axis.")
    title, claim = str(content.get("title", name)), str(content.get("claim", ""))
    benchmark = _benchmark(content.get("benchmark", Config.benchmark), source)
    return Experiment(name, title, claim, series, reference, metric, figure, axis, benchmark)


def _benchmark(name: Any, source: str) -> str:
    """Check the benchmark of a table: the name of a shipped one, or the folder of a store."""
    if not isinstance(name, str):
        raise InputError(f"{source}: benchmark is {name!r}; expected the name of a benchmark.")
    if name != Config.benchmark:
        try:
            resolve(given={"benchmark": name})
        except InputError as error:
            raise InputError(f"{source}: {error}") from None
    return name


def _series(rows: Any, common: Layer, source: str) -> tuple[Series, ...]:
    if rows == "presets":  # every method; `replay` is a base for others, and the same as er
        rows = [{"label": name, "method": name} for name in PRESETS if name != "replay"]
    if not isinstance(rows, list) or not rows:
        raise InputError(f"{source}: rows is {rows!r}; expected a list of rows, or 'presets'.")
    found: dict[str, Series] = {}
    for number, entry in enumerate(rows):
        one = _entry(entry, number, common, source)
        if slug(one.label) in found:
            raise InputError(
                f"{source}: rows {found[slug(one.label)].label!r} and {one.label!r} have the same name."
            )
        found[slug(one.label)] = one
    return tuple(found.values())


def _entry(content: Any, number: int, common: Layer, source: str) -> Series:
    """Return one entry of ``rows``."""
    label = content.get("label") if isinstance(content, dict) else None
    if not isinstance(label, str) or not slug(label):
        raise InputError(f"{source}: row {number} has no 'label'.")
    own = {key: value for key, value in content.items() if key not in ("label", "published", "benchmarks")}
    place = f"row {label!r}"
    published, others = content.get("published", {}), content.get("benchmarks", {})
    _check_published(published, f"{source}: {place}")
    if not isinstance(others, dict):
        raise InputError(f"{source}: {place}: benchmarks is {others!r}; expected benchmarks with settings.")
    layers = {str(name): _layer(layer, source, f"{place} on {name}") for name, layer in others.items()}
    return Series(label, merge(common, _layer(own, source, place)), layers, published)


def _axis(content: Any, source: str) -> Axis | None:
    if content is None:
        return None
    if not isinstance(content, dict) or not isinstance(content.get("setting"), str):
        raise InputError(f"{source}: axis is {content!r}; expected a mapping with 'setting' and 'values'.")
    _known(content, _AXIS_FIELDS, f"{source}: axis")
    setting, others = content["setting"], content.get("benchmarks", {})
    if not isinstance(others, dict):
        raise InputError(
            f"{source}: axis.benchmarks is {others!r}; expected a mapping of benchmarks to lists."
        )
    lists = {str(name): _values(values, setting, source) for name, values in others.items()}
    values = _values(content.get("values"), setting, source)
    return Axis(setting, str(content.get("name", setting)), values, lists)


def _values(values: Any, setting: str, source: str) -> tuple[Value, ...]:
    if not isinstance(values, list) or not values or not all(isinstance(v, Value) for v in values):
        raise InputError(
            f"{source}: values of axis {setting!r} are {values!r}; expected a list of numbers or names."
        )
    if len({slug(str(value)) for value in values}) != len(values):
        raise InputError(f"{source}: values of axis {setting!r} are {values!r}; expected distinct values.")
    for value in values:
        _layer(nested(setting, value), source, "axis")
    return tuple(values)


def _layer(content: Any, source: str, place: str) -> Layer:
    if not isinstance(content, dict):
        raise InputError(f"{source}: {place} is {content!r}; expected a mapping of settings.")
    return checked(content, f"{source}: {place}")


def _known(content: Mapping[Any, Any], known: tuple[str, ...], source: str) -> None:
    for key in content:
        if key not in known:
            raise InputError(
                f"{source}: unknown field {key!r}; known are: {', '.join(known)}.{nearest(str(key), known)}"
            )


def _check_published(published: Any, source: str) -> None:
    """Check published numbers: benchmark family to metric to a number, or to numbers by value of the axis."""
    if not isinstance(published, dict) or not all(isinstance(found, dict) for found in published.values()):
        raise InputError(f"{source}: published is {published!r}; expected benchmarks with numbers.")
    for found in published.values():
        for metric, value in found.items():
            check_choice(f"{source}: published metric", metric, METRICS)
            for number in value.values() if isinstance(value, dict) else [value]:
                if isinstance(number, bool) or not isinstance(number, int | float):
                    raise InputError(f"{source}: published {metric} is {number!r}; expected a number.")


def _published(published: Published, benchmark: str, x: Value | None) -> dict[str, float]:
    found = of_benchmark(published, benchmark, {})
    values = {metric: value.get(x) if isinstance(value, dict) else value for metric, value in found.items()}
    return {metric: float(value) for metric, value in values.items() if value is not None}


def _has(settings: Layer, dotted: str) -> bool:
    section, _, name = dotted.rpartition(".")
    return name in (settings.get(section, {}) if section else settings)
