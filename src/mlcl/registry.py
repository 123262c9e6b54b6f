"""Registries: a decorator on plain functions gives them names, so a new loss or memory is one file with one function.

The modules of a room are imported by `discover`, and modules from outside the package by `mlcl.plugins`. A part's
options are its keyword-only parameters: their names, types, defaults and descriptions are read from its signature and
docstring, and nowhere else.
"""

from __future__ import annotations

import fnmatch
import functools
import importlib
import inspect
import pkgutil
import re
import sys
import types
import typing
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, Self, TypeVar, cast

from mlcl.errors import InputError, nearest

T = TypeVar("T", bound=Callable[..., Any])
V = TypeVar("V")
Members = Callable[[], Mapping[str, str]]
"""What is in a family: names, each with a one-line description."""


@dataclass
class Registration:
    """One registration from outside the package: the module that made it, how to undo it, and the plugin it is of."""

    module: str
    undo: Callable[[], object]
    owner: str


class Registrations:
    """What was registered from outside the package in this process; `mlcl.plugins` undoes those of a bad plugin.

    Attributes:
        owner: the source of the plugin that is being loaded, or an empty string.
        version: another number after every change; what is computed from the registries is cached by it.
    """

    def __init__(self) -> None:
        self.owner = ""
        self.version = 0
        self._made: list[Registration] = []

    def __len__(self) -> int:
        return len(self._made)

    def add(self, undo: Callable[[], object], module: str) -> Registration | None:
        """Note a registration by a module, unless it is one of the package: those stay, whoever imports them first."""
        self.version += 1
        if module.partition(".")[0] == "mlcl":
            return None
        self._made.append(Registration(module, undo, self.owner))
        return self._made[-1]

    def undo_to(self, length: int) -> None:
        """Undo the newest registrations until ``length`` are left."""
        while len(self._made) > length:
            self._made.pop().undo()
            self.version += 1

    def adopt(self, module: str, owner: str) -> int:
        """Assign what a module and those below it registered to a plugin; return how many registrations those are."""
        found = [made for made in self._made if f"{made.module}.".startswith(f"{module}.")]
        for made in found:
            made.owner = owner
        return len(found)


REGISTRATIONS = Registrations()


