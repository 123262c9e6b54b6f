"""Models for feature vectors against the same computation written out."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcl.errors import InputError
from mlcl.models import build_model
from mlcl.testing import check_model


@pytest.fixture(autouse=True)
def _fixed_draws() -> None:
    torch.manual_seed(0)


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 9), st.integers(2, 12), st.integers(1, 4))
def test_mlp_is_linear_norm_relu_repeated(inputs: int, hidden: int, depth: int) -> None:
    network = build_model("mlp", (inputs,), 3, hidden=hidden, depth=depth)
    x = torch.randn(5, inputs, generator=torch.Generator().manual_seed(inputs))
    state = network.backbone.state_dict()
    expected = x
    for level in range(depth):
        expected = expected @ state[f"layers.{3 * level}.weight"].T + state[f"layers.{3 * level}.bias"]
        centred = expected - expected.mean(1, keepdim=True)
        expected = (centred / (centred.square().mean(1, keepdim=True) + 1e-5).sqrt()).clamp(min=0)
    assert len(state) == 4 * depth
    torch.testing.assert_close(network.features(x), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        network(x), expected @ network.head.linear.weight.T + network.head.linear.bias, rtol=1e-4, atol=1e-5
    )


def test_mlp_defaults_are_two_layers_of_256() -> None:
    network = build_model("mlp", (10,), 3)
    shapes = [tuple(p.shape) for p in network.parameters() if p.ndim == 2]
    assert shapes == [(256, 10), (256, 256), (3, 256)]
    assert network.backbone.kind == "vector"


def test_linear_is_the_head_alone() -> None:
    network = build_model("linear", (6,), 4)
    x = torch.randn(3, 6)
    assert torch.equal(network.features(x), x)
    torch.testing.assert_close(network(x), x @ network.head.linear.weight.T + network.head.linear.bias)
    assert len(list(network.parameters())) == 2


@pytest.mark.parametrize("name", ["mlp", "linear"])
def test_the_input_is_not_changed(name: str) -> None:
    x = torch.randn(3, 6)
    kept = x.clone()
    build_model(name, (6,), 4)(x)
    assert torch.equal(x, kept)


def test_the_rules_of_models():
    check_model("random-relu", width=8)


def test_features_are_those_of_the_drawn_map_and_follow_the_seed():
    one, two, same = (build_model("random-relu", (400,), 3, seed=seed, width=64) for seed in (0, 1, 0))
    inputs = torch.randn(200, 400, generator=torch.Generator().manual_seed(0))
    found = one.features(inputs)
    torch.testing.assert_close(found, (inputs @ one.backbone.projection.T).clamp_min(0))
    assert found.square().mean().item() == pytest.approx(0.5, abs=0.05)  # half of unit variance
    assert torch.equal(one.backbone.projection, same.backbone.projection)
    assert not torch.equal(one.backbone.projection, two.backbone.projection)
    assert not [*one.backbone.parameters()]


def test_images_too_large_for_it_are_refused():
    with pytest.raises(InputError, match="150528 inputs and width 4096"):
        build_model("random-relu", (3, 224, 224), 5, seed=0)
