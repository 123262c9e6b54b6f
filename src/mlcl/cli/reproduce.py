"""``mlcl reproduce``: all rows of a table over several seeds, with table, figure and report."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from mlcl.cli.messages import command_words, fail, note, say
from mlcl.cli.progress import make_console
from mlcl.cli.report import print_section
from mlcl.cli.verbs import Settings, take_plugins
from mlcl.config.resolve import Layer, merge, resolve
from mlcl.engines.cluster import choose_engine
from mlcl.errors import InputError, check_choice
from mlcl.files import slug
from mlcl.reports.gather import sections
from mlcl.reports.page import write_files
from mlcl.runs.folder import has_result
from mlcl.runs.recording import load_benchmark, warn_of_headline
from mlcl.runs.trackers import parse_trackers
from mlcl.sweeps.experiment import METRICS, Experiment, TableRow, experiments, load_experiment, nested
from mlcl.sweeps.overview import Overview
from mlcl.sweeps.plan import TUNING, PlannedRun, choose_rows, make_runs, plan_rows, plan_runs
from mlcl.sweeps.record import TuningRecord, make_record, write_record
from mlcl.sweeps.sweep import Finished, run_all, sweep_lock
from mlcl.sweeps.sweep import reuse as copy_runs
from mlcl.sweeps.tuning import FIRST_SEED, Tuning, TuningPlan


@dataclass(frozen=True)
class ReproduceCommand:
    """The command line of ``mlcl reproduce``, understood."""

    experiment: Experiment
    benchmark: str
    given: Layer
    out: Path
    seeds: int
    jobs: int | None
    engine: str
    address: str | None
    overwrite: bool
    track: tuple[str, ...]
    reuse: tuple[Path, ...]
    done: bool
    rows: tuple[str, ...]
    tune: TuningPlan | None


def reproduce(
    table: str,
    *,
    seeds: int = 3,
    jobs: int | None = None,
    engine: Literal["local", "ray"] = "local",
    address: str | None = None,
    out: Path | None = None,
    overwrite: bool = False,
    reuse: list[Path] = [],  # noqa: B006
    rows: list[str] = [],  # noqa: B006
    done: bool = False,
    tune: str | None = None,
    tune_seeds: int | None = None,
    tune_metric: str | None = None,
    tune_extend: int | None = None,
    track: str = "",
    settings: Settings,
) -> int:
    """Run all rows of a table over several seeds and write table, figure and report.

    TABLE is one of TABLES, or a YAML file of your own. Runs that are done are not done again,
    so the same command continues after an interruption. Settings of `mlcl run` override those of all rows.

    Args:
        table (TABLE | FILE.yaml): what to reproduce.
        seeds (N): number of seeds, from 0.
        jobs (N): runs at a time (default: one per core, or one on an accelerator).
        engine: where to run.
        address (ADDRESS): address of a Ray cluster (default: a local one).
        out (DIR): folder to write (default: results/TABLE-BENCHMARK).
        overwrite: redo finished runs in --out that have other settings.
        reuse (DIR): other sweeps whose runs of equal settings are copied.
        rows (ROW): run these rows only; the table has what else is done as well.
        done: run nothing: write table and report of the runs that are done.
        tune (NAME[=V:V...],...): first choose these settings for each row on validation rows, such as train.lr; its
            factors of 2 around the row's value are tried, or the values given (train.lr=0.02:0.05:0.1), and more where
            an end is best.
        tune_seeds (N): seeds of tuning, from 1000 (default: 2).
        tune_metric (METRIC): what tuning chooses by (default: the metric of the table).
        tune_extend (N): values that may be added at each end (default: 4).
        track (T,...): trackers to report to: tensorboard, wandb, mlflow (extras).
        settings: of all rows.
    """
    experiment = load_experiment(table)
    benchmark = settings.pop("benchmark", experiment.benchmark)
    name = resolve(given={"benchmark": benchmark}).benchmark
    choose_engine(engine, jobs=jobs, address=address)
    tuning = {"seeds": tune_seeds, "metric": tune_metric, "extend": tune_extend}
    return _reproduce(
        ReproduceCommand(
            experiment=experiment,
            benchmark=benchmark,
            given=settings,
            out=out or Path("results") / f"{slug(experiment.name)}-{slug(name)}",
            seeds=seeds,
            jobs=jobs,
            engine=engine,
            address=address,
            overwrite=overwrite,
            track=parse_trackers(track),
            done=done,
            rows=tuple(rows),
            reuse=tuple(reuse),
            tune=_tuning_plan(tune, tuning, experiment, seeds),
        )
    )


reproduce.__doc__ = (reproduce.__doc__ or "").replace("one of TABLES", f"one of {', '.join(experiments())}")


def _tuning_plan(
    tune: str | None, options: Mapping[str, Any], experiment: Experiment, seeds: int
) -> TuningPlan | None:
    """Return what ``--tune`` and its options ask for."""
    given = {name: value for name, value in options.items() if value is not None}
    if not tune:
        for name in given:
            raise InputError(f"--tune-{name} is for --tune.")
        return None
    chosen: dict[str, Any] = {"seeds": 2, "extend": 4, "metric": experiment.metric} | given
    check_choice("--tune-metric", chosen["metric"], METRICS)
    plan = TuningPlan.parse(tune, **chosen)
    if experiment.axis and experiment.axis.setting in plan.settings:
        raise InputError(f"--tune {experiment.axis.setting}: it is the axis of {experiment.name}.")
    if seeds > FIRST_SEED:
        raise InputError(f"--seeds is {seeds}; expected at most {FIRST_SEED}, the first seed of --tune.")
    return plan


def _reproduce(command: ReproduceCommand) -> int:
    """Do what is not done, and write and print the table."""
    rows, runs = plan_runs(
        command.experiment,
        benchmark=command.benchmark,
        seeds=command.seeds,
        out=command.out,
        given=command.given,
    )
    chosen = choose_rows(rows, command.rows) if command.rows else {row.label for row in rows}
    # What is wrong with data or stream is reported once, before anything is written.
    warn_of_headline(load_benchmark(runs[0].config))
    with sweep_lock(command.out):
        try:
            untuned: list[Finished] = []
            tuning = None
            if command.tune is not None:
                runs, untuned, tuning = _tuned(command, command.tune, rows, chosen)
            copied = copy_runs(runs, command.reuse)
            if copied:
                taken = ", ".join(map(str, command.reuse))
                note(f"{copied} of {len(runs)} runs were taken from {taken}")
            runs = [replace(run, track=command.track) for run in _chosen(command, chosen, runs)]
            ends = [*_run(command, runs), *untuned]
        except KeyboardInterrupt:
            done = sum(has_result(run.folder) for run in runs)
            before = f", and {_tuning_runs(command.out)} of tuning" if command.tune else ""
            note(
                f"mlcl: interrupted: {done} of {len(runs)} runs are done{before}; the same command continues."
            )
            return 3
        failed = [end for end in ends if end.result is None]
        record = make_record(
            command.experiment,
            rows,
            ends,
            out=command.out,
            arguments=take_plugins(command_words())[0][1:],
            seeds=command.seeds,
            given=command.given,
            tuning=tuning,
        )
        write_record(record, command.out)
        if len(failed) == len(ends):
            return fail(f"all {len(ends)} runs failed; the first: {failed[0].error}", 1)
        print_section(sections([command.out])[0])
        write_files(command.out)
        say(command.out)
    if failed:
        return fail(f"{len(failed)} of {len(ends)} runs failed; the same command tries them again.", 1)
    return 0


def _tuned(
    command: ReproduceCommand, plan: TuningPlan, rows: Sequence[TableRow], chosen: Collection[str]
) -> tuple[list[PlannedRun], list[Finished], TuningRecord]:
    """Choose settings on validation rows.

    Returns:
        The runs of the table at these settings, the runs of rows that could not be tuned, as failures, and the record.
    """
    _, layers = plan_rows(command.experiment, benchmark=command.benchmark, given=command.given)
    tuning = Tuning(rows, layers, plan, out=command.out)
    _print_budget(command, plan, tuning, chosen)

    def execute(wanted: list[PlannedRun], mine: set[PlannedRun]) -> list[Finished]:
        copy_runs(wanted, command.reuse)
        return _run(command, [run for run in wanted if run in mine or has_result(run.folder)])

    found = tuning.tune(execute, active=() if command.done else chosen)
    for label, reasons in found.skipped.items():
        for name, reason in reasons.items():
            note(f"{label} keeps its {name}: {reason}")
    layers = [
        merge(layer, *_layers(found.chosen.get(row.label, {})))
        for row, layer in zip(rows, layers, strict=True)
    ]
    runs = make_runs(rows, layers, seeds=command.seeds, out=command.out)
    untuned = [Finished(run, None, error) for run in runs if (error := found.problems.get(run.label))]
    record = TuningRecord(tuple(plan.settings), plan.metric, plan.rule.seeds, found.chosen)
    return [run for run in runs if run.label in found.chosen], untuned, record


def _tuning_runs(out: Path) -> int:
    """Return how many runs of tuning are done."""
    return sum(has_result(folder) for folder in (out / TUNING).iterdir()) if (out / TUNING).is_dir() else 0


def _layers(choice: Mapping[str, Any]) -> list[Layer]:
    return [nested(name, value) for name, value in choice.items()]


def _print_budget(
    command: ReproduceCommand, plan: TuningPlan, tuning: Tuning, chosen: Collection[str]
) -> None:
    runs = tuning.runs(chosen)
    done = sum(has_result(run.folder) for run in runs)
    names, seeds, rows = " and ".join(plan.settings), len(plan.rule.seeds), len(chosen)
    note(
        f"tuning {names} on validation rows (rows of the table: {rows}, seeds: {seeds}): at most {len(runs)} runs for "
        f"the first grid of {next(iter(plan.settings))} ({done} are done), and up to {seeds} per value added where an "
        f"end is best; then {rows * command.seeds} runs of the table"
    )


def _chosen(command: ReproduceCommand, chosen: Collection[str], runs: list[PlannedRun]) -> list[PlannedRun]:
    """Return the runs that ``--rows`` and ``--done`` leave: those that are done always stay."""
    runs = [run for run in runs if run.label in chosen or has_result(run.folder)]
    if command.done:
        planned, runs = len(runs), [run for run in runs if has_result(run.folder)]
        if not runs:
            raise InputError(f"--done: none of the {planned} runs is in {command.out} yet.")
        note(f"{len(runs)} of {planned} runs are there")
    return runs


def _run(command: ReproduceCommand, runs: list[PlannedRun]) -> list[Finished]:
    """Do what is not done, showing how it goes; return how each run ended."""
    errors = make_console(sys.stderr)
    with Overview(runs, errors) as overview:
        ends = run_all(
            runs,
            jobs=command.jobs,
            engine="ray" if command.engine == "ray" else "local",
            address=command.address,
            overwrite=command.overwrite,
            callback=overview,
        )
    if overview.found:
        errors.print(f"{overview.found} of {len(runs)} runs were done before")
    return ends
