"""NUS-WIDE: concept and image lists, one 0/1 file per concept and split, and the ``Flickr`` folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mlcl.datasets.plan import SOURCES, DatasetPlan, ImageFiles, make_plan
from mlcl.datasets.trees import Tree, clean_name, open_tree, read_lines
from mlcl.errors import InputError
from mlcl.labels import Labels


@SOURCES.register(
    "nus-wide",
    summary="NUS-WIDE: ConceptsList, ImageList, Groundtruth/TrainTestLabels, Flickr; or archives of these.",
    reference="Chua et al., NUS-WIDE: A Real-World Web Image Database, CIVR 2009",
)
def read_nus_wide(root: Path) -> DatasetPlan:
    """Plan a store of NUS-WIDE by its official train and test lists (specification.md#splits).

    Images with none of the 81 concepts are left out and counted. Many images are no
    longer on Flickr: ``skip_bad`` of `mlcl.datasets.prepare` leaves them out.

    Args:
        root: the folder that holds ``ConceptsList/Concepts81.txt``, ``ImageList/TrainImagelist.txt`` and
            ``TestImagelist.txt``, ``Groundtruth/TrainTestLabels/Labels_<concept>_Train.txt`` and
            ``..._Test.txt``, and ``Flickr/<folder>/<file>.jpg``; or archives of these.
    """
    tree = open_tree(root)
    classes = read_lines(tree, "ConceptsList/Concepts81.txt")
    if len(set(classes)) < len(classes):
        raise InputError(f"{tree.where('ConceptsList/Concepts81.txt')} has a concept twice")
    paths: list[str] = []
    parts: list[Labels] = []
    for split in ("Train", "Test"):
        name = f"ImageList/{split}Imagelist.txt"
        lines = read_lines(tree, name)
        paths += [clean_name(line.replace("\\", "/"), where=tree.where(name)) for line in lines]
        parts.append(_read_labels(tree, split, classes, len(lines)))
    labels = np.concatenate(parts)
    return make_plan(
        source="nus-wide",
        root=root,
        name="nus-wide",
        classes=classes,
        ids=[path.rsplit(".", 1)[0] for path in paths],
        train=np.arange(len(paths)) < len(parts[0]),
        labels=labels,
        inputs=ImageFiles(tree, [f"Flickr/{path}" for path in paths]),
        drop={"with none of the concepts": ~labels.any(axis=1)},
    )


def _read_labels(tree: Tree, split: str, classes: list[str], rows: int) -> Labels:
    """Return the 0/1 matrix of one split from its files, one per concept."""
    matrix = np.zeros((rows, len(classes)), dtype=np.uint8)
    for k, name in enumerate(classes):
        path = f"Groundtruth/TrainTestLabels/Labels_{name}_{split}.txt"
        values = tree.read(path).split()
        if len(values) != rows:
            raise InputError(
                f"{tree.where(path)} has {len(values)} labels, but ImageList/{split}Imagelist.txt has {rows} images"
            )
        column = np.asarray(values, dtype="S2")
        bad = (column != b"0") & (column != b"1")
        if bad.any():
            line = int(bad.argmax())
            raise InputError(
                f"{tree.where(path)} has {values[line][:20]!r} in line {line + 1}, but 0 or 1 was expected"
            )
        matrix[:, k] = column == b"1"
    return matrix
