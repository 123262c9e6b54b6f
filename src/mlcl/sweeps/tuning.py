"""Tune settings row by row on validation rows, before the runs of a table: each row at its own best learning rate.

Rows of a table that differ in the scale of their loss cannot be compared at one learning rate. The runs that choose it
hold training rows out (``validate``), have seeds apart from those of the table, and never see a test row.

The search for a setting's best value is a pure function (`search`): which cells, each a value at a seed, are to be
measured next, and the choice. Values are tried at the first seed; those that are not far below the best one there are
tried at the other seeds; the best mean is chosen; and where it is at an end of the grid, the grid grows at that end.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from mlcl.config.parts import REGISTRIES, part_settings, used_plugins
from mlcl.config.resolve import Layer, checked, merge, resolve, settings
from mlcl.config.schema import PARTS, Config, flat, to_dict
from mlcl.config.unused import unused_settings
from mlcl.errors import InputError, nearest
from mlcl.files import write_text
from mlcl.registry import read_options
from mlcl.runs.folder import RESULT
from mlcl.runs.result import Result
from mlcl.sweeps.experiment import LOWER_IS_BETTER, METRICS, TableRow, Value, nested
from mlcl.sweeps.plan import ROWS_OWN, TUNING, PlannedRun
from mlcl.sweeps.record import settings_hash
from mlcl.sweeps.sweep import Finished
from mlcl.texts import csv_number, csv_text

FIRST_SEED = 1000
"""The first seed of tuning: the seeds of a table count from 0, so that none is used for both."""
ADAM_LR = 0.004
"""The middle of the grid for Adam, whose steps do not scale with the loss, where no rate was set for it."""
FILE = "tuning.csv"

Score = Callable[[Value, int], float | None]
"""What a value gives at a seed: more is better, nan where training diverged, None if it is not known yet."""

FACTOR = 2.0
STEPS = (-3, -2, -1, 0, 1, 2)
"""The default grid: these powers of the factor, times the value that the row has without tuning."""
HOPELESS = 5.0
"""Points below the best value at the first seed from which on a value is not tried at the other seeds."""


@dataclass(frozen=True)
class Rule:
    """How values are compared: each at the first seed, those that are not hopeless at the others, too.

    At each end of the grid ``extend`` values may be added.
    """

    seeds: tuple[int, ...]
    extend: int = 4


@dataclass(frozen=True)
class Found:
    """How far a search is: the grid as far as it has grown, the cells to measure next, and at the end the choice.

    Nothing is chosen where every value diverged.
    """

    values: tuple[Value, ...]
    missing: tuple[tuple[Value, int], ...] = ()
    best: Value | None = None


def default_grid(value: object) -> tuple[Value, ...]:
    """Return the default grid around a value; whole numbers stay whole. There is none unless it is a number above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        return ()
    values = [value * FACTOR**step for step in STEPS]
    return tuple(dict.fromkeys(round(v) for v in values if v >= 1)) if isinstance(value, int) else (*values,)


def search(
    values: Sequence[Value],
    score: Score,
    rule: Rule,
    *,
    home: Value | None = None,
    allowed: Callable[[Value], bool] = lambda _: True,
) -> Found:
    """Return what to measure next, or the choice; it depends on nothing but the scores.

    Args:
        values: the grid to begin with, in order.
        score: what is known.
        rule: seeds and bounds.
        home: the value without tuning; of equally good values the nearest to it in the grid is chosen.
        allowed: whether the grid may grow to a value.
    """
    grid, left = list(values), {0: rule.extend, -1: rule.extend}
    while True:
        if missing := _missing(grid, score, rule):
            return Found(tuple(grid), missing)
        best = _best(grid, score, rule, home)
        end = 0 if best in (None, grid[0]) else -1  # what diverges everywhere is tried lower
        more = beyond(grid, end) if left[end] and best in (None, grid[end]) else None
        if more is None or not allowed(more):
            return Found(tuple(grid), (), best)
        grid.insert(0 if end == 0 else len(grid), more)
        left[end] -= 1


def beyond(grid: Sequence[Value], end: int) -> Value | None:
    """Return the value that continues a grid at an end (0 or -1) by the ratio that it has there; None if none does."""
    edge, inner = (
        (grid[0], grid[1]) if end == 0 and len(grid) > 1 else (grid[-1], grid[max(len(grid) - 2, 0)])
    )
    if isinstance(edge, str) or isinstance(inner, str) or edge == inner or edge <= 0 or inner <= 0:
        return None
    value = float(f"{edge * edge / inner:.6g}")
    if not all(isinstance(one, int) for one in grid):
        return value
    whole = round(value) if round(value) != edge else edge + (1 if edge > inner else -1)
    return whole if whole >= 1 else None


