"""The wrappers of timm and torchvision on stand-ins of the two packages; `tests/backbones` has the real ones."""

from __future__ import annotations

import importlib.machinery
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

from mlcl.errors import InputError
from mlcl.models import build_model
from mlcl.models.packages import PackageError, package_version

MEAN, STD = (0.5, 0.25, 0.125), (0.5, 0.5, 2.0)


class Net(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8, classes) if classes else nn.Identity()

    def forward_features(self, images):
        return self.conv(images)

    def forward(self, images):
        return self.fc(self.avgpool(self.forward_features(images)).flatten(1))


def module(name: str, **content: object) -> ModuleType:
    made = ModuleType(name)
    made.__spec__ = importlib.machinery.ModuleSpec(name, None)
    setattr(made, "__version__", "0.1")  # noqa: B010  (mypy knows no such attribute)
    for key, value in content.items():
        setattr(made, key, value)
    return made


def weights_of_ones(classes: int) -> dict[str, torch.Tensor]:
    return {name: torch.full_like(value, 0.5) for name, value in Net(classes).state_dict().items()}


@pytest.fixture
def offline(monkeypatch):
    """Both packages, with one model each; a name in the list is what their servers do not have."""
    missing: list[str] = []

    def create_model(name, *, num_classes, pretrained=False, pretrained_cfg_overlay=None, img_size=None):
        if img_size == (7, 7):
            raise AssertionError("Input height (7)\nmust be divisible")
        net = Net(num_classes)
        if pretrained and pretrained_cfg_overlay is None and name in missing:
            raise OSError("no network\nRetry later.")
        if pretrained:
            found = pretrained_cfg_overlay["state_dict"] if pretrained_cfg_overlay else weights_of_ones(0)
            net.load_state_dict(found)
        return net

    config = SimpleNamespace(
        fixed_input_size=True, input_size=(3, 16, 16), mean=MEAN, std=STD, tag="a1_in1k", hf_hub_id="timm/net.a1_in1k",
        url=None, num_classes=1000, license="mit", has_weights=True,
    )  # fmt: skip
    timm = module(
        "timm",
        create_model=create_model,
        is_model=lambda name: name == "net",
        list_models=lambda: ["net"],
        list_pretrained=lambda pattern="": ["net.a1_in1k"],
        get_pretrained_cfg=lambda name: config,
    )

    class Published:
        name, url, meta = "V1", "https://example.org/net_in1k-1.pth", {"categories": [""] * 1000}

        def transforms(self):
            return SimpleNamespace(mean=MEAN, std=STD)

        def get_state_dict(self, **_):
            if self.name in missing:
                raise OSError("no network")
            return weights_of_ones(1000)

    class Known(list):
        DEFAULT = Published()

        def __getitem__(self, name):
            return self.DEFAULT

    models = SimpleNamespace(
        list_models=lambda module=None: ["net"],
        get_model=lambda name, weights=None: Net(1000),
        get_model_weights=lambda name: Known([Known.DEFAULT]),
    )
    for fake in (timm, module("torchvision", models=models)):
        monkeypatch.setitem(sys.modules, fake.__name__, fake)
    return missing


@pytest.mark.parametrize("package", ["timm", "torchvision"])
def test_published_weights_bring_normalisation_and_provenance(package, offline):
    network = build_model(f"{package}:net", (3, 16, 16), 5, pretrained=True)
    record = network.backbone.provenance
    assert (record["package"], record["version"], record["model"]) == (
        package,
        package_version(package),
        "net",
    )
    assert (record["trained_on"], record["outputs"]) == (["ImageNet-1k"], [1000])
    assert record["weights"] == {"timm": "a1_in1k", "torchvision": "V1"}[package]
    assert (network.backbone.model.conv.weight == 0.5).all()
    assert torch.equal(network.backbone.std.flatten(), torch.tensor(STD))
    mapped = build_model(f"{package}:net", (3, 16, 16), 5, head="attention").backbone
    assert mapped.map_size((3, 16, 16)) == (14, 14)
    assert mapped.provenance is None


@pytest.mark.parametrize("package", ["timm", "torchvision"])
def test_files_bring_weights_and_their_own_provenance(package, offline, tmp_path):
    path = tmp_path / "net_coco.pth"
    torch.save({"state_dict": weights_of_ones(80)}, path)
    record = build_model(f"{package}:net", (1, 16, 16), 5, pretrained=str(path)).backbone.provenance
    assert list(record) == [
        "package", "version", "model", "weights", "source", "file_sha256", "trained_on", "outputs", "sha256",
    ]  # fmt: skip
    assert (record["weights"], record["source"]) == ("net_coco.pth", "file")
    assert (record["trained_on"], record["outputs"]) == (["MS-COCO"], [80])


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("timm:nett", {}, r"^unknown model 'timm:nett': timm .* has no model .*Did you mean 'timm:net'\?$"),
        ("torchvision:nett", {}, r"has no classification model of this name\. Did you mean 'torchvision:net'\?$"),
        ("timm:net", {"pretrained": "a1"}, r"^model 'timm:net' has no weights 'a1' in timm .*: a1_in1k\."),
        ("torchvision:net", {"pretrained": "V2"}, r"has no weights 'V2' in torchvision .*: V1\. Did you mean 'V1'"),
        ("timm:net.a1_in1k", {"pretrained": "b"}, "names the weights 'a1_in1k' and model.pretrained 'b'; expected one"),
        ("timm:net", {"resize": 7}, r"built for images of 7 x 7: Input height \(7\) must be .*; its own size is 16, "),
        ("timm:net", {"resize": 0}, "^resize is 0; expected 1 to 4096$"),
        ("torchvision:net", {"resize": 4097}, "^resize is 4097; expected 1 to 4096$"),
        ("torchvision:net", {"width": 2}, "takes no option 'width'"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_one_sentence(name, options, sentence, offline):
    with pytest.raises(InputError, match=sentence) as caught:
        build_model(name, (3, 16, 16), 5, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "weights", "source"),
    [
        ("timm:net", "a1_in1k", "timm/net.a1_in1k"),
        ("torchvision:net", "V1", "https://example.org/net_in1k-1.pth"),
    ],
)
def test_weights_that_cannot_be_fetched_name_the_alternative(name, weights, source, offline):
    offline += ["net", "V1"]
    with pytest.raises(PackageError) as caught:
        build_model(name, (3, 16, 16), 5, pretrained=True)
    text = str(caught.value)
    assert text.startswith(
        f"the weights {weights!r} of model {name!r} could not be fetched from {source}: no network"
    )
    assert text.endswith("; get the file yourself and give it: --model.pretrained FILE")
    assert "\n" not in text


def test_a_file_of_another_shape_is_one_sentence(offline, tmp_path):
    path = tmp_path / "small.pth"
    torch.save({"conv.weight": torch.zeros(2, 3, 3, 3), "conv.bias": torch.zeros(2)}, path)
    for package, start in (("timm", str(path)), ("torchvision", "the weights 'small.pth'")):
        with pytest.raises(InputError, match=rf"^{start}.* (do|does) not fit|^{start}: does not fit"):
            build_model(f"{package}:net", (3, 16, 16), 5, pretrained=str(path))
