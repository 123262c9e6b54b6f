"""The method that we recommend and its upper bound run on every shipped benchmark, on small data of the same form."""

from __future__ import annotations

import numpy as np
import pytest

from mlcl import run
from mlcl.config.resolve import resolve, shipped
from mlcl.datasets import prepare_source

SPARSE = {"corel5k": 60, "bibtex": 60, "delicious": 60}
CLASSES = {"voc": 20, "coco": 80, "nus": 81, "scene": 6, "enron": 53} | SPARSE
FEATURES = ("scene", "enron", *SPARSE, "-features")
# Of a family of class-incremental protocols one is run; the others differ in the cut of the classes alone.
BENCHMARKS = [
    name
    for name in shipped()
    if name != "c-digits" and ("-b" not in name or "-b10-" in name or "-b40-" in name)
]


def has_features(name):
    """Whether a benchmark is one of feature vectors, by its name."""
    return any(part in name for part in FEATURES)


def small_store(folder, kind, *, features):
    """Write a store of the benchmark's number of classes: features, or images in which a class has its own place."""
    rng, classes = np.random.default_rng(0), CLASSES[kind]
    arrays = {}
    for split, count in (("train", 6 * classes), ("test", 4 * classes)):
        labels = (rng.random((count, classes)) < 0.1).astype(np.uint8)
        labels[np.arange(count), np.arange(count) % classes] = 1
        if features:
            inputs = (labels + rng.normal(0, 0.3, labels.shape)).astype(np.float32)
        else:
            places = np.pad(labels, ((0, 0), (0, 81 - classes))).reshape(count, 1, 9, 9)
            inputs = np.repeat(places * np.uint8(200), 3, axis=1)
        arrays |= {f"x_{split}": inputs, f"y_{split}": labels}
    np.savez(folder / "small.npz", **arrays)
    prepare_source("arrays", folder / "small.npz", out=folder / "store")
    return folder / "store"


@pytest.mark.slow
@pytest.mark.parametrize("name", BENCHMARKS)
def test_best_and_joint_masked_run_on_every_benchmark(name, tmp_path):
    kind = next(kind for kind in CLASSES if kind in name)
    given = {
        "method": "best",
        "data": str(small_store(tmp_path, kind, features=has_features(name))),
        "memory": {"size": 40},
        "train": {"epochs": 1, "batch_size": 32, "threads": 1},
    }
    if not has_features(name):
        given["model"] = {"kind": "resnet8", "width": 8}
    members = {}
    if (
        not has_features(name) and name != "c-voc-small"
    ):  # there the encoder has its own size; it costs most of the time
        members = {"committee": {"encoder_options": {"centres": 16}}}
    config = resolve(name=name, given=given | members)
    result = run(config)
    tasks = len(result.matrix)
    assert config.method == ("exact" if has_features(name) else "taught-committee")
    sizes = {"voc": 5, "coco": 8, "nus": 9, "scene": 3, "enron": 5} | dict.fromkeys(SPARSE, 5)
    assert tasks == ({"voc": 6, "coco": 5} if "-b" in name else sizes)[kind]
    assert result.matrix.shape == (tasks, tasks)
    assert np.isfinite(result.matrix).all()
    assert 0 <= result.macro_auc <= 100
    bound = run(resolve(name=name, given={**given, "method": "joint-masked", "memory": {"kind": "none"}}))
    assert bound.matrix.shape == (1, tasks)
    assert np.isfinite(bound.matrix).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in BENCHMARKS if not has_features(name)])
def test_exact_runs_on_every_benchmark_of_images(name, tmp_path):
    kind = next(kind for kind in CLASSES if kind in name)
    given = {
        "method": "exact",
        "data": str(small_store(tmp_path, kind, features=False)),
        "model": {"centres": 16},
        "train": {"threads": 1},
    }
    result = run(resolve(name=name, given=given))
    assert result.config.model.kind == "fixed"
    assert np.isfinite(result.matrix).all()
    assert result.macro_auc > 55  # a class has its own pixel; quadrants of patches hardly see which
