"""Labels as tags, a collection of names per row: how they are read from one cell of a table, and become a matrix."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mlcl.errors import InputError, nearest
from mlcl.labels import Labels

MAX_CLASSES = 100_000
SEPARATOR = "|"
"""The separator that needs no guess: no label has it in its name."""
GUESSED = (";", ",")

# Possessive quantifiers: a long cell of an untrusted file is read in one pass, or not at all.
_ITEM = re.compile(
    r"""\s*+(?:'((?:[^'\\]|\\.)*+)'|"((?:[^"\\]|\\.)*+)"|([^,'"\[\]{}()]++))\s*+(,|\Z|(?=['"]))""", re.DOTALL
)
_BRACKETS = {"[": "]", "{": "}", "(": ")"}


def is_tags(y: Any) -> bool:
    """Return whether ``y`` is one collection of names per row: sets of any names, or lists and tuples of strings.

    A row without tags is an empty collection.
    """
    if hasattr(y, "columns") or hasattr(y, "toarray"):
        return False
    if isinstance(y, np.ndarray) and y.dtype.kind != "O":  # a matrix of numbers, not to be made into lists
        return False
    rows = y.tolist() if hasattr(y, "tolist") else y
    if not isinstance(rows, list | tuple) or not rows:
        return False
    if not all(isinstance(row, list | tuple | set | frozenset) for row in rows):
        return False
    names = [name for row in rows for name in row]
    return not names or any(isinstance(row, set | frozenset) for row in rows) or isinstance(names[0], str)


def label_matrix(
    lists: Sequence[Sequence[str]], *, classes: Sequence[str] | None, where: str
) -> tuple[tuple[str, ...], Labels]:
    """Return class names and a 0/1 matrix from a list of names per row; without ``classes``, all names, sorted.

    >>> label_matrix([["dog"], ["cat", "dog"], []], classes=None, where="x")
    (('cat', 'dog'), array([[0, 1],
           [1, 1],
           [0, 0]], dtype=uint8))
    """
    if classes is None:
        classes = sorted({label for labels in lists for label in labels})
        if len(classes) > MAX_CLASSES:
            raise InputError(f"{where} has {len(classes)} classes, but at most {MAX_CLASSES} were expected")
    column = {name: k for k, name in enumerate(classes)}
    matrix = np.zeros((len(lists), len(classes)), dtype=np.uint8)
    for row, labels in enumerate(lists):
        for label in labels:
            if label not in column:
                raise InputError(
                    f"{where} has the unknown label {label!r} in row {row + 1}.{nearest(label, classes)}"
                )
            matrix[row, column[label]] = 1
    return tuple(classes), matrix


def alike(names: Sequence[str]) -> list[tuple[int, ...]]:
    """Return the groups of names that differ only in case or spaces, as places in ``names``."""
    groups: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        groups.setdefault("".join(name.split()).casefold(), []).append(place)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def warn_of_alike(names: Sequence[str], counts: ArrayLike, *, where: str, limit: int = 3) -> None:
    """Warn of names that differ only in case or spaces, each with its number of rows; they are kept apart."""
    if not (groups := alike(names)):
        return
    rows = [int(count) for count in np.asarray(counts)]
    shown = "; ".join(
        " and ".join(f"{names[k]!r} ({rows[k]} row{'s' * (rows[k] != 1)})" for k in group)
        for group in groups[:limit]
    )
    more = f"; and {len(groups) - limit} more" if len(groups) > limit else ""
    text = f"{where} has labels that differ only in case or spaces and are kept apart: {shown}{more}"
    warnings.warn(text, UserWarning, stacklevel=3)


def split_cells(
    cells: Sequence[str], *, separator: str | None, known: Collection[str] = (), where: str
) -> tuple[list[list[str]], str]:
    """Return the labels in each cell, and the text that separates them.

    Lists as Python, JSON or numpy print them are read as such. In all other cells labels are separated by
    ``separator``. Without one it is ``|`` if any cell has it, else ``;`` or ``,``, whichever the cells have; cells
    that have both are an `InputError` that asks for it. A cell that is one of the ``known`` names is never split.

    >>> split_cells(["cat, dog", "", "cow"], separator=None, where="x.csv")
    ([['cat', 'dog'], [], ['cow']], ',')
    >>> split_cells(["['cat', 'hot dog']", "[]"], separator=None, where="x.csv")[0]
    [['cat', 'hot dog'], []]
    >>> split_cells(["cat; dog", "salt, pepper"], separator=None, where="x.csv")
    Traceback (most recent call last):
    ...
    mlcl.errors.InputError: x.csv has ';' in 'cat; dog' and ',' in 'salt, pepper'; say what separates labels with the \
option separator
    """
    if separator == "":
        raise InputError("separator is empty, but a text between labels, such as '|', was expected")
    texts = [cell.strip() for cell in cells]
    lists = _printed_lists(texts) if separator is None else {}
    plain = [text for text in texts if text not in lists and text not in known]
    mark = _find_separator(plain, where) if separator is None else separator
    whole = {text: [text] for text in known} | lists

    def cut(text: str) -> list[str]:
        parts = text.split() if mark.isspace() else text.split(mark)
        return [part.strip() for part in parts if part.strip()]

    return [whole[text] if text in whole else cut(text) for text in texts], mark


def parse_list(text: str) -> list[str] | None:
    r"""Return the texts in a printed list, tuple or set, or None if it is no such list. Nothing is evaluated.

    Items are quoted or bare; between quoted ones a space is enough, as numpy prints them.
    """
    if len(text) < 2 or _BRACKETS.get(text[0]) != text[-1]:
        return None
    inner = text[1:-1].strip()
    found: list[str] = []
    place = 0
    while place < len(inner):
        match = _ITEM.match(inner, place)
        if match is None:
            return None
        single, double, bare, _ = match.groups()
        quoted = single if single is not None else double
        found.append(bare.strip() if quoted is None else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL))
        place = match.end()
    return [item.strip() for item in found if item.strip()]


def _printed_lists(texts: Sequence[str]) -> dict[str, list[str]]:
    """Return the cells that are printed lists, with their items.

    A bracket alone does not make a list: ``[misc]`` may be the name of a label. It is one where its items are quoted or
    it has none, or where all cells are in square brackets.
    """
    filled = {text for text in texts if text}
    all_square = bool(filled) and all(text[0] == "[" and text[-1] == "]" for text in filled)
    chosen = [text for text in filled if all_square or text[1:-1].strip()[:1] in ("", "'", '"')]
    found = {text: parse_list(text) for text in chosen}
    return {text: items for text, items in found.items() if items is not None}


def _find_separator(texts: Sequence[str], where: str) -> str:
    if any(SEPARATOR in text for text in texts):
        return SEPARATOR
    examples = {mark: next((text for text in texts if mark in text), None) for mark in GUESSED}
    met = {mark: text for mark, text in examples.items() if text is not None}
    if len(met) > 1:
        shown = " and ".join(f"{mark!r} in {text[:60]!r}" for mark, text in met.items())
        raise InputError(f"{where} has {shown}; say what separates labels with the option separator")
    return next(iter(met), SEPARATOR)
