"""Settings of a run on the command line, by their dotted names, and their help."""

from __future__ import annotations

import argparse
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from mlcl.cli.messages import COLUMN, WIDTH, page
from mlcl.config.resolve import Layer, checked, read_config_file, resolve, warn_of_rate
from mlcl.config.resolve import settings as every_setting
from mlcl.config.schema import PARTS, SECTIONS, Config
from mlcl.config.unused import warn_of_unused
from mlcl.errors import InputError, nearest
from mlcl.registry import Option, members

COMMON = (
    *("benchmark", "method", "seed", "validate", "stream.tasks", "stream.order", "stream.negatives"),
    *("model.kind", "loss.kind", "memory.kind", "memory.size", "regulariser.kind", "augment.kind"),
    *("train.epochs", "train.batch_size", "train.lr", "train.device", "train.devices", "train.threads"),
    *("train.portable", "checkpoint.every"),
)
"""The settings that most people change."""
OF_TRAINING = tuple(name for name in COMMON if name.startswith(("train.", "checkpoint.")))
COMMON_OF = {
    "mlcl data info": (
        *("seed", "validate", "stream.tasks", "stream.order", "stream.negatives", "stream.imbalance"),
    ),
    "mlcl update": OF_TRAINING,
    "mlcl extend": OF_TRAINING,
}
SHORT = {
    "--devices": "--train.devices",
    "--portable": "--train.portable",
    "--unlabelled": "--exact.unlabelled",
}
"""Settings that have a short form."""
DEFAULTS = {"model.kind": "resnet8 for images, mlp for vectors"}
"""Defaults that depend on more than the setting."""
DEFAULTS_OF = {"mlcl reproduce": {"benchmark": "that of the table's file, c-digits for most"}}


def config_of(source: str | None, given: Layer) -> Config:
    """Return the config of a shipped name or a file, and of settings by hand; warn of those without effect."""
    file: Layer = {}
    if source is not None and is_file_name(source):
        file = read_config_file(Path(source))
        config = resolve(file=file, given=given)
    else:
        config = resolve(name=source, given=given)
    warn_of_unused(config, file=file, given=given)
    warn_of_rate(config, file, given)
    return config


def is_file_name(source: str) -> bool:
    """Whether a source is meant to be a file, and no shipped name."""
    return source.endswith((".yaml", ".yml")) or "/" in source


def split_settings(parser: argparse.ArgumentParser, words: Sequence[str]) -> tuple[list[str], Layer]:
    """Split a command line into the words of the command's own options, and settings by section.

    >>> split_settings(argparse.ArgumentParser(), ["c-digits", "--loss", "ru", "--memory.size=5", "--validate"])
    (['c-digits'], {'loss': {'kind': 'ru'}, 'memory': {'size': 5}, 'validate': True})
    """
    known, own = every_setting(), {*parser._option_string_actions, "--help-all"}
    rest: list[str] = []
    found: Layer = {}
    left = list(words)
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        full = full_name(name)
        if full not in known or name in own:
            if name.startswith("--") and name not in own and name.replace("_", "-") not in own:
                near = nearest(name, [*own, *(f"--{setting}" for setting in known)])
                raise InputError(f"unknown option {name!r}.{near}")
            rest.append(word)
            continue
        if not equals:
            value = _following(name, known[full], left)
        section, _, last = full.rpartition(".")
        (found.setdefault(section, {}) if section else found)[last] = value
    return rest, checked(found, "command line")


def _following(name: str, option: Option, left: list[str]) -> str:
    """Take the value after a setting; one that is true or false may stand alone."""
    if set(members([option.type])) <= {bool, NoneType}:
        return left.pop(0) if left and left[0].lower() in ("true", "false", "yes", "no") else "true"
    if not left or left[0].startswith("--"):
        raise InputError(f"{name} has no value; expected {shown_type(option.type)}.")
    return left.pop(0)


def full_name(word: str) -> str:
    """Return the setting that an option is, of which it may be a short form.

    >>> full_name("--loss"), full_name("--devices"), full_name("--memory.size"), full_name("c-digits")
    ('loss.kind', 'train.devices', 'memory.size', '')
    """
    name = SHORT.get(word, word)[2:] if word.startswith("--") else ""
    return f"{name}.kind" if name in PARTS else name


