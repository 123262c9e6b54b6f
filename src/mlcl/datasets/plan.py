"""Sources of data: functions that read the metadata of a raw layout into a `DatasetPlan`, before one image is decoded.

A source is one file, in this folder or in a plugin: a function ``read(root: Path, *, option=default) -> DatasetPlan``
with the decorator ``@SOURCES.register(name, summary=...)``. It must keep these rules:

- It does not trust the files. A file that is read whole has a bounded size, nothing in a file is executed or
  unpickled, and no name in a file leads out of the root. `mlcl.datasets.trees.open_tree` and ``read_packed``,
  `mlcl.datasets.npy` and ``defusedxml`` provide this.
- Whatever does not fit is an `InputError` in one sentence that names the file, the value and what was expected. The
  parser of another library may fail with any exception; that, too, becomes an `InputError`.
- It ends with `make_plan`, which checks ids (distinct, not blank), classes (distinct, not blank) and labels (0 or 1,
  one row per id), and sorts the rows: all training rows first, each split in the order that the source gave. The test
  split has at least one row; one of test rows alone can be a gate. Files without a split are split by `split_rows`, so
  that a seed fixes the split.
- Rows that are left out by a rule of the source are counted, by reason (``drop``); none disappears silently.
- The same files and options give the same plan on every machine: no global random state, no order of a directory
  listing, no absolute path in ids or options. The plan's fingerprint decides whether a store is already there.
- Images stay encoded (`EncodedImages`): they are decoded later, in worker processes, so the object that reads them can
  be pickled and holds no open file. Feature vectors are finite float32 numbers, ready images are uint8.
- Options are keyword-only, and each has a description in the Args section of the docstring: it is the text of
  ``mlcl data prepare KIND --help``. The plan's ``options`` record the choices that its rows do not show, such as the
  year of a challenge or the seed of a split.
- An optional package is imported inside the function; if it is missing, the `InputError` says what to install.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets.base import check_distinct, known_labels
from mlcl.datasets.tags import MAX_CLASSES, warn_of_alike
from mlcl.datasets.trees import Tree
from mlcl.errors import InputError, check_int
from mlcl.files import slug
from mlcl.labels import Labels, as_labels
from mlcl.registry import Registry

SOURCES: Registry[Callable[..., DatasetPlan]] = Registry("data source")
"""Functions ``read(root: Path, **options) -> DatasetPlan``, one per raw layout."""

_SPLITS = {"train": "train", "training": "train", "trainval": "train", "test": "test", "testing": "test"}
_SPLITS |= dict.fromkeys(("val", "valid", "validation", "dev"), "val")


class EncodedImages(Protocol):
    """Encoded images, by row. They are read in worker processes, so this object holds no open file."""

    def __len__(self) -> int: ...

    def name(self, row: int) -> str:
        """Return the name of an image for error messages."""

    def size(self, row: int) -> int | None:
        """Return the size of an encoded image in bytes, or None if it is absent."""

    def read(self, row: int) -> bytes:
        """Return the encoded image."""

    def take(self, rows: NDArray[np.int64]) -> EncodedImages:
        """Return some of the images, in the given order."""


@dataclass(frozen=True)
class ImageFiles:
    """Images that are files of a tree."""

    tree: Tree
    paths: Sequence[str]

    def __len__(self) -> int:
        return len(self.paths)

    def name(self, row: int) -> str:
        """Return the path of the file, for error messages."""
        return self.tree.where(self.paths[row])

    def size(self, row: int) -> int | None:
        """Return the size of the file in bytes, or None if it is absent."""
        return self.tree.size(self.paths[row])

    def read(self, row: int) -> bytes:
        """Return the file's content."""
        return self.tree.read(self.paths[row])

    def take(self, rows: NDArray[np.int64]) -> ImageFiles:
        """Return some of the files."""
        return ImageFiles(self.tree, [self.paths[row] for row in rows])


@dataclass(frozen=True, eq=False)
class DatasetPlan:
    """What a store will hold. Rows are sorted: all training rows, then all test rows.

    Attributes:
        source: the name of the source, e.g. ``voc``.
        root: the path that was read, for the manifest and for error messages.
        train: the number of training rows.
        labels: uint8 ``[N, K]``.
        inputs: encoded images, or ready inputs: uint8 ``[N, C, H, W]`` or float32 ``[N, D]``.
        options: the options that the source was given, for the manifest.
        dropped: how many items were left out, by reason.
        known: which labels are known, bool ``[N, K]``; None: all.
        encoder: the file of what made the vectors of other inputs, if anything did.
    """

    source: str
    root: str
    name: str
    classes: tuple[str, ...]
    ids: tuple[str, ...]
    train: int
    labels: Labels
    inputs: EncodedImages | NDArray[Any]
    options: Mapping[str, Any]
    dropped: Mapping[str, int]
    known: NDArray[np.bool_] | None = None
    encoder: bytes | None = None

    def take(self, rows: NDArray[np.int64]) -> DatasetPlan:
        """Return the plan of some rows, which must be ascending."""
        inputs = self.inputs[rows] if isinstance(self.inputs, np.ndarray) else self.inputs.take(rows)
        return replace(
            self,
            ids=tuple(self.ids[row] for row in rows),
            train=int((rows < self.train).sum()),
            labels=self.labels[rows],
            inputs=inputs,
            known=None if self.known is None else self.known[rows],
        )

    def fingerprint(self, size: int | None) -> str:
        """Return a SHA-256 of all that determines the store's content, as far as it is known without decoding.

        The place of the raw files does not enter: a folder and its archive make the same store. An image enters
        with its name and its number of bytes.
        """
        head = [self.source, self.name, size, self.classes, self.ids, self.train, dict(self.options)]
        digest = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
        digest.update(self.labels.tobytes())
        if self.known is not None:
            digest.update(np.packbits(self.known).tobytes())
        if isinstance(self.inputs, np.ndarray):
            digest.update(json.dumps([self.inputs.dtype.str, self.inputs.shape]).encode())
            for start in range(0, len(self.inputs), 1024):
                digest.update(self.inputs[start : start + 1024].tobytes())
        else:
            sizes = [self.inputs.size(row) for row in range(len(self.inputs))]
            digest.update(json.dumps(sizes).encode())
        return digest.hexdigest()


