"""The command line: verbs, each a few lines that call one function of the library.

Exit codes: 0 done, 2 bad input (one sentence on stderr), 3 interrupted and resumable, 1 anything else.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlcl import __version__
from mlcl.errors import InputError, nearest
from mlcl.launching import ProcessError, leave, rank, torchrun

if TYPE_CHECKING:
    from mlcl.observers import Observer
    from mlcl.results import Result

VERBS: dict[str, tuple[str, Callable[[list[str]], int]]] = {}


def verb(name: str, summary: str) -> Callable[[Callable[[list[str]], int]], Callable[[list[str]], int]]:
    """Make a function a verb of the command line."""

    def add(function: Callable[[list[str]], int]) -> Callable[[list[str]], int]:
        VERBS[name] = (summary, function)
        return function

    return add


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb and return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    if torchrun() is None:
        return _main(arguments)
    with contextlib.ExitStack() as silence:
        if rank() > 0:  # the first process talks to the user
            warnings.simplefilter("ignore")
            nowhere = silence.enter_context(Path(os.devnull).open("w"))
            silence.enter_context(contextlib.redirect_stdout(nowhere))
        code = _main(arguments)
    if code in (0, 3):  # all processes come to this end
        leave()
    return code


def _main(arguments: list[str]) -> int:
    try:
        if not arguments or arguments[0] in ("-h", "--help", "help"):
            sys.stdout.write(_help())
            return 0
        if arguments[0] == "--version":
            sys.stdout.write(f"mlcl {__version__}\n")
            return 0
        name = arguments.pop(0)
        if name not in VERBS:
            raise InputError(
                f"unknown command {name!r}; known are: {', '.join(VERBS)}.{nearest(name, VERBS)}"
            )
        return VERBS[name][1](arguments)
    except InputError as error:
        return _fail(str(error), 2)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of a pipe has gone (mlcl ls | head); there is nobody to tell
        return 1
    except OSError as error:
        return _fail(f"{error.filename or 'a file'}: {error.strerror or error}", 1)
    except KeyboardInterrupt:
        return _fail("interrupted", 1)


def _fail(message: str, code: int) -> int:
    where = f"process {rank()}: " if rank() else ""
    sys.stderr.write(f"mlcl: error: {where}{re.sub(chr(10), ' ', message)}\n")
    return code


def _show_warning(message: Warning | str, category: type[Warning], *_: Any) -> None:
    if issubclass(category, UserWarning):
        sys.stderr.write(f"mlcl: warning: {message}\n")


def _help() -> str:
    width = max(map(len, VERBS)) + 2
    lines = [f"  {name:{width}}{summary}" for name, (summary, _) in VERBS.items()]
    return (
        "usage: mlcl COMMAND [options]\n\n"
        "Multi-label continual learning under class imbalance, measured by Macro-AUC.\n\n"
        "commands:\n" + "\n".join(lines) + "\n\n"
        "`mlcl COMMAND --help` tells the options of a command; `mlcl run` alone runs the paper's method on the\n"
        "embedded benchmark c-digits.\n"
    )


def _parser(name: str, description: str) -> argparse.ArgumentParser:
    return _Parser(prog=f"mlcl {name}", description=description, allow_abbrev=False)


class _Parser(argparse.ArgumentParser):
    """Says in one sentence what is wrong, as everything else does."""

    def error(self, message: str) -> Any:
        raise InputError(f"{self.prog}: {message}.")


@verb("run", "train and test one method on one benchmark")
def run_verb(arguments: list[str]) -> int:
    """Run: ``mlcl run [NAME | FILE.yaml] [--method M] [--memory.size N] ... [--out DIR]``."""
    from mlcl.command import RunCommand, parse_run

    command: RunCommand = parse_run(arguments)
    if command.help:
        return 0
    from mlcl.observers import Both
    from mlcl.run_folder import default_folder
    from mlcl.runs import run
    from mlcl.sweeps.trackers import parse_trackers, tracked

    names = parse_trackers(command.track)
    out = command.out or default_folder(command.config)

    def start(observer: Observer) -> Result:
        with tracked(names, out, command.config) as tracking:
            return run(
                command.config, out=out, overwrite=command.overwrite, observer=Both(tracking, observer)
            )

    return _follow(start, out, quiet=command.quiet)


@verb("resume", "go on with a run that was stopped")
def resume_verb(arguments: list[str]) -> int:
    """Resume: ``mlcl resume DIR [--quiet] [--track T,...]``."""
    parser = _parser(
        "resume", "Go on with a run from its newest checkpoint; the result is that of a run in one go."
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder of the run")
    parser.add_argument("--quiet", action="store_true", help="print the folder's path only")
    parser.add_argument("--track", help="trackers to tell (default: those that the run began with)")
    given = parser.parse_args(arguments)
    from mlcl.observers import Both
    from mlcl.run_folder import is_finished
    from mlcl.runs import resume
    from mlcl.settings import config_from
    from mlcl.sweeps.trackers import known_trackers, parse_trackers, tracked

    if is_finished(given.folder):
        sys.stderr.write(f"mlcl: {given.folder} is finished; there is nothing to go on with\n")
        sys.stdout.write(f"{given.folder}\n")
        return 0
    names = parse_trackers(",".join(known_trackers(given.folder)) if given.track is None else given.track)

    def start(observer: Observer) -> Result:
        with tracked(names, given.folder, config_from(given.folder / "config.yaml")) as tracking:
            return resume(given.folder, observer=Both(tracking, observer))

    return _follow(start, given.folder, quiet=given.quiet)


@verb("predict", "score images, arrays or a store with a finished run")
def predict_verb(arguments: list[str]) -> int:
    """Predict: ``mlcl predict DIR INPUT --out FILE.csv | FILE.npz [--logits] [--overwrite]``."""
    parser = _parser("predict", "Score inputs with the network of a finished run: a column a class.")
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder of the run")
    parser.add_argument(
        "inputs", type=Path, metavar="INPUT", help="an image, a folder of images, an .npy or .npz, or a store"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="a .csv or .npz to write")
    parser.add_argument("--logits", action="store_true", help="logits instead of probabilities")
    parser.add_argument("--overwrite", action="store_true", help="replace the file if it exists")
    given = parser.parse_args(arguments)
    from mlcl.predict import check_out, predict, write_scores

    check_out(given.out, suffixes=(".csv", ".npz"), overwrite=given.overwrite)
    write_scores(predict(given.folder, given.inputs, logits=given.logits), given.out)
    sys.stdout.write(f"{given.out}\n")
    return 0


@verb("export", "write the network of a finished run for other programs")
def export_verb(arguments: list[str]) -> int:
    """Export: ``mlcl export DIR --format torch | onnx [--out FILE] [--logits] [--overwrite]``."""
    parser = _parser(
        "export",
        "Write a network that takes raw inputs and gives the scores of `mlcl predict`, and check that it does.",
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder of the run")
    parser.add_argument("--format", choices=("torch", "onnx"), default="torch", help="default: torch")
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: DIR/model.pt2 or DIR/model.onnx")
    parser.add_argument("--logits", action="store_true", help="logits instead of probabilities")
    parser.add_argument("--overwrite", action="store_true", help="replace the file if it exists")
    given = parser.parse_args(arguments)
    from mlcl.export import SUFFIXES, ExportError, export
    from mlcl.predict import check_out

    suffixes = SUFFIXES[given.format]
    out = given.out or given.folder / f"model{suffixes[0]}"
    check_out(out, suffixes=suffixes, overwrite=given.overwrite)
    try:
        gap = export(given.folder, out, format=given.format, logits=given.logits)
    except ExportError as error:
        return _fail(str(error), 1)
    sys.stderr.write(f"mlcl: scores differ from the network's by {gap:.1g} at most\n")
    sys.stdout.write(f"{out}\n")
    return 0


@verb("extend", "teach a finished run labels that nobody knew when it began")
def extend_verb(arguments: list[str]) -> int:
    """Extend: ``mlcl extend DIR --data STORE [--out DIR2] [--train.epochs N] ...``."""
    if not arguments or arguments[0].startswith("-"):
        if "-h" in arguments or "--help" in arguments:
            sys.stdout.write(EXTEND_HELP)
            return 0
        raise InputError(
            "mlcl extend: the following arguments are required: DIR, the folder of a finished run."
        )
    from mlcl.command import parse_run

    folder, rest = Path(arguments[0]), arguments[1:]
    if not any(word.split("=")[0] == "--data" for word in rest):
        raise InputError(
            "mlcl extend: the following arguments are required: --data, the store with the new labels."
        )
    command = parse_run([str(folder / "config.yaml"), *rest])
    if command.help:
        return 0
    from mlcl.extend import extend

    out = command.out or _free(folder)
    return _follow(
        lambda observer: extend(
            folder, out=out, config=command.config, overwrite=command.overwrite, observer=observer
        ),
        out,
        quiet=command.quiet,
    )


EXTEND_HELP = """usage: mlcl extend DIR --data STORE [--out DIR2] [--overwrite] [--quiet] [--train.epochs N] ...

