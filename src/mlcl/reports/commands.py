"""What the verbs ``reproduce``, ``report`` and ``compare`` do."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mlcl.command import parse_settings
from mlcl.errors import InputError
from mlcl.settings import Layer, resolve, shipped
from mlcl.sweeps.experiment import Experiment, experiments, load_experiment, slug
from mlcl.sweeps.sweep import check_engine
from mlcl.sweeps.trackers import parse_trackers


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
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(
        prog="mlcl reproduce",
        exit_on_error=False,
        description="Run all rows of a table over several seeds and write table, figure and report. "
        f"TABLE is one of: {', '.join(experiments())}; or a YAML file of your own. "
        "Runs that are done are not done again, so the same command goes on after an interruption. "
        "Settings of `mlcl run` go over all rows.",
    )
    parser.add_argument("table", metavar="TABLE | FILE.yaml", help="what to reproduce")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds, from 0 (default: 3)")
    parser.add_argument(
        "--jobs", type=int, help="runs at a time (default: one a core, or one on an accelerator)"
    )
    parser.add_argument(
        "--engine", default="local", choices=("local", "ray"), help="where to run (default: local)"
    )
    parser.add_argument("--address", help="address of a Ray cluster (default: a local one)")
    parser.add_argument("--out", help="folder to write (default: results/TABLE-BENCHMARK)")
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
    parser.add_argument("--track", default="", help="trackers to tell: tensorboard, wandb, mlflow (extras)")
    parsed = parse_settings(parser, arguments)
    if parsed is None:
        return None
    own, given = parsed
    experiment = load_experiment(own["table"])
    benchmark = given.pop("benchmark", "c-digits")
    if benchmark not in shipped() and Path(benchmark).is_dir():
        benchmark = str(Path(benchmark).resolve())  # the same run from whatever folder, and on another node
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


def reproduce(arguments: Sequence[str]) -> int:
    """Do ``mlcl reproduce``: run what is not done, print the table, write the files; return the exit code."""
    command = parse_reproduce(arguments)
    if command is None:
        return 0
    from mlcl.progress import make_console
    from mlcl.runs import load_benchmark
    from mlcl.sweeps.overview import Overview
    from mlcl.sweeps.plan import choose_rows, plan_runs
    from mlcl.sweeps.record import make_record, write_record
    from mlcl.sweeps.reuse import reuse
    from mlcl.sweeps.sweep import only_one, run_all

    rows, runs = plan_runs(
        command.experiment,
        benchmark=command.benchmark,
        seeds=command.seeds,
        out=command.out,
        given=command.given,
    )
    runs = [replace(run, track=command.track) for run in runs]
    if command.rows:
        chosen = choose_rows(rows, command.rows)
        runs = [run for run in runs if run.label in chosen or (run.folder / "result.json").exists()]
    if command.done:
        planned, runs = len(runs), [run for run in runs if (run.folder / "result.json").exists()]
        if not runs:
            raise InputError(f"--done: none of the {planned} runs is in {command.out} yet.")
        sys.stderr.write(f"{len(runs)} of {planned} runs are there\n")
    # What is wrong with data or stream is told once, before anything is written.
    load_benchmark(runs[0].config)
    errors = make_console(sys.stderr)
    with only_one(command.out):
        copied = reuse(runs, command.reuse)
        if copied:
            errors.print(f"{copied} of {len(runs)} runs were taken from {', '.join(map(str, command.reuse))}")
        overview = Overview(runs, errors)
        try:
            with overview:
                ends = run_all(
                    runs,
                    jobs=command.jobs,
                    engine="ray" if command.engine == "ray" else "local",
                    address=command.address,
                    overwrite=command.overwrite,
                    watch=overview,
                )
        except KeyboardInterrupt:
            done = overview.found + overview.done
            sys.stderr.write(
                f"mlcl: interrupted: {done} of {len(runs)} runs are done; the same command goes on.\n"
            )
            return 3
        failed = [end for end in ends if end.result is None]
        if overview.found:
            errors.print(f"{overview.found} of {len(runs)} runs were done before")
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
            sys.stderr.write(f"mlcl: error: all {len(ends)} runs failed; the first: {failed[0].error}\n")
            return 1
        _show_and_write(command.out)
    if failed:
        sys.stderr.write(
            f"mlcl: error: {len(failed)} of {len(ends)} runs failed; the same command tries them again.\n"
        )
    return 1 if failed else 0


def _show_and_write(out: Path) -> None:
    """Print the table of a sweep's folder and write its files; the last line on stdout is the folder."""
    from mlcl.progress import make_console
    from mlcl.reports.formats import rich_table
    from mlcl.reports.gather import sections
    from mlcl.reports.tables import footnotes, summarise

    section = sections([out])[0]
    lines = summarise(section)
    console = make_console(sys.stdout)
    console.print(rich_table(section, lines, width=console.width))
    for note in footnotes(section, lines):
        console.print(note)
    write_files(out)
    sys.stdout.write(f"{out}\n")


def write_files(out: Path) -> list[str]:
    """Write table, runs, figure and page of a sweep into its folder and return their names.

    The same runs give the same bytes.
    """
    from mlcl.files import write_bytes
    from mlcl.reports.drawing import to_file
    from mlcl.reports.formats import classes_csv, runs_csv, table_csv, table_latex, table_markdown
    from mlcl.reports.gather import sections
    from mlcl.reports.page import render_page
    from mlcl.reports.plates import plate
    from mlcl.reports.tables import summarise

    found = sections([out])
    section = found[0]
    lines = summarise(section)
    picture = plate(section, lines)
    contents = {
        "table.csv": table_csv(section, lines).encode(),
        "runs.csv": runs_csv(section).encode(),
        "classes.csv": classes_csv(section).encode(),
        "table.md": table_markdown(section, lines).encode(),
        "table.tex": table_latex(section, lines).encode(),
        "figure.svg": to_file(picture, "svg"),
        "figure.pdf": to_file(picture, "pdf"),
        "report.html": render_page(found).encode(),
    }
    for name, content in contents.items():
        write_bytes(out / name, content)
    return list(contents)


def report(folders: Sequence[Path], out: Path, *, overwrite: bool = False) -> None:
    """Do ``mlcl report``: write one page about runs and sweeps."""
    from mlcl.files import write_bytes
    from mlcl.reports.gather import sections
    from mlcl.reports.page import render_page

    if out.exists() and (out.is_dir() or not overwrite):
        what = (
            "is a folder; expected a file to write"
            if out.is_dir()
            else "exists; choose another name, or add --overwrite"
        )
        raise InputError(f"--out {out} {what}.")
    if not out.parent.is_dir():
        raise InputError(f"--out {out}: the folder {out.parent} does not exist.")
    page = render_page(sections(folders))
    write_bytes(out, page.encode())
    sys.stdout.write(f"{out}\n")


def compare(folders: Sequence[Path]) -> None:
    """Do ``mlcl compare``: print one table of runs and sweeps of one benchmark."""
    from mlcl.progress import make_console
    from mlcl.reports.formats import rich_table
    from mlcl.reports.gather import one_table, sections
    from mlcl.reports.tables import footnotes, summarise

    section = one_table(sections(folders))
    lines = summarise(section)
    console = make_console(sys.stdout)
    console.print(rich_table(section, lines, width=console.width))
    for note in footnotes(section, lines):
        console.print(note)
