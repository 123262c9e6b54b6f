"""Optimisers against those of torch."""

from __future__ import annotations

import torch

from mlcl.config.schema import TrainConfig
from mlcl.training.optimisation import make_optimiser


def test_the_optimiser_is_plain_sgd_to_the_bit():
    settings = TrainConfig(lr=0.2, momentum=0.9, weight_decay=1e-3)
    generator = torch.Generator().manual_seed(0)
    ours, plain = (
        [torch.nn.Parameter(w.clone()) for w in (torch.linspace(-1, 1, 37), torch.ones(3, 4, 2, 2))]
        for _ in range(2)
    )
    ours[1].data = ours[1].data.contiguous(memory_format=torch.channels_last)
    optimiser = make_optimiser(settings, ours)
    twin = torch.optim.SGD(plain, lr=0.2, momentum=0.9, weight_decay=1e-3, fused=False, foreach=False)
    for _ in range(4):
        for mine, other in zip(ours, plain, strict=True):
            other.grad = torch.randn(other.shape, generator=generator)
            mine.grad = torch.empty_like(mine).copy_(other.grad)
        optimiser.step()
        twin.step()
        assert all(torch.equal(mine, other) for mine, other in zip(ours, plain, strict=True))


def test_adam_of_a_portable_run_is_fused_and_is_adam():
    """Else it takes a square root whose last bit depends on the processor."""
    start, other = (torch.nn.Parameter(torch.linspace(-1, 1, 37)) for _ in range(2))
    optimiser = make_optimiser(TrainConfig(optimiser="adam", lr=0.1, portable=True), [start])
    plain = torch.optim.Adam([other], lr=0.1, betas=(0.9, 0.999), weight_decay=1e-5, foreach=False)
    assert optimiser.defaults["fused"]
    assert not make_optimiser(TrainConfig(optimiser="adam"), [start]).defaults["fused"]
    for step in range(4):
        start.grad = other.grad = torch.cos(torch.arange(37.0) + step)
        optimiser.step()
        plain.step()
    assert torch.allclose(start, other, rtol=1e-5, atol=1e-6)
