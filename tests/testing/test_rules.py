"""What all checks share: rules state themselves, and a part goes by its name."""

from __future__ import annotations

import inspect
from functools import partial

import pytest

import mlcl.testing
from mlcl.registry import REGISTRATIONS, Registry
from mlcl.testing.rules import registered, statement

RULES = [
    rule for name in mlcl.testing.__all__ if name.endswith("_RULES") for rule in getattr(mlcl.testing, name)
]


@pytest.mark.parametrize(
    "rule", RULES, ids=lambda rule: f"{rule.__module__.rpartition('.')[2]}-{rule.__name__}"
)
def test_a_rule_is_a_small_function_that_states_the_rule(rule):
    assert statement(rule)[0].isupper()
    assert inspect.getdoc(rule).partition("\n\n")[0].endswith(".")
    assert len(inspect.getsource(rule).splitlines()) <= 40


def test_a_part_has_its_registered_name():
    registry = Registry("thing")

    @registry.register("known", summary="Known.")
    def known(*, size: int = 1):
        return size

    with registered(registry, known, {}) as part:
        assert part.name == "known"
        assert part.build(size=3) == 3
        assert part.takes("size")
        assert not part.takes("colour")
    with registered(registry, "known", {"size": 2}) as part:
        assert part.build() == 2


def test_a_function_has_a_name_while_it_is_checked():
    registry = Registry("thing")

    def known():
        return 1

    registry.register("known", summary="Another.")(lambda: 2)
    count = len(REGISTRATIONS)
    with registered(registry, known, {}) as part:
        assert part.name == "known'"
        assert part.build() == 1
    with pytest.raises(KeyError), registered(registry, partial(known), {}):
        raise KeyError
    assert registry.names() == ["known"]
    assert len(REGISTRATIONS) == count
