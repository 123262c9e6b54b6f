"""A model of another package as a backbone: here a small stand-in, in `tests/backbones` the real ones."""

from __future__ import annotations

import importlib.util
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mlcl.cli.look import listing
from mlcl.engines.batch_norm import share_statistics
from mlcl.errors import InputError
from mlcl.models import MODELS, LinearHead, Network, build_model
from mlcl.models.network import seeded
from mlcl.models.packages import PackageBackbone, PackageError, Weights, require
from mlcl.registry import Registry

MEAN, STD = (0.5, 0.25, 0.125), (0.5, 0.5, 2.0)


class Net(nn.Module):
    """A convolution, pooled."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, stride=2)

    def forward(self, images):
        return self.conv(images).mean((2, 3))


def backbone(shape=(3, 8, 8), *, module=None, to_map=lambda m, x: m.conv(x), resize=None, fetch=None):
    statistics = (MEAN, STD) if fetch else None
    return PackageBackbone(
        "fake:net", shape, module or Net(), to_map=to_map, resize=resize, statistics=statistics, fetch=fetch
    )


def ones(like):
    tensors = {name: torch.full_like(value, 0.01) for name, value in like.state_dict().items()}
    return Weights(tensors, {"weights": "ones", "trained_on": []})


def test_vectors_and_maps():
    found = backbone()
    images = torch.rand(2, 3, 8, 8)
    assert (found.kind, found.width, found.normalises, found.provenance) == ("vector", 16, False, None)
    assert torch.equal(found(images), found.model(images))
    assert found.use_map()
    assert (found.kind, found.map_size((3, 8, 8))) == ("map", (3, 3))
    assert torch.equal(found(images), found.model.conv(images))
    with pytest.raises(InputError, match="was built for"):
        found.map_size((3, 9, 9))


def test_a_model_without_a_map_stays_one_of_vectors():
    found = backbone(to_map=lambda *_: None)
    assert not found.use_map()
    assert found(torch.zeros(1, 3, 8, 8)).shape == (1, 16)


def test_grey_images_have_three_equal_channels():
    found, images = backbone((1, 8, 8)), torch.rand(2, 1, 8, 8)
    assert torch.equal(found(images), found.model(images.repeat(1, 3, 1, 1)))


@pytest.mark.parametrize("side", [4, 20])
def test_images_are_resized(side):
    found, images = backbone(resize=side), torch.rand(2, 3, 8, 8)
    expected = F.interpolate(images, (side, side), mode="bilinear", antialias=side < 8)
    assert torch.equal(found(images), found.model(expected))


def test_pretrained_weights_bring_their_own_normalisation():
    found, images = backbone(fetch=ones), torch.rand(2, 3, 8, 8)
    before = torch.random.get_rng_state()
    found.load_pretrained()
    assert torch.equal(torch.random.get_rng_state(), before)
    assert found.normalises
    assert found.provenance["weights"] == "ones"
    assert len(found.provenance["sha256"]) == 64
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    assert torch.allclose(found(images), found.model((images - mean) / std))
    assert bool((found.model.conv.weight == 0.01).all())


def test_dropout_draws_by_seed_and_step_and_touches_no_other_numbers():
    class Dropped(Net):
        def forward(self, images):
            return F.dropout(super().forward(images), 0.5, self.training)

    torch.manual_seed(0)
    found = backbone(module=Dropped())
    saved, images = found.state_dict() | {"draws": found.draws.clone()}, torch.rand(2, 3, 8, 8)
    before = torch.random.get_rng_state()
    steps = [found(images) for _ in range(3)]
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not torch.equal(steps[0], steps[1])
    torch.manual_seed(99)
    again = backbone(module=Dropped())
    again.load_state_dict(saved)
    assert all(torch.equal(again(images), step) for step in steps)
    assert torch.equal(found.eval()(images), found(images))
    assert found.draws[1] == 3


def test_layers_with_more_than_a_normalisation_are_not_replaced_silently():
    class NormAct(nn.BatchNorm2d):
        def forward(self, inputs):
            return super().forward(inputs).relu()

    network = Network(backbone(module=nn.Sequential(Net())), LinearHead(16, 2))
    assert share_statistics(network, torch.device("cpu")) is network
    network.backbone.model.add_module("norm", NormAct(16))
    with pytest.raises(
        InputError, match="layers of the kind NormAct, whose statistics several processes cannot"
    ):
        share_statistics(network, torch.device("cpu"))


def test_weights_of_another_shape_are_refused():
    def wrong(like):
        return Weights({"conv.weight": torch.zeros(2, 3, 3, 3)}, {"weights": "wrong"})

    with pytest.raises(InputError, match=r"weights 'wrong' do not fit model 'fake:net': .*expected"):
        backbone(fetch=wrong).load_pretrained()


def test_images_that_do_not_fit_are_refused_with_a_hint():
    with pytest.raises(
        InputError, match=r"does not take images of 3 x 2 x 2 \(model.resize would make them larger\)"
    ):
        backbone((3, 2, 2))
    with pytest.raises(InputError, match=r"images of 3 x 8 x 8 resized to 2 x 2: "):
        backbone(resize=2)
    with pytest.raises(InputError, match=r"takes images \(C, H, W\), not inputs of shape \(5,\)"):
        backbone((5,))
    with pytest.raises(InputError, match=r"gives \(1, 3, 8, 8\) for an image; expected a feature vector"):
        backbone(module=nn.Identity())


@pytest.mark.parametrize("package", ["timm", "torchvision"])
def test_a_missing_package_names_its_extra(package, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        PackageError,
        match=rf"^model '{package}:resnet18': {package} is not installed; .*pip install 'mlcl\[{package}\]'",
    ):
        build_model(f"{package}:resnet18", (3, 32, 32), 5)


@pytest.mark.parametrize("package", ["timm", "torchvision"])
def test_a_torchvision_for_another_torch_is_one_sentence(package, monkeypatch, tmp_path):
    (tmp_path / "torchvision.py").write_text(
        "raise RuntimeError('operator torchvision::nms does not exist\\n')"
    )
    (tmp_path / "timm.py").write_text("import torchvision")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("timm", "torchvision")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(PackageError) as caught:
        require(package, "my model")
    text = str(caught.value)
    assert text.startswith("my model: torchvision")
    assert "(operator torchvision::nms does not exist): it is built for another torch" in text
    assert "\n" not in text


@pytest.mark.slow
def test_the_core_imports_neither(monkeypatch):
    code = "import mlcl.cli.run, mlcl.runs.features, sys; print({'timm', 'torchvision'} & set(sys.modules))"
    import subprocess

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_families_of_names():
    registry = Registry("model")
    registry.register("net", summary="A net.")(lambda *, width=1: ("net", width))
    members = {"a": "first", "b": "second"}
    registry.register_family("pack", members=lambda: members, summary="Others.")(
        lambda name, *, size=3: (name, size)
    )
    assert registry.build("pack:a", size=None) == ("a", 3)
    assert registry.options("pack:a") == ("size",)
    assert registry.names() == ["net"]
    assert registry.families()["pack"]() == members
    for name, hint in (("pakc:a", "pack:a"), ("ned", "net")):
        with pytest.raises(
            InputError, match=rf"unknown model '{name}'; known are: net, pack:NAME\. Did you mean '{hint}'\?"
        ):
            registry.get(name)
    with pytest.raises(InputError, match="unknown model 'pack:'"):
        registry.get("pack:")
    with pytest.raises(InputError, match="model 'pack:a' takes no option 'width'"):
        registry.check("pack:a", {"width": 2})


def test_models_of_packages_are_listed(monkeypatch):
    assert any(line.strip().startswith("timm:NAME") for line in listing("models"))
    entry, _ = MODELS._families["timm"]
    monkeypatch.setitem(MODELS._families, "timm", (entry, lambda: {"resnet18": "weights: x", "vit": ""}))
    assert [line.split() for line in listing("models", "timm:res*")] == [["timm:resnet18", "weights:", "x"]]


def test_processes_draw_dropout_for_their_own_rows(monkeypatch):
    def outputs(rank):
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: rank is not None)
        monkeypatch.setattr(torch.distributed, "get_rank", lambda: rank)
        with seeded(0):
            made = backbone(module=nn.Sequential(nn.Flatten(), nn.Dropout(0.5)))
        return made.train()(torch.ones(2, 3, 8, 8))

    alone, first, second = (outputs(rank) for rank in (None, 0, 1))
    assert torch.equal(alone, first)
    assert not torch.equal(first, second)
