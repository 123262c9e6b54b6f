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
    new_command,
    open_streams,
    page,
    say,
    show_warning,
)
from mlcl.cli.verbs import call, refuse_repeated, take_plugins
from mlcl.engines.cores import share_cores
from mlcl.engines.launching import leave, rank, torchrun
from mlcl.errors import InputError, nearest, one_line
from mlcl.training.portable import NotPortable, restart

VERBS = {
    "run": ("run", "train and evaluate one method on one benchmark"),
    "resume": ("run", "continue a run that was stopped"),
    "predict": ("predict", "probabilities or tags of images, arrays or a store by a finished run"),
    "why": ("predict", "show what each word of a text adds to the log-odds of a label"),
    "thresholds": ("predict", "choose which probabilities are tags: for F1, a precision, a recall or a cost"),
    "export": ("predict", "write the network of a finished run for other programs"),
    "serve": ("serve", "serve a tagger over HTTP: images, vectors or texts in, tags out"),
    "extend": ("learn", "train a finished run on labels that nobody knew when it began"),
    "update": (
        "learn",
        "train a finished run on more rows, new labels or both: a new version, behind a gate",
    ),
    "forget": ("versions", "remove rows or a label from an exact run, with a receipt"),
    "labels": ("versions", "list the labels of a tagger, or give them other names"),
    "merge": ("versions", "add taggers of the exact learner, as if one had learnt all their rows"),
    "convert": ("versions", "write a tagger that is one file, as version 0.1 did, as a folder"),
    "drift": ("predict", "test whether inputs, or the rates of predicted labels, have moved since training"),
    "versions": ("versions", "list the versions of a run"),
    "rollback": ("versions", "use an earlier version of a run again"),
    "check": ("check", "say what is wrong with a folder of mlcl, and mend what can be mended"),
    "learn": (
        "learn",
        "learn a tagger from labelled data: a store, images, arrays, or Parquet files of any number",
    ),
    "ls": ("look", "list methods, losses, memories, models, benchmarks and configs"),
    "explain": ("look", "explain a setting, a part or a method: meaning, type, default, where it is set"),
    "cp": ("look", "copy a shipped config or experiment to a file of your own"),
    "validate": ("look", "check a config or an experiment without running it"),
    "data": ("data", "prepare raw data into a store, embed a store with a model, or describe one"),
    "reproduce": ("reproduce", "run a table of the paper over several seeds; write table, figure and report"),
    "report": ("report", "write one page about runs and sweeps; of one run, with its mistakes"),
    "card": ("report", "write a model card of a finished run, in Markdown"),
    "compare": ("report", "compare runs in a table"),
    "theory": ("report", "show what the paper's theory says of a benchmark, a memory or a finished run"),
    "completion": ("completion", "print a script that completes commands in bash or zsh"),
}
"""The verbs: each is the function of its name in a module, and has a line in the help."""

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
    new_command(arguments)
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
    function = find_verb(name)
    if name == "data":
        return function(arguments)
    if name == "explain":  # a setting may be named as it is given
        arguments = [word if word in ("-h", "--help") else word.removeprefix("--") for word in arguments]
    return call(name, function, arguments)


def find_verb(name: str) -> Callable[..., int]:
    """Return the function that is a verb."""
    verb: Callable[..., int] = getattr(importlib.import_module(f"mlcl.cli.{VERBS[name][0]}"), name)
    return verb


def _help() -> str:
    width = max(map(len, VERBS)) + 2
    lines = [f"  {name:{width}}{summary}" for name, (_, summary) in VERBS.items()]
    return (
        "usage: mlcl COMMAND [options]\n\n"
        "Multi-label continual learning under class imbalance, measured by Macro-AUC.\n\n"
        "commands:\n" + "\n".join(lines) + "\n\n"
        "`mlcl COMMAND --help` shows the options of a command; `mlcl run` alone runs the paper's method on the\n"
        "embedded benchmark c-digits. Every command takes --plugin FILE.py or --plugin package.module: parts of\n"
        "your own (docs/howto/own-part.md).\n"
    )
