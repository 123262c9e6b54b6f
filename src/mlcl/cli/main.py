"""The entry point: finds the verb, loads plugins, and turns errors into one sentence and an exit code.

Exit codes: 0 done, 2 bad input (one sentence on stderr), 3 interrupted and resumable, 4 refused by a gate, or because
another version came into use meanwhile (the new version is kept, the one in use stays), 1 anything else.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from mlcl._version import __version__
from mlcl.cli.messages import (
    close_streams,
    fail,
    new_warnings,
    open_streams,
    page,
    say,
    show_warning,
)
from mlcl.engines.cores import share_cores
from mlcl.engines.launching import leave, rank, torchrun
from mlcl.errors import InputError, nearest, one_line
from mlcl.training.portable import NotPortable, restart

VERBS = {
    "run": "train and evaluate one method on one benchmark",
    "resume": "continue a run that was stopped",
    "predict": "probabilities or tags of images, arrays or a store by a finished run",
    "why": "show what each word of a text adds to the log-odds of a label",
    "thresholds": "choose which probabilities are tags: for F1, a precision, a recall or a cost",
    "export": "write the network of a finished run for other programs",
    "serve": "serve a tagger over HTTP: images, vectors or texts in, tags out",
    "extend": "train a finished run on labels that nobody knew when it began",
    "update": "train a finished run on more rows, new labels or both: a new version, behind a gate",
    "forget": "remove rows or a label from an exact run, with a receipt",
    "labels": "list the labels of a tagger, or give them other names",
    "merge": "add taggers of the exact learner, as if one had learnt all their rows",
    "convert": "write a tagger that is one file, as version 0.1 did, as a folder",
    "drift": "test whether inputs, or the rates of predicted labels, have moved since training",
    "versions": "list the versions of a run",
    "rollback": "use an earlier version of a run again",
    "check": "say what is wrong with a folder of mlcl, and mend what can be mended",
    "learn": "learn a tagger from labelled data: a store, images, arrays, or Parquet files of any number",
    "ls": "list methods, losses, memories, models, benchmarks and configs",
    "explain": "explain a setting, a part or a method: meaning, type, default, where it is set",
    "cp": "copy a shipped config or experiment to a file of your own",
    "validate": "check a config or an experiment without running it",
    "data": "prepare raw data into a store, embed a store with a model, or describe one",
    "reproduce": "run a table of the paper over several seeds; write table, figure and report",
    "report": "write one page about runs and sweeps; of one run, with its mistakes",
    "card": "write a model card of a finished run, in Markdown",
    "compare": "compare runs in a table",
    "theory": "show what the paper's theory says of a benchmark, a memory or a finished run",
    "completion": "print a script that completes commands in bash or zsh",
}
"""The verbs, each the function ``main`` of the module of its name."""

NEXT = """\
mlcl: multi-label continual learning under class imbalance, measured by Macro-AUC.

What to do next:
  mlcl run                              train the paper's method on the embedded benchmark: a minute
  mlcl run --method er                  another method on the same tasks; `mlcl ls methods` lists them
  mlcl compare runs/*                   both in a table; `mlcl report runs/*` writes a page to look at
  mlcl data prepare folder --root DIR --size 32 --out STORE     your own images and labels (a CSV), as a store
  mlcl run --benchmark STORE            the same on your data

`mlcl --help` lists all commands, `mlcl run --help` the settings of a run, `mlcl explain NAME` explains one.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb and return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is not None:
        return _run(arguments, own=False)
    open_streams()
    try:
        return _run(arguments, own=True)
    finally:
        close_streams()


def _run(arguments: list[str], *, own: bool) -> int:
    share_cores()  # before torch is loaded
    warnings.showwarning = show_warning
    new_warnings()
    if torchrun() is None:
        return _main(arguments, own=own)
    with contextlib.ExitStack() as silence:
        if rank() > 0:  # the first process talks to the user
            warnings.simplefilter("ignore")
            nowhere = silence.enter_context(Path(os.devnull).open("w"))
            silence.enter_context(contextlib.redirect_stdout(nowhere))
        code = _main(arguments, own=own)
    if code in (0, 3, 4):  # all processes come to this end
        leave()
    return code


def _main(arguments: list[str], *, own: bool) -> int:
    try:
        try:
            code = _verb(arguments)
            sys.stdout.flush()  # a full disk or a reader who has gone is found out here
            return code
        except NotPortable:
            if own:  # of a process that called `main` the command line says nothing
                restart()
            raise
    except InputError as error:
        return fail(str(error), 2)
    except BrokenPipeError:
        return 1  # the reader of a pipe has gone (mlcl ls | head); nobody reads a message
    except OSError as error:
        return fail(f"{error.filename or 'a file'}: {error.strerror or error}", 1)
    except KeyboardInterrupt:
        return fail("interrupted", 1)
    except (MemoryError, RuntimeError) as error:  # torch raises the latter
        if not isinstance(error, MemoryError) and "allocate memory" not in str(error):
            raise
        return fail(f"not enough memory: {one_line(error)}", 1)


def _verb(arguments: list[str]) -> int:
    if not arguments:
        page(NEXT)
        return 0
    if arguments[0] in ("-h", "--help", "help"):
        page(_help())
        return 0
    if arguments[0] == "--version":
        say(f"mlcl {__version__}")
        return 0
    name = arguments.pop(0)
    if name not in VERBS:
        raise InputError(f"unknown command {name!r}; known are: {', '.join(VERBS)}.{nearest(name, VERBS)}")
    arguments, plugins = take_plugins(arguments)
    refuse_repeated(arguments)
    if plugins:
        from mlcl.plugins import load_plugin

        for plugin in plugins:
            load_plugin(plugin)
    verb: Callable[[list[str]], int] = importlib.import_module(f"mlcl.cli.{name}").main
    return verb(arguments)


def take_plugins(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split ``--plugin FILE.py | package.module``, which every verb takes, from the other words of a command line.

    They are loaded before anything else is parsed: what a plugin registers adds names and options.

    >>> take_plugins(["--memory", "mine", "--plugin", "my.py", "--plugin=a.b"])
    (['--memory', 'mine'], ['my.py', 'a.b'])
    """
    rest, plugins = [], []
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if name != "--plugin":
            rest.append(word)
            continue
        plugins.append(value if equals else next(words, ""))
        if not plugins[-1]:
            raise InputError("--plugin has no value; expected FILE.py or package.module.")
    return rest, plugins


def refuse_repeated(arguments: Sequence[str]) -> None:
    """Refuse an option that is given twice: of two benchmarks the first would be dropped without a word.

    >>> refuse_repeated(["--benchmark", "a", "--benchmark=b"])
    Traceback (most recent call last):
    ...
    mlcl.errors.InputError: --benchmark is given twice; expected it once.
    """
    names = [word.partition("=")[0] for word in arguments if word.startswith("--")]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{name} is given twice; expected it once.")


def _help() -> str:
    width = max(map(len, VERBS)) + 2
    lines = [f"  {name:{width}}{summary}" for name, summary in VERBS.items()]
    return (
        "usage: mlcl COMMAND [options]\n\n"
        "Multi-label continual learning under class imbalance, measured by Macro-AUC.\n\n"
        "commands:\n" + "\n".join(lines) + "\n\n"
        "`mlcl COMMAND --help` shows the options of a command; `mlcl run` alone runs the paper's method on the\n"
        "embedded benchmark c-digits. Every command takes --plugin FILE.py or --plugin package.module: parts of\n"
        "your own (docs/extending.md).\n"
    )
