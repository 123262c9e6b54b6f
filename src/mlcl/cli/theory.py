"""``mlcl theory``: margins, imbalance terms and the distance of a memory from its task, printed and written."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jsonargparse import ArgumentParser

from mlcl.cli.messages import say
from mlcl.cli.options import parse_settings
from mlcl.cli.progress import make_console
from mlcl.config.resolve import Layer, read_config_file, resolve
from mlcl.config.schema import Config
from mlcl.errors import InputError
from mlcl.files import write_bytes, write_json
from mlcl.reports import theory as report
from mlcl.reports.drawing import to_file
from mlcl.reports.theory import diagnosis_figure
from mlcl.runs.folder import is_run
from mlcl.theory import Diagnosis, diagnose, diagnose_run

FILES = ("theory.json", "theory-tasks.csv", "theory-classes.csv", "theory.svg", "theory.pdf")


@dataclass(frozen=True)
class TheoryCommand:
    """The parsed command line of ``mlcl theory``: settings, or the folder of a finished run."""

    source: Config | Path
    out: Path | None = None
    overwrite: bool = False
    classes: bool = False


def parse_theory(arguments: Sequence[str]) -> TheoryCommand | None:
    """Parse the arguments of ``mlcl theory``; None if help was asked for and given."""
    parser = ArgumentParser(
        prog="mlcl theory",
        exit_on_error=False,
        allow_abbrev=False,
        description="Show what the paper's theory says of a benchmark and of the memory that a run would have: "
        "margins, Proposition 1 checked numerically, the imbalance terms of Theorem 1, how far the memory is from its "
        "tasks, and, on feature vectors and on runs of method exact, the exact learner's closed form checked "
        "numerically. A diagnostic, not a guarantee. NAME is a shipped config, FILE.yaml one of your own, STORE a "
        "prepared store; settings of `mlcl run`, such as --memory.kind, override its own. DIR is a finished run, with "
        "its own memory and network.",
    )
    parser.add_argument(
        "source", nargs="?", metavar="NAME | FILE.yaml | STORE | DIR", help="default: c-digits"
    )
    parser.add_argument("--out", help=f"folder to write {', '.join(FILES)} to")
    parser.add_argument("--overwrite", action="store_true", help="replace these files if they exist")
    parser.add_argument("--classes", action="store_true", help="one line per class, too")
    parsed = parse_settings(parser, arguments)
    if parsed is None:
        return None
    own, given = parsed
    return TheoryCommand(
        _source(own.get("source"), given),
        Path(own["out"]) if own.get("out") else None,
        overwrite=bool(own.get("overwrite")),
        classes=bool(own.get("classes")),
    )


def _source(source: str | None, given: Layer) -> Config | Path:
    """Return the settings that a name, a file or a store stands for, or the folder of a run."""
    # Not Path.is_dir: that raises where a name is too long to be one.
    if source is not None and os.path.isdir(source):  # noqa: PTH112
        folder = Path(source)
        if not is_run(folder):
            return resolve(given={"benchmark": source, **given})
        if given:
            raise InputError(
                f"{folder} is a run and is looked at as it is, but settings of --{next(iter(given))} were given; "
                f"they go with a benchmark."
            )
        return folder
    if source is not None and (source.endswith((".yaml", ".yml")) or "/" in source):
        return resolve(file=read_config_file(Path(source)), given=given)
    return resolve(name=source, given=given)


def main(arguments: list[str]) -> int:
    """Theory: ``mlcl theory [NAME | FILE.yaml | STORE | DIR] [--memory.kind K] ... [--out DIR] [--overwrite]``."""
    command = parse_theory(arguments)
    if command is None:
        return 0
    if command.out is not None:
        check_folder(command.out, overwrite=command.overwrite)

    found = diagnose_run(command.source) if isinstance(command.source, Path) else diagnose(command.source)
    console = make_console(sys.stdout)
    console.print(report.terms_table(found))
    if found.stored:
        console.print(report.distance_table(found))
    if command.classes:
        console.print(report.diagnosis_classes(found))
    for line in report.lines(found):
        console.print(line)
    if command.out is not None:
        write(found, command.out)
        say(command.out)
    return 0


def check_folder(path: Path, *, overwrite: bool) -> None:
    """Refuse a folder that cannot be made, or that holds files of the same names."""
    if path.exists() and not path.is_dir():
        raise InputError(f"--out {path} is a file; expected a folder to write to.")
    there = [name for name in FILES if (path / name).exists()]
    if there and not overwrite:
        raise InputError(f"{path / there[0]} exists; choose another folder, or add --overwrite.")


def write(found: Diagnosis, path: Path) -> None:
    """Write what was found: JSON, tables, and the figure."""
    drawn = diagnosis_figure(found)
    contents = {
        "theory-tasks.csv": report.tasks_csv(found).encode(),
        "theory-classes.csv": report.diagnosis_csv(found).encode(),
        "theory.svg": to_file(drawn, "svg"),
        "theory.pdf": to_file(drawn, "pdf"),
    }
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {path} cannot be made: {error.strerror}.") from None
    for name, content in contents.items():
        write_bytes(path / name, content)
    write_json(path / "theory.json", report.to_json(found) | {"figure": drawn.alt})
