"""A registry is a decorator on plain functions: a new loss or memory is one file and one decorated function."""

from __future__ import annotations

import fnmatch
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from mlcl.errors import InputError, nearest

T = TypeVar("T", bound=Callable[..., Any])


@dataclass(frozen=True)
class _Entry(Generic[T]):
    value: T
    summary: str
    reference: str


class Registry(Generic[T]):
    """Names for parts of one kind.

    >>> PARTS = Registry("greeting")
    >>> @PARTS.register("hello", summary="Says hello.")
    ... def hello(who: str, *, mark: str = "!") -> str:
    ...     return f"hello {who}{mark}"
    >>> PARTS.build("hello", "you", mark=None)
    'hello you!'
    >>> PARTS.get("helo")
    Traceback (most recent call last):
    ...
    mlcl.errors.InputError: unknown greeting 'helo'; known are: hello. Did you mean 'hello'?
    """

    def __init__(self, noun: str) -> None:
        self.noun = noun
        self._entries: dict[str, _Entry[T]] = {}

    def register(self, name: str, *, summary: str, reference: str = "") -> Callable[[T], T]:
        """Decorate a function or class so that it can be asked for by ``name``."""

        def add(value: T) -> T:
            if name in self._entries:
                raise ValueError(f"{self.noun} {name!r} is registered twice")
            self._entries[name] = _Entry(value, summary, reference)
            return value

        return add

    def _entry(self, name: str) -> _Entry[T]:
        try:
            return self._entries[name]
        except KeyError:
            known = ", ".join(sorted(self._entries))
            hint = nearest(name, self._entries)
            raise InputError(f"unknown {self.noun} {name!r}; known are: {known}.{hint}") from None

    def get(self, name: str) -> T:
        """Return what is registered as ``name``; an unknown name is an `InputError` with the nearest match."""
        return self._entry(name).value

    def names(self, pattern: str = "*") -> list[str]:
        """Return the registered names that match a glob, sorted."""
        return sorted(fnmatch.filter(self._entries, pattern))

    def summary(self, name: str) -> str:
        """Return the one-line explanation of ``name``."""
        return self._entry(name).summary

    def reference(self, name: str) -> str:
        """Return where ``name`` was published, or an empty string."""
        return self._entry(name).reference

    def options(self, name: str) -> tuple[str, ...]:
        """Return the keyword-only options that ``name`` takes."""
        parameters = inspect.signature(self.get(name)).parameters.values()
        return tuple(p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY)

    def build(self, name: str, *args: Any, **options: Any) -> Any:
        """Call ``name`` with the options that are set; an option it does not take is refused, never ignored."""
        given = {key: value for key, value in options.items() if value is not None}
        self.check(name, given)
        return self.get(name)(*args, **given)

    def check(self, name: str, given: dict[str, Any]) -> None:
        """Refuse options that ``name`` would not use."""
        takes = self.options(name)
        for key, value in given.items():
            if key not in takes:
                raise InputError(
                    f"{self.noun} {name!r} takes no option {key!r} (given: {value!r}); "
                    f"its options are: {', '.join(takes) or 'none'}.{nearest(key, takes)}"
                )
