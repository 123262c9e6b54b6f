"""Multi-label ARFF: MEKA's ``-C n`` in the relation's name, or Mulan's ARFF + XML pair.

The language: relation, attributes, dense and sparse rows, quoted names, missing values.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import defusedxml.ElementTree
import numpy as np
from numpy.typing import NDArray

from mlcl.datasets.plan import SOURCES, DatasetPlan, make_plan, split_options, split_rows
from mlcl.datasets.trees import PACKED, decoded_text, read_packed
from mlcl.errors import InputError, nearest, parsing
from mlcl.files import slug

_MAX_BYTES = 2 * 2**30
_NAME = re.compile(r"(.+)\.arff(?:\.(?:gz|bz2|xz))?", re.IGNORECASE)
_WORDS = {"0": 0.0, "1": 1.0, "0.0": 0.0, "1.0": 1.0, "false": 0.0, "true": 1.0, "no": 0.0, "yes": 1.0}
_WORDS |= {"f": 0.0, "t": 1.0, "n": 0.0, "y": 1.0}
_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_ATTRIBUTE = re.compile(rf"({_QUOTED}|[^\s{{]+)\s*(.*)", re.DOTALL)
_CELL = re.compile(rf"\s*({_QUOTED}|[^,'\"]*?)\s*(,|$)")
_PAIR = re.compile(rf"\s*(\d+)\s+({_QUOTED}|[^,\s'\"]+)\s*(,|$)")
_NUMERIC = ("numeric", "real", "integer")
_BLOCK = 1024
MISSING = "?"
Floats = NDArray[np.float32]


@SOURCES.register(
    "arff",
    summary="Multi-label ARFF: MEKA's -C n, or Mulan's ARFF + XML; .gz, .bz2 and .xz too.",
    reference="Read et al., MEKA, JMLR 2016; Tsoumakas et al., Mulan, JMLR 2011",
)
def read_arff(
    root: Path,
    *,
    labels: int | None = None,
    xml: str | None = None,
    test: str | None = None,
    encoding: str = "utf-8",
    test_fraction: float = 1 / 3,
    split_seed: int = 0,
) -> DatasetPlan:
    """Plan a store of features from ARFF.

    The labels are the attributes that ``-C n`` in the relation's name counts (the first ``n``, or the last ``n``
    if it is negative), or those that Mulan's .xml file lists, or those that ``labels`` counts. A numeric attribute
    is one feature. A nominal attribute of two values (or of 0/1, no/yes) is one feature; one of more values is
    one-hot encoded. A missing feature is replaced by the mean of the training rows; a missing label is refused.
    ARFF has no split: the test rows come from ``X-test.arff`` in the folder of ``X-train.arff``, or from the file
    ``test``, or else a seeded part of the rows is held out.

    Args:
        root: the file, or a folder that holds one (or one pair ``-train``, ``-test``).
        labels: number of labels, as in -C, for a file that does not state it; negative: the last attributes.
        xml: path of Mulan's list of labels, if it is not in the same folder under the same name.
        test: path of a test file with the same attributes.
        encoding: encoding of the text.
        test_fraction: fraction of the rows that is held out for testing where there is no test file.
        split_seed: seed of that choice.
    """
    path = _find(root)
    match = _NAME.fullmatch(path.name)
    stem = match[1] if match is not None else path.stem
    base = stem.removesuffix("-train")
    usual = None if base == stem else _beside(path, f"{base}-test.arff")
    test_path = usual if test is None else Path(test).expanduser()
    table = _read(path, encoding)
    is_label = _label_columns(table, path, labels, xml, (stem, base))
    cells = table.cells
    options: dict[str, Any] = {}
    if test_path is None:
        train = split_rows(len(cells), fraction=test_fraction, seed=split_seed)
        options = split_options(test_fraction, split_seed)
    else:
        other = _read(test_path, encoding)
        if other.attributes != table.attributes:
            raise InputError(f"{test_path} has other attributes than {path}, but the same were expected")
        cells = np.concatenate([cells, other.cells])
        train = np.arange(len(cells)) < len(table.cells)
    inputs, filled = _features(table, cells, is_label, train, path)
    return make_plan(
        source="arff",
        root=path,
        name=slug(base),
        classes=[a.name for a, chosen in zip(table.attributes, is_label, strict=True) if chosen],
        ids=[f"row-{i}" for i in range(len(cells))],
        train=train,
        labels=_labels(table, cells, is_label, path),
        inputs=inputs,
        options=options | ({"missing values filled": filled} if filled else {}),
    )


def _find(root: Path) -> Path:
    """Return the file to read; of a folder, the only one, or the training one of a pair."""
    if not root.exists():
        raise InputError(
            f"{root} was looked for and does not exist; an .arff file or a folder of it was expected"
        )
    if not root.is_dir():
        return root
    found = sorted(path for path in root.iterdir() if _NAME.fullmatch(path.name))
    pair = [path for path in found if "-train.arff" in path.name.lower()]
    if len(found) == 2 and len(pair) == 1 and "-test.arff" in "".join(p.name.lower() for p in found):
        return pair[0]
    if len(found) != 1:
        raise InputError(
            f"{root} has {len(found)} .arff files, but one, or a pair -train and -test, was expected"
        )
    return found[0]


def _beside(path: Path, name: str) -> Path | None:
    """Return the file of that name, packed or not, in the folder of ``path``."""
    places = [path.with_name(name + suffix) for suffix in ("", *PACKED)]
    return next((place for place in places if place.exists()), None)


def _read(path: Path, encoding: str) -> ArffTable:
    content = read_packed(path, limit=_MAX_BYTES)
    return parse_arff(decoded_text(content, encoding, where=str(path)), where=str(path))


def _label_columns(
    table: ArffTable, path: Path, labels: int | None, xml: str | None, stems: Sequence[str]
) -> NDArray[np.bool_]:
    """Return for each attribute whether it is a label: by number, or by the names in Mulan's .xml."""
    names = [attribute.name for attribute in table.attributes]
    stated = re.search(r"-C\s+(-?\d{1,9})(?!\d)", table.relation)
    if labels is None and xml is None and stated is not None:
        labels = int(stated[1])
    chosen = np.zeros(len(names), dtype=np.bool_)
    if labels is not None:
        if not 0 < abs(labels) < len(names):
            raise InputError(
                f"{path} is to have {labels} labels (-C), but it has {len(names)} attributes in all"
            )
        chosen[slice(0, labels) if labels > 0 else slice(labels, None)] = True
        return chosen
    places = [Path(xml).expanduser()] if xml is not None else [_beside(path, f"{stem}.xml") for stem in stems]
    place = next((p for p in places if p is not None), None)
    if place is None:
        raise InputError(
            f"{path} does not say which attributes are labels: its relation has no -C, and "
            f"{path.with_name(stems[-1] + '.xml')} was looked for and does not exist; "
            f"give the option labels or xml"
        )
    for name in _xml_names(place):
        if name not in names:
            raise InputError(
                f"{place} has the label {name!r}, which {path} does not have.{nearest(name, names)}"
            )
        chosen[names.index(name)] = True
    if chosen.all():
        raise InputError(f"{place} calls every attribute of {path} a label, but some features were expected")
    return chosen


