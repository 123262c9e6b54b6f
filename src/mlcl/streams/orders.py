"""Which classes come in which task (specification.md#class-order)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.errors import InputError, check_int, nearest
from mlcl.streams.tasks import ORDER, generator

ClassRef = int | str
Order = str | Sequence[ClassRef] | Sequence[Sequence[ClassRef]]

NAMED_ORDERS = ("random", "sorted", "alphabetical", "paper")
DEFAULT_TASKS = 5

# The order of the authors' released code for its seed 2222.
_VOC = ((13, 15, 7, 17), (11, 9, 10, 14), (16, 19, 5, 12), (1, 3, 0, 18), (4, 2, 8, 6))
_COCO = (
    (63, 30, 37, 53, 15, 48, 38, 69, 70, 58),
    (42, 6, 47, 66, 25, 73, 26, 74, 71, 39),
    (59, 18, 77, 56, 28, 11, 21, 32, 22, 57),
    (19, 46, 43, 13, 64, 54, 20, 12, 51, 62),
    (60, 75, 50, 5, 17, 67, 14, 45, 41, 55),
    (23, 61, 24, 9, 49, 36, 7, 34, 1, 0),
    (31, 76, 65, 44, 2, 68, 79, 4, 78, 52),
    (40, 72, 10, 29, 3, 33, 16, 8, 35, 27),
)
_NUS = (
    (54, 28, 39, 46, 15, 67, 42, 19, 74),
    (71, 50, 60, 25, 6, 43, 55, 64, 51),
    (37, 75, 72, 26, 61, 18, 78, 58, 30),
    (11, 21, 59, 22, 47, 48, 63, 56, 13),
    (65, 38, 20, 12, 53, 66, 62, 76, 70),
    (5, 17, 68, 14, 45, 41, 57, 23, 77),
    (24, 9, 49, 36, 7, 34, 1, 0, 31),
    (32, 44, 2, 69, 80, 4, 79, 52, 40),
    (73, 10, 29, 3, 33, 16, 8, 35, 27),
)
PAPER_ORDERS: dict[int, tuple[tuple[int, ...], ...]] = {20: _VOC, 80: _COCO, 81: _NUS}
"""By number of classes: VOC (alphabetical ids), COCO (category-id order), NUS-WIDE (Concepts81 order)."""


def class_groups(
    classes: Sequence[str],
    *,
    tasks: int | None = None,
    order: Order = "random",
    base: int = 0,
    increment: int | None = None,
    seed: int = 0,
) -> tuple[NDArray[np.int64], ...]:
    """Return the class ids of each task: an order of all classes, cut into slices.

    Args:
        classes: the names; a class's id is its place here.
        tasks: number of equal slices, 5 if nothing else determines it. If the classes cannot be divided
            evenly, the first tasks have one more. Where ``order`` or ``increment`` determines the number, this
            may be left out, and must not differ.
        order: ``random`` (a permutation by ``seed``), ``sorted`` (by id), ``alphabetical`` (by name, the
            field's), ``paper`` (`PAPER_ORDERS`, which has its own tasks), a flat list of all class ids or names, or
            one list per task.
        base: classes of the first task, with ``increment``.
        increment: classes of every task after ``base``: ``B10-C2`` is base 10, increment 2. The rest
            makes a smaller last task.
        seed: seed of the random order.

    >>> [group.tolist() for group in class_groups(list("abcdefg"), tasks=3, order="sorted")]
    [[0, 1, 2], [3, 4], [5, 6]]
    >>> [group.tolist() for group in class_groups(list("abcdefg"), order="sorted", base=4, increment=2)]
    [[0, 1, 2, 3], [4, 5], [6]]
    >>> [group.tolist() for group in class_groups(["tv", "cat", "dog"], tasks=3, order="alphabetical")]
    [[1], [2], [0]]
    >>> [group.tolist() for group in class_groups(list("abc"), order=[["c"], [0, "b"]])]
    [[2], [0, 1]]
    """
    names = list(classes)
    if tasks is not None:
        tasks = check_int("tasks", tasks, 1)
    ids, sizes = _ordered(names, order, seed)
    what = "the order has"
    if sizes is not None and (base or increment is not None):
        raise InputError(
            f"base is {base} and increment is {increment}, but the order has its own tasks, so neither was expected"
        )
    if sizes is None and increment is not None:
        sizes, what = _increments(len(names), base, increment), f"base {base} and increment {increment} make"
    if sizes is None:
        if base:
            raise InputError(
                f"base is {base} without increment, but the classes of each later task were expected"
            )
        sizes = _equal(len(names), DEFAULT_TASKS if tasks is None else tasks)
    if tasks not in (None, len(sizes)):
        raise InputError(
            f"tasks is {tasks}, but {what} {len(sizes)} tasks; leave tasks out or make them agree"
        )
    return tuple(np.split(ids, np.cumsum(sizes)[:-1]))


def _ordered(names: list[str], order: Order, seed: int) -> tuple[NDArray[np.int64], list[int] | None]:
    """Return all class ids in order and, if the order is grouped, the sizes of its groups."""
    if isinstance(order, str):
        if order == "random":
            return generator(seed, ORDER).permutation(len(names)).astype(np.int64), None
        if order == "sorted":
            return np.arange(len(names), dtype=np.int64), None
        if order == "alphabetical":
            return np.array(sorted(range(len(names)), key=names.__getitem__), dtype=np.int64), None
        order = _paper_order(order, len(names))
    groups, grouped = _groups(list(order))
    place = {name: k for k, name in enumerate(names)}
    ids = [_class_id(entry, place) for group in groups for entry in group]
    times = Counter(ids)
    repeated = next((k for k, number in times.items() if number > 1), None)
    if repeated is not None:
        raise InputError(
            f"order has class {repeated} ({names[repeated]!r}) twice, but every class once was expected"
        )
    if missing := [repr(name) for k, name in enumerate(names) if k not in times]:
        raise InputError(f"order leaves out {', '.join(missing)}, but every class once was expected")
    return np.array(ids, dtype=np.int64), [len(group) for group in groups] if grouped else None


def _paper_order(order: str, classes: int) -> tuple[tuple[int, ...], ...]:
    """Return the paper's order for a number of classes; refuse any other name of an order."""
    if order != "paper":
        raise InputError(
            f"order is {order!r}; expected one of: {', '.join(NAMED_ORDERS)}, or a list of classes."
            f"{nearest(order, NAMED_ORDERS)}"
        )
    if classes not in PAPER_ORDERS:
        raise InputError(
            f"order is 'paper' and the dataset has {classes} classes, but the paper's orders are "
            f"for 20 (VOC), 80 (COCO) or 81 (NUS-WIDE)"
        )
    return PAPER_ORDERS[classes]


def _groups(entries: list[Any]) -> tuple[list[list[Any]], bool]:
    """Return the groups of a list of lists; a flat list is one group. The flag says which of the two it was."""
    nested = [isinstance(entry, list | tuple | np.ndarray) for entry in entries]
    grouped = any(nested)
    if grouped and not all(nested):
        raise InputError(
            f"order is {entries!r}, but either a list of classes or a list of lists was expected"
        )
    groups = [list(entry) for entry in entries] if grouped else [entries]
    if not all(groups):
        raise InputError("order has a task with no class, but at least one class per task was expected")
    return groups, grouped


def _class_id(entry: Any, place: dict[str, int]) -> int:
    """Return the id of a class given by id or name."""
    if isinstance(entry, str):
        if entry not in place:
            raise InputError(
                f"order has the class {entry!r}, which the dataset does not have.{nearest(entry, place)}"
            )
        return place[entry]
    if isinstance(entry, bool) or not isinstance(entry, int | np.integer) or not 0 <= entry < len(place):
        raise InputError(
            f"order has the entry {entry!r}, but class ids from 0 to {len(place) - 1} or names were expected"
        )
    return int(entry)


def _equal(count: int, tasks: int) -> list[int]:
    """Divide ``count`` classes among tasks; if that is not possible evenly, the first tasks have one more."""
    if not 1 <= tasks <= count:
        raise InputError(
            f"tasks is {tasks} and there are {count} classes, but 1 to {count} tasks were expected"
        )
    return [count // tasks + (t < count % tasks) for t in range(tasks)]


def _increments(count: int, base: int, increment: int) -> list[int]:
    """Return the sizes of the tasks of the protocol B(base)-C(increment)."""
    if not 0 <= base < count:
        raise InputError(
            f"base is {base} and there are {count} classes, but a number from 0 to {count - 1} was expected"
        )
    if increment < 1:
        raise InputError(f"increment is {increment}, but at least 1 class per task was expected")
    rest = count - base
    sizes = [base] * (base > 0) + [increment] * (rest // increment)
    return sizes + [rest % increment] * (rest % increment > 0)
