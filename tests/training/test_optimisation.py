"""Optimisers against those of torch."""

from __future__ import annotations

import pytest
import torch

from mlcl.config.schema import TrainConfig
from mlcl.errors import InputError
from mlcl.models import build_model
from mlcl.training.optimisation import make_optimiser, set_learning_rate


def test_the_optimiser_is_plain_sgd_to_the_bit():
    settings = TrainConfig(lr=0.2, momentum=0.9, weight_decay=1e-3)
    generator = torch.Generator().manual_seed(0)
    ours, plain = (
        [torch.nn.Parameter(w.clone()) for w in (torch.linspace(-1, 1, 37), torch.ones(3, 4, 2, 2))]
        for _ in range(2)
    )
    ours[1].data = ours[1].data.contiguous(memory_format=torch.channels_last)
    optimiser = make_optimiser(settings, torch.nn.ParameterList(ours))
    twin = torch.optim.SGD(plain, lr=0.2, momentum=0.9, weight_decay=1e-3, fused=False, foreach=False)
    for _ in range(4):
        for mine, other in zip(ours, plain, strict=True):
            other.grad = torch.randn(other.shape, generator=generator)
            mine.grad = torch.empty_like(mine).copy_(other.grad)
        optimiser.step()
        twin.step()
        assert all(torch.equal(mine, other) for mine, other in zip(ours, plain, strict=True))


def test_one_group_by_default_and_one_per_part_otherwise():
    network = build_model("resnet8", (3, 16, 16), 4)
    (only,) = make_optimiser(TrainConfig(), network).param_groups
    assert [id(p) for p in only["params"]] == [id(p) for p in network.parameters()]
    network.backbone.conv1.weight.requires_grad_(False)
    optimiser = make_optimiser(TrainConfig(backbone_lr=0.01), network)
    backbone, head = optimiser.param_groups
    assert [id(p) for p in backbone["params"]] == [id(p) for p in list(network.backbone.parameters())[1:]]
    assert [id(p) for p in head["params"]] == [id(p) for p in network.head.parameters()]
    set_learning_rate(optimiser, 0.5)
    assert (backbone["lr"], head["lr"]) == (0.005, 0.5)
    network.backbone.requires_grad_(False)
    (head,) = make_optimiser(TrainConfig(backbone_lr=0.01), network).param_groups
    assert [id(p) for p in head["params"]] == [id(p) for p in network.head.parameters()]


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_parts_learn_as_with_two_optimisers(kind):
    """The oracle: one optimiser of torch per part."""
    ours, twins = (build_model("mlp", (6,), 3, hidden=8, seed=1) for _ in range(2))
    optimiser = make_optimiser(
        TrainConfig(optimiser=kind, momentum=0.8, weight_decay=0.01, backbone_lr=0.1), ours
    )
    made = torch.optim.SGD if kind == "sgd" else torch.optim.Adam
    momentum = {"momentum": 0.8} if kind == "sgd" else {"betas": (0.8, 0.999)}
    others = [
        made(part.parameters(), lr=lr, weight_decay=0.01, **momentum)
        for part, lr in ((twins.backbone, 0.02), (twins.head, 0.2))
    ]
    inputs = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    for _ in range(3):
        for network in (ours, twins):
            network.zero_grad()
            network(inputs).square().sum().backward()
        set_learning_rate(optimiser, 0.2)
        optimiser.step()
        for other in others:
            other.step()
    for mine, other in zip(ours.parameters(), twins.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf")])
def test_a_bad_share_is_one_sentence(value):
    with pytest.raises(InputError, match=r"train\.backbone_lr is .*; expected a number of at least 0"):
        TrainConfig(backbone_lr=value)


def test_adam_of_a_portable_run_is_fused_and_is_adam():
    """Else it takes a square root whose last bit depends on the processor."""
    start, other = (torch.nn.Parameter(torch.linspace(-1, 1, 37)) for _ in range(2))
    network = torch.nn.ParameterList([start])
    optimiser = make_optimiser(TrainConfig(optimiser="adam", lr=0.1, portable=True), network)
    plain = torch.optim.Adam([other], lr=0.1, betas=(0.9, 0.999), weight_decay=1e-5, foreach=False)
    assert optimiser.defaults["fused"]
    assert not make_optimiser(TrainConfig(optimiser="adam"), network).defaults["fused"]
    for step in range(4):
        start.grad = other.grad = torch.cos(torch.arange(37.0) + step)
        optimiser.step()
        plain.step()
    assert torch.allclose(start, other, rtol=1e-5, atol=1e-6)
