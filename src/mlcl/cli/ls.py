"""``mlcl ls``: one line for everything that has a name."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from mlcl.cli.messages import say
from mlcl.cli.verbs import verb_parser
from mlcl.config.parts import REGISTRIES
from mlcl.config.resolve import shipped
from mlcl.errors import InputError, nearest
from mlcl.methods.presets import ALIASES, PRESETS, describe_alias
from mlcl.models import HEADS, MODELS
from mlcl.plugins import load_entry_points
from mlcl.registry import Registry

Line = tuple[str, str, str]


def _methods() -> Iterator[Line]:
    yield from ((name, preset.summary, preset.reference) for name, preset in PRESETS.items())
    yield from (
        (alias, f"What we recommend: {describe_alias(alias)}.", "docs/methods.md") for alias in ALIASES
    )


def _names(registry: Registry[Any]) -> Iterator[Line]:
    return ((name, registry.summary(name), registry.reference(name)) for name in registry.names())


def _part(part: str) -> Callable[[], Iterator[Line]]:
    return partial(_names, REGISTRIES[part])


def _models() -> Iterator[Line]:
    yield from _part("model")()
    for prefix in MODELS.families():
        name = f"{prefix}:NAME"
        yield name, f"{MODELS.summary(name)}; mlcl ls models '{prefix}:*'", MODELS.reference(name)


def _members(pattern: str) -> Iterator[Line] | None:
    """Return the models of another package, if the pattern asks for one (``timm:resnet*``)."""
    prefix, colon, _ = pattern.partition(":")
    if not colon or prefix not in MODELS.families():
        return None
    return ((f"{prefix}:{name}", line, "") for name, line in MODELS.families()[prefix]().items())


def _configs() -> Iterator[Line]:
    for name, text in shipped().items():
        yield name, text.splitlines()[0].lstrip("# "), ""


SECTIONS: dict[str, Callable[[], Iterator[Line]]] = {
    "methods": _methods,
    "losses": _part("loss"),
    "memories": _part("memory"),
    "regularisers": _part("regulariser"),
    "labels": _part("labels"),
    "augmentations": _part("augment"),
    "models": _models,
    "heads": partial(_names, HEADS),
    "benchmarks": _configs,
    "configs": _configs,
}


def listing(what: str | None, pattern: str = "*") -> Iterator[str]:
    """Yield the lines of one section, or of all.

    >>> next(listing("methods", "rldam*"))
    "  rldam-wru  The paper's method: RLDAM loss and Weight Retain Updating memory. [Zhang et al., AAAI 2025]"
    """
    if what is not None and what not in SECTIONS:
        raise InputError(f"unknown list {what!r}; known are: {', '.join(SECTIONS)}.{nearest(what, SECTIONS)}")
    for name in [what] if what else [section for section in SECTIONS if section != "configs"]:
        found = (what == "models" and _members(pattern)) or SECTIONS[name]()
        rows = [row for row in found if fnmatch.fnmatch(row[0], pattern)]
        if what is None:
            yield f"{name}:"
        width = max((len(row[0]) for row in rows), default=0)
        for label, summary, reference in rows:
            yield f"  {label:{width}}  {summary}{f' [{reference}]' if reference else ''}"
        if what is None:
            yield ""


def main(arguments: list[str]) -> int:
    """List: ``mlcl ls [WHAT] [PATTERN]``."""
    parser = verb_parser("ls", "List what can be named in a config or on the command line.")
    parser.add_argument("what", nargs="?", help=f"one of: {', '.join(SECTIONS)}; all if not given")
    parser.add_argument("pattern", nargs="?", default="*", help="a glob, such as 'rldam*'")
    given = parser.parse_args(arguments)
    load_entry_points()
    for line in listing(given.what, given.pattern):
        say(line)
    return 0
