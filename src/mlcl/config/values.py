"""Values of settings: read as YAML, and converted to the type that a signature declares."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import yaml

from mlcl.errors import InputError, one_line
from mlcl.registry import members


class PlainLoader(yaml.SafeLoader):
    """YAML's safe loader without aliases: a few nested ones stand for more memory than there is."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Refuse an alias where a value is expected."""
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.YAMLError(f"aliases such as *{event.anchor} are not read here")
        return super().compose_node(parent, index)


def load_yaml(text: str | bytes, source: str) -> Any:
    """Parse YAML with the safe loader."""
    try:
        return yaml.load(text, Loader=PlainLoader)  # noqa: S506  (a safe loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise InputError(f"{source}: not valid YAML: {one_line(error)}.") from None


def convert(name: str, value: Any, kind: Any) -> Any:
    """Return a value of YAML or of the command line as its type has it.

    >>> convert("a", "1e-5", float), convert("a", "auto", float | Literal["auto"]), convert("a", "[[x], [1]]", list)
    (1e-05, 'auto', [['x'], [1]])
    >>> convert("memory.size", "many", int | None)
    Traceback (most recent call last):
    ...
    mlcl.errors.InputError: memory.size is 'many'; expected int.
    """
    kinds = sorted(members([kind]), key=lambda one: one is str)  # a text may be a value of each other type
    for one in kinds:
        with contextlib.suppress(ValueError, OverflowError):
            return _converted(value, one)
    shown = " or ".join(dict.fromkeys(shown_kind(one) for one in kinds if one is not NoneType))
    raise InputError(f"{name} is {one_line(repr(value))}; expected {shown}.")


def _converted(value: Any, kind: Any) -> Any:
    origin = get_origin(kind) or kind
    if isinstance(value, str) and origin not in (str, Literal):
        value = _from_text(value)
    if not fits(value, kind):
        raise ValueError
    if origin is list and get_args(kind):
        return [_converted(one, get_args(kind)[0]) for one in value]
    return float(value) if kind is float else value


def fits(value: Any, kind: Any) -> bool:
    """Return whether a value is of a type that a signature declares: whole numbers are floats, and flags no numbers."""
    origin = get_origin(kind) or kind
    if origin is Literal:
        return any(value == one and type(value) is type(one) for one in get_args(kind))
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is int if kind is int else isinstance(value, Mapping if origin is dict else origin)


def _from_text(text: str) -> Any:
    with contextlib.suppress(ValueError):
        if "e" in text.lower():
            return float(text)  # 1e-5 is a text in YAML
    with contextlib.suppress(InputError):
        return load_yaml(text, "") if text else text
    return text


def shown_kind(kind: Any) -> str:
    """Return a type in words."""
    return (
        ", ".join(map(repr, get_args(kind)))
        if get_origin(kind) is Literal
        else (get_origin(kind) or kind).__name__
    )
