"""Arrays of your own: one .npz or .mat, or a folder of .npy files and sparse .npz files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets.base import as_inputs, known_labels
from mlcl.datasets.matlab import read_mat
from mlcl.datasets.npy import map_npy, read_npz
from mlcl.datasets.plan import SOURCES, DatasetPlan, choose_split, make_plan
from mlcl.datasets.sparse import read_sparse
from mlcl.errors import InputError, check_int
from mlcl.files import slug
from mlcl.labels import Labels, as_labels

KEYS = ("x_train", "y_train", "x_test", "y_test")
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
    whole = None if x is None or y is None else (x, y)
    found = _arrays(root, whole or KEYS)
    inputs, labels, splits = _together(found, root) if whole is None else _whole(found, root, *whole)
    train, _, options = choose_split(
        splits, len(labels), fraction=test_fraction, seed=split_seed, where=str(root)
    )
    classes = _classes(found.get("classes"), labels.shape[1], root)
    known = _beside(found, "known", splits, root)
    labels, known = known_labels(labels, known, name=f"known of {root}")
    if min_positives:
        options |= {"min_positives": min_positives}
        often = labels.sum(axis=0, dtype=np.int64) >= min_positives
        classes, labels = [name for name, keep in zip(classes, often, strict=True) if keep], labels[:, often]
        known = None if known is None else known[:, often]
    ids = _beside(found, "ids", splits, root)
    usual = [f"row-{i}" for i in range(len(labels))] if splits is None else numbered(splits)
    return make_plan(
        source="arrays",
        root=str(root),
        name=slug(root.absolute().name.removesuffix(".npz").removesuffix(".mat")),
        classes=classes,
        ids=usual if ids is None else [str(one) for one in ids.ravel().tolist()],
        train=train,
        labels=labels,
        inputs=inputs,
        options=options,
        known=known,
    )


def _beside(
    found: dict[str, NDArray[Any]], name: str, splits: list[str] | None, root: Path
) -> NDArray[Any] | None:
    """Return an array that goes with the rows, if it is there: whole, or of both splits."""
    names = [name] if splits is None else [f"{name}_{split}" for split in SPLITS]
    there = [found[one] for one in names if one in found]
    if there and len(there) < len(names):
        raise InputError(f"{root} has {name} for one split; expected {' and '.join(names)}, or neither")
    return np.concatenate(there) if there else None


def _together(found: dict[str, NDArray[Any]], root: Path) -> tuple[NDArray[Any], Labels, list[str]]:
    """Return the rows of two splits, one after the other, and the name of each row's split."""
    x = [_inputs(found[f"x_{split}"], f"x_{split} of {root}") for split in SPLITS]
    y = [
        as_labels(found[f"y_{split}"], name=f"y_{split} of {root}", rows=len(part))
        for split, part in zip(SPLITS, x, strict=True)
    ]
    for name, (train, test) in (("x", x), ("y", y)):
        if train.shape[1:] != test.shape[1:]:
            raise InputError(
                f"{root} has rows of shape {train.shape[1:]} in {name}_train and {test.shape[1:]} in "
                f"{name}_test, but one shape was expected"
            )
    splits = [split for split, part in zip(SPLITS, x, strict=True) for _ in part]
    return np.concatenate(x), np.concatenate(y), splits


def _whole(found: dict[str, NDArray[Any]], root: Path, x: str, y: str) -> tuple[NDArray[Any], Labels, None]:
    """Return rows that no file has split."""
    inputs = _inputs(found[x], f"{x} of {root}")
    return inputs, as_labels(found[y], name=f"{y} of {root}", rows=len(inputs)), None


def numbered(splits: Sequence[str]) -> list[str]:
    """Return an id per row: its split and its number there.

    >>> numbered(["train", "train", "test"])
    ['train-0', 'train-1', 'test-0']
    """
    counts: Counter[str] = Counter()
    ids = []
    for split in splits:
        ids.append(f"{split}-{counts[split]}")
        counts[split] += 1
    return ids


def _arrays(root: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return the arrays by name: all of ``names``, and ``classes`` if it is there."""
    if root.is_dir():
        found = {key: _array(root, key) for key in names}
        return found | {
            name: map_npy(root / f"{name}.npy") for name in MORE if (root / f"{name}.npy").exists()
        }
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


def _classes(names: NDArray[Any] | None, width: int, root: Path) -> list[str]:
    if names is None:
        return [f"class-{k}" for k in range(width)]
    if names.ndim != 1 or names.dtype.kind not in "SU":
        raise InputError(
            f"classes of {root} has shape {names.shape} of {names.dtype}, but texts were expected"
        )
    try:
        return [str(name) for name in (np.char.decode(names, "utf-8") if names.dtype.kind == "S" else names)]
    except UnicodeError:
        raise InputError(f"classes of {root} has a text that is not UTF-8") from None
