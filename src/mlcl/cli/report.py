"""Verbs about what runs measured: report, card, compare, theory."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mlcl.cli.messages import say
from mlcl.cli.progress import make_console
from mlcl.cli.settings import is_file_name
from mlcl.cli.verbs import Settings
from mlcl.config.resolve import read_config_file, resolve
from mlcl.errors import InputError, check_int
from mlcl.files import write_bytes, write_json, write_text
from mlcl.reports import theory as tables
from mlcl.reports.card import render_card
from mlcl.reports.changes import aucs_on, measured_aucs
from mlcl.reports.drawing import to_file
from mlcl.reports.examine import examine_or_say
from mlcl.reports.gather import Section, one_table, sections
from mlcl.reports.look import COUNT
from mlcl.reports.page import render_page, single
from mlcl.reports.records import read_run
from mlcl.reports.tables import fitted, footnotes, grid, table_lines
from mlcl.reports.theory import diagnosis_figure
from mlcl.runs.folder import CARD, is_run, make_folder, require_finished
from mlcl.runs.versions import current_folder, every_version, of_one_chain
from mlcl.taggers.predict import check_out
from mlcl.theory import Diagnosis, diagnose, diagnose_run

FILES = ("theory.json", "theory-tasks.csv", "theory-classes.csv", "theory.svg", "theory.pdf")


def report(
    folders: list[Path],
    *,
    out: Path = Path("report.html"),
    mistakes: int = COUNT,
    on: str | None = None,
    images: str | None = None,
    overwrite: bool = False,
) -> int:
    """Write one self-contained page about finished runs and sweeps.

    The page of one run shows each label on its test rows, the mistakes, confused labels and suspected label errors.

    Args:
        folders (DIR): folders of runs or sweeps.
        out (FILE.html): the page to write.
        mistakes (N): of one run, test rows per list of mistakes; 0 scores no rows.
        on (STORE): of one run, score the test rows of this store instead.
        images (STORE): of features, show the images of this store, by id.
        overwrite: replace the file if it exists.
    """
    if out.is_dir():
        raise InputError(f"--out {out} is a folder; expected a file to write.")
    check_out(out, suffixes=(out.suffix.lower(),), overwrite=overwrite)
    check_int("--mistakes", mistakes, 0)
    found = sections([current_folder(folder) for folder in folders])
    run = single(found[0]) if len(found) == 1 else None
    if run is None and (on is not None or images is not None):
        raise InputError("--on and --images are for the page of one run; expected the folder of one run.")
    examined, unseen = None, ""
    if run is not None and mistakes:
        examined, unseen = examine_or_say(run.folder, on=on, images=images)
    page = render_page(found, examined=examined, unseen=unseen, count=mistakes)
    write_bytes(out, page.encode())
    say(out)
    return 0


def card(folder: Path, *, out: Path | None = None, on: str | None = None, overwrite: bool = False) -> int:
    """Write a model card in Markdown, with the header of the Hugging Face Hub, from what a run knows.

    It has data, labels, measures with intervals, probabilities, provenance, settings and limits.

    Args:
        folder (DIR): the folder of the run.
        out (FILE.md): a .md to write (default: DIR/model-card.md).
        on (STORE): measure on the test rows of this store instead.
        overwrite: replace the file if it exists.
    """
    folder = current_folder(folder)
    require_finished(folder)
    out = out or folder / CARD
    check_out(out, suffixes=(".md",), overwrite=overwrite)
    run = read_run(folder)
    examined, unseen = examine_or_say(folder, on=on)
    write_text(out, render_card(run, examined=examined, unseen=unseen))
    say(out)
    return 0


def compare(folders: list[Path], *, on: str | None = None) -> int:
    """Compare finished runs and sweeps of one benchmark in a table.

    Versions of one run, whose labels may differ, are compared label by label; a folder with versions stands for all.

    Args:
        folders (DIR): folders of runs or sweeps.
        on (STORE): measure every label on the test rows of this store, with intervals of the changes against the first
            run.
    """
    named = [version for folder in folders for version in every_version(folder)]
    once = list({folder.resolve(): folder for folder in named}.values())  # in the order given
    if on is not None or (len(once) > 1 and of_one_chain(once)):
        found = measured_aucs(once) if on is None else aucs_on(once, on)
        make_console(sys.stdout).print(found)
    else:
        print_section(one_table(sections(once)))
    return 0


def print_section(section: Section) -> None:
    """Print the table of a section of a report, and its footnotes."""
    lines = table_lines(section)
    console = make_console(sys.stdout)
    console.print(fitted(grid(section, lines), console.width))
    for note in footnotes(section, lines):
        console.print(note)


def theory(
    source: str | None = None,
    *,
    out: Path | None = None,
    overwrite: bool = False,
    classes: bool = False,
    settings: Settings,
) -> int:
    """Show what the paper's theory says of a benchmark and of the memory that a run would have.

    Margins, Proposition 1 checked numerically, the imbalance terms of Theorem 1, how far the memory is from its tasks,
    and, on feature vectors and on runs of method exact, the exact learner's closed form checked numerically. A
    diagnostic, not a guarantee. NAME is a shipped config, FILE.yaml one of your own, STORE a prepared store; settings
    of `mlcl run`, such as --memory.kind, override its own. DIR is a finished run, with its own memory and network.

    Args:
        source (NAME | FILE.yaml | STORE | DIR): what to look at (default: c-digits).
        out (DIR): folder to write theory.json, theory-tasks.csv, theory-classes.csv, theory.svg, theory.pdf to.
        overwrite: replace these files if they exist.
        classes: one line per class, too.
        settings: of the benchmark.
    """
    if out is not None:
        _check_folder(out, overwrite=overwrite)
    found = _diagnosis(source, settings)
    console = make_console(sys.stdout)
    console.print(tables.terms_table(found))
    if found.stored:
        console.print(tables.distance_table(found))
    if classes:
        console.print(tables.diagnosis_classes(found))
    for line in tables.lines(found):
        console.print(line)
    if out is not None:
        _write_diagnosis(found, out)
        say(out)
    return 0


def _diagnosis(source: str | None, given: Settings) -> Diagnosis:
    """Diagnose what a name, a file or a store stands for, or the folder of a run."""
    # Not Path.is_dir: that raises where a name is too long to be one.
    if source is None or not os.path.isdir(source):  # noqa: PTH112
        if source is not None and is_file_name(source):
            return diagnose(resolve(file=read_config_file(Path(source)), given=given))
        return diagnose(resolve(name=source, given=given))
    if not is_run(Path(source)):
        return diagnose(resolve(given={"benchmark": source, **given}))
    if given:
        raise InputError(
            f"{source} is a run and is looked at as it is, but settings of --{next(iter(given))} were given; "
            f"they go with a benchmark."
        )
    return diagnose_run(Path(source))


def _check_folder(path: Path, *, overwrite: bool) -> None:
    """Refuse a folder that cannot be made, or that holds files of the same names."""
    if path.exists() and not path.is_dir():
        raise InputError(f"--out {path} is a file; expected a folder to write to.")
    there = [name for name in FILES if (path / name).exists()]
    if there and not overwrite:
        raise InputError(f"{path / there[0]} exists; choose another folder, or add --overwrite.")


def _write_diagnosis(found: Diagnosis, path: Path) -> None:
    """Write what was found: JSON, tables, and the figure."""
    drawn = diagnosis_figure(found)
    make_folder(path)
    write_text(path / "theory-tasks.csv", tables.tasks_csv(found))
    write_text(path / "theory-classes.csv", tables.diagnosis_csv(found))
    for suffix in ("svg", "pdf"):
        write_bytes(path / f"theory.{suffix}", to_file(drawn, suffix))
    write_json(path / "theory.json", tables.to_json(found) | {"figure": drawn.alt})