def _xml_names(path: Path) -> list[str]:
    """Return the label names of Mulan's XML, nested ones included."""
    data = read_packed(path, limit=_MAX_BYTES // 32)
    with parsing(f"{path} is not safe, well-formed XML"):  # entities and bombs are refused here too
        tree: Any = defusedxml.ElementTree.fromstring(data)
    tags = (e for e in tree.iter() if isinstance(e.tag, str) and e.tag.endswith("label"))
    names = [str(e.get("name", "")) for e in tags]
    if not names or len(set(names)) < len(names) or "" in names:
        raise InputError(f"{path} has {len(names)} labels, but at least one, of distinct names, was expected")
    return names


def _labels(table: ArffTable, cells: Floats, is_label: NDArray[np.bool_], path: Path) -> Floats:
    """Return the 0/1 matrix of the labels."""
    matrix = cells[:, is_label]
    for k, column in enumerate(np.flatnonzero(is_label)):
        attribute, missing = table.attributes[column], np.isnan(matrix[:, k])
        if missing.any():
            raise InputError(
                f"{path} has no value for the label {attribute.name!r} in row {missing.argmax() + 1}"
            )
        if attribute.meanings is not None:
            matrix[:, k] = attribute.meanings[matrix[:, k].astype(np.int64)]
        elif attribute.values is not None:
            raise InputError(
                f"{path} has the label {attribute.name!r} with the values "
                f"{', '.join(attribute.values)[:60]!r}, but 0 and 1 were expected"
            )
    return matrix


def _features(
    table: ArffTable, cells: Floats, is_label: NDArray[np.bool_], train: NDArray[np.bool_], path: Path
) -> tuple[Floats, int]:
    """Return the feature matrix, and how many missing values were replaced by their column's training mean."""
    parts: list[Floats] = []
    for k in np.flatnonzero(~is_label):
        column, attribute = cells[:, k, None], table.attributes[k]
        if attribute.meanings is not None:
            column = np.where(
                np.isnan(column), column, attribute.meanings[np.nan_to_num(column).astype(np.int64)]
            )
        elif attribute.values is not None and len(attribute.values) > 2:
            column = np.where(np.isnan(column), column, column == np.arange(len(attribute.values)))
        parts.append(column)
    features = np.concatenate(parts, axis=1).astype(np.float32)
    missing = np.isnan(features)
    if missing.any():
        known_rows = ~missing[train]
        total = np.where(known_rows, features[train], 0).sum(axis=0, dtype=np.float64)
        means = total / np.maximum(known_rows.sum(axis=0), 1)
        features = np.where(missing, means.astype(np.float32), features)
    if not np.isfinite(features).all():
        raise InputError(f"{path} has values that do not fit into float32")
    return features, int(missing.sum())


@dataclass(frozen=True)
class Attribute:
    """A column: its name, and its values if it is nominal (None: it is numeric)."""

    name: str
    values: tuple[str, ...] | None

    @cached_property
    def places(self) -> dict[str, float]:
        """Return the number of each value."""
        return {value: float(place) for place, value in enumerate(self.values or ())}

    @cached_property
    def meanings(self) -> Floats | None:
        """Return 0 or 1 for each value of a nominal attribute that says no or yes, else None."""
        words = [_WORDS.get(value.lower()) for value in self.values or ()]
        return None if not words or None in words else np.asarray(words, dtype=np.float32)

    def numbers(self, entries: Sequence[str | None], lines: NDArray[np.int64], where: str) -> Floats:
        """Return entries as numbers, NaN if missing; the `InputError` names the line of the first bad one."""
        with np.errstate(over="ignore"):
            column = np.array([self._number(entry) for entry in entries]).astype(np.float32)
        bad = np.isinf(column)
        if not bad.any():
            return column
        place = int(bad.argmax())
        wanted = "a finite number" if self.values is None else f"one of {', '.join(self.values)[:80]}"
        value = str(entries[place])[:40]
        raise InputError(
            f"{where}, line {lines[place]}, has {value!r} for {self.name!r}, but {wanted} was expected"
        )

    def _number(self, entry: str | None) -> float:
        """Return an entry as a number: NaN if it is missing, and infinity if it is none."""
        if entry is None:
            return math.nan
        if self.values is not None:
            return self.places.get(entry, math.inf)
        with contextlib.suppress(ValueError):
            value = float(entry)
            return math.inf if math.isnan(value) else value
        return math.inf


@dataclass(frozen=True, eq=False)
class ArffTable:
    """A parsed file; ``cells`` float32 ``[N, A]``: numbers, positions of nominal values, NaN if missing."""

    relation: str
    attributes: tuple[Attribute, ...]
    cells: Floats


def parse_arff(text: str, *, where: str) -> ArffTable:
    r"""Parse an ARFF file."""
    numbered = ((number, line.strip()) for number, line in enumerate(text.split("\n"), 1))
    lines = ((number, line) for number, line in numbered if line and not line.startswith("%"))
    relation, attributes = _head(lines, where)
    blocks = list(_blocks(lines, attributes, where))
    if not blocks:
        raise InputError(f"{where} has no rows after @data, but at least one was expected")
    return ArffTable(relation, tuple(attributes), np.concatenate(blocks))


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
    if not attributes or len({attribute.name for attribute in attributes}) < len(attributes):
        raise InputError(
            f"{where} has {len(attributes)} attributes, but at least one, of distinct names, was expected"
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
        return Attribute(name, tuple(MISSING if v is None else v for v in _entries(kind[1:-1], where)))
    if kind.split(" ")[0].lower() in _NUMERIC:
        return Attribute(name, None)
    raise InputError(
        f"{where} has the attribute {name!r} of type {kind[:40]!r}, but numeric or {{a, b}} was expected: "
        f"texts and dates are no features"
    )


def _entry(text: str) -> str | None:
    """Return what a cell says: None if it is missing; a question mark in quotes is a value like any other."""
    return None if text == MISSING else _unquote(text)


def _entries(line: str, where: str) -> list[str | None]:
    """Split at commas that are not quoted."""
    if "'" not in line and '"' not in line:
        return [None if cell == MISSING else cell for cell in map(str.strip, line.split(","))]
    entries, place = list[str | None](), 0
    while True:
        match = _CELL.match(line, place)
        if match is None:
            raise InputError(f"{where} has a quote that is not closed: {line[place : place + 60]!r}")
        entries.append(_entry(match[1]))
        place = match.end()
        if not match[2]:
            return entries


def _blocks(
    lines: Iterable[tuple[int, str]], attributes: Sequence[Attribute], where: str
) -> Iterator[Floats]:
    """Yield the rows, a thousand at a time: as text they take many times the memory of the numbers."""
    lines = iter(lines)
    while block := list(islice(lines, _BLOCK)):
        columns: list[tuple[list[int], list[str | None]]] = [([], []) for _ in attributes]
        for row, (number, line) in enumerate(block):
            for k, entry in _row(line, len(attributes), f"{where}, line {number},"):
                columns[k][0].append(row)
                columns[k][1].append(entry)
        cells = np.zeros((len(block), len(attributes)), dtype=np.float32)
        numbers = np.array([number for number, _ in block])
        for k, (rows, entries) in enumerate(columns):
            cells[rows, k] = attributes[k].numbers(entries, numbers[rows], where)
        yield cells


def _row(line: str, width: int, at: str) -> Iterable[tuple[int, str | None]]:
    """Return the entries of a dense or sparse row, each with the number of its column."""
    if line.startswith("{"):
        return _pairs(line, width, at)
    entries = _entries(line, at)
    if len(entries) != width:
        raise InputError(f"{at} has {len(entries)} values, but {width} were expected")
    return enumerate(entries)


def _pairs(line: str, width: int, at: str) -> Iterator[tuple[int, str | None]]:
    """Yield the entries of ``{index value, ...}``; what is not named is 0, or the first nominal value."""
    if not line.endswith("}"):
        raise InputError(f"{at} has a sparse row without a closing brace")
    body, place, seen = line[1:-1].strip(), 0, set[int]()
    while place < len(body):
        match = _PAIR.match(body, place)
        index = int(match[1]) if match is not None and len(match[1]) < 10 else width
        if match is None or index >= width or index in seen:
            raise InputError(
                f"{at} has {body[place : place + 40]!r}, but an index below {width}, "
                f"not used before, and a value were expected"
            )
        seen.add(index)
        yield index, _entry(match[2])
        place = match.end()
