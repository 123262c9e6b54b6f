"""A verb is a function: its signature has the operands and options of the command, its docstring the help."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import re
import textwrap
import typing
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from mlcl.cli.messages import COLUMN, WIDTH
from mlcl.errors import InputError
from mlcl.registry import members

Settings = dict[str, Any]
"""The type of the parameter ``settings`` of a verb that takes settings of a run: those that were given."""
EPILOG = "--plugin FILE.py | package.module loads parts of your own first."


class VerbParser(argparse.ArgumentParser):
    """Raises what is wrong as an `InputError` of one sentence, as everything else does."""

    def error(self, message: str) -> Any:
        """Raise instead of printing the usage."""
        raise InputError(f"{self.prog}: {message}.")


class _Formatter(argparse.HelpFormatter):
    """Does not break names at their hyphens, and is as wide in every terminal."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=COLUMN, width=WIDTH)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:  # noqa: ARG002
        return textwrap.fill(text, width, break_on_hyphens=False)


def call(name: str, verb: Callable[..., int], words: Sequence[str]) -> int:
    """Call a verb with the words of a command line and return its exit code."""
    parser = verb_parser(name, verb)
    groups = {key: kind for key, kind in _parameters(verb) if dataclasses.is_dataclass(kind)}
    given: dict[str, Any] = {}
    if takes_settings(verb):
        from mlcl.cli.settings import settings_help, split_settings, wants_help

        if wanted := wants_help(words):
            settings_help(parser, every=wanted == "all")
            return 0
        words, given["settings"] = split_settings(parser, words)
    parsed = vars(parser.parse_args([_spelt(word) for word in words]))
    for key, kind in groups.items():
        names = [field.name for field in dataclasses.fields(kind)]
        given[key] = typing.cast(Any, kind)(**{name: parsed.pop(name) for name in names})
    return verb(**parsed, **given)


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


def takes_settings(verb: Callable[..., Any]) -> bool:
    """Whether settings of a run may stand among the options of a verb."""
    return "settings" in inspect.signature(verb).parameters


def verb_parser(name: str, *functions: Callable[..., Any]) -> VerbParser:
    """Return the parser of a verb; what several functions take is options of one command."""
    description = re.split(r"\n\s*\n(?=Args:|    )|\n\nArgs:", inspect.getdoc(functions[0]) or "")[0]
    parser = VerbParser(
        prog=f"mlcl {name}",
        description=" ".join(description.split()).replace("``", "`"),
        allow_abbrev=False,
        epilog=EPILOG,
        formatter_class=_Formatter,
    )
    for function in functions:
        add_options(parser, function)
    return parser


def add_options(parser: argparse.ArgumentParser, function: Callable[..., Any]) -> None:
    """Add what a function takes: operands by position, options by keyword, the fields of dataclasses as options."""
    kinds = dict(_parameters(function))
    for parameter in inspect.signature(function).parameters.values():
        kind = kinds[parameter.name]
        if dataclasses.is_dataclass(kind):
            add_options(parser, typing.cast(Any, kind))
        elif parameter.name != "settings":
            _add(parser, parameter, kind, *_help(function, parameter.name))


def _parameters(function: Any) -> Iterator[tuple[str, Any]]:
    hints = typing.get_type_hints(inspect.unwrap(function))
    return ((name, hints.get(name, str)) for name in inspect.signature(function).parameters)


def _help(function: Any, name: str) -> tuple[str | None, str]:
    """Return what stands for a value, and what it means: ``name (VALUE): meaning`` in the docstring."""
    text = inspect.getdoc(function) or ""
    found = re.search(rf"^ +{name}(?: \(([^)]*)\))?: (.*(?:\n {{6,}}.*)*)", text, re.MULTILINE)
    if found is None:
        return None, ""
    return found.group(1), " ".join(found.group(2).split()).replace("``", "").rstrip(".")


def _add(
    parser: argparse.ArgumentParser, parameter: inspect.Parameter, kind: Any, metavar: str | None, text: str
) -> None:
    option = parameter.kind is parameter.KEYWORD_ONLY or isinstance(parameter.default, bool)
    needed, default = parameter.default is parameter.empty, parameter.default
    if default not in (None, False, "", parameter.empty) and "default:" not in text and default != []:
        text = f"{text} (default: {default})"
    given: dict[str, Any] = {"help": text.replace("%", "%%"), "default": None if needed else default}
    kinds = [one for one in members([kind]) if one is not NoneType]
    if kinds == [bool]:
        given["action"] = "store_true"
    else:
        given |= {"metavar": metavar} | _reading(kinds, needed=needed, option=option)
    if option:
        parser.add_argument(f"--{parameter.name.replace('_', '-')}", required=needed, **given)
    else:
        parser.add_argument(parameter.name, **given)


def _reading(kinds: Sequence[Any], *, needed: bool, option: bool) -> dict[str, Any]:
    """Return how argparse reads values of types: how many, which ones, and by which function."""
    kind = kinds[-1]
    if bool in kinds:  # the option alone, or with a value
        return {"nargs": "?", "const": True, "type": kind}
    if get_origin(kind) is Literal:
        return {"choices": get_args(kind), "metavar": None, **({} if needed or option else {"nargs": "?"})}
    if get_origin(kind) is list:
        return {"nargs": "+" if needed or option else "*", "type": get_args(kind)[0]}
    reads = kind if kind in (int, float, Path) else str
    return {"type": reads} | ({} if needed or option else {"nargs": "?"})


def _spelt(word: str) -> str:
    """Return a word as parsers have it: ``--held_out`` is ``--held-out``."""
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return f"{name.replace('_', '-')}{equals}{value}"