def _missing(grid: Sequence[Value], score: Score, rule: Rule) -> tuple[tuple[Value, int], ...]:
    """Return the cells to measure next: at the first seed, and when all of these are known, at the others."""
    first = tuple((value, rule.seeds[0]) for value in grid if score(value, rule.seeds[0]) is None)
    promising = [] if first else _promising(grid, score, rule)
    return first or tuple(
        (value, seed) for seed in rule.seeds[1:] for value in promising if score(value, seed) is None
    )


def _promising(grid: Sequence[Value], score: Score, rule: Rule) -> list[Value]:
    """Return the values that are not far below the best one at the first seed."""
    points = {value: _points(score(value, rule.seeds[0])) for value in grid}
    top = max(points.values())
    return [value for value in grid if math.isfinite(points[value]) and points[value] >= top - HOPELESS]


def _best(grid: Sequence[Value], score: Score, rule: Rule, home: Value | None) -> Value | None:
    """Return the value with the best mean over all seeds; one that diverges at any of them is worst."""
    means = {
        value: fmean(_points(score(value, seed)) for seed in rule.seeds)
        for value in _promising(grid, score, rule)
    }
    known = [value for value, mean in means.items() if math.isfinite(mean)]
    near = grid.index(home) if home in grid else len(grid) // 2
    return max(known, key=lambda value: (means[value], -abs(grid.index(value) - near)), default=None)


def _points(score: float | None) -> float:
    return -math.inf if score is None or math.isnan(score) else score


Choice = dict[str, Value]
Execute = Callable[[list[PlannedRun], set[PlannedRun]], list[Finished]]


@dataclass(frozen=True)
class TuningPlan:
    """What ``--tune`` asks for: dotted names with the values to begin with, without values the default grid."""

    settings: Mapping[str, tuple[Value, ...]]
    metric: str
    rule: Rule

    @classmethod
    def parse(cls, text: str, *, metric: str, seeds: int, extend: int) -> TuningPlan:
        """Read ``NAME[=VALUE:VALUE...],...``.

        >>> TuningPlan.parse("train.lr,loss.margin=0.5:1", metric="macro_auc", seeds=2, extend=4).settings
        {'train.lr': (), 'loss.margin': (0.5, 1.0)}
        """
        if seeds < 1:
            raise InputError(f"--tune-seeds is {seeds}; expected at least 1.")
        if extend < 0:
            raise InputError(f"--tune-extend is {extend}; expected at least 0.")
        wanted = dict(_parsed(entry) for entry in text.split(","))
        return cls(wanted, metric, Rule(tuple(range(FIRST_SEED, FIRST_SEED + seeds)), extend))

    @property
    def sign(self) -> float:
        """Return what the metric is multiplied by, so that more is better."""
        return -1.0 if self.metric in LOWER_IS_BETTER else 1.0


def _parsed(entry: str) -> tuple[str, tuple[Value, ...]]:
    """Return name and values of one entry of ``--tune``."""
    name, equals, rest = entry.strip().partition("=")
    section, _, _ = name.partition(".")
    if name not in settings():
        raise InputError(f"--tune: unknown setting {name!r}.{nearest(name, settings())}")
    if "." not in name or section in ("stream", "checkpoint") or name in ROWS_OWN:
        raise InputError(
            f"--tune {name}: expected a setting of training or of a part, such as train.lr or loss.margin."
        )
    values = tuple(_value(name, word) for word in rest.split(":")) if equals else ()
    if len(set(values)) != len(values):
        raise InputError(f"--tune {name} has a value twice.")
    numbers = [value for value in values if not isinstance(value, str)]
    return name, tuple(sorted(numbers)) if len(numbers) == len(values) else values


def _value(name: str, word: str) -> Value:
    for kind in (int, float, str):
        try:
            value = kind(word)
            break
        except ValueError:
            continue
    found: Value = flat(checked(nested(name, value), "--tune"))[name]
    return found


@dataclass
class _Row:
    """A row that is being tuned: its settings, and what of it there is to tune."""

    label: str
    layer: Layer
    grids: dict[str, tuple[Value, ...]] = field(default_factory=dict)
    home: Choice = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Measured:
    """What a tuning run measured, by metric; if it diverged all are nan, and why is known."""

    values: Mapping[str, float]
    error: str = ""

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> Measured:
        """Read a ``result.json``."""
        if "error" in result:
            return cls(dict.fromkeys((*METRICS, "seconds"), math.nan), str(result["error"]))
        return cls(Result.from_json(result, source=Path(RESULT)).values)


