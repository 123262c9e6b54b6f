"""``mlcl reproduce``: all rows of a table over several seeds, with table, figure and report."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jsonargparse import ArgumentParser

from mlcl.cli.compare import print_section
from mlcl.cli.messages import fail
from mlcl.cli.options import parse_settings
from mlcl.cli.progress import make_console
from mlcl.config.resolve import Layer, resolve
from mlcl.errors import InputError
from mlcl.files import slug
from mlcl.reports.gather import sections
from mlcl.reports.writing import write_files
from mlcl.runs.folder import has_result
from mlcl.runs.recording import load_benchmark, warn_of_headline
from mlcl.runs.trackers import parse_trackers
from mlcl.sweeps.experiment import Experiment, experiments, load_experiment
from mlcl.sweeps.overview import Overview
from mlcl.sweeps.plan import PlannedRun, choose_rows, plan_runs
from mlcl.sweeps.record import make_record, write_record
from mlcl.sweeps.reuse import reuse
from mlcl.sweeps.sweep import run_all, sweep_lock
from mlcl.sweeps.work import Finished
from mlcl.training.cluster import check_engine


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
    check_engine(jobs=own.get("jobs"), engine=engine, address=own.get("address"))
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
    )


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
    runs = [replace(run, track=command.track) for run in runs]
    chosen = choose_rows(rows, command.rows) if command.rows else {row.label for row in rows}
    # What is wrong with data or stream is reported once, before anything is written.
    warn_of_headline(load_benchmark(runs[0].config))
    with sweep_lock(command.out):
        try:
            copied = reuse(runs, command.reuse)
            if copied:
                taken = ", ".join(map(str, command.reuse))
                sys.stderr.write(f"{copied} of {len(runs)} runs were taken from {taken}\n")
            runs = _chosen(command, chosen, runs)
            ends = _run(command, runs)
        except KeyboardInterrupt:
            done = sum(has_result(run.folder) for run in runs)
            sys.stderr.write(
                f"mlcl: interrupted: {done} of {len(runs)} runs are done; the same command continues.\n"
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
        )
        write_record(record, command.out)
        if len(failed) == len(ends):
            return fail(f"all {len(ends)} runs failed; the first: {failed[0].error}", 1)
        print_section(sections([command.out])[0])
        write_files(command.out)
        sys.stdout.write(f"{command.out}\n")
    if failed:
        return fail(f"{len(failed)} of {len(ends)} runs failed; the same command tries them again.", 1)
    return 0


def _chosen(command: ReproduceCommand, chosen: Collection[str], runs: list[PlannedRun]) -> list[PlannedRun]:
    """Return the runs that ``--rows`` and ``--done`` leave: those that are done always stay."""
    runs = [run for run in runs if run.label in chosen or has_result(run.folder)]
    if command.done:
        planned, runs = len(runs), [run for run in runs if has_result(run.folder)]
        if not runs:
            raise InputError(f"--done: none of the {planned} runs is in {command.out} yet.")
        sys.stderr.write(f"{len(runs)} of {planned} runs are there\n")
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
