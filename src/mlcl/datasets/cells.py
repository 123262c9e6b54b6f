"""Labels in one cell of a table: ``a|b|c``, ``a, b``, ``a; b``, or a list that a program wrote, ``['a', 'b']``."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from mlcl.errors import InputError

SEPARATOR = "|"
"""The separator that needs no guess: no label has it in its name."""
GUESSED = (";", ",")

# Possessive quantifiers: a long cell of an untrusted file is read in one pass, or not at all.
_ITEM = re.compile(
    r"""\s*+(?:'((?:[^'\\]|\\.)*+)'|"((?:[^"\\]|\\.)*+)"|([^,'"\[\]{}()]++))\s*+(,|\Z|(?=['"]))""", re.DOTALL
)
_BRACKETS = {"[": "]", "{": "}", "(": ")"}


def split_cells(
    cells: Sequence[str], *, separator: str | None, known: Collection[str] = (), where: str
) -> tuple[list[list[str]], str]:
    """Return the labels in each cell, and the text that separates them.

    Lists as Python, JSON or numpy print them are read as such. In all other cells labels are separated by
    ``separator``. Without one it is ``|`` if any cell has it, else ``;`` or ``,``, whichever the cells have; cells
    that have both are an `InputError` that asks for it.

    Args:
        cells: one text per row.
        separator: the text between labels, or None to find it.
        known: names of classes that are given anyway; a cell that is one of them is never split.
        where: the column and its file, for the error.

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
    if separator is not None:
        return [_split(text, separator, known) for text in texts], separator
    lists = _lists(texts)
    plain = [text for text in texts if text not in lists and text not in known]
    separator = _find_separator(plain, where)
    return [lists[text] if text in lists else _split(text, separator, known) for text in texts], separator


def parse_list(text: str) -> list[str] | None:
    r"""Return the texts in a printed list, tuple or set, or None if it is no such list. Nothing is evaluated.

    Items are quoted or bare; between quoted ones a space is enough, as numpy prints them.

    >>> parse_list("['cat', \"dog's ball\"]"), parse_list("['cat' 'dog']"), parse_list("[3, 5]"), parse_list("cat")
    (['cat', "dog's ball"], ['cat', 'dog'], ['3', '5'], None)
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


def _lists(texts: Sequence[str]) -> dict[str, list[str]]:
    """Return the cells that are printed lists, with their items.

    A bracket alone does not make a list: ``[misc]`` may be the name of a label. It is one where its items are quoted or
    it has none, or where all cells are in square brackets.
    """
    filled = {text for text in texts if text}
    all_square = bool(filled) and all(text[0] == "[" and text[-1] == "]" for text in filled)
    found: dict[str, list[str]] = {}
    for text in filled:
        if all_square or text[1:-1].strip()[:1] in ("", "'", '"'):
            items = parse_list(text)
            if items is not None:
                found[text] = items
    return found


def _find_separator(texts: Sequence[str], where: str) -> str:
    if any(SEPARATOR in text for text in texts):
        return SEPARATOR
    examples = {mark: next((text for text in texts if mark in text), None) for mark in GUESSED}
    met = {mark: text for mark, text in examples.items() if text is not None}
    if len(met) > 1:
        shown = " and ".join(f"{mark!r} in {text[:60]!r}" for mark, text in met.items())
        raise InputError(f"{where} has {shown}; say what separates labels with the option separator")
    return next(iter(met), SEPARATOR)


def _split(text: str, separator: str, known: Collection[str]) -> list[str]:
    if text in known:
        return [text]
    parts = text.split() if separator.isspace() else text.split(separator)
    return [part.strip() for part in parts if part.strip()]
