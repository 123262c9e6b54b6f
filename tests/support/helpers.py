"""Small things that many tests share."""

from __future__ import annotations

import argparse
import hashlib
import json
from typing import Any

import numpy as np

from mlcl.cli.settings import config_of, split_settings
from mlcl.config.resolve import config_from, merge
from mlcl.datasets import prepare_source
from mlcl.files import json_digest
from mlcl.streams import Benchmark


def command_config(words):
    """The config of ``mlcl run`` with these words: a name or a file first, if any, then settings."""
    rest, given = split_settings(argparse.ArgumentParser(), words)
    return config_of(rest[0] if rest else None, given)


def small_arrays(*, images=False, n=120, classes=6, seed=0):
    """Inputs from which labels can be learnt: features are noisy labels, images carry them in blocks."""
    rng = np.random.default_rng(seed)
    labels = (rng.random((n, classes)) < np.linspace(0.6, 0.25, classes)).astype(np.uint8)
    labels[np.arange(n), rng.integers(0, classes, n)] = 1
    if not images:
        return (labels + 0.4 * rng.standard_normal((n, classes))).astype(np.float32), labels
    blocks = np.zeros((n, 3, 16, 16), np.uint8)
    blocks += rng.integers(0, 60, blocks.shape, dtype=np.uint8)
    for k in range(classes):
        row, column = divmod(k, 3)
        blocks[:, k % 3, 8 * row : 8 * row + 8, 5 * column : 5 * column + 5] += 150 * labels[:, k, None, None]
    return blocks, labels


def small_benchmark(*, images=False, tasks=3, n=120, classes=6, seed=0, **options):
    """A benchmark that trains in a second."""
    train = small_arrays(images=images, n=n, classes=classes, seed=seed)
    test = small_arrays(images=images, n=80, classes=classes, seed=seed + 1)
    return Benchmark.from_arrays(*train, *test, tasks=tasks, seed=seed, **options)


SMALL: dict[str, Any] = {
    "model": {"kind": "mlp", "hidden": 16, "depth": 1},
    "memory": {"size": 30},
    "train": {"epochs": 3, "batch_size": 16, "lr": 0.1},
}
"""Settings for `small_benchmark` with features."""

SMALL_IMAGES: dict[str, Any] = {
    "model": {"kind": "resnet8", "width": 8},
    "memory": {"size": 30},
    "train": {"epochs": 8, "batch_size": 16, "lr": 0.01},
}
"""Settings for `small_benchmark` with images, for KRT: it learns with Adam."""

CONVOLUTIONAL = ("krt", "krt-r")
"""Methods whose model has a map of features."""


def settings_for(method, **changes):
    """The config of a method for the small benchmark that suits it."""
    base = SMALL_IMAGES if method in CONVOLUTIONAL else SMALL
    return config_from(merge(base, {"method": method}, changes))


LABELS = np.array(["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen"])


def label_store(folder, name, columns, *, images=False, seed=0, sizes=(90, 60)):
    """A store of some of eight classes; its inputs carry all of them."""
    train, test = (
        small_arrays(images=images, n=n, classes=6 if images else 8, seed=seed + i)
        for i, n in enumerate(sizes)
    )
    keep = [labels[:, columns].any(1) for _, labels in (train, test)]
    arrays = {
        f"{kind}_{split}": part[rows][:, columns] if kind == "y" else part[rows]
        for split, both, rows in zip(("train", "test"), (train, test), keep, strict=True)
        for kind, part in zip("xy", both, strict=True)
    }
    np.savez(folder / f"{name}.npz", **arrays, classes=LABELS[columns])
    prepare_source("arrays", folder / f"{name}.npz", out=folder / name, jobs=1)
    return folder / name


def label_settings(store, method, *, images=False, **changes):
    """The config of a small run on such a store, in two tasks."""
    model = {"kind": "resnet8", "width": 8} if images else {"kind": "mlp", "hidden": 16, "depth": 1}
    return config_from(
        {
            "benchmark": str(store),
            "method": method,
            "stream": {"tasks": 2},
            "model": model,
            "memory": {"size": 24},
            "train": {"epochs": 4, "batch_size": 16, "lr": 0.1},
            **changes,
        }
    )


EXACT: dict[str, Any] = {"model": {"kind": "fixed", "head": "exact"}, "memory": {"size": 0}, "train": {}}
"""What `label_settings` needs for the method ``exact``."""


def rewrite(folder, name, **changes):
    """Change fields of a JSON file of a finished run, and its checksum with them."""
    content = json.loads((folder / name).read_text()) | changes
    if content.pop("sha256", None) is not None:
        content["sha256"] = json_digest(content)
    (folder / name).write_text(json.dumps(content))
    result = json.loads((folder / "result.json").read_text())
    if name in result["sha256"]:
        result["sha256"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        (folder / "result.json").write_text(json.dumps(result))
