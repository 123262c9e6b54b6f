"""ResNets against a hand-written table of torchvision's tensors and a functional forward pass."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mlcl.models import build_model

# torchvision's resnet18, convolution by convolution, with the batch normalisation that follows it.
RESNET18 = {
    "conv1": ("bn1", (64, 3, 7, 7)),
    "layer1.0.conv1": ("layer1.0.bn1", (64, 64, 3, 3)),
    "layer1.0.conv2": ("layer1.0.bn2", (64, 64, 3, 3)),
    "layer1.1.conv1": ("layer1.1.bn1", (64, 64, 3, 3)),
    "layer1.1.conv2": ("layer1.1.bn2", (64, 64, 3, 3)),
    "layer2.0.conv1": ("layer2.0.bn1", (128, 64, 3, 3)),
    "layer2.0.conv2": ("layer2.0.bn2", (128, 128, 3, 3)),
    "layer2.0.downsample.0": ("layer2.0.downsample.1", (128, 64, 1, 1)),
    "layer2.1.conv1": ("layer2.1.bn1", (128, 128, 3, 3)),
    "layer2.1.conv2": ("layer2.1.bn2", (128, 128, 3, 3)),
    "layer3.0.conv1": ("layer3.0.bn1", (256, 128, 3, 3)),
    "layer3.0.conv2": ("layer3.0.bn2", (256, 256, 3, 3)),
    "layer3.0.downsample.0": ("layer3.0.downsample.1", (256, 128, 1, 1)),
    "layer3.1.conv1": ("layer3.1.bn1", (256, 256, 3, 3)),
    "layer3.1.conv2": ("layer3.1.bn2", (256, 256, 3, 3)),
    "layer4.0.conv1": ("layer4.0.bn1", (512, 256, 3, 3)),
    "layer4.0.conv2": ("layer4.0.bn2", (512, 512, 3, 3)),
    "layer4.0.downsample.0": ("layer4.0.downsample.1", (512, 256, 1, 1)),
    "layer4.1.conv1": ("layer4.1.bn1", (512, 512, 3, 3)),
    "layer4.1.conv2": ("layer4.1.bn2", (512, 512, 3, 3)),
}
STAGES34 = {"layer1": (3, 64, 64), "layer2": (4, 64, 128), "layer3": (6, 128, 256), "layer4": (3, 256, 512)}
STAGES50 = {
    "layer1": (3, 64, 64, 256),
    "layer2": (4, 256, 128, 512),
    "layer3": (6, 512, 256, 1024),
    "layer4": (3, 1024, 512, 2048),
}


def _resnet34() -> dict[str, tuple[str, tuple[int, ...]]]:
    table = {"conv1": ("bn1", (64, 3, 7, 7))}
    for layer, (count, before, width) in STAGES34.items():
        for i in range(count):
            first = before if i == 0 else width
            table[f"{layer}.{i}.conv1"] = (f"{layer}.{i}.bn1", (width, first, 3, 3))
            table[f"{layer}.{i}.conv2"] = (f"{layer}.{i}.bn2", (width, width, 3, 3))
        if before != width:
            table[f"{layer}.0.downsample.0"] = (f"{layer}.0.downsample.1", (width, before, 1, 1))
    return table


def _resnet50() -> dict[str, tuple[str, tuple[int, ...]]]:
    table = {"conv1": ("bn1", (64, 3, 7, 7))}
    for layer, (count, before, width, after) in STAGES50.items():
        for i in range(count):
            first = before if i == 0 else after
            table[f"{layer}.{i}.conv1"] = (f"{layer}.{i}.bn1", (width, first, 1, 1))
            table[f"{layer}.{i}.conv2"] = (f"{layer}.{i}.bn2", (width, width, 3, 3))
            table[f"{layer}.{i}.conv3"] = (f"{layer}.{i}.bn3", (after, width, 1, 1))
        table[f"{layer}.0.downsample.0"] = (f"{layer}.0.downsample.1", (after, before, 1, 1))
    return table


TABLES: dict[str, dict[str, tuple[str, tuple[int, ...]]]] = {
    "resnet18": RESNET18,
    "resnet34": _resnet34(),
    "resnet50": _resnet50(),
}
# Published sizes, with the classifier of 1000 classes: parameters, and entries of the state dict.
PUBLISHED = {"resnet18": (11_689_512, 122), "resnet34": (21_797_672, 218), "resnet50": (25_557_032, 320)}


def _expected_shapes(name: str) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for conv, (norm, shape) in TABLES[name].items():
        shapes[f"{conv}.weight"] = shape
        for part in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"{norm}.{part}"] = shape[:1]
        shapes[f"{norm}.num_batches_tracked"] = ()
    return shapes


@pytest.mark.parametrize("name", list(PUBLISHED))
def test_names_and_shapes_are_torchvisions(name: str) -> None:
    network = build_model(name, (3, 64, 64), 1000)
    shapes = {key: tuple(value.shape) for key, value in network.backbone.state_dict().items()}
    parameters, entries = PUBLISHED[name]
    assert shapes == _expected_shapes(name)
    assert sum(p.numel() for p in network.parameters()) == parameters
    assert len(network.state_dict()) == entries


def _norm(x: Tensor, state: dict[str, Tensor], name: str) -> Tensor:
    mean, var = state[f"{name}.running_mean"], state[f"{name}.running_var"]
    shape = (1, -1, 1, 1)
    scaled = (x - mean.view(shape)) / (var.view(shape) + 1e-5).sqrt()
    return scaled * state[f"{name}.weight"].view(shape) + state[f"{name}.bias"].view(shape)


def _functional(x: Tensor, state: dict[str, Tensor]) -> Tensor:
    """The forward pass of He et al. from tensors alone; the stride of a bottleneck is on its 3x3."""
    large = state["conv1.weight"].shape[-1] == 7
    x = F.conv2d(x, state["conv1.weight"], stride=2 if large else 1, padding=3 if large else 1)
    x = F.relu(_norm(x, state, "bn1"))
    if large:
        x = F.max_pool2d(x, 3, stride=2, padding=1)
    blocks = sorted(
        {tuple(k.split(".")[:2]) for k in state if k.startswith("layer")}, key=lambda b: (b[0], int(b[1]))
    )
    for layer, index in blocks:
        at = f"{layer}.{index}"
        stride = 2 if index == "0" and layer != "layer1" else 1
        if f"{at}.conv3.weight" in state:
            y = F.relu(_norm(F.conv2d(x, state[f"{at}.conv1.weight"]), state, f"{at}.bn1"))
            y = F.conv2d(y, state[f"{at}.conv2.weight"], stride=stride, padding=1)
            y = _norm(
                F.conv2d(F.relu(_norm(y, state, f"{at}.bn2")), state[f"{at}.conv3.weight"]),
                state,
                f"{at}.bn3",
            )
        else:
            y = F.conv2d(x, state[f"{at}.conv1.weight"], stride=stride, padding=1)
            y = F.relu(_norm(y, state, f"{at}.bn1"))
            y = _norm(F.conv2d(y, state[f"{at}.conv2.weight"], padding=1), state, f"{at}.bn2")
        if f"{at}.downsample.0.weight" in state:
            x = F.conv2d(x, state[f"{at}.downsample.0.weight"], stride=stride)
            x = _norm(x, state, f"{at}.downsample.1")
        x = F.relu(y + x)
    return x


def _shake_norms(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Give every normalisation its own statistics and scale, so that a wrong one shows."""
    generator = torch.Generator().manual_seed(1)
    return {
        key: value if value.ndim != 1 else torch.rand(value.shape, generator=generator) * 0.5 + 0.5
        for key, value in state.items()
    }


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("resnet8", 16),
        ("resnet14", 13),
        ("resnet20", 9),
        ("resnet18", 33),
        ("resnet34", 32),
        ("resnet50", 40),
    ],
)
def test_forward_is_the_functional_one(name: str, size: int) -> None:
    backbone = build_model(name, (3, size, size), 2).backbone.eval()
    state = _shake_norms(backbone.state_dict())
    backbone.load_state_dict(state)
    images = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(backbone(images), _functional(images, state), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("name", "blocks"), [("resnet8", 1), ("resnet14", 2), ("resnet20", 3)])