def make_plan(
    *,
    source: str,
    root: str | Path,
    classes: Sequence[str],
    ids: Sequence[str],
    train: NDArray[np.bool_],
    labels: NDArray[Any],
    inputs: EncodedImages | NDArray[Any],
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
    drop: Mapping[str, Any] | None = None,
    known: NDArray[np.bool_] | None = None,
    encoder: bytes | None = None,
) -> DatasetPlan:
    """Check the parts of a plan and sort its rows: training first, each split in the order given.

    ``drop`` has a mask of the rows that are left out, and counted, for each reason. The name is by default that of the
    root, without endings.
    """
    if not len(ids) == len(train) == len(inputs) == len(labels):
        counts = f"{len(ids)} ids, {len(train)} splits, {len(inputs)} inputs and {len(labels)} rows of labels"
        raise InputError(f"{root} has {counts}, but the same number of each was expected")
    left_out = {reason: mask for reason, mask in (drop or {}).items() if mask.any()}
    kept = np.flatnonzero(~np.logical_or.reduce([np.zeros(len(ids), np.bool_), *left_out.values()]))
    order = kept[np.argsort(~train[kept], kind="stable")]
    ids = [ids[row] for row in order]
    check_distinct(ids, "id", str(root))
    check_distinct(classes, "class name", str(root))
    if not classes or len(classes) > MAX_CLASSES:
        raise InputError(f"{root} has {len(classes)} classes, but 1 to {MAX_CLASSES} were expected")
    matrix = as_labels(labels, name=f"the label matrix of {root}")[order]
    if matrix.shape[1] != len(classes):
        raise InputError(f"{root} has {len(classes)} class names, but {matrix.shape[1]} columns of labels")
    warn_of_alike(classes, matrix.sum(axis=0, dtype=np.int64), where=str(root))
    if train[order].all():
        raise InputError(f"{root} has no test items, but at least one was expected")
    known = None if known is None else known[order]
    matrix, known = known_labels(matrix, known, name=f"what is known of {root}")
    usual = slug(Path(root).absolute().name.partition(".")[0]) if name is None else name
    return DatasetPlan(
        source,
        str(root),
        usual or "data",
        tuple(classes),
        tuple(ids),
        int(train[order].sum()),
        matrix,
        inputs[order] if isinstance(inputs, np.ndarray) else inputs.take(order),
        options or {},
        {reason: int(mask.sum()) for reason, mask in left_out.items()},
        known,
        encoder,
    )


def split_rows(rows: int, *, fraction: float, seed: int) -> NDArray[np.bool_]:
    """Return which rows train, for data without a split: all except for a random ``fraction``, fixed by ``seed``."""
    if not 0 < fraction <= 1:
        raise InputError(f"test_fraction is {fraction!r}; expected a number above 0, up to 1")
    check_int("split_seed", seed, 0)
    train = np.ones(rows, dtype=np.bool_)
    count = min(max(round(rows * fraction), 1), rows if fraction == 1 else max(rows - 1, 0))
    train[np.random.default_rng(seed).permutation(rows)[:count]] = False
    return train


def split_options(fraction: float, seed: int) -> dict[str, Any]:
    """Return what a plan records of rows that were held out by a seed."""
    return {"test_fraction": fraction, "split_seed": seed}


def choose_split(
    values: Sequence[str] | None, rows: int, *, fraction: float, seed: int, where: str
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
    """Return which rows train, which rows are kept, and the options of the plan that this depends on.

    The split is the one that the data names (`read_splits`); data that names none (None) is split by `split_rows`.
    """
    if values is not None:
        return *read_splits(values, where=where), {}
    train = split_rows(rows, fraction=fraction, seed=seed)
    return train, np.ones(rows, dtype=np.bool_), split_options(fraction, seed)


def read_splits(values: Sequence[str], *, where: str) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which rows train, and which rows are kept.

    Without test rows the validation rows become the test rows (VOC's train and val). Otherwise the validation
    rows are left out: they belong to neither split.
    """
    names, inverse = np.unique(np.asarray(values, dtype=np.str_), return_inverse=True)
    for name in names:
        if name.strip().lower() not in _SPLITS:
            raise InputError(f"{where} has the split {str(name)!r}, but train, val or test was expected")
    split = np.asarray([_SPLITS[name.strip().lower()] for name in names], dtype="U5")[inverse]
    keep = split != "val" if (split == "test").any() else np.ones(len(split), dtype=np.bool_)
    return split == "train", keep
