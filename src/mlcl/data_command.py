"""``mlcl data``: raw data into stores, and what is in them."""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from mlcl.errors import InputError, nearest


class Parser(argparse.ArgumentParser):
    """Says in one sentence what is wrong."""

    def error(self, message: str) -> Any:
        """Raise instead of printing the usage."""
        raise InputError(f"{self.prog}: {message}.")


def data(arguments: list[str]) -> int:
    """Do ``mlcl data prepare`` or ``mlcl data info``."""
    actions = {"prepare": prepare, "info": info}
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.stdout.write(
            "usage: mlcl data prepare KIND --root PATH [--out STORE] [--size N]\n"
            "       mlcl data info NAME | STORE [--classes] [--figure FILE]\n\n"
            "prepare reads raw data once into a store; info tells what is in a store or a shipped benchmark.\n"
        )
        return 0
    if arguments[0] not in actions:
        hint = nearest(arguments[0], actions)
        raise InputError(f"unknown command 'data {arguments[0]}'; known are: {', '.join(actions)}.{hint}")
    return actions[arguments[0]](arguments[1:])


def prepare(arguments: list[str]) -> int:
    """``mlcl data prepare KIND --root PATH [--out STORE] [--size N]`` and the options of the source."""
    from mlcl.datasets import SOURCES, prepare_source

    kinds = "\n".join(f"  {name:12}{SOURCES.summary(name)}" for name in SOURCES.names())
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.stdout.write(
            "usage: mlcl data prepare KIND --root PATH [options]; `mlcl data prepare KIND --help` tells them\n\n"
            f"kinds:\n{kinds}\n"
        )
        return 0
    kind = arguments[0]
    source = SOURCES.get(kind)
    parser = Parser(prog=f"mlcl data prepare {kind}", description=SOURCES.summary(kind), allow_abbrev=False)
    parser.add_argument("--root", required=True, type=Path, help="the folder, file or archive to read")
    parser.add_argument(
        "--out", type=Path, help="the store to make (default: in the cache, by name and size)"
    )
    parser.add_argument("--size", type=int, help="side of the pictures in pixels (default: 224)")
    parser.add_argument("--name", help="what to call the data set")
    parser.add_argument(
        "--skip-bad", action="store_true", help="count and leave out pictures that cannot be read"
    )
    parser.add_argument("--jobs", type=int, help="processes (default: one a core)")
    parser.add_argument("--overwrite", action="store_true", help="replace a store of other content")
    parser.add_argument("--quiet", action="store_true", help="print the store's path only")
    for option in inspect.signature(source).parameters.values():
        if option.kind is inspect.Parameter.KEYWORD_ONLY:
            number = next((t for t in (int, float) if t.__name__ in str(option.annotation)), str)
            flag = f"--{option.name.replace('_', '-')}"
            parser.add_argument(flag, type=number, default=None, help=_explanation(source, option.name))
    given = vars(parser.parse_args(arguments[1:]))
    quiet = given.pop("quiet")

    def note(text: str) -> None:
        if not quiet:
            sys.stderr.write(f"{text}\n")

    bar = Progress(
        TextColumn("preparing"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=_stderr(),
        transient=True,
        disable=quiet or not sys.stderr.isatty(),
    )
    with bar:
        task = bar.add_task("preparing", total=None)
        made = prepare_source(
            kind,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
            announce=note,
            **given,
        )
    dropped = "".join(f", {count} {reason}" for reason, count in made.dropped.items() if count)
    state = "was there already" if made.already_there else f"done in {made.seconds:.1f} s"
    note(f"{made.name}: {made.rows} rows, {len(made.classes)} classes{dropped}; {state}")
    sys.stdout.write(f"{made.path}\n")
    return 0


def _explanation(source: Any, name: str) -> str:
    """Return what a source's docstring says of one of its options."""
    found = re.search(rf"^ +{name}: (.*(?:\n {{6,}}.*)*)", inspect.getdoc(source) or "", re.MULTILINE)
    return " ".join(found.group(1).split()).replace("``", "").replace("%", "%%") if found else ""


def info(arguments: list[str]) -> int:
    """``mlcl data info NAME | STORE``: tasks, imbalance, repetition, duplicates, warnings."""
    from jsonargparse import ArgumentParser

    from mlcl.command import parse_settings

    parser = ArgumentParser(
        prog="mlcl data info",
        exit_on_error=False,
        description="Tell what is in a benchmark. Settings of `mlcl run`, such as --stream.order, go on top.",
    )
    parser.add_argument("name", help="a shipped benchmark (`mlcl ls benchmarks`) or the folder of a store")
    parser.add_argument("--classes", action="store_true", help="a line for every class, too")
    parser.add_argument("--figure", help="draw positives a class (the paper's Figure 1): .svg, .pdf, .png")
    parser.add_argument("--overwrite", action="store_true", help="replace the figure if it exists")
    parsed = parse_settings(parser, arguments)
    if parsed is None:
        return 0
    own, given = parsed
    figure = Path(own["figure"]) if own.get("figure") else None
    if figure and figure.exists() and not own.get("overwrite"):
        raise InputError(f"{figure} exists; choose another name, or add --overwrite.")
    from mlcl.progress import make_console
    from mlcl.reports import data as report
    from mlcl.settings import resolve

    if figure:
        report.check_figure(figure)
    benchmark, warned = report.load_quietly(resolve(given={"benchmark": own["name"], **given}))
    console = make_console(sys.stdout)
    for line in report.overview_lines(benchmark):
        console.print(line)
    console.print(report.task_table(benchmark))
    if own.get("classes"):
        console.print(report.class_table(benchmark))
    for line in report.repetition_lines(benchmark):
        console.print(line)
    for text in warned:
        console.print(f"WARNING: {text}")
    if figure:
        report.imbalance_figure(benchmark, figure)
        console.print(str(figure))
    return 0


def _stderr() -> Any:
    from mlcl.progress import make_console

    return make_console(sys.stderr)
