"""Arrays of your own: one .npz or .mat, or a folder of .npy files and sparse .npz files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets.base import as_inputs
from mlcl.datasets.matlab import read_mat
from mlcl.datasets.npy import map_npy, read_npz
from mlcl.datasets.plan import SOURCES, DatasetPlan, make_plan
from mlcl.datasets.sparse import read_sparse
from mlcl.errors import InputError
from mlcl.files import slug
from mlcl.labels import as_labels

KEYS = ("x_train", "y_train", "x_test", "y_test")


@SOURCES.register(
    "arrays", summary="Arrays x_train, y_train, x_test, y_test [, classes]: .npz, .mat, or a folder of .npy."
)
def read_arrays(root: Path) -> DatasetPlan:
    """Plan a store of ready arrays; they are not resized.

    Args:
        root: an .npz or a .mat (MATLAB's versions 5 to 7) with ``x_train``, ``y_train``, ``x_test``, ``y_test`` and
            optionally ``classes``, or a folder with such .npy files, or .npz files that
            ``scipy.sparse.save_npz`` wrote. Inputs are uint8 images ``[N, C, H, W]``, ``[N, H, W, C]`` or
            ``[N, H, W]``, with 1 or 3 channels, or numbers ``[N, D]``, which become float32 features. Labels
            are 0/1 ``[N, K]``.
    """
    if not root.exists():
        raise InputError(
            f"{root} was looked for and does not exist; an .npz, a .mat or a folder of .npy was expected"
        )
    found = _arrays(root)
    x = [_inputs(found[f"x_{split}"], f"x_{split} of {root}") for split in ("train", "test")]
    y = [
        as_labels(found[f"y_{split}"], name=f"y_{split} of {root}", rows=len(part))
        for split, part in zip(("train", "test"), x, strict=True)
    ]
    for name, (train, test) in (("x", x), ("y", y)):
        if train.shape[1:] != test.shape[1:]:
            raise InputError(
                f"{root} has rows of shape {train.shape[1:]} in {name}_train and {test.shape[1:]} in "
                f"{name}_test, but one shape was expected"
            )
    counts = [len(part) for part in x]
    return make_plan(
        source="arrays",
        root=str(root),
        name=slug(root.absolute().name.removesuffix(".npz").removesuffix(".mat")),
        classes=_classes(found.get("classes"), y[0].shape[1], root),
        ids=[
            f"{split}-{i}"
            for split, count in zip(("train", "test"), counts, strict=True)
            for i in range(count)
        ],
        train=np.repeat([True, False], counts),
        labels=np.concatenate(y),
        inputs=np.concatenate(x),
    )


def _arrays(root: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays by name: all of `KEYS`, and ``classes`` if it is there."""
    if root.is_dir():
        found = {key: _array(root, key) for key in KEYS}
        if (root / "classes.npy").exists():
            found["classes"] = map_npy(root / "classes.npy")
        return found
    read = read_mat if root.suffix.lower() == ".mat" else read_npz
    found = read(root, keys=(*KEYS, "classes"), where=str(root))
    for key in KEYS:
        if key not in found:
            raise InputError(f"{root} has no array {key!r}, but {', '.join(KEYS)} were expected")
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
