"""Multi-label ARFF: MEKA's ``-C n`` in the relation's name, or Mulan's ARFF + XML pair."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import defusedxml.ElementTree
import numpy as np
from numpy.typing import NDArray

from mlcl.datasets.arff_text import Attribute, Table, parse_arff
from mlcl.datasets.plan import SOURCES, DatasetPlan, make_plan, split_rows
from mlcl.datasets.trees import read_packed
from mlcl.errors import InputError, nearest, one_line
from mlcl.files import slug

_MAX_BYTES = 2 * 2**30
_PACKED = ("", ".gz", ".bz2", ".xz")
_NAME = re.compile(r"(.+)\.arff(?:\.(?:gz|bz2|xz))?", re.IGNORECASE)
_WORDS = {"0": 0.0, "1": 1.0, "0.0": 0.0, "1.0": 1.0, "false": 0.0, "true": 1.0, "no": 0.0, "yes": 1.0}
_WORDS |= {"f": 0.0, "t": 1.0, "n": 0.0, "y": 1.0}


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
    test_path = (
        Path(test).expanduser()
        if test is not None
        else _beside(path, f"{base}-test.arff")
        if base != stem
        else None
    )
    table = _read(path, encoding)
    is_label = _label_columns(table, path, labels, xml, (stem, base))
    cells = table.cells
    if test_path is None:
        train = split_rows(len(cells), fraction=test_fraction, seed=split_seed)
    else:
        other = _read(test_path, encoding)
        if other.attributes != table.attributes:
            raise InputError(f"{test_path} has other attributes than {path}, but the same were expected")
        train = np.repeat([True, False], [len(cells), len(other.cells)])
        cells = np.concatenate([cells, other.cells])
    inputs, filled = _features(table, cells, is_label, train, path)
    options: dict[str, Any] = (
        {} if test_path is not None else {"test_fraction": test_fraction, "split_seed": split_seed}
    )
    return make_plan(
        source="arff",
        root=str(path),
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
    places = [path.with_name(name + suffix) for suffix in _PACKED]
    return next((place for place in places if place.exists()), None)


def _read(path: Path, encoding: str) -> Table:
    try:
        text = read_packed(path, limit=_MAX_BYTES).decode(encoding).removeprefix("\ufeff")
    except LookupError:
        raise InputError(
            f"encoding is {encoding!r}, which is not known; utf-8 or latin-1 are examples"
        ) from None
    except UnicodeError as error:
        raise InputError(f"{path} is not {encoding}: {error}; name another encoding") from None
    return parse_arff(text, where=str(path))


def _label_columns(
    table: Table, path: Path, labels: int | None, xml: str | None, stems: Sequence[str]
) -> NDArray[np.bool_]:
    """Return for each attribute whether it is a label: by number, or by the names in Mulan's .xml."""
    stated = re.search(r"-C\s+(-?\d{1,9})(?!\d)", table.relation)
    if labels is None and xml is None and stated is not None:
        labels = int(stated[1])
    if labels is not None:
        return _counted_labels(len(table.attributes), labels, path)
    return _listed_labels(
        [attribute.name for attribute in table.attributes], path, _find_xml(path, xml, stems)
    )


def _counted_labels(width: int, count: int, path: Path) -> NDArray[np.bool_]:
    """Choose the first ``count`` attributes, or the last ones if it is negative."""
    if not 0 < abs(count) < width:
        raise InputError(f"{path} is to have {count} labels (-C), but it has {width} attributes in all")
    chosen = np.zeros(width, dtype=np.bool_)
    chosen[slice(0, count) if count > 0 else slice(count, None)] = True
    return chosen


def _find_xml(path: Path, xml: str | None, stems: Sequence[str]) -> Path:
    """Return the list of labels that was named, or the one in the folder of the file."""
    if xml is not None:
        return Path(xml).expanduser()
    found = [_beside(path, f"{stem}.xml") for stem in stems]
    place = next((p for p in found if p is not None), None)
    if place is None:
        raise InputError(
            f"{path} does not say which attributes are labels: its relation has no -C, and "
            f"{path.with_name(stems[-1] + '.xml')} was looked for and does not exist; "
            f"give the option labels or xml"
        )
    return place


def _listed_labels(names: list[str], path: Path, place: Path) -> NDArray[np.bool_]:
    """Choose the attributes that the list of labels at ``place`` names."""
    chosen = np.zeros(len(names), dtype=np.bool_)
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
    try:
        tree: Any = defusedxml.ElementTree.fromstring(data)
    except Exception as error:  # the parser of an untrusted file; entities and bombs are refused here too
        raise InputError(f"{path} is not safe, well-formed XML: {one_line(error, limit=120)}") from None
    names = [
        str(e.get("name", "")) for e in tree.iter() if isinstance(e.tag, str) and e.tag.endswith("label")
    ]
    if not names or len(set(names)) < len(names) or "" in names:
        raise InputError(f"{path} has {len(names)} labels, but at least one, of distinct names, was expected")
    return names


def _meanings(attribute: Attribute) -> NDArray[np.float32] | None:
    """Return 0 or 1 for each value of a nominal attribute that says no or yes, else None."""
    words = [_WORDS.get(value.lower()) for value in attribute.values or ()]
    return None if not words or None in words else np.asarray(words, dtype=np.float32)


def _labels(
    table: Table, cells: NDArray[np.float32], is_label: NDArray[np.bool_], path: Path
) -> NDArray[np.float32]:
    """Return the 0/1 matrix of the labels."""
    matrix = cells[:, is_label]
    for k, column in enumerate(np.flatnonzero(is_label)):
        attribute = table.attributes[column]
        missing = np.isnan(matrix[:, k])
        if missing.any():
            raise InputError(
                f"{path} has no value for the label {attribute.name!r} in row {missing.argmax() + 1}"
            )
        meanings = _meanings(attribute)
        if meanings is not None:
            matrix[:, k] = meanings[matrix[:, k].astype(np.int64)]
        elif attribute.values is not None:
            raise InputError(
                f"{path} has the label {attribute.name!r} with the values "
                f"{', '.join(attribute.values)[:60]!r}, but 0 and 1 were expected"
            )
    return matrix


def _features(
    table: Table,
    cells: NDArray[np.float32],
    is_label: NDArray[np.bool_],
    train: NDArray[np.bool_],
    path: Path,
) -> tuple[NDArray[np.float32], int]:
    """Return the feature matrix, and how many missing values were replaced by their column's training mean."""
    parts: list[NDArray[np.float32]] = []
    for k in np.flatnonzero(~is_label):
        column, attribute = cells[:, k], table.attributes[k]
        meanings = _meanings(attribute)
        if meanings is not None:
            known = np.nan_to_num(column).astype(np.int64)
            column = np.where(np.isnan(column), column, meanings[known])
        elif attribute.values is not None and len(attribute.values) > 2:
            hot = (column[:, None] == np.arange(len(attribute.values))).astype(np.float32)
            hot[np.isnan(column)] = np.nan
            parts.append(hot)
            continue
        parts.append(column[:, None])
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
