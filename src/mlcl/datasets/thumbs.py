"""Thumbnail packs: a .zip of JPEGs and a ``meta.npz`` with ids, labels, split and classes."""

from __future__ import annotations

from pathlib import Path

from mlcl.datasets.npy import read_npz, texts_of
from mlcl.datasets.plan import SOURCES, DatasetPlan, ImageFiles, make_plan, read_splits
from mlcl.datasets.trees import open_tree
from mlcl.errors import InputError


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
    where, keys = tree.where("meta.npz"), ("ids", labels, "split", "classes")
    meta = read_npz(tree.read("meta.npz"), keys=keys, where=where)
    for key in keys:
        if key not in meta:
            raise InputError(
                f"{where} has no array {key!r}, but ids, {labels}, split and classes were expected"
            )
    if meta["ids"].dtype.kind in "iu" and meta["ids"].ndim == 1:
        ids = [str(i) for i in meta["ids"].tolist()]
        files = [f"{i:012d}.jpg" for i in meta["ids"].tolist()]
    else:
        ids = texts_of(meta["ids"], f"ids in {where}")
        files = [f"{name}.jpg" for name in ids]
    train, keep = read_splits(texts_of(meta["split"], f"split in {where}"), where=where)
    return make_plan(
        source="thumbs",
        root=root,
        classes=texts_of(meta["classes"], f"classes in {where}"),
        ids=ids,
        train=train,
        labels=meta[labels],
        inputs=ImageFiles(tree, files),
        options={"labels": labels},
        drop={"validation rows": ~keep},
    )
