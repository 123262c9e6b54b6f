"""PASCAL VOC 2007 and 2012: the official ``VOCdevkit``, as folders or as the downloaded .tar files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import defusedxml.ElementTree
import numpy as np

from mlcl.datasets.plan import SOURCES, DatasetPlan, ImageFiles, make_plan
from mlcl.datasets.trees import Tree, open_tree, read_lines
from mlcl.errors import InputError, check_choice, nearest, parsing
from mlcl.labels import Labels

CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable"),
    *("dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)
SPLITS = {2007: ("trainval", "test"), 2012: ("train", "val")}
"""The lists of training and test images, by year; the test labels of 2012 are not public."""
UNLABELLED = "only difficult objects"
"""The reason under which images without a label are counted."""

_MAX_XML_BYTES = 4 * 2**20
_COLUMN = {name: k for k, name in enumerate(CLASSES)}


@SOURCES.register(
    "voc",
    summary="PASCAL VOC 2007 or 2012: VOCdevkit, its parent, VOC2012 itself, or the downloaded .tar files.",
    reference="Everingham et al., The PASCAL Visual Object Classes Challenge, IJCV 2010",
)
def read_voc(root: Path, *, year: int | None = None, difficult: str = "include") -> DatasetPlan:
    """Plan a store of VOC: 2012 train -> val, or 2007 trainval -> test (specification.md#splits).

    Labels come from ``Annotations/*.xml`` alone.

    Args:
        root: the folder ``VOCdevkit``, its parent, ``VOC2007`` or ``VOC2012``; or a .tar of it; or a folder
            of the .tar files.
        year: 2007 or 2012; only needed where both are found.
        difficult: ``include`` or ``exclude`` objects that are marked as difficult; an image with no other
            object is then left out and counted.
    """
    if year is not None and year not in SPLITS:
        raise InputError(f"year is {year!r}, but 2007 or 2012 was expected")
    check_choice("difficult", difficult, ("include", "exclude"))
    tree = open_tree(root)
    base, year = _find(tree, root, year)
    first, second = (_read_list(tree, f"{base}ImageSets/Main/{split}.txt") for split in SPLITS[year])
    ids = [*first, *second]
    labels = np.stack([_read_labels(tree, f"{base}Annotations/{i}.xml", difficult) for i in ids])
    return make_plan(
        source="voc",
        root=root,
        name=f"voc{year}",
        classes=CLASSES,
        ids=ids,
        train=np.arange(len(ids)) < len(first),
        labels=labels,
        inputs=ImageFiles(tree, [f"{base}JPEGImages/{name}.jpg" for name in ids]),
        options={"year": year, "difficult": difficult},
        drop={UNLABELLED: ~labels.any(axis=1)},
    )


def _find(tree: Tree, root: Path, year: int | None) -> tuple[str, int]:
    """Return the path to the folder that holds ``ImageSets``, and its year."""
    named = re.fullmatch(r"VOC(2007|2012)", root.name)
    own = year or (int(named[1]) if named else 2012)
    places = [(f"{top}VOC{y}/", y) for y in SPLITS for top in ("VOCdevkit/", "")] + [("", own)]
    places = [(base, y) for base, y in places if year in (None, y)]
    lists = [(base, y, f"{base}ImageSets/Main/{SPLITS[y][0]}.txt") for base, y in places]
    found = [(base, y) for base, y, path in lists if tree.size(path) is not None]
    if not found:
        sought = ", ".join(path for _, _, path in lists)
        raise InputError(f"{root} is no VOCdevkit: none of these was found in it: {sought}")
    if len({y for _, y in found}) > 1:
        raise InputError(f"{root} holds VOC 2007 and VOC 2012; say which with the option year")
    return found[0]


def _read_list(tree: Tree, path: str) -> list[str]:
    """Return the image ids of a list, one per line."""
    ids = read_lines(tree, path)
    for name in ids:
        if not re.fullmatch(r"[0-9A-Za-z_-]{1,64}", name):
            raise InputError(
                f"{tree.where(path)} has the image id {name[:80]!r}, but one like 2008_000008 was expected"
            )
    return ids


def _read_labels(tree: Tree, path: str, difficult: str) -> Labels:
    """Return the 0/1 row of one annotation."""
    with parsing(
        f"{tree.where(path)} is not safe, well-formed XML"
    ):  # entities and bombs are refused here too
        annotation: Any = defusedxml.ElementTree.fromstring(tree.read(path, limit=_MAX_XML_BYTES))
    objects = annotation.findall("object")
    if not objects:
        raise InputError(f"{tree.where(path)} has no <object>, but at least one was expected")
    row = np.zeros(len(CLASSES), dtype=np.uint8)
    for item in objects:
        name = (item.findtext("name") or "").strip()
        if name not in _COLUMN:
            raise InputError(
                f"{tree.where(path)} has an object named {name[:80]!r}, "
                f"but one of VOC's 20 classes was expected.{nearest(name, CLASSES)}"
            )
        if difficult == "include" or (item.findtext("difficult") or "0").strip() != "1":
            row[_COLUMN[name]] = 1
    return row
