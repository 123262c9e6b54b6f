"""Tests with the real packages, collected only where they are installed: ``make test-backbones``."""

from __future__ import annotations

import importlib.util

import pytest

if any(importlib.util.find_spec(name) is None for name in ("timm", "torchvision", "avalanche")):
    collect_ignore_glob = ["test_*.py"]
else:
    import torch

    # torchvision from the registry is built for CUDA. Beside a torch for the CPU its compiled part does not load, and
    # the import fails for want of two operators, which no model here uses: declared, the Python part works.
    _library = torch.library.Library("torchvision", "FRAGMENT")
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        for _name in ("nms", "qnms"):
            _library.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


@pytest.fixture
def pictures(tmp_path):
    """A store of 96 + 48 pictures of 32 x 32 with six classes, called ``my-coco``."""
    import numpy as np

    from helpers import small_arrays
    from mlcl.datasets import prepare_source

    arrays = {}
    for number, (split, count) in enumerate((("train", 96), ("test", 48))):
        inputs, labels = small_arrays(images=True, n=count, seed=number)
        arrays |= {f"x_{split}": inputs.repeat(2, axis=2).repeat(2, axis=3), f"y_{split}": labels}
    np.savez(tmp_path / "my-coco.npz", **arrays)
    prepare_source("arrays", tmp_path / "my-coco.npz", out=tmp_path / "my-coco", jobs=1)
    return tmp_path / "my-coco"
