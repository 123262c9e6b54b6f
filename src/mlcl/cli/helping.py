"""The help of verbs that take settings of a run: their own options, and the common settings in a sentence each."""

from __future__ import annotations

import argparse
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, get_args, get_origin

from mlcl.config.resolve import settings
from mlcl.config.schema import PARTS, SECTIONS, Config
from mlcl.registry import Option, members

WIDTH, COLUMN = 110, 30
COMMON = (
    "benchmark",
    "method",
    "seed",
    "validate",
    "stream.tasks",
    "stream.order",
    "stream.negatives",
    "model.kind",
    "loss.kind",
    "memory.kind",
    "memory.size",
    "regulariser.kind",
    "augment.kind",
    "train.epochs",
    "train.batch_size",
    "train.lr",
    "train.device",
    "train.devices",
    "train.threads",
    "train.portable",
    "checkpoint.every",
)
"""The settings that most people change."""
SHORT = {
    "--devices": "--train.devices",
    "--portable": "--train.portable",
    "--unlabelled": "--exact.unlabelled",
}
"""Settings that have a short form."""
DEFAULTS = {"model.kind": "resnet8 for images, mlp for vectors"}
"""Defaults that depend on more than the setting."""


def wants_help(arguments: Sequence[str]) -> Literal["common", "all"] | None:
    """Return which help a command line asks for: ``--help``, or ``--help all`` (also ``--help-all``).

    >>> wants_help(["c-digits", "--help"]), wants_help(["--help", "all"]), wants_help(["--seed", "1"]), wants_help([])
    ('common', 'all', None, None)
    """
    words = [
        part for word in arguments for part in (word.split("=") if word.startswith("--help=") else [word])
    ]
    asked = [after for word, after in pairwise([*words, ""]) if word in ("-h", "--help")]
    if "--help-all" in words or "all" in asked:
        return "all"
    return "common" if asked else None


def verb_help(
    parser: argparse.ArgumentParser,
    own: Sequence[argparse.Action],
    *,
    every: bool,
    common: Sequence[str] = COMMON,
    defaults: Mapping[str, str] | None = None,
) -> str:
    """Return the help of a verb that takes settings of a run.

    Args:
        parser: has usage and description.
        own: the verb's own options.
        every: all settings; otherwise the common ones, and where to find the rest.
        common: the settings that most users of the verb change.
        defaults: of settings that the verb has another default for.
    """
    shown = [action for action in own if action.dest != "help" and action.help != argparse.SUPPRESS]
    words = [_operand(action) for action in shown if not action.option_strings]
    usage = parser.usage or f"{parser.prog} {' '.join(words)} [options]"
    parts = [f"usage: {usage}\n", textwrap.fill(parser.description or "", WIDTH, break_on_hyphens=False)]
    parts += ["\noptions:", *(_entry(_action(action), action.help or "") for action in shown)]
    known = settings()
    if every:
        parts += [f"\n{line}" if line.endswith(":") else line for line in setting_lines(known, defaults)]
        return "\n".join(parts) + "\n"
    parts.append("\ncommon settings, with their defaults; a benchmark's config or a method may set others:")
    parts += [setting_line(name, known[name], defaults) for name in common]
    parts.append(
        f"\n`{parser.prog} --help all` lists all {len(known)} settings, `mlcl explain memory.size` explains one, "
        "`mlcl ls` lists\nmethods, losses, memories, models and benchmarks."
    )
    return "\n".join(parts) + "\n"


def setting_lines(known: dict[str, Option], defaults: Mapping[str, str] | None = None) -> Iterator[str]:
    """Yield all settings, below a heading for each section."""
    section = None
    for name, option in known.items():
        head = name.rpartition(".")[0]
        if head != section:
            section = head
            about = inspect.getdoc(SECTIONS[head] if head else Config) or ""
            yield f"{head or 'run'}: {about.partition(chr(10))[0].rstrip('.')}:"
        yield setting_line(name, option, defaults, whole=True)


def setting_line(
    name: str, option: Option, defaults: Mapping[str, str] | None = None, *, whole: bool = False
) -> str:
    """Return a setting with its first sentence (or all that is known of it) and its default."""
    text, _, rest = (option.help, "", "") if whole else option.help.partition(". ")
    unset = re.search(r"Not set: ([^.]*)", rest)
    default = (
        (DEFAULTS | dict(defaults or {})).get(name)
        or shown_default(option.default)
        or (unset.group(1) if unset else "")
    )
    note = f" (default: {default})" if default else ""
    return _entry(f"--{short(name)} {shown_type(option.type)}", f"{text.rstrip('.')}{note}")


def short(name: str) -> str:
    """Return how a setting is written on the command line.

    >>> short("model.kind"), short("train.devices"), short("memory.size")
    ('model', 'devices', 'memory.size')
    """
    section, _, last = name.partition(".")
    if last == "kind" and section in PARTS:
        return section
    return next((key[2:] for key, whole in SHORT.items() if whole == f"--{name}"), name)


def shown_default(value: Any) -> str:
    """Return a default as it is written on the command line; empty if there is none."""
    if value is None or value is inspect.Parameter.empty:
        return ""
    return (
        str(value).lower()
        if isinstance(value, bool)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


def shown_type(kind: Any) -> str:
    """Return what stands for a value of this type.

    >>> shown_type(int | None), shown_type(Literal["sgd", "adam"]), shown_type(str | list[list[int]])
    ('N', 'sgd|adam', 'NAME|LIST')
    """
    return "|".join(dict.fromkeys(_shown_types(members([kind]))))


def _shown_types(kinds: Iterable[Any]) -> Iterator[str]:
    for kind in kinds:
        if get_origin(kind) is Literal:
            yield from map(str, get_args(kind))
        elif get_origin(kind) in (list, tuple):
            yield "LIST"
        elif kind is not type(None):
            yield {int: "N", float: "X", bool: "true|false", str: "NAME"}.get(kind, "VALUE")


def _operand(action: argparse.Action) -> str:
    name = str(action.metavar or action.dest)
    return f"[{name}]" if action.nargs == "?" else name


def _action(action: argparse.Action) -> str:
    if not action.option_strings:
        return str(action.metavar or action.dest)
    takes = action.nargs != 0
    value = action.metavar or ("|".join(action.choices) if action.choices else action.dest.upper())
    return f"{action.option_strings[-1]} {value}" if takes else action.option_strings[-1]


def _entry(head: str, text: str) -> str:
    """Return a line, or several: what is given, and what it means beside it."""
    lines = textwrap.wrap(text.replace("%%", "%"), WIDTH - COLUMN, break_on_hyphens=False) or [""]
    first = f"  {head}"
    if len(first) > COLUMN - 2:
        if len(first) + len(text) + 2 <= WIDTH:
            return f"{first}  {text}".rstrip()
        lines.insert(0, "")
    rest = "".join(f"\n{'':{COLUMN}}{line}" for line in lines[1:])
    return f"{first:{COLUMN}}{lines[0]}".rstrip() + rest
