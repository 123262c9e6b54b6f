"""`check_memory`: each rule meets a memory that breaks it; the shipped ones pass in tests/memories."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mlcl.errors import InputError
from mlcl.labels import LabelCounts
from mlcl.memories import MEMORIES, quotas
from mlcl.testing import MEMORY_RULES, check_memory
from mlcl.testing.memories import memory_cases

GLOBAL = np.random.default_rng(0)


def first_rows(stored, new, size, rng):
    """A memory that keeps all rules: the first rows of each task."""
    tasks = (*stored, new)
    room = quotas(size, [len(task) for task in tasks])
    return tuple(task.take(range(places)) for task, places in zip(tasks, room, strict=True))


def forgets_a_task(stored, new, size, rng):
    return tuple(task for task in first_rows(stored, new, size, rng) if len(task))


def counts_what_is_left(stored, new, size, rng):
    return tuple(
        replace(task, counts=LabelCounts.of(task.labels)) for task in first_rows(stored, new, size, rng)
    )


def keeps_all(stored, new, size, rng):
    return (*stored, new)


def repeats(stored, new, size, rng):
    *old, last = first_rows(stored, new, size, rng)
    return (*old, last.take([0] * len(last)))


def renumbers(stored, new, size, rng):
    *old, last = first_rows(stored, new, size, rng)
    return (*old, replace(last, rows=last.rows + 1000))


def drops_the_columns(stored, new, size, rng):
    *old, last = first_rows(stored, new, size, rng)
    return (*old, replace(last, extra={}))


def mixes_up_labels(stored, new, size, rng):
    *old, last = first_rows(stored, new, size, rng)
    return (*old, replace(last, labels=last.labels[::-1]))


def reorders_old_tasks(stored, new, size, rng):
    """What the example of docs/howto/own-part.md once did."""
    tasks = (*stored, new)
    kept = []
    for task, places in zip(tasks, quotas(size, [len(t) for t in tasks]), strict=True):
        order = np.lexsort((rng.random(len(task)), -task.labels.sum(axis=1)))
        kept.append(task.take(order[:places]))
    return tuple(kept)


def renames_classes_in_place(stored, new, size, rng):
    new.classes[:] = 0
    return first_rows(stored, new, size, rng)


def draws_elsewhere(stored, new, size, rng):
    return first_rows(stored, new.take(GLOBAL.permutation(len(new))), size, rng)


class KeepsSomethingOnTheSide:
    """A memory that knows the entries it returned last; those of a restored memory are others."""

    __name__ = "on_the_side"

    def __call__(self, stored, new, size, rng):
        known = stored and getattr(self, "last", None) is stored
        turned = new.take(range(len(new))[::-1]) if known else new
        self.last = first_rows(stored, turned, size, rng)
        return self.last


def draws_globally(stored, new, size, rng):
    np.random.random()  # noqa: NPY002
    return first_rows(stored, new, size, rng)


BROKEN = [
    ("one_entry_per_task", forgets_a_task),
    ("constants_stay", counts_what_is_left),
    ("at_most_size", keeps_all),
    ("rows_of_the_task", repeats),
    ("rows_of_the_task", renumbers),
    ("columns_follow_rows", drops_the_columns),
    ("columns_follow_rows", mixes_up_labels),
    ("old_tasks_only_lose_rows", reorders_old_tasks),
    ("inputs_stay", renames_classes_in_place),
    ("same_seed_same_rows", draws_elsewhere),
    ("survives_saving", KeepsSomethingOnTheSide()),
    ("global_random_state_stays", draws_globally),
]


@pytest.mark.parametrize(("rule", "part"), BROKEN, ids=lambda v: getattr(v, "__name__", v))
def test_a_memory_that_breaks_a_rule_is_named_with_the_rule(rule, part):
    with pytest.raises(
        AssertionError, match=rf"memory '{part.__name__}' breaks the rule '{rule}' \(.*\): with tasks"
    ):
        check_memory(part)


def test_every_rule_has_a_memory_that_breaks_it():
    assert {rule for rule, _ in BROKEN} == {rule.__name__ for rule in MEMORY_RULES}


def test_a_function_is_checked_without_a_trace_in_the_registry():
    before = MEMORIES.names()
    check_memory(first_rows)
    assert MEMORIES.names() == before


def test_the_example_is_small():
    """Of two tasks at least, as old rows are needed, and of few rows."""
    with pytest.raises(AssertionError) as caught:
        check_memory(reorders_old_tasks)
    assert "with tasks of (rows x classes) " in str(caught.value)
    shapes = str(caught.value).split("(rows x classes) ")[1].split(", size")[0].split(", ")
    assert 1 < len(shapes) <= 3
    assert sum(int(shape.split(" x ")[0]) for shape in shapes) <= 16


def test_an_exception_is_shown_with_its_place():
    def fails(stored, new, size, rng):
        return (*stored, new.take([7]))

    with pytest.raises(AssertionError, match=r"'fails' .* it raises IndexError: .* \(.*base\.py:\d+\)"):
        check_memory(fails)


def test_cases_have_the_corners_and_follow_the_seed():
    cases = memory_cases(40, 0)
    tasks = [task for case in cases for task in case.tasks]
    assert any(case.size == 0 for case in cases)
    assert any(len(task) == 0 for task in tasks)
    assert any(len(task.classes) == 1 for task in tasks)
    assert any(not task.labels.any() for task in tasks if len(task))
    assert any(task.labels.all() for task in tasks if len(task))
    assert any(len(task) < case.size // len(case.tasks) for case in cases for task in case.tasks)
    assert max(len(case.tasks) for case in cases) == 4
    assert [str(case) for case in cases] == [str(case) for case in memory_cases(40, 0)]
    assert [str(case) for case in cases] != [str(case) for case in memory_cases(40, 1)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cases": 0}, "cases is 0; expected a whole number of at least 1"),
        ({"seed": -1}, "seed is -1; expected a whole number of at least 0"),
        ({"colour": 1}, "memory 'random' takes no option 'colour'"),
    ],
)
def test_bad_options_are_named(given, message):
    with pytest.raises(InputError, match=message):
        check_memory("random", **given)
    with pytest.raises(InputError, match="unknown memory 'rando'"):
        check_memory("rando")
