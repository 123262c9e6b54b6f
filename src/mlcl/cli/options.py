"""The options of verbs: every setting of a run by its dotted name, and what belongs to the command alone."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser

from mlcl.cli.helping import COMMON, SHORT, verb_help, wants_help
from mlcl.cli.messages import page
from mlcl.config.resolve import (
    Layer,
    add_settings,
    checked,
    flags,
    one_sentence,
    read_config_file,
    resolve,
    warn_of_rate,
)
from mlcl.config.schema import PARTS, Config
from mlcl.config.unused import warn_of_unused
from mlcl.errors import InputError, nearest


@dataclass(frozen=True)
class RunCommand:
    """A parsed command line."""

    config: Config
    out: Path | None = None
    overwrite: bool = False
    quiet: bool = False
    track: str = ""


def run_parser(prog: str = "mlcl run") -> ArgumentParser:
    """Return the parser of ``mlcl run``."""
    parser = ArgumentParser(
        prog=prog,
        usage=f"{prog} [NAME | FILE.yaml] [options]",
        exit_on_error=False,
        allow_abbrev=False,
        description="Train and evaluate one method on one benchmark. NAME is a shipped config (`mlcl ls configs`), "
        "FILE.yaml one of your own; options override its settings. --loss ru is short for --loss.kind ru, --devices 2 "
        "for --train.devices 2, --portable for --train.portable true, --unlabelled 1 for --exact.unlabelled 1.",
    )
    parser.add_argument(
        "source", nargs="?", metavar="NAME | FILE.yaml", help="what to run (default: c-digits)"
    )
    parser.add_argument("--out", metavar="DIR", help="folder to write (default: runs/BENCHMARK-METHOD-seedN)")
    parser.add_argument("--overwrite", action="store_true", help="replace the folder if it holds a run")
    parser.add_argument("--quiet", action="store_true", help="print the folder's path only")
    parser.add_argument(
        "--plugin",
        metavar="FILE.py | package.module",
        help="load parts of your own first (any command takes it)",
    )
    parser.add_argument(
        "--track",
        metavar="T,...",
        default="",
        help="trackers to report to: tensorboard, wandb, mlflow (extras)",
    )
    return parser


def parse_run(arguments: list[str]) -> RunCommand | None:
    """Parse the arguments of ``mlcl run``; None if help was asked for, anything wrong is an `InputError`."""
    parsed = parse_settings(run_parser(), arguments)
    if parsed is None:
        return None
    own, given = parsed
    source = own.get("source")
    if source is not None and (source.endswith((".yaml", ".yml")) or "/" in source):
        file = read_config_file(Path(source))
        config = resolve(file=file, given=given)
    else:
        file = {}
        config = resolve(name=source, given=given)
    warn_of_unused(config, file=file, given=given)
    warn_of_rate(config, file, given)
    out = Path(own["out"]) if own.get("out") else None
    return RunCommand(config, out, bool(own.get("overwrite")), bool(own.get("quiet")), own.get("track", ""))


def parse_settings(
    parser: ArgumentParser,
    arguments: Sequence[str],
    *,
    common: Sequence[str] = COMMON,
    defaults: Mapping[str, str] | None = None,
) -> tuple[dict[str, Any], Layer] | None:
    """Split a command line into the command's own options and settings of a run.

    Args:
        parser: knows the command's own options; every setting is added to it here.
        arguments: the words of the command line.
        common: the settings that ``--help`` shows.
        defaults: what ``--help`` calls the default of a setting where the command has another.

    Returns:
        Options that were given, and settings that were given; None if help was asked for, and printed.
    """
    actions = list(parser._actions)
    own = {action.dest for action in actions}
    if (wanted := wants_help(arguments)) is not None:
        page(verb_help(parser, actions, every=wanted == "all", common=common, defaults=defaults))
        return None
    add_settings(parser)
    try:
        given: Layer = parser.parse_args(full_names(arguments), defaults=False).as_dict()
    except (argparse.ArgumentError, TypeError, ValueError) as error:
        raise InputError(_explain(error, parser)) from None
    options = {name: given.pop(name) for name in list(given) if name in own}
    return options, checked(given, "command line")


def full_names(arguments: Sequence[str]) -> list[str]:
    """Bring short forms to full ones.

    >>> full_names(["--loss", "ru", "--memory=wru", "--validate", "--devices", "2"])
    ['--loss.kind', 'ru', '--memory.kind=wru', '--validate', 'true', '--train.devices', '2']
    """
    out = []
    for position, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name.startswith("--") and name[2:] in PARTS:
            word = f"{name}.kind{equals}{value}"
        elif name in SHORT:
            word = f"{SHORT[name]}{equals}{value}"
        out.append(word)
        following = arguments[position + 1] if position + 1 < len(arguments) else ""
        if word.removeprefix("--") in flags() and following.lower() not in ("true", "false", "yes", "no"):
            out.append("true")
    return out


def _explain(error: Exception, parser: ArgumentParser) -> str:
    text = str(error)
    if found := re.search(r"unrecognized arguments: (\S+)", text):
        known = [word for action in parser._actions for word in action.option_strings]
        return f"unknown option {found.group(1)!r}.{nearest(found.group(1), known)}"
    return one_sentence(error)
