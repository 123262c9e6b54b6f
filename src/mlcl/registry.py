"""A registry is a decorator on plain functions: a new loss or memory is one file and one decorated function."""

from __future__ import annotations

import fnmatch
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar, cast

from mlcl.errors import InputError, nearest

T = TypeVar("T", bound=Callable[..., Any])
Members = Callable[[], Mapping[str, str]]
"""What is in a family: names, each with a line about it."""


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
        self._families: dict[str, tuple[_Entry[T], Members]] = {}

    def register(self, name: str, *, summary: str, reference: str = "") -> Callable[[T], T]:
        """Decorate a function or class so that it can be asked for by ``name``."""

        def add(value: T) -> T:
            if name in self._entries:
                raise ValueError(f"{self.noun} {name!r} is registered twice")
            self._entries[name] = _Entry(value, summary, reference)
            return value

        return add

    def register_family(
        self, prefix: str, *, members: Members, summary: str, reference: str = ""
    ) -> Callable[[T], T]:
        """Decorate a function whose first argument is a name, so that it is asked for by ``prefix:name``.

        Args:
            prefix: what stands before the colon.
            members: called only when somebody wants to see a list of what is there.
            summary: the family in one line.
            reference: where it was published.

        >>> PETS = Registry("pet")
        >>> @PETS.register_family("dog", members=dict, summary="Any dog.")
        ... def dog(name: str, *, age: int = 1) -> str:
        ...     return f"{name}, {age}"
        >>> PETS.build("dog:rex", age=3), PETS.options("dog:rex")
        ('rex, 3', ('age',))
        """

        def add(value: T) -> T:
            self._families[prefix] = (_Entry(value, summary, reference), members)
            return value

        return add

    def _entry(self, name: str) -> _Entry[T]:
        if name in self._entries:
            return self._entries[name]
        prefix, _, member = name.partition(":")
        if prefix in self._families and member:
            family = self._families[prefix][0]
            return _Entry(cast(T, partial(family.value, member)), family.summary, family.reference)
        known = ", ".join([*sorted(self._entries), *(f"{family}:NAME" for family in self._families)])
        near = [f"{family}:{member}" for family in self._families if member]
        hint = nearest(name, [*self._entries, *near])
        raise InputError(f"unknown {self.noun} {name!r}; known are: {known}.{hint}")

    def get(self, name: str) -> T:
        """Return what is registered as ``name``; an unknown name is an `InputError` with the nearest match."""
        return self._entry(name).value

    def names(self, pattern: str = "*") -> list[str]:
        """Return the registered names that match a glob, sorted."""
        return sorted(fnmatch.filter(self._entries, pattern))

    def families(self) -> dict[str, Members]:
        """Return the families by prefix, each with the function that lists its members."""
        return {prefix: members for prefix, (_, members) in self._families.items()}

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