Teach a finished run the classes of a store that it does not know yet, as one more task. DIR stays as it is; weights,
stored samples and constants come from it. Options of `mlcl run` that begin with --train or --checkpoint go on top.

  DIR          the folder of a finished run
  --data STORE the store with the new labels, by folder or name
  --out DIR2   folder to write (default: DIR-extended)
"""


def _free(folder: Path) -> Path:
    base = folder.with_name(f"{folder.name}-extended")
    candidates = (base if n == 1 else base.with_name(f"{base.name}-{n}") for n in range(1, sys.maxsize))
    return next(path for path in candidates if not path.exists())


def _follow(start: Callable[[Observer], Result], out: Path, *, quiet: bool) -> int:
    """Do a run, show how it goes, and turn its end into an exit code."""
    from mlcl.interrupts import Signals
    from mlcl.observers import Both, Interrupted
    from mlcl.progress import Terminal, make_console, result_lines, result_table
    from mlcl.training import TrainingError

    signals = Signals()
    go_on = f"go on with: mlcl resume {shlex.quote(str(out))}"
    try:
        with signals:
            if quiet or rank() > 0:
                start(signals)
            else:
                with Terminal() as terminal:
                    result = start(Both(terminal, signals))
                console = make_console(sys.stdout)
                console.print(result_table(result))
                for line in result_lines(result):
                    console.print(line)
    except TrainingError as error:
        return _fail(f"{error} What was measured so far is in {out}.", 1)
    except (Interrupted, KeyboardInterrupt):
        if not signals.listening:
            raise
        return 3 if rank() else _fail(f"interrupted; {go_on}", 3)
    except ProcessError as error:
        sys.stderr.writelines(getattr(error, "__notes__", ()))
        return _fail(f"{error}; {go_on}" if signals.listening else str(error), 1)
    except BrokenPipeError:
        raise
    except OSError as error:
        if not signals.listening:
            raise
        return _fail(
            f"{error.filename or out}: {error.strerror or error}; the last good checkpoint stays; {go_on}", 1
        )
    sys.stdout.write(f"{out}\n")
    return 0


@verb("ls", "list methods, losses, memories, models, benchmarks and configs")
def ls_verb(arguments: list[str]) -> int:
    """List: ``mlcl ls [WHAT] [PATTERN]``."""
    from mlcl.listing import SECTIONS, listing

    parser = _parser("ls", "List what can be named in a config or on the command line.")
    parser.add_argument("what", nargs="?", help=f"one of: {', '.join(SECTIONS)}; all if not given")
    parser.add_argument("pattern", nargs="?", default="*", help="a glob, such as 'rldam*'")
    given = parser.parse_args(arguments)
    for line in listing(given.what, given.pattern):
        sys.stdout.write(line + "\n")
    return 0


@verb("cp", "copy a shipped config to a file of your own")
def cp_verb(arguments: list[str]) -> int:
    """Copy: ``mlcl cp NAME FILE.yaml``."""
    from mlcl.settings import shipped

    parser = _parser("cp", "Copy a shipped config to a file, to change and run it.")
    parser.add_argument("name", help="a name from `mlcl ls configs`")
    parser.add_argument("file", type=Path, help="the file to write")
    parser.add_argument("--overwrite", action="store_true", help="replace the file if it exists")
    given = parser.parse_args(arguments)
    configs = shipped()
    if given.name not in configs:
        known = ", ".join(configs)
        raise InputError(f"unknown config {given.name!r}; known are: {known}.{nearest(given.name, configs)}")
    if given.file.exists() and not given.overwrite:
        raise InputError(f"{given.file} exists; choose another name, or add --overwrite.")
    given.file.write_text(configs[given.name], encoding="utf-8")
    sys.stdout.write(f"{given.file}\n")
    return 0


@verb("data", "prepare raw data into a store, embed a store with a model, or tell what is in one")
def data_verb(arguments: list[str]) -> int:
    """Data: ``mlcl data prepare KIND --root PATH``, ``mlcl data features STORE``, ``mlcl data info STORE``."""
    from mlcl.data_command import data

    return data(arguments)


@verb("reproduce", "run a table of the paper over several seeds; write table, figure and report")
def reproduce_verb(arguments: list[str]) -> int:
    """Reproduce: ``mlcl reproduce TABLE [--benchmark B] [--seeds N] [--jobs N] [--engine E] [--out DIR]``."""
    from mlcl.reports.commands import reproduce

    return reproduce(arguments)


@verb("report", "write one page about runs and sweeps")
def report_verb(arguments: list[str]) -> int:
    """Report: ``mlcl report DIR... --out FILE.html [--overwrite]``."""
    parser = _parser("report", "Write one self-contained page about finished runs and sweeps.")
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="folders of runs or sweeps")
    parser.add_argument("--out", type=Path, default=Path("report.html"), help="default: report.html")
    parser.add_argument("--overwrite", action="store_true", help="replace the file if it exists")
    given = parser.parse_args(arguments)
    from mlcl.reports.commands import report

    report(given.folders, given.out, overwrite=given.overwrite)
    return 0


@verb("compare", "compare runs in a table")
def compare_verb(arguments: list[str]) -> int:
    """Compare: ``mlcl compare DIR...``."""
    parser = _parser("compare", "Compare finished runs and sweeps of one benchmark in a table.")
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="folders of runs or sweeps")
    given = parser.parse_args(arguments)
    from mlcl.reports.commands import compare

    compare(given.folders)
    return 0


@verb("theory", "tell what the paper's theory says of a benchmark, a memory or a finished run")
def theory_verb(arguments: list[str]) -> int:
    """Theory: ``mlcl theory [NAME | FILE.yaml | STORE | DIR] [--memory.kind K] ... [--out DIR] [--overwrite]``."""
    from mlcl.theory_command import theory

    return theory(arguments)
