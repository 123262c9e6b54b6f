"""Arrays of your own: one .npz or .mat, or a folder of .npy files and sparse .npz files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets.base import as_inputs, known_labels
from mlcl.datasets.matlab import read_mat
from mlcl.datasets.npy import map_npy, read_npz, read_sparse, texts_of
from mlcl.datasets.plan import SOURCES, DatasetPlan, choose_split, make_plan
from mlcl.errors import InputError, check_int
from mlcl.files import slug
from mlcl.labels import Labels, as_labels

SPLITS = ("train", "test")
MORE = ("classes", "known", "known_train", "known_test", "ids", "ids_train", "ids_test")
"""Arrays that need not be there."""


@SOURCES.register(
    "arrays", summary="Arrays x_train, y_train, x_test, y_test [, classes]: .npz, .mat, or a folder of .npy."
)
def read_arrays(
    root: Path,
    *,
    x: str | None = None,
    y: str | None = None,
    test_fraction: float = 1 / 3,
    split_seed: int = 0,
    min_positives: int = 0,
) -> DatasetPlan:
    """Plan a store of ready arrays; they are not resized.

    Args:
        root: an .npz or a .mat (MATLAB's versions 5 to 7) with ``x_train``, ``y_train``, ``x_test``, ``y_test`` and
            optionally ``classes``, or a folder with such .npy files, or .npz files that
            ``scipy.sparse.save_npz`` wrote. Inputs are uint8 images ``[N, C, H, W]``, ``[N, H, W, C]`` or
            ``[N, H, W]``, with 1 or 3 channels, or numbers ``[N, D]``, which become float32 features. Labels
            are 0/1 ``[N, K]``. Arrays ``known_train`` and ``known_test`` of the same shape, or ``known``, say which
            labels are known; ``ids_train`` and ``ids_test``, or ``ids``, name the rows.
        x: name of the array that holds all inputs, where one array has the rows of both splits; ``y`` goes with it.
        y: name of the array that holds all labels.
        test_fraction: fraction of the rows that is held out for testing, with ``x`` and ``y``.
        split_seed: seed of that choice.
        min_positives: leave out classes with fewer positives, counted over all rows.
    """
    if not root.exists():
        raise InputError(
            f"{root} was looked for and does not exist; an .npz, a .mat or a folder of .npy was expected"
        )
    check_int("min_positives", min_positives, 0)
    if (x is None) != (y is None):
        raise InputError(f"x is {x!r} and y is {y!r}; expected the names of two arrays of {root}, or neither")
    parts = [(f"x_{split}", f"y_{split}") for split in SPLITS] if x is None or y is None else [(x, y)]
    found = _arrays(root, [name for pair in parts for name in pair])
    inputs, labels, sizes = _rows(found, parts, root)
    splits = (
        None if len(parts) == 1 else [s for s, size in zip(SPLITS, sizes, strict=True) for _ in range(size)]
    )
    train, _, options = choose_split(
        splits, len(labels), fraction=test_fraction, seed=split_seed, where=str(root)
    )
    width = labels.shape[1]
    names = found.get("classes")
    classes = [f"class-{k}" for k in range(width)] if names is None else texts_of(names, f"classes of {root}")
    known = _beside(found, "known", len(parts), root)
    labels, known = known_labels(labels, known, name=f"known of {root}")
    if min_positives:
        options |= {"min_positives": min_positives}
        often = np.flatnonzero(labels.sum(axis=0, dtype=np.int64) >= min_positives)
        classes, labels = [classes[k] for k in often], labels[:, often]
        known = None if known is None else known[:, often]
    ids = _beside(found, "ids", len(parts), root)
    prefixes = ("row",) if splits is None else SPLITS
    usual = [f"{name}-{i}" for name, size in zip(prefixes, sizes, strict=True) for i in range(size)]
    return make_plan(
        source="arrays",
        root=root,
        name=slug(root.absolute().name.removesuffix(".npz").removesuffix(".mat")),
        classes=classes,
        ids=usual if ids is None else [str(one) for one in ids.ravel().tolist()],
        train=train,
        labels=labels,
        inputs=inputs,
        options=options,
        known=known,
    )


def _beside(found: dict[str, NDArray[Any]], name: str, parts: int, root: Path) -> NDArray[Any] | None:
    """Return an array that goes with the rows, if it is there: whole, or of both splits."""
    names = [name] if parts == 1 else [f"{name}_{split}" for split in SPLITS]
    there = [found[one] for one in names if one in found]
    if there and len(there) < len(names):
        raise InputError(f"{root} has {name} for one split; expected {' and '.join(names)}, or neither")
    return np.concatenate(there) if there else None


def _rows(
    found: dict[str, NDArray[Any]], parts: Sequence[tuple[str, str]], root: Path
) -> tuple[NDArray[Any], Labels, list[int]]:
    """Return the rows of all parts, one after the other, and how many each has."""
    inputs = [_inputs(found[x], f"{x} of {root}") for x, _ in parts]
    pairs = list(zip(inputs, parts, strict=True))
    labels = [as_labels(found[y], name=f"{y} of {root}", rows=len(own)) for own, (_, y) in pairs]
    for k, arrays in enumerate((inputs, labels)):
        if arrays[0].shape[1:] != arrays[-1].shape[1:]:
            raise InputError(
                f"{root} has rows of shape {arrays[0].shape[1:]} in {parts[0][k]} and {arrays[-1].shape[1:]} in "
                f"{parts[-1][k]}, but one shape was expected"
            )
    return np.concatenate(inputs), np.concatenate(labels), [len(own) for own in inputs]


def _arrays(root: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return the arrays by name: all of ``names``, and those of `MORE` that are there."""
    if root.is_dir():
        more = [name for name in MORE if (root / f"{name}.npy").exists()]
        return {key: _array(root, key) for key in (*names, *more)}
    read = read_mat if root.suffix.lower() == ".mat" else read_npz
    found = read(root, keys=(*names, *MORE), where=str(root))
    for key in names:
        if key not in found:
            raise InputError(f"{root} has no array {key!r}, but {', '.join(names)} were expected")
    return found


def _array(folder: Path, key: str) -> NDArray[Any]:
    """Return ``KEY.npy``, or else the sparse matrix ``KEY.npz``."""
    dense, sparse = folder / f"{key}.npy", folder / f"{key}.npz"
    return read_sparse(sparse) if sparse.exists() and not dense.exists() else map_npy(dense)


def _inputs(x: NDArray[Any], name: str) -> NDArray[Any]:
    """Bring images to ``[N, C, H, W]``, and check the inputs."""
    if x.dtype == np.uint8 and x.ndim == 3:
        x = x[:, None]
    elif x.ndim == 4 and x.shape[1] not in (1, 3) and x.shape[3] in (1, 3):
        x = x.transpose(0, 3, 1, 2)
    return as_inputs(x, name=name)
