"""Random ReLU features."""

from __future__ import annotations

import pytest
import torch

from mlcl.errors import InputError
from mlcl.models import build_model
from mlcl.testing import check_model


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
