"""The rules of memories; `mlcl.memories.base` says what a strategy is given and what it returns."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.memories import MEMORIES, Memory, TaskSamples
from mlcl.testing.rules import CheckedPart, Rule, case_count, check_rules, expect, global_state, rules_in

Kept = tuple[TaskSamples, ...]


@dataclass(frozen=True)
class MemoryCase:
    """A stream of tasks that end one after the other, the size of the memory, and its seed."""

    tasks: Kept
    size: int
    seed: int

    def __str__(self) -> str:
        shapes = ", ".join(f"{len(task)} x {len(task.classes)}" for task in self.tasks)
        return f"tasks of (rows x classes) {shapes}, size {self.size} and seed {self.seed}"


def check_memory(part: str | Callable[..., Kept], *, cases: int = 40, seed: int = 0, **options: Any) -> None:
    """Check that a memory keeps the rules of all memories, on streams of tasks.

    Some are fixed: an empty task, a single class, size 0, a task smaller than its share, no positives at all.

    >>> check_memory("reservoir")
    >>> check_memory(lambda stored, new, size, rng: (*stored, new))
    Traceback (most recent call last):
    ...
    AssertionError: memory '<lambda>' breaks the rule 'at_most_size' (A memory of size M holds at most M samples...
    """
    check_rules(MEMORIES, part, options, MEMORY_RULES, memory_cases(case_count(cases, seed), seed))


def memory_cases(count: int, seed: int) -> list[MemoryCase]:
    """Return the fixed cases and ``count`` random ones, the ones with the fewest rows first."""
    rng = np.random.default_rng(seed)
    fixed = [
        ([(4, 2)], 0),
        ([(0, 2)], 3),
        ([(5, 1)], 3),
        ([(6, 2), (0, 1), (6, 2)], 4),
        ([(9, 2), (1, 1), (9, 3)], 6),
        ([(8, 2), (8, 2), (8, 2)], 2),
    ]
    found = [_case(rng, shapes, size, chance) for shapes, size in fixed for chance in (0.0, 0.4, 1.0)]
    found += random_memory_cases(count, seed)
    return sorted(found, key=lambda case: sum(len(task) for task in case.tasks))


def random_memory_cases(count: int, seed: int) -> list[MemoryCase]:
    """Return streams of one to four tasks of 1 to 30 rows and 1 to 4 classes, with sparse to dense labels."""
    rng, found = np.random.default_rng([seed, 1]), []
    for _ in range(count):
        shapes = [(int(rng.integers(1, 31)), int(rng.integers(1, 5))) for _ in range(rng.integers(1, 5))]
        found.append(_case(rng, shapes, int(rng.integers(0, 26)), float(rng.choice([0.1, 0.4, 0.8]))))
    return found


def _case(rng: np.random.Generator, shapes: list[tuple[int, int]], size: int, chance: float) -> MemoryCase:
    tasks, first = [], 0
    for number, (rows, classes) in enumerate(shapes):
        labels = (rng.random((rows, classes)) < chance).astype(np.uint8)
        numbers = rng.permutation(rows)
        whole = TaskSamples.of(number, np.arange(first, first + classes), numbers, labels)
        tasks.append(replace(whole, extra={"tag": numbers * 1000 + number}))
        first += classes
    return MemoryCase(tuple(tasks), size, int(rng.integers(0, 6)))


def update_memory(memory: Memory, task: TaskSamples) -> None:
    """Take in a task, with random features or losses if the strategy asks for them, and without warnings."""
    rng = np.random.default_rng(task.task)
    widths = {"features": 3, "logits": len(task.classes), "losses": len(task.classes)}
    given = {name: abs(rng.normal(size=(len(task), widths[name]))) for name in memory.needs}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        memory.update(task, **given)


def _updates(
    part: CheckedPart[MemoryCase], case: MemoryCase, restore: int | None = None
) -> Iterator[tuple[Kept, Kept]]:
    """Yield what is stored before and after each task; the memory is saved and restored before task ``restore``."""
    memory = Memory(part.name, case.size, seed=case.seed, **part.options)
    for number, task in enumerate(case.tasks):
        if number == restore:
            memory = Memory.from_state(memory.state())
        before = memory.tasks
        update_memory(memory, task)
        yield before, memory.tasks


def one_entry_per_task(part: CheckedPart[MemoryCase], case: MemoryCase) -> None:
    """A memory returns one entry for every task so far, old ones first, also for tasks of which it keeps no row."""
    for number, (_, after) in enumerate(_updates(part, case)):
        found = [samples.task for samples in after]
        expect(
            found == list(range(number + 1)),
            f"returns entries of the tasks {[t + 1 for t in found]} after task {number + 1}",
        )


def constants_stay(part: CheckedPart[MemoryCase], case: MemoryCase) -> None:
    """The classes and label counts of an entry are those of the whole task, however few of its rows are kept."""
    for _, after in _updates(part, case):
        for samples, whole in zip(after, case.tasks, strict=False):
            same = samples.counts == whole.counts and np.array_equal(samples.classes, whole.classes)
            expect(
                same,
                f"turns the counts {whole.counts} of task {whole.task + 1} into {samples.counts}; use TaskSamples.take",
            )


def at_most_size(part: CheckedPart[MemoryCase], case: MemoryCase) -> None:
    """A memory of size M holds at most M samples over all tasks."""
    for number, (_, after) in enumerate(_updates(part, case)):
        held = sum(len(samples) for samples in after)
        expect(held <= case.size, f"holds {held} samples after task {number + 1}")


def rows_of_the_task(part: CheckedPart[MemoryCase], case: MemoryCase) -> None:
    """The rows of an entry are rows of its task, each of them at most once."""
    for _, after in _updates(part, case):
        for samples, whole in zip(after, case.tasks, strict=False):
            rows = samples.rows.tolist()
            expect(len(set(rows)) == len(rows), f"stores a row of task {whole.task + 1} twice: {rows}")
            foreign = sorted(set(rows) - set(whole.rows.tolist()))
            expect(not foreign, f"stores the rows {foreign}, which task {whole.task + 1} does not have")


def columns_follow_rows(part: CheckedPart[MemoryCase], case: MemoryCase) -> None:
    """The labels and the extra columns of a stored row are those that it came with."""
    for _, after in _updates(part, case):
        for samples, whole in zip(after, case.tasks, strict=False):
            where = {row: place for place, row in enumerate(whole.rows.tolist())}
            places = [where[row] for row in samples.rows.tolist()]
            expect(
                np.array_equal(samples.labels, whole.labels[places]),
                f"gives rows of task {whole.task + 1} the labels of other rows",
            )
            expect(
                "tag" in samples.extra and np.array_equal(samples.extra["tag"], whole.extra["tag"][places]),
                f"loses or mixes up the extra columns of task {whole.task + 1}",
            )


def old_tasks_only_lose_rows(part: CheckedPart[MemoryCase], case: MemoryCase) -> None:
    """A stored task only loses rows, and the rows that are left keep their order."""
    for before, after in _updates(part, case):
        for old, now in zip(before, after, strict=False):
            rest = [row for row in old.rows.tolist() if row in set(now.rows.tolist())]
            expect(
                rest == now.rows.tolist(),
                f"turns the stored rows {old.rows.tolist()} of task {old.task + 1} into {now.rows.tolist()}",
            )


def inputs_stay(part: CheckedPart[MemoryCase], case: MemoryCase) -> None:
    """A strategy does not change the arrays that it is given; an entry that changes is a new one."""
    memory = Memory(part.name, case.size, seed=case.seed, **part.options)
    for task in case.tasks:
        given = (*memory.tasks, task)
        before = [_arrays(samples) for samples in given]
        update_memory(memory, task)
        for samples, arrays in zip(given, before, strict=True):
            changed = [
                name for name, value in _arrays(samples).items() if not np.array_equal(value, arrays[name])
            ]
            expect(not changed, f"changes {', '.join(changed)} of task {samples.task + 1} in place")


def _arrays(samples: TaskSamples) -> dict[str, NDArray[Any]]:
    named: dict[str, NDArray[Any]] = {
        "rows": samples.rows,
        "labels": samples.labels,
        "classes": samples.classes,
    }
    return {name: value.copy() for name, value in (named | dict(samples.extra)).items()}


def same_seed_same_rows(part: CheckedPart[MemoryCase], case: MemoryCase) -> None:
    """The same tasks and the same generator give the same rows in the same order; nothing else is random."""
    _same_rows(part, case, None, "the second time")


def survives_saving(part: CheckedPart[MemoryCase], case: MemoryCase) -> None:
    """A memory that is saved and restored between two tasks continues as the one that was not."""
    for stop in range(1, len(case.tasks)):
        _same_rows(part, case, stop, f"when it is saved and restored before task {stop + 1}")


def _same_rows(part: CheckedPart[MemoryCase], case: MemoryCase, restore: int | None, when: str) -> None:
    # One after the other, not in turns: what a strategy keeps on the side is then found out.
    firsts, seconds = list(_updates(part, case)), list(_updates(part, case, restore))
    for (_, one), (_, two) in zip(firsts, seconds, strict=True):
        for first, second in zip(one, two, strict=True):
            expect(
                np.array_equal(first.rows, second.rows),
                f"keeps the rows {first.rows.tolist()} of task {first.task + 1}, and {second.rows.tolist()} {when}",
            )


def global_random_state_stays(part: CheckedPart[MemoryCase], case: MemoryCase) -> None:
    """A strategy draws from the generator that it is given and leaves global random generators alone."""
    before = global_state()
    for _ in _updates(part, case):
        pass
    expect(global_state() == before, "draws from a global random generator")


MEMORY_RULES: tuple[Rule[MemoryCase], ...] = rules_in(__name__)