class Stage(NamedTuple):
    """The search over one setting of a row, the others fixed."""

    setting: str
    others: Choice
    found: Found


@dataclass(frozen=True)
class Tuned:
    """What tuning has found, by row: the choice where it is complete, why a setting keeps its value, and why tuning is
    not complete (what failed, or empty if it was not to be run).
    """

    chosen: Mapping[str, Choice]
    skipped: Mapping[str, Mapping[str, str]]
    problems: Mapping[str, str]


class Tuning:
    """The tuning of a table: of its rows with their settings (layers), in the folder ``out`` of its sweep."""

    def __init__(
        self, rows: Sequence[TableRow], layers: Sequence[Layer], plan: TuningPlan, *, out: Path
    ) -> None:
        self.plan, self.out = plan, out
        self.rows = [self._row(row, layer) for row, layer in zip(rows, layers, strict=True)]
        self._known: dict[Path, Measured] = {}
        self._failed: dict[Path, str] = {}
        self._runs: dict[tuple[str, str, int], PlannedRun] = {}
        for name in plan.settings:
            if all(name in row.skipped for row in self.rows):
                raise InputError(f"--tune {name}: no row can be tuned: {self.rows[0].skipped[name]}.")

    def _row(self, row: TableRow, layer: Layer) -> _Row:
        out = _Row(row.label, layer)
        config = resolve(given=layer)
        for name, values in self.plan.settings.items():
            reason = _without(config, name)
            home = _home(config, layer, name)
            grid = values or default_grid(home)
            if reason is None and not grid:
                raise InputError(
                    f"--tune {name} is {home} in row {row.label!r}, which is no middle of a grid; expected values: "
                    f"--tune {name}=VALUE:VALUE."
                )
            if reason is not None:
                out.skipped[name] = reason
                continue
            grid = tuple(value for value in grid if values or self._allowed(out, {name: value}))
            out.grids[name], out.home[name] = grid, home
        return out

    def runs(self, active: Collection[str]) -> list[PlannedRun]:
        """Return the runs of the first grid of these rows, at all seeds, each once: the budget, but for extensions."""
        cells = [
            self._run(row, {name: value}, seed)
            for row in self.rows
            if row.label in active
            for name, grid in list(row.grids.items())[:1]
            for value in grid
            for seed in self.plan.rule.seeds
        ]
        return list({run.folder: run for run in cells}.values())

    def tune(self, execute: Execute, *, active: Collection[str] | None = None) -> Tuned:
        """Run what is missing until each row has its values; ``tuning.csv`` is written as they come.

        Args:
            execute: gets runs, of all rows at once, and those of them that may be run if they were not before; returns
                how each ended, without those that neither were nor may be run.
            active: labels of the rows that runs may be done for; all by default.
        """
        while wanted := self._wanted():
            mine = {run for run, labels in wanted.items() if active is None or not labels.isdisjoint(active)}
            ends = {end.run.folder: end for end in execute(list(wanted), mine)}
            for run in wanted:
                end = ends.get(run.folder)
                if end is None or end.result is None:
                    self._failed[run.folder] = "" if end is None else end.error
                else:
                    self._known[run.folder] = Measured.of(end.result)
            write_text(self.out / FILE, self.csv())
        return self._tuned()

    def _wanted(self) -> dict[PlannedRun, set[str]]:
        """Return the runs to do next, each with the rows that it is for; a row with a failed run waits."""
        found: dict[Path, PlannedRun] = {}
        labels: dict[PlannedRun, set[str]] = {}
        for row in self.rows:
            missing = self._missing(row)
            if not any(run.folder in self._failed for run in missing):
                for run in missing:
                    labels.setdefault(found.setdefault(run.folder, run), set()).add(row.label)
        return labels

    def _tuned(self) -> Tuned:
        chosen: dict[str, Choice] = {}
        problems = {}
        for row in self.rows:
            stages, missing = list(self._stages(row)), self._missing(row)
            if missing:
                failed = [error for run in missing if (error := self._failed.get(run.folder))]
                problems[row.label] = f"its tuning failed: {failed[0]}" if failed else ""
            elif stages and stages[-1].found.best is None:
                problems[row.label] = f"no value of {stages[-1].setting} gave a number"
            else:
                found = {stage.setting: stage.found.best for stage in stages}
                chosen[row.label] = {name: value for name, value in found.items() if value is not None}
        return Tuned(chosen, {row.label: row.skipped for row in self.rows}, problems)

    def _missing(self, row: _Row) -> list[PlannedRun]:
        """Return the runs that the search over a row needs next."""
        return [
            self._run(row, stage.others | {stage.setting: value}, seed)
            for stage in self._stages(row)
            for value, seed in stage.found.missing
        ]

    def _stages(self, row: _Row) -> Iterator[Stage]:
        """Yield the searches of a row up to the first that is not complete, or that found nothing.

        One setting after the other, each at the choices before it. If another than the first changed, the first is
        searched once more.
        """
        names = list(row.grids)
        choice: Choice = {}
        for number, name in enumerate([*names, *names[:1]]):
            if number == len(names) and all(choice[other] == row.home[other] for other in names[1:]):
                return
            stage = self._stage(row, name, {other: value for other, value in choice.items() if other != name})
            yield stage
            if stage.found.best is None:
                return
            choice[name] = stage.found.best

    def _stage(self, row: _Row, name: str, others: Choice) -> Stage:
        def score(value: Value, seed: int) -> float | None:
            return self._score(row, others | {name: value}, seed)

        def allowed(value: Value) -> bool:
            return self._allowed(row, others | {name: value})

        grid, rule = row.grids[name], self.plan.rule
        return Stage(name, others, search(grid, score, rule, home=row.home[name], allowed=allowed))

    def _allowed(self, row: _Row, values: Choice) -> bool:
        with contextlib.suppress(InputError):
            return bool(self._config(row, values, self.plan.rule.seeds[0]))
        return False

    def _score(self, row: _Row, values: Choice, seed: int) -> float | None:
        known = self._known.get(self._run(row, values, seed).folder)
        return None if known is None else self.plan.sign * known.values[self.plan.metric]

    def _config(self, row: _Row, values: Choice, seed: int) -> Config:
        layers = [nested(name, value) for name, value in values.items()]
        return resolve(given=merge(row.layer, *layers, {"seed": seed, "validate": True}))

    def _run(self, row: _Row, values: Choice, seed: int) -> PlannedRun:
        """Return the run of a cell; rows with the same settings share it."""
        key = (row.label, repr(sorted(values.items())), seed)
        if key not in self._runs:
            config = self._config(row, values, seed)
            folder = self.out / TUNING / f"{settings_hash(to_dict(config))}-seed{seed}"
            label = f"{row.label}, {described_choice(values)}"
            self._runs[key] = PlannedRun(
                label, seed, config, folder, plugins=used_plugins(config), tuning=True
            )
        return self._runs[key]

    def csv(self) -> str:
        """Return ``tuning.csv``: a line per row, value and seed that was tried."""
        metrics = [*METRICS, "seconds"]
        heads = ["row", "pass", "setting", "value", "others", "seed", "chosen", *metrics, "error", "folder"]
        rows = []
        for row in self.rows:
            for number, stage in enumerate(self._stages(row)):
                again = 1 + (number >= len(row.grids))
                for value, seed, run in self._tried(row, stage):
                    known = self._known[run.folder]
                    numbers = [csv_number(known.values[metric]) for metric in metrics]
                    others, chosen = described_choice(stage.others), int(value == stage.found.best)
                    place = [row.label, again, stage.setting, value, others, seed, chosen]
                    rows.append([*place, *numbers, known.error, run.folder.relative_to(self.out).as_posix()])
        return csv_text(heads, rows, spreadsheet=True)

    def _tried(self, row: _Row, stage: Stage) -> Iterator[tuple[Value, int, PlannedRun]]:
        for value in stage.found.values:
            for seed in self.plan.rule.seeds:
                run = self._run(row, stage.others | {stage.setting: value}, seed)
                if run.folder in self._known:
                    yield value, seed, run


def described_choice(values: Mapping[str, Value]) -> str:
    """Return settings with values in a few words."""
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _without(config: Config, name: str) -> str | None:
    """Return why a setting has no effect on a run, or None if it has one."""
    section, _, option = name.partition(".")
    if reason := unused_settings(config).get(name):
        return reason
    if section in PARTS:
        kind = getattr(config, section).kind
        return None if option in part_settings(section, kind) else f"{section} {kind!r} has no {option}"
    if section in ("exact", "committee") and not (config.committee or (section == "exact" and config.solves)):
        return f"there is no {'committee' if section == 'committee' else 'exact head and no committee'}"
    return None


def _home(config: Config, layer: Layer, name: str) -> Any:
    """Return the value that a row has without tuning."""
    section, _, option = name.partition(".")
    if name == "train.lr" and config.train.optimiser == "adam" and name not in flat(layer):
        return ADAM_LR
    known = flat(to_dict(config)).get(name)
    if known is None and section in PARTS:
        options = read_options(REGISTRIES[section].get(getattr(config, section).kind))
        known = next((one.default for one in options if one.name == option), None)
    return known
