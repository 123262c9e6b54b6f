"""The ARFF language: relation, attributes, dense and sparse rows, quoted names, missing values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from mlcl.errors import InputError

_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_ATTRIBUTE = re.compile(rf"({_QUOTED}|[^\s{{]+)\s*(.*)", re.DOTALL)
_CELL = re.compile(rf"\s*({_QUOTED}|[^,'\"]*?)\s*(,|$)")
_PAIR = re.compile(rf"\s*(\d+)\s+({_QUOTED}|[^,\s'\"]+)\s*(,|$)")
_NUMERIC = ("numeric", "real", "integer")
_BLOCK = 1024
MISSING = "?"


@dataclass(frozen=True)
class Attribute:
    """A column: its name, and its values if it is nominal (None: it is numeric)."""

    name: str
    values: tuple[str, ...] | None


@dataclass(frozen=True, eq=False)
class Table:
    """A parsed file; ``cells`` float32 ``[N, A]``: numbers, positions of nominal values, NaN if missing."""

    relation: str
    attributes: tuple[Attribute, ...]
    cells: NDArray[np.float32]


def parse_arff(text: str, *, where: str) -> Table:
    r"""Parse an ARFF file.

    >>> text = "@relation 'x: -C 1'\n@attribute 'a b' {0,1}\n@attribute c real\n@data\n1,?\n{1 2.5}\n"
    >>> table = parse_arff(text, where="x.arff")
    >>> table.relation, [a.name for a in table.attributes]
    ('x: -C 1', ['a b', 'c'])
    >>> table.cells
    array([[1. , nan],
           [0. , 2.5]], dtype=float32)
    """
    lines = (
        (number, line.strip())
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip() and not line.lstrip().startswith("%")
    )
    relation, attributes = _head(lines, where)
    blocks = list(_blocks(lines, attributes, where))
    if not blocks:
        raise InputError(f"{where} has no rows after @data, but at least one was expected")
    return Table(relation, tuple(attributes), np.concatenate(blocks))


def _head(lines: Iterator[tuple[int, str]], where: str) -> tuple[str, list[Attribute]]:
    """Read all lines up to ``@data``; return the relation's name and the attributes."""
    relation, attributes = "", list[Attribute]()
    for number, line in lines:
        word = re.split(r"\s", line, maxsplit=1)[0].lower()
        rest = line[len(word) :].strip()
        if word == "@relation":
            relation = _unquote(rest)
        elif word == "@attribute":
            attributes.append(_attribute(rest, f"{where}, line {number},"))
        elif word == "@data":
            break
        else:
            raise InputError(
                f"{where}, line {number}, has {line[:60]!r}, but @relation, @attribute or @data was expected"
            )
    else:
        raise InputError(f"{where} has no @data line, so it is not an ARFF file, or is cut off")
    names = [attribute.name for attribute in attributes]
    if not names or len(set(names)) < len(names):
        raise InputError(
            f"{where} has {len(names)} attributes, but at least one, of distinct names, was expected"
        )
    return relation, attributes


def _unquote(text: str) -> str:
    if len(text) > 1 and text[0] in "'\"" and text[-1] == text[0]:
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    return text


def _attribute(text: str, where: str) -> Attribute:
    match = _ATTRIBUTE.fullmatch(text)
    if match is None:
        raise InputError(f"{where} has the attribute {text[:60]!r}, but a name and a type were expected")
    name, kind = _unquote(match[1]), match[2].strip()
    if kind.startswith("{") and kind.endswith("}"):
        return Attribute(name, tuple(MISSING if v is None else v for v in _cells(kind[1:-1], where)))
    if kind.split(" ")[0].lower() in _NUMERIC:
        return Attribute(name, None)
    raise InputError(
        f"{where} has the attribute {name!r} of type {kind[:40]!r}, but numeric or {{a, b}} was expected: "
        f"texts and dates are no features"
    )


def _entry(text: str) -> str | None:
    """Return what a cell says: None if it is missing; a question mark in quotes is a value like any other."""
    return None if text == MISSING else _unquote(text)


