"""Thumbnail packs: a .zip of JPEGs and a ``meta.npz`` with ids, labels, split and classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets.npy import read_npz
from mlcl.datasets.plan import SOURCES, DatasetPlan, ImageFiles, make_plan, read_splits
from mlcl.datasets.trees import open_tree
from mlcl.errors import InputError
from mlcl.files import slug

_KEYS = ("ids", "split", "classes")


@SOURCES.register(
    "thumbs", summary="A pack of thumbnails: a .zip of JPEGs and meta.npz (ids, labels, split, classes)."
)
def read_thumbs(root: Path, *, labels: str = "labels") -> DatasetPlan:
    """Plan a store of a thumbnail pack. The dataset is named after the folder.

    Args:
        root: a folder with ``meta.npz`` and a .zip (or the images themselves), or an archive of all.
            Images are ``<id>.jpg``, for whole-number ids ``%012d.jpg``. ``meta.npz`` holds ``ids [N]``,
            ``labels [N, K]``, ``split [N]`` (train, val, test) and ``classes [K]``. Without test rows, val is
            the test split; with them val rows are left out and counted.
        labels: name of the array of ``meta.npz`` that holds the labels, such as ``labels_strict``.
    """
    tree = open_tree(root)
    where = tree.where("meta.npz")
    meta = read_npz(tree.read("meta.npz"), keys=(*_KEYS, labels), where=where)
    for key in (*_KEYS, labels):
        if key not in meta:
            raise InputError(
                f"{where} has no array {key!r}, but ids, {labels}, split and classes were expected"
            )
    ids, files = _names(meta["ids"], where)
    train, keep = read_splits(_texts(meta["split"], "split", where), where=where)
    matrix = meta[labels]
    if not len(ids) == len(train) == len(matrix):
        raise InputError(
            f"{where} has {len(ids)} ids, {len(train)} splits and {len(matrix)} rows of {labels}"
        )
    rows = np.flatnonzero(keep)
    return make_plan(
        source="thumbs",
        root=str(root),
        name=slug(root.absolute().name.split(".")[0]),
        classes=_texts(meta["classes"], "classes", where),
        ids=[ids[row] for row in rows],
        train=train[rows],
        labels=matrix[rows],
        inputs=ImageFiles(tree, [files[row] for row in rows]),
        options={"labels": labels},
        dropped={"validation rows": len(ids) - len(rows)} if len(rows) < len(ids) else {},
    )


def _names(ids: NDArray[Any], where: str) -> tuple[list[str], list[str]]:
    """Return ids as text, and the file of each."""
    if ids.dtype.kind in "iu" and ids.ndim == 1:
        return [str(i) for i in ids.tolist()], [f"{i:012d}.jpg" for i in ids.tolist()]
    texts = _texts(ids, "ids", where)
    return texts, [f"{name}.jpg" for name in texts]


def _texts(array: NDArray[Any], key: str, where: str) -> list[str]:
    """Return an array of texts, stored as bytes or as unicode, as a list."""
    if array.ndim != 1 or array.dtype.kind not in "SU":
        raise InputError(
            f"{key} in {where} has shape {array.shape} of {array.dtype}, but a list of texts was expected"
        )
    try:
        texts = np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array
    except UnicodeError:
        raise InputError(f"{key} in {where} has a text that is not UTF-8") from None
    return [str(text) for text in texts]