@pytest.mark.parametrize("width", [None, 4])
def test_small_models_have_three_stages(name: str, blocks: int, width: int | None) -> None:
    backbone = build_model(name, (1, 16, 16), 2, width=width).backbone
    w = width or 16
    convolutions = {k: v.shape for k, v in backbone.state_dict().items() if v.ndim == 4}
    expected = {"conv1.weight": (w, 1, 3, 3)}
    for stage, (before, after) in enumerate([(w, w), (w, 2 * w), (2 * w, 4 * w)], start=1):
        for i in range(blocks):
            expected[f"layer{stage}.{i}.conv1.weight"] = (after, before if i == 0 else after, 3, 3)
            expected[f"layer{stage}.{i}.conv2.weight"] = (after, after, 3, 3)
        if before != after:
            expected[f"layer{stage}.0.downsample.0.weight"] = (after, before, 1, 1)
    assert convolutions == expected
    assert backbone.width == 4 * w


def test_initialisation_is_kaiming_normal_fan_out() -> None:
    backbone = build_model("resnet18", (3, 32, 32), 2).backbone
    weight = backbone.get_parameter("layer3.0.conv1.weight")  # 256 out, 128 in: fan out differs from fan in
    assert weight.std().item() == pytest.approx((2 / (256 * 9)) ** 0.5, rel=0.02)
    assert weight.mean().item() == pytest.approx(0, abs=1e-3)
    assert (backbone.get_parameter("layer3.0.bn2.weight") == 1).all()
    assert (backbone.get_parameter("layer3.0.bn2.bias") == 0).all()