def _cells(line: str, where: str) -> list[str | None]:
    """Split at commas that are not quoted."""
    if "'" not in line and '"' not in line:
        return [None if cell == MISSING else cell for cell in map(str.strip, line.split(","))]
    cells, place = list[str | None](), 0
    while True:
        match = _CELL.match(line, place)
        if match is None:
            raise InputError(f"{where} has a quote that is not closed: {line[place : place + 60]!r}")
        cells.append(_entry(match[1]))
        place = match.end()
        if not match[2]:
            return cells


def _blocks(
    lines: Iterable[tuple[int, str]], attributes: Sequence[Attribute], where: str
) -> Iterator[NDArray[np.float32]]:
    """Yield the rows, a thousand at a time: as text they take many times the memory of the numbers."""
    values = [None if a.values is None else {v: float(i) for i, v in enumerate(a.values)} for a in attributes]
    lines = iter(lines)
    while block := list(islice(lines, _BLOCK)):
        cells = np.zeros((len(block), len(attributes)), dtype=np.float32)
        dense: list[list[str | None]] = []
        place: list[int] = []
        for row, (number, line) in enumerate(block):
            at = f"{where}, line {number},"
            if line.startswith("{"):
                _sparse(line, attributes, values, cells[row], at)
                continue
            entries = _cells(line, at)
            if len(entries) != len(attributes):
                raise InputError(f"{at} has {len(entries)} values, but {len(attributes)} were expected")
            dense.append(entries)
            place.append(row)
        for k, column in enumerate(zip(*dense, strict=True)):
            cells[place, k] = _column(
                column, attributes[k], values[k], [block[row][0] for row in place], where
            )
        yield cells


def _column(
    entries: Sequence[str | None],
    attribute: Attribute,
    values: dict[str, float] | None,
    lines: Sequence[int],
    where: str,
) -> NDArray[np.float32]:
    """Return one column as numbers; the `InputError` names the line of the first bad value."""
    missing = np.asarray([entry is None for entry in entries])
    try:
        if values is None:
            given = ["nan" if entry is None else entry for entry in entries]
            with np.errstate(over="ignore"):  # found as an infinity just below
                column = np.asarray(given, dtype=np.str_).astype(np.float32)
        else:
            column = np.asarray([np.nan if t is None else values[t] for t in entries], dtype=np.float32)
        if np.isfinite(column[~missing]).all():
            return column
    except (ValueError, KeyError, OverflowError):
        pass
    for entry, line in zip(entries, lines, strict=True):
        _value(entry, attribute, values, f"{where}, line {line},")
    raise InputError(f"{where} has a value of {attribute.name!r} that does not fit into float32")


def _value(entry: str | None, attribute: Attribute, values: dict[str, float] | None, at: str) -> float:
    """Return one value as a number."""
    if entry is None:
        return float("nan")
    try:
        with np.errstate(over="ignore"):
            value = float(np.float32(entry)) if values is None else values[entry]
    except (ValueError, KeyError, OverflowError):
        value = float("nan")
    if not np.isfinite(value):
        wanted = (
            "a finite number" if attribute.values is None else f"one of {', '.join(attribute.values)[:80]}"
        )
        raise InputError(f"{at} has {entry[:40]!r} for {attribute.name!r}, but {wanted} was expected")
    return value


def _sparse(
    line: str,
    attributes: Sequence[Attribute],
    values: Sequence[dict[str, float] | None],
    row: NDArray[np.float32],
    at: str,
) -> None:
    """Fill a row from ``{index value, ...}``; what is not named is 0, or the first nominal value."""
    if not line.endswith("}"):
        raise InputError(f"{at} has a sparse row without a closing brace")
    body, place, seen = line[1:-1].strip(), 0, set[int]()
    while place < len(body):
        match = _PAIR.match(body, place)
        index = int(match[1]) if match is not None and len(match[1]) < 10 else len(attributes)
        if match is None or index >= len(attributes) or index in seen:
            raise InputError(
                f"{at} has {body[place : place + 40]!r}, but an index below {len(attributes)}, "
                f"not used before, and a value were expected"
            )
        seen.add(index)
        row[index] = _value(_entry(match[2]), attributes[index], values[index], at)
        place = match.end()
