"""Memories that store smaller images, and more of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from helpers import SMALL_IMAGES, small_benchmark
from mlcl.cli.main import main
from mlcl.config.resolve import config_from, merge
from mlcl.errors import InputError
from mlcl.runs.run import run
from mlcl.training.batches import enlarged, reduced
from mlcl.training.learner import Learner


def settings(**memory):
    given = {"method": "er", "memory": {"size": 10, **memory}, "train": {"epochs": 1}}
    return config_from(merge(SMALL_IMAGES, given))


@given(st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_blocks_are_averaged_and_stay_as_they_are(factor, seed):
    images = np.random.default_rng(seed).integers(0, 256, (3, 2, 4 * factor, 3 * factor), dtype=np.uint8)
    small = reduced(torch.from_numpy(images), factor)
    blocks = images.reshape(3, 2, 4, factor, 3, factor).astype(float).mean((3, 5))
    assert small.dtype == torch.uint8
    assert np.abs(small.numpy() - blocks).max() <= 0.5 + 1e-4
    large = enlarged(small, factor)
    assert large.shape == images.shape
    assert np.array_equal(large.numpy(), small.numpy().repeat(factor, 2).repeat(factor, 3))
    assert torch.equal(reduced(large, factor), small)


def test_the_network_sees_stored_images_small_and_new_ones_whole():
    learner = Learner(settings(downscale=2), small_benchmark(images=True))
    seen = []
    learner.network.backbone.register_forward_pre_hook(
        lambda _, inputs: seen.append(inputs[0].detach().clone())
    )
    for stage in learner.tasks[:2]:
        learner.start_task(stage)
        if stage.index == 0:
            learner.finish_task(stage)
    seen.clear()
    rows, tags, slots = learner.plan.step(0)
    learner.learn(rows, tags, slots)
    whole = torch.from_numpy(learner.data.train.inputs[rows])
    blocky = enlarged(reduced(whole, 2), 2)
    stored = torch.from_numpy(slots >= 0)
    assert stored.any()
    assert not stored.all()
    wanted = torch.where(stored[:, None, None, None], blocky, whole)
    assert torch.equal(seen[0], learner.normaliser(wanted))
    assert not torch.equal(blocky[stored], whole[stored])


@pytest.mark.slow
def test_as_many_fit_as_bytes_allow(tmp_path):
    benchmark = small_benchmark(images=True)
    run(settings(downscale=2), benchmark=benchmark, out=tmp_path / "small")
    run(settings(), benchmark=benchmark, out=tmp_path / "whole")
    small, whole = (
        load_file(tmp_path / name / "memory.safetensors")["inputs"] for name in ("small", "whole")
    )
    assert (small.shape, whole.shape) == ((40, 3, 8, 8), (10, 3, 16, 16))
    assert small.numel() == whole.numel()


def test_what_cannot_be_reduced_is_refused(tmp_path, capsys):
    with pytest.raises(InputError, match=r"memory.downscale is 3, but the inputs are 3 x 16 x 16"):
        run(settings(downscale=3), benchmark=small_benchmark(images=True))
    with pytest.raises(InputError, match=r"memory.downscale is 2, but the inputs are 6; expected images"):
        run(
            {"model": {"kind": "mlp", "hidden": 8, "depth": 1}, "memory": {"downscale": 2}},
            benchmark=small_benchmark(),
        )
    with pytest.raises(InputError, match=r"memory\.downscale is 0"):
        settings(downscale=0)
    assert main(["run", "--memory.downscale", "3", "--out", str(tmp_path / "run")]) == 2
    assert "memory.downscale is 3" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
