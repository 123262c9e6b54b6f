"""``mlcl reproduce``: all rows of a table over several seeds, with table, figure and report."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser

from mlcl.cli.compare import print_section
from mlcl.cli.messages import fail, note, say
from mlcl.cli.options import parse_settings
from mlcl.cli.progress import make_console
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
from mlcl.sweeps.sweep import reuse, run_all, sweep_lock
from mlcl.sweeps.tuning import FIRST_SEED, Tuning, TuningPlan
from mlcl.sweeps.work import Finished


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
    track: tuple[str, ...] = ()
    reuse: tuple[Path, ...] = ()
    done: bool = False
    rows: tuple[str, ...] = ()
    tune: TuningPlan | None = None


def parse_reproduce(arguments: Sequence[str]) -> ReproduceCommand | None:
    """Understand the arguments of ``mlcl reproduce``; None if help was asked for and given."""
    parser = ArgumentParser(
        prog="mlcl reproduce",
        exit_on_error=False,
        allow_abbrev=False,
        description="Run all rows of a table over several seeds and write table, figure and report. "
        f"TABLE is one of: {', '.join(experiments())}; or a YAML file of your own. "
        "Runs that are done are not done again, so the same command continues after an interruption. "
        "Settings of `mlcl run` override those of all rows.",
    )
    parser.add_argument("table", metavar="TABLE | FILE.yaml", help="what to reproduce")
    parser.add_argument(
        "--seeds", type=int, metavar="N", default=3, help="number of seeds, from 0 (default: 3)"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="runs at a time (default: one per core, or one on an accelerator)",
    )
    parser.add_argument(
        "--engine", default="local", choices=("local", "ray"), help="where to run (default: local)"
    )
    parser.add_argument("--address", help="address of a Ray cluster (default: a local one)")
    parser.add_argument("--out", metavar="DIR", help="folder to write (default: results/TABLE-BENCHMARK)")
    parser.add_argument(
        "--overwrite", action="store_true", help="redo finished runs in --out that have other settings"
    )
    parser.add_argument(
        "--reuse",
        type=Path,
        nargs="+",
        metavar="DIR",
        help="other sweeps whose runs of equal settings are copied",
    )
    parser.add_argument(
        "--rows",
        nargs="+",
        metavar="ROW",
        help="run these rows only; the table has what else is done as well",
    )
    parser.add_argument(
        "--done", action="store_true", help="run nothing: write table and report of the runs that are done"
    )
    parser.add_argument(
        "--tune",
        metavar="NAME[=V:V...],...",
        help="first choose these settings for each row on validation rows, such as train.lr; its factors of 2 around "
        "the row's value are tried, or the values given (train.lr=0.02:0.05:0.1), and more where an end is best",
    )
    parser.add_argument(
        "--tune-seeds", type=int, metavar="N", default=2, help="seeds of tuning, from 1000 (default: 2)"
    )
    parser.add_argument(
        "--tune-metric", metavar="METRIC", help="what tuning chooses by (default: the metric of the table)"
    )
    parser.add_argument(
        "--tune-extend",
        type=int,
        metavar="N",
        default=4,
        help="values that may be added at each end (default: 4)",
    )
    parser.add_argument(
        "--track", default="", help="trackers to report to: tensorboard, wandb, mlflow (extras)"
    )
    parsed = parse_settings(
        parser, arguments, defaults={"benchmark": "that of the table's file, c-digits for most"}
    )
    if parsed is None:
        return None
    own, given = parsed
    experiment = load_experiment(own["table"])
    benchmark = given.pop("benchmark", experiment.benchmark)
    name = resolve(given={"benchmark": benchmark}).benchmark
    out = Path(own.get("out") or Path("results") / f"{slug(experiment.name)}-{slug(name)}")
    engine = own.get("engine", "local")
    choose_engine(engine, jobs=own.get("jobs"), address=own.get("address"))
    tune = _tuning_plan(own, experiment)
    return ReproduceCommand(
        experiment=experiment,
        benchmark=benchmark,
        given=given,
        out=out,
        seeds=own.get("seeds", 3),
        jobs=own.get("jobs"),
        engine=engine,
        address=own.get("address"),
        overwrite=bool(own.get("overwrite")),
        track=parse_trackers(own.get("track", "")),
        done=bool(own.get("done")),
        rows=tuple(own.get("rows") or ()),
        reuse=tuple(Path(folder) for folder in own.get("reuse") or ()),
        tune=tune,
    )


def _tuning_plan(own: Mapping[str, Any], experiment: Experiment) -> TuningPlan | None:
    """Return what ``--tune`` and its options ask for."""
    if not own.get("tune"):
        for name in ("tune_seeds", "tune_metric", "tune_extend"):
            if name in own:
                raise InputError(f"--{name.replace('_', '-')} is for --tune.")
        return None
    metric = check_choice("--tune-metric", own.get("tune_metric", experiment.metric), METRICS)
    plan = TuningPlan.parse(
        own["tune"], metric=metric, seeds=own.get("tune_seeds", 2), extend=own.get("tune_extend", 4)
    )
    if experiment.axis and experiment.axis.setting in plan.settings:
        raise InputError(f"--tune {experiment.axis.setting}: it is the axis of {experiment.name}.")
    if own.get("seeds", 3) > FIRST_SEED:
        raise InputError(
            f"--seeds is {own['seeds']}; expected at most {FIRST_SEED}, the first seed of --tune."
        )
    return plan


def main(arguments: list[str]) -> int:
    """Reproduce: ``mlcl reproduce TABLE [--benchmark B] [--seeds N] [--jobs N] [--engine E] [--out DIR]``."""
    command = parse_reproduce(arguments)
    if command is None:
        return 0
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
            copied = reuse(runs, command.reuse)
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
            arguments=arguments,
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
        reuse(wanted, command.reuse)
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
