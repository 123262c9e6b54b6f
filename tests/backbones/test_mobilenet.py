"""MobileNetV2 and EfficientNet-Lite0 of our own against timm's: names, values, gradients, normalisation, checksums."""

from __future__ import annotations

import pytest
import timm
import torch
from safetensors.torch import save_file

from data import shared_data
from mlcl.models import build_model

MODELS = [("mobilenetv2", "mobilenetv2_100"), ("efficientnet-lite0", "tf_efficientnet_lite0")]


@pytest.fixture(params=MODELS, ids=[own for own, _ in MODELS])
def pair(request, tmp_path):
    """Our name, timm's name, timm's model with all statistics shaken, and its weights in a file."""
    own, theirs = request.param
    torch.manual_seed(0)
    whole = timm.create_model(theirs, num_classes=1000).eval()
    for name, value in whole.state_dict().items():
        if value.ndim == 1 and "classifier" not in name:
            value.copy_(torch.rand_like(value) * 0.5 + 0.5)
    path = tmp_path / "random.safetensors"
    save_file(whole.state_dict(), path)
    return own, theirs, whole, path


@pytest.mark.parametrize("shape", [(3, 96, 96), (3, 61, 90)])
def test_features_are_timms(pair, shape):
    own, theirs, whole, path = pair
    mine = build_model(own, shape, 1, pretrained=str(path)).eval()
    other = build_model(f"timm:{theirs}", shape, 1, pretrained=str(path)).eval()
    assert list(mine.backbone.model.state_dict()) == list(other.backbone.model.state_dict())
    assert mine.backbone.provenance["sha256"] == other.backbone.provenance["sha256"]
    assert mine.backbone.provenance["outputs"] == [1000]
    assert torch.equal(mine.backbone.mean, other.backbone.mean)
    assert torch.equal(mine.backbone.std, other.backbone.std)
    images = torch.rand(3, *shape)
    with torch.no_grad():
        wanted = whole.forward_head(
            whole.forward_features((images - mine.backbone.mean) / mine.backbone.std), pre_logits=True
        )
        torch.testing.assert_close(mine.features(images), wanted, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(other.features(images), wanted, rtol=1e-5, atol=1e-5)
    # Training mode: batch statistics, their momentum, gradients.
    for network in (mine, other):
        network.train()
        network.features(images).square().mean().backward()
    for (name, a), b in zip(
        mine.backbone.model.named_parameters(), other.backbone.model.parameters(), strict=True
    ):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-5, msg=name)
    for (name, a), b in zip(mine.backbone.model.named_buffers(), other.backbone.model.buffers(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize(("own", "theirs"), MODELS)
def test_real_weights_give_timms_features(own, theirs):
    path = shared_data() / "weights" / f"{theirs}.safetensors"
    if not path.is_file():
        pytest.skip(f"no pre-trained weights at {path}")
    networks = [
        build_model(name, (3, 96, 96), 1, pretrained=str(path)).eval() for name in (own, f"timm:{theirs}")
    ]
    images = torch.rand(4, 3, 96, 96)
    with torch.no_grad():
        mine, other = (network.features(images) for network in networks)
    torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5)
    assert networks[1].backbone.provenance["trained_on"] == ["ImageNet-1k"]