def _caller() -> str:
    """Return the module that registers something, by way of this one."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") in (
        __name__,
        "_collections_abc",
        "collections",
    ):
        frame = frame.f_back
    return "" if frame is None else str(frame.f_globals.get("__name__", ""))


@dataclass(frozen=True)
class _Entry(Generic[T]):
    value: T
    summary: str
    reference: str
    where: str
    made: Registration | None


@dataclass(frozen=True)
class Option:
    """One option of a part.

    Attributes:
        name: of the keyword.
        type: its type, None included where that is its default.
        default: its default.
        help: what the part's docstring says of it.
    """

    name: str
    type: Any
    default: Any
    help: str


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
        """Decorate a function or class so that it can be requested by ``name``; a name is registered once."""
        module = _caller()

        def add(value: T) -> T:
            where = self._checked(name, value, self._entries.get(name))
            made = REGISTRATIONS.add(lambda: self._entries.pop(name, None), module)
            self._entries[name] = _Entry(value, summary, reference, where, made)
            return value

        return add

    def remove(self, name: str) -> None:
        """Remove a name that was registered for a while."""
        del self._entries[name]
        REGISTRATIONS.version += 1

    def register_family(
        self, prefix: str, *, members: Members, summary: str, reference: str = ""
    ) -> Callable[[T], T]:
        """Decorate a function whose first argument is a name, so that it is requested by ``prefix:name``.

        Args:
            prefix: what stands before the colon.
            members: called only when a list of the members is wanted.
            summary: the family in one line.
            reference: where it was published.

        >>> PETS = Registry("pet")
        >>> @PETS.register_family("dog", members=dict, summary="Any dog.")
        ... def dog(name: str, *, age: int = 1) -> str:
        ...     return f"{name}, {age}"
        >>> PETS.build("dog:rex", age=3), PETS.options("dog:rex")
        ('rex, 3', ('age',))
        """
        module = _caller()

        def add(value: T) -> T:
            known = self._families[prefix][0] if prefix in self._families else None
            where = self._checked(f"{prefix}:NAME", value, known)
            made = REGISTRATIONS.add(lambda: self._families.pop(prefix, None), module)
            self._families[prefix] = (_Entry(value, summary, reference, where, made), members)
            return value

        return add

    def _checked(self, name: str, value: Any, known: _Entry[T] | None) -> str:
        """Refuse what cannot be a part: a second one of a name, no function, an option that must be given."""
        where = source_line(value)
        if known is not None:
            raise InputError(
                f"{where}: {self.noun} {name!r} is registered already, in {known.where}; expected another name."
            )
        if not callable(value):
            raise InputError(f"{self.noun} {name!r} is {value!r}; expected a function or a class.")
        for option in read_options(value):
            if option.default is inspect.Parameter.empty:
                raise InputError(
                    f"{where}: {self.noun} {name!r} has the option {option.name!r} without a default; expected one."
                )
        return where

    def _entry(self, name: str) -> _Entry[T]:
        if name in self._entries:
            return self._entries[name]
        prefix, _, member = name.partition(":")
        if prefix in self._families and member:
            family = self._families[prefix][0]
            value = cast(T, partial(family.value, member))
            return _Entry(value, family.summary, family.reference, family.where, family.made)
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

    def owner(self, name: str) -> str:
        """Return the source of the plugin that registered ``name``; an empty string for the package itself."""
        made = self._entry(name).made
        return made.owner if made is not None else ""

    def where(self, name: str) -> str:
        """Return file and line where ``name`` is defined."""
        return self._entry(name).where

    def options(self, name: str) -> tuple[str, ...]:
        """Return the names of the keyword-only options that ``name`` takes."""
        return tuple(option.name for option in read_options(self.get(name)))

    def all_options(self) -> dict[str, list[tuple[str, Option]]]:
        """Return every option of every part: its name, and each part that takes it with how it describes it."""
        found: dict[str, list[tuple[str, Option]]] = {}
        parts = [(name, entry.value) for name, entry in sorted(self._entries.items())]
        parts += [(f"{prefix}:NAME", entry.value) for prefix, (entry, _) in self._families.items()]
        for name, value in parts:
            for option in read_options(value):
                found.setdefault(option.name, []).append((name, option))
        return found

    def described(self, name: str) -> list[Option]:
        """Return the options of ``name``; one that its docstring does not describe has the words of another part."""
        shared = {
            key: next((o.help for _, o in takers if o.help), "") for key, takers in self.all_options().items()
        }
        return [replace(o, help=o.help or shared.get(o.name, "")) for o in read_options(self.get(name))]

    def build(self, name: str, *args: Any, **options: Any) -> Any:
        """Call ``name`` with the options that are set; an option it does not take is refused, never ignored."""
        given = {key: value for key, value in options.items() if value is not None}
        self.check(name, given)
        return self.get(name)(*args, **given)

    def check(self, name: str, given: Mapping[str, Any]) -> None:
        """Refuse options that ``name`` would not use."""
        takes = self.options(name)
        for key, value in given.items():
            if key not in takes:
                raise InputError(
                    f"{self.noun} {name!r} takes no option {key!r} (given: {value!r}); "
                    f"its options are: {', '.join(takes) or 'none'}.{nearest(key, takes)}"
                )


class NamedValues(UserDict[str, V]):
    """Names for plain values of one kind, such as presets; like a registered part, a name is given once.

    >>> colours = NamedValues("colour")
    >>> colours["red"] = 1
    >>> colours["red"] = 2
    Traceback (most recent call last):
    ...
    mlcl.errors.InputError: colour 'red' is registered already; expected another name.
    """

    def __init__(self, noun: str, values: Mapping[str, V] | None = None) -> None:
        self.noun = noun
        self._made: dict[str, Registration] = {}
        self.data = dict(values or {})

    def __setitem__(self, name: str, value: V) -> None:
        if name in self:
            raise InputError(f"{self.noun} {name!r} is registered already; expected another name.")
        super().__setitem__(name, value)
        made = REGISTRATIONS.add(lambda: (self.pop(name, None), self._made.pop(name, None)), _caller())
        if made is not None:
            self._made[name] = made

    def __ior__(self, other: Any) -> Self:  # type: ignore[override, misc]
        self.update(other)
        return self

    def owner(self, name: str) -> str:
        """Return the source of the plugin that added ``name``; an empty string for the package itself."""
        return self._made[name].owner if name in self._made else ""


def discover(package: str, path: Iterable[str]) -> None:
    """Import all modules of a room, so that the parts in them are registered: ``discover(__name__, __path__)``."""
    for module in sorted(pkgutil.iter_modules(path), key=lambda found: found.name):
        importlib.import_module(f"{package}.{module.name}")


def source_line(value: Any) -> str:
    """Return file and line where a function or class is defined, as far as that is known."""
    code = getattr(inspect.unwrap(value), "__code__", None)
    if code is not None:
        return f"{code.co_filename}:{code.co_firstlineno}"
    try:
        return f"{inspect.getsourcefile(value)}:{inspect.getsourcelines(value)[1]}"
    except (OSError, TypeError):
        return str(getattr(value, "__module__", value))


def read_options(value: Callable[..., Any]) -> tuple[Option, ...]:
    """Return the keyword-only options of a function or class.

    >>> def part(*, size: int = 3, name: str | None = None) -> None:
    ...     '''Do nothing.
    ...
    ...     Args:
    ...         size: How many.
    ...         name: What it is called.
    ...     '''
    >>> [(option.name, option.type, option.default, option.help) for option in read_options(part)]
    [('size', <class 'int'>, 3, 'How many.'), ('name', str | None, None, 'What it is called.')]
    """
    return _read_options(value.func if isinstance(value, partial) else value)


@functools.cache
def _read_options(value: Callable[..., Any]) -> tuple[Option, ...]:
    parameters = [
        parameter
        for parameter in inspect.signature(value).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    if not parameters:
        return ()
    owner: Any = getattr(value, "__init__") if isinstance(value, type) else value  # noqa: B009  (mypy: unsound)
    texts = [inspect.getdoc(value) or "", inspect.getdoc(owner) or ""]
    return tuple(Option(p.name, _hint(owner, p), p.default, described(p.name, *texts)) for p in parameters)


def _hint(owner: Any, parameter: inspect.Parameter) -> Any:
    """Return the type of a parameter; where its annotation cannot be resolved, that of its default."""
    single = types.SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        if parameter.annotation is not inspect.Parameter.empty:
            names = getattr(inspect.unwrap(owner), "__globals__", {})
            return typing.get_type_hints(single, globalns=names)[parameter.name]
    except NameError:
        pass  # imported for type checkers only
    known = parameter.default is not None and parameter.default is not inspect.Parameter.empty
    return type(parameter.default) if known else str


def described(name: str, *texts: str) -> str:
    """Return what the Args section of a docstring says of a name, the first text that has it."""
    for text in texts:
        found = re.search(rf"^ +{name}: (.*(?:\n {{6,}}.*)*)", text, re.MULTILINE)
        if found:
            return " ".join(found.group(1).split()).replace("``", "")
    return ""


def union(kinds: Iterable[Any]) -> Any:
    """Return the union of several types.

    >>> union([int, str | None, int])
    int | str | None
    """
    found = list(dict.fromkeys(members(kinds)))
    return functools.reduce(lambda a, b: a | b, found) if len(found) > 1 else found[0]


def members(kinds: Iterable[Any]) -> Iterator[Any]:
    """Yield the types that several types, unions among them, are made of."""
    for kind in kinds:
        is_union = isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union
        yield from typing.get_args(kind) if is_union else [kind]
