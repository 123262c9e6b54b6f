"""MS COCO 2014 and 2017: ``annotations/instances_*.json`` and image folders, or the downloaded .zip files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets.plan import SOURCES, DatasetPlan, ImageFiles, make_plan
from mlcl.datasets.trees import Tree, open_tree
from mlcl.errors import InputError, check_choice, parsing
from mlcl.labels import Labels

YEARS = (2017, 2014)
UNLABELLED = "without annotations"
"""The reason under which images without a label are counted."""

_MAX_JSON_BYTES = 4 * 2**30
_KEYS = frozenset(
    ("images", "annotations", "categories", "id", "file_name", "image_id", "category_id", "name", "iscrowd")
)


@SOURCES.register(
    "coco",
    summary="MS COCO 2017 or 2014: annotations/instances_*.json and image folders, or the .zip files.",
    reference="Lin et al., Microsoft COCO: Common Objects in Context, ECCV 2014",
)
def read_coco(root: Path, *, year: int | None = None, crowds: str = "include") -> DatasetPlan:
    """Plan a store of COCO: train2017 -> val2017, or train2014 -> val2014 (specification.md#splits).

    Classes are numbered from 0 in the order of their category ids. An image has a class if it has one
    annotation of it. Images without annotations are left out and counted.

    Args:
        root: the folder that holds ``annotations`` and ``train2017``, ``val2017`` (or ``images/train2017``),
            or the downloaded .zip files of these.
        year: 2017 or 2014; only needed where both are found.
        crowds: ``include`` or ``exclude`` annotations of crowds (``iscrowd``); an image with no other annotation is
            then left out and counted.
    """
    if year is not None and year not in YEARS:
        raise InputError(f"year is {year!r}, but 2017 or 2014 was expected")
    check_choice("crowds", crowds, ("include", "exclude"))
    tree = open_tree(root)
    year = _find(tree, root, year)
    train, val = (_read_split(tree, split, year, crowds=crowds) for split in ("train", "val"))
    if train.classes != val.classes:
        raise InputError(
            f"{root} has other categories in instances_val{year}.json than in instances_train{year}.json"
        )
    ids, labels = [*train.ids, *val.ids], np.concatenate([train.labels, val.labels])
    return make_plan(
        source="coco",
        root=root,
        name=f"coco{year}",
        classes=list(train.classes.values()),
        ids=ids,
        train=np.arange(len(ids)) < len(train.ids),
        labels=labels,
        inputs=ImageFiles(tree, [*train.paths, *val.paths]),
        options={"year": year, "crowds": crowds},
        drop={UNLABELLED: ~labels.any(axis=1)},
    )


def _find(tree: Tree, root: Path, year: int | None) -> int:
    paths = {y: f"annotations/instances_train{y}.json" for y in YEARS if year in (None, y)}
    found = [y for y, path in paths.items() if tree.size(path) is not None]
    if not found:
        raise InputError(
            f"{root} is no COCO folder: none of these was found in it: {', '.join(paths.values())}"
        )
    if len(found) > 1:
        raise InputError(f"{root} holds COCO 2014 and COCO 2017; say which with the option year")
    return found[0]


@dataclass(frozen=True)
class _Split:
    """One instances file: its images, and their labels."""

    classes: dict[int, str]
    ids: list[str]
    paths: list[str]
    labels: Labels


def _read_split(tree: Tree, split: str, year: int, *, crowds: str) -> _Split:
    path = f"annotations/instances_{split}{year}.json"
    where = tree.where(path)
    content = _load(tree.read(path, limit=_MAX_JSON_BYTES), where)
    numbers = _values(content, "categories", "id", where)
    classes = dict(
        sorted(zip(numbers, _values(content, "categories", "name", where, text=True), strict=True))
    )
    if len(classes) < len(numbers):
        raise InputError(f"{where} has a category id twice, but distinct ids were expected")
    image_ids = _values(content, "images", "id", where)
    files = _values(content, "images", "file_name", where, text=True)
    if len(set(image_ids)) < len(image_ids):
        raise InputError(f"{where} has an image id twice, but distinct ids were expected")
    rows = _rows(content, "image_id", image_ids, "image", where)
    columns = _rows(content, "category_id", list(classes), "category", where)
    labels = np.zeros((len(image_ids), len(classes)), dtype=np.uint8)
    counted = np.array(
        [crowds == "include" or not entry.get("iscrowd") for entry in content["annotations"]], np.bool_
    )
    labels[rows[counted], columns[counted]] = 1
    folder = f"{split}{year}/"
    sample = folder + files[int(labels.any(axis=1).argmax())] if len(files) else ""
    if sample and tree.size(sample) is None and tree.size(f"images/{sample}"):
        folder = f"images/{folder}"
    return _Split(classes, [str(i) for i in image_ids], [folder + name for name in files], labels)


def _load(data: bytes, where: str) -> dict[str, Any]:
    """Parse an instances file, keeping only what is used: most of its half gigabyte is outlines."""
    with parsing(f"{where} is not readable JSON, or is cut off"):
        content: Any = json.loads(
            data,
            object_pairs_hook=lambda pairs: {key: value for key, value in pairs if key in _KEYS},
            parse_float=lambda _: None,
        )
    for key in ("images", "annotations", "categories"):
        if not isinstance(content, dict) or not isinstance(content.get(key), list):
            raise InputError(f"{where} has no list {key!r}, which an instances file must have")
        for entry in content[key]:
            if not isinstance(entry, dict):
                raise InputError(
                    f"{where} has an entry of {key!r} that is not an object: {str(entry)[:80]!r}"
                )
    found: dict[str, Any] = content
    return found


def _values(content: Mapping[str, Any], table: str, key: str, where: str, *, text: bool = False) -> list[Any]:
    """Return a field of all entries: whole numbers, or texts."""
    found = [entry.get(key) for entry in content[table]]
    for value in found:
        good = type(value) is str and value if text else type(value) is int and 0 <= value < 2**62
        if not good:
            expected = "a text" if text else "a whole number"
            raise InputError(
                f"{where} has {key} = {str(value)[:80]!r} in {table!r}, but {expected} was expected"
            )
    return found


def _rows(
    content: Mapping[str, Any], key: str, known: Sequence[int], noun: str, where: str
) -> NDArray[np.int64]:
    """Return for each annotation the position of its image or category in ``known``."""
    place = {number: k for k, number in enumerate(known)}
    wanted = _values(content, "annotations", key, where)
    if unknown := [number for number in wanted if number not in place]:
        raise InputError(
            f"{where} has an annotation of {noun} {unknown[0]}, but there is no {noun} with that id"
        )
    return np.array([place[number] for number in wanted], np.int64)
