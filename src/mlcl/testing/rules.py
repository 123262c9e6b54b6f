"""How a check works: each rule is a function whose docstring states it, called with a part and one case after another.

Cases are sorted from small to large, so the first one that breaks a rule is a small example of what is wrong.
"""

from __future__ import annotations

import copy
import functools
import inspect
import random
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from mlcl.errors import check_int, one_line
from mlcl.registry import Registry

C = TypeVar("C")


@dataclass(frozen=True)
class CheckedPart(Generic[C]):
    """The part that is checked, under the name that it has while the check runs.

    Attributes:
        registry: where it is registered.
        name: its name there.
        options: what it is built with.
    """

    registry: Registry[Any]
    name: str
    options: dict[str, Any]

    def build(self, *args: Any, **more: Any) -> Any:
        """Build it, or call it, with its options; ``more`` overrides some of them."""
        return self.registry.build(self.name, *args, **(self.options | more))

    def takes(self, option: str) -> bool:
        """Return whether it has an option of this name."""
        return option in self.registry.options(self.name)


Rule = Callable[[CheckedPart[C], C], None]
"""A rule raises `AssertionError` with the detail that shows how the case breaks it."""


@contextmanager
def registered(
    registry: Registry[Any], part: str | Callable[..., Any], options: dict[str, Any]
) -> Iterator[CheckedPart[Any]]:
    """Give a part that is a function or class a name for as long as the check runs; a name is looked up."""
    if isinstance(part, str):
        registry.check(part, options)
        yield CheckedPart(registry, part, options)
        return
    known = [name for name in registry.names() if registry.get(name) is part]
    if known:
        yield CheckedPart(registry, known[0], options)
        return
    called = part.func if isinstance(part, functools.partial) else part
    name = getattr(called, "__name__", type(called).__name__)
    while name in registry.names():
        name += "'"
    registry.register(name, summary="Checked by mlcl.testing.")(part)
    try:
        registry.check(name, options)
        yield CheckedPart(registry, name, options)
    finally:
        registry.remove(name)


def run_rules(part: CheckedPart[C], rules: Sequence[Rule[C]], cases: Sequence[C]) -> None:
    """Call every rule with every case; what breaks a rule is an `AssertionError` in one sentence.

    Args:
        part: what is checked.
        rules: functions whose docstrings begin with the rule in one sentence.
        cases: from small to large; ``str(case)`` describes one. Each rule gets a copy.
    """
    for rule in rules:
        for case in cases:
            try:
                rule(part, copy.deepcopy(case))
            except AssertionError as error:
                raise AssertionError(_sentence(part, rule, case, one_line(error))) from error
            except Exception as error:  # somebody's code: whatever it raises breaks the rule
                detail = f"{type(error).__name__}: {one_line(error)} ({_place(error)})"
                raise AssertionError(_sentence(part, rule, case, f"raises {detail}")) from error


def check_rules(
    registry: Registry[Any],
    part: str | Callable[..., Any],
    options: dict[str, Any],
    rules: Sequence[Rule[C]],
    cases: Sequence[C],
) -> None:
    """Check a part that is given by its name, or as a function or class."""
    with registered(registry, part, options) as found:
        run_rules(found, rules, cases)


def rules_in(module: str) -> tuple[Rule[Any], ...]:
    """Return the rules of a module: its public functions of a part and a case, in their order."""
    found = [value for name, value in vars(sys.modules[module]).items() if not name.startswith("_")]
    return tuple(
        value
        for value in found
        if inspect.isfunction(value)
        and value.__module__ == module
        and list(inspect.signature(value).parameters) == ["part", "case"]
    )


def expect(condition: object, detail: str) -> None:
    """Raise an `AssertionError` with ``detail`` unless the condition is true.

    >>> expect(1 + 1 == 3, "1 + 1 is 2")
    Traceback (most recent call last):
    ...
    AssertionError: 1 + 1 is 2
    """
    if not condition:
        raise AssertionError(detail)


def statement(rule: Callable[..., Any]) -> str:
    """Return the rule that a function states: the first paragraph of its docstring, in one line."""
    return one_line((rule.__doc__ or "").strip().partition("\n\n")[0])


def case_count(cases: int, seed: int) -> int:
    """Return ``cases``, having checked both options that every check has."""
    check_int("seed", seed, 0)
    return check_int("cases", cases, 1)


def global_state() -> tuple[Any, ...]:
    """Return the state of the global random generators of Python, numpy and torch, in a form that can be compared."""
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002  (it is read, so that others can be held to leave it alone)
    return random.getstate(), kind, np.asarray(keys).tobytes(), *rest, torch.get_rng_state().numpy().tobytes()


def _sentence(part: CheckedPart[Any], rule: Callable[..., Any], case: object, detail: str) -> str:
    name = getattr(rule, "__name__", "rule")
    noun = part.registry.noun
    return f"{noun} {part.name!r} breaks the rule {name!r} ({statement(rule)}): with {case}, it {detail}."


def _place(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename}:{frame.lineno}"