def wants_help(words: Sequence[str]) -> Literal["common", "all"] | None:
    """Return which help a command line asks for: ``--help``, or ``--help all`` (also ``--help-all``).

    >>> wants_help(["c-digits", "--help"]), wants_help(["--help", "all"]), wants_help(["--help=all"]), wants_help([])
    ('common', 'all', 'all', None)
    """
    asked = [after for word, after in pairwise([*words, ""]) if word in ("-h", "--help")]
    if "--help-all" in words or "--help=all" in words or "all" in asked:
        return "all"
    return "common" if asked else None


def settings_help(parser: argparse.ArgumentParser, *, every: bool) -> None:
    """Print the help of a verb that takes settings: its own options, and the common settings or all."""
    known, defaults = every_setting(), DEFAULTS_OF.get(parser.prog, {})
    operands = " ".join(
        f"[{action.metavar or action.dest}]"
        if action.nargs in ("?", "*")
        else str(action.metavar or action.dest)
        for action in parser._actions
        if not action.option_strings
    )
    parser.usage = f"{parser.prog} {operands} [options]"
    lines = [parser.format_help()]
    if every:
        lines += setting_lines(known, defaults)
    else:
        lines.append("common settings, with their defaults; a benchmark's config or a method may set others:")
        lines += [setting_line(name, known[name], defaults) for name in COMMON_OF.get(parser.prog, COMMON)]
        lines.append(
            f"\n`{parser.prog} --help all` lists all {len(known)} settings, `mlcl explain memory.size` explains one, "
            "`mlcl ls` lists\nmethods, losses, memories, models and benchmarks."
        )
    page("\n".join(lines))


def setting_lines(known: Mapping[str, Option], defaults: Mapping[str, str]) -> Iterator[str]:
    """Yield all settings, below a heading for each section."""
    section = None
    for name, option in known.items():
        if (head := name.rpartition(".")[0]) != section:
            section = head
            about = inspect.getdoc(SECTIONS[head] if head else Config) or ""
            yield f"\n{head or 'run'}: {about.partition(chr(10))[0].rstrip('.')}:"
        yield setting_line(name, option, defaults, whole=True)


def setting_line(
    name: str, option: Option, defaults: Mapping[str, str] | None = None, *, whole: bool = False
) -> str:
    """Return a setting with its first sentence (or all that is known of it) and its default."""
    text, _, rest = (option.help, "", "") if whole else option.help.partition(". ")
    unset = re.search(r"Not set: ([^.]*)", rest)
    default = {**DEFAULTS, **(defaults or {})}.get(name) or shown_default(option.default)
    default = default or (unset.group(1) if unset else "")
    head = f"  --{short(name)} {shown_type(option.type)}"
    text = f"{text.rstrip('.')}{f' (default: {default})' if default else ''}"
    lines = textwrap.wrap(text, WIDTH - COLUMN, break_on_hyphens=False) or [""]
    if len(head) > COLUMN - 2:
        if len(head) + len(text) + 2 <= WIDTH:
            return f"{head}  {text}".rstrip()
        lines.insert(0, "")
    return "\n".join([f"{head:{COLUMN}}{lines[0]}".rstrip(), *(f"{'':{COLUMN}}{line}" for line in lines[1:])])


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
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def shown_type(kind: Any) -> str:
    """Return what stands for a value of this type.

    >>> shown_type(int | None), shown_type(Literal["sgd", "adam"]), shown_type(str | list[list[int]])
    ('N', 'sgd|adam', 'NAME|LIST')
    """
    words = {int: "N", float: "X", bool: "true|false", str: "NAME", list: "LIST", tuple: "LIST"}
    shown: list[str] = []
    for one in members([kind]):
        if get_origin(one) is Literal:
            shown += map(str, get_args(one))
        elif one is not NoneType:
            shown.append(words.get(get_origin(one) or one, "VALUE"))
    return "|".join(dict.fromkeys(shown))
