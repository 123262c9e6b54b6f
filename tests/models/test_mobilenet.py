"""MobileNetV2 and EfficientNet-Lite0 against the published architecture, a functional forward pass, and real weights.

timm itself is the oracle in tests/backbones, where it is installed.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

from data import shared_data
from mlcl.errors import InputError
from mlcl.models import build_model, fast_layout
from mlcl.models.mobilenet import SameConv2d
from mlcl.testing import check_model

# Expansion, channels, blocks, stride and kernel of each stage: table 2 of Sandler et al. (CVPR 2018), and table 1 of
# Tan and Le (ICML 2019) without squeeze-and-excitation.
PUBLISHED = {
    "mobilenetv2": (
        [
            (1, 16, 1, 1, 3),
            (6, 24, 2, 2, 3),
            (6, 32, 3, 2, 3),
            (6, 64, 4, 2, 3),
            (6, 96, 3, 1, 3),
            (6, 160, 3, 2, 3),
            (6, 320, 1, 1, 3),
        ],
        3_504_872,
    ),
    "efficientnet-lite0": (
        [
            (1, 16, 1, 1, 3),
            (6, 24, 2, 2, 3),
            (6, 40, 2, 2, 5),
            (6, 80, 3, 2, 3),
            (6, 112, 3, 1, 5),
            (6, 192, 4, 2, 5),
            (6, 320, 1, 1, 3),
        ],
        4_652_008,
    ),
}
NAMES = sorted(PUBLISHED)
FILES = {
    "mobilenetv2": "mobilenetv2_100.safetensors",
    "efficientnet-lite0": "tf_efficientnet_lite0.safetensors",
}


def convolutions(name):
    """Yield (name of a convolution, its normalisation, shape of its weights) by the published table."""
    yield "conv_stem", "bn1", (32, 3, 3, 3)
    before = 32
    for stage, (expansion, channels, count, _, kernel) in enumerate(PUBLISHED[name][0]):
        for index in range(count):
            at, hidden = f"blocks.{stage}.{index}.", expansion * before
            depthwise = (hidden, 1, kernel, kernel)
            if expansion == 1:
                yield f"{at}conv_dw", f"{at}bn1", depthwise
                yield f"{at}conv_pw", f"{at}bn2", (channels, before, 1, 1)
            else:
                yield f"{at}conv_pw", f"{at}bn1", (hidden, before, 1, 1)
                yield f"{at}conv_dw", f"{at}bn2", depthwise
                yield f"{at}conv_pwl", f"{at}bn3", (channels, hidden, 1, 1)
            before = channels
    yield "conv_head", "bn2", (1280, before, 1, 1)


@pytest.mark.parametrize("name", NAMES)
def test_names_and_shapes_are_the_published_ones(name):
    network = build_model(name, (3, 64, 64), 1000)
    wanted = {}
    for conv, norm, shape in convolutions(name):
        wanted[f"{conv}.weight"] = shape
        wanted |= {f"{norm}.{part}": shape[:1] for part in ("weight", "bias", "running_mean", "running_var")}
        wanted[f"{norm}.num_batches_tracked"] = ()
    found = {key: tuple(value.shape) for key, value in network.backbone.model.state_dict().items()}
    assert found == wanted
    assert sum(p.numel() for p in network.parameters()) == PUBLISHED[name][1]


def same(inputs: Tensor, weight: Tensor, stride: int, groups: int) -> Tensor:
    """TensorFlow's SAME: by brute force, the least padding for ceil(side / stride) outputs, its larger half last."""
    padding = []
    for side in (inputs.shape[3], inputs.shape[2]):
        total = 0
        while (side + total - weight.shape[-1]) // stride + 1 < -(-side // stride):
            total += 1
        padding += [total // 2, total - total // 2]
    return F.conv2d(F.pad(inputs, padding), weight, stride=stride, groups=groups)


def functional(name: str, x: Tensor, state: dict[str, Tensor]) -> Tensor:
    """The forward pass from tensors alone."""
    tensorflow = name == "efficientnet-lite0"

    def layer(x: Tensor, conv: str, norm: str, *, stride: int = 1, act: bool = True) -> Tensor:
        weight = state[f"{conv}.weight"]
        groups = weight.shape[0] if weight.shape[1] == 1 else 1
        if tensorflow:
            x = same(x, weight, stride, groups)
        else:
            x = F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2, groups=groups)
        mean, var, scale, shift = (
            state[f"{norm}.{part}"].view(1, -1, 1, 1)
            for part in ("running_mean", "running_var", "weight", "bias")
        )
        x = (x - mean) / (var + (1e-3 if tensorflow else 1e-5)).sqrt() * scale + shift
        return x.clamp(0, 6) if act else x

    x = layer(x, "conv_stem", "bn1", stride=2)
    for stage, (expansion, _, count, stride, _) in enumerate(PUBLISHED[name][0]):
        for index in range(count):
            at, step = f"blocks.{stage}.{index}.", stride if index == 0 else 1
            if expansion == 1:
                y = layer(x, f"{at}conv_dw", f"{at}bn1", stride=step)
                y = layer(y, f"{at}conv_pw", f"{at}bn2", act=False)
            else:
                y = layer(x, f"{at}conv_pw", f"{at}bn1")
                y = layer(y, f"{at}conv_dw", f"{at}bn2", stride=step)
                y = layer(y, f"{at}conv_pwl", f"{at}bn3", act=False)
            x = x + y if x.shape == y.shape else y
    return layer(x, "conv_head", "bn2")


def shaken(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Give every normalisation its own statistics and scale, so that a wrong one shows."""
    generator = torch.Generator().manual_seed(1)
    return {
        key: value if value.ndim != 1 else torch.rand(value.shape, generator=generator) * 0.5 + 0.5
        for key, value in state.items()
    }


@pytest.mark.parametrize(
    ("name", "height", "width"), [(name, h, w) for name in NAMES for h, w in ((64, 64), (33, 47))]
)
def test_forward_is_the_functional_one(name, height, width):
    network = build_model(name, (3, height, width), 2).eval()
    model = network.backbone.model
    state = shaken(model.state_dict())
    model.load_state_dict(state)
    images = torch.randn(2, 3, height, width, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        wanted = functional(name, images, state)
        torch.testing.assert_close(network.features(images), wanted.mean((2, 3)), rtol=1e-3, atol=1e-4)
        assert network.backbone.use_map()
        torch.testing.assert_close(network.backbone(images), wanted, rtol=1e-3, atol=1e-4)
    assert network.backbone.map_size((3, height, width)) == (-(-height // 32), -(-width // 32))


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_the_functional_ones_in_the_fast_layout(name):
    network = build_model(name, (3, 32, 32), 2).eval()
    model = network.backbone.model
    model.load_state_dict(shaken(model.state_dict()))
    state = {
        key: value.clone().requires_grad_(value.is_floating_point())
        for key, value in model.state_dict().items()
    }
    layout = fast_layout(network)
    network.to(memory_format=layout)
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    network.features(images.to(memory_format=layout)).square().sum().backward()
    functional(name, images, state).mean((2, 3)).square().sum().backward()
    for key, parameter in model.named_parameters():
        scale = float(state[key].grad.abs().max())
        torch.testing.assert_close(parameter.grad, state[key].grad, rtol=1e-2, atol=1e-3 * scale + 1e-9)


@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("side", [4, 5, 6, 7])
def test_same_padding_is_tensorflows(side, stride, kernel):
    conv = SameConv2d(2, 3, kernel, stride=stride)
    images = torch.randn(2, 2, side, side + 1)
    wanted = same(images, conv.weight, stride, 1) + conv.bias.view(1, -1, 1, 1)
    torch.testing.assert_close(conv(images), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_rules_of_every_model(name):
    check_model(name)


def test_layout_of_networks_that_learn_and_that_do_not():
    network = build_model("mobilenetv2", (3, 32, 32), 2)
    threads = torch.get_num_threads()
    try:
        for count, layout in ((1, torch.channels_last), (2, torch.contiguous_format)):
            torch.set_num_threads(count)
            assert fast_layout(network) == layout
            assert fast_layout(network, learns=False) == torch.channels_last
            assert fast_layout(build_model("resnet8", (3, 16, 16), 2, width=8)) == torch.contiguous_format
    finally:
        torch.set_num_threads(threads)


@pytest.fixture
def weights(tmp_path):
    """A file with random weights that fit MobileNetV2."""
    model = build_model("mobilenetv2", (3, 32, 32), 2, seed=7).backbone.model
    save_file(shaken(model.state_dict()), tmp_path / "mine.safetensors")
    return tmp_path / "mine.safetensors"


def test_weights_of_a_file_normalise_their_inputs(weights):
    network = build_model("mobilenetv2", (3, 32, 32), 2, pretrained=str(weights)).eval()
    images = torch.rand(2, 3, 32, 32)
    mean, std = (
        torch.tensor(part).view(1, 3, 1, 1) for part in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    )
    with torch.no_grad():
        wanted = functional("mobilenetv2", (images - mean) / std, load_file(weights)).mean((2, 3))
        torch.testing.assert_close(network.features(images), wanted, rtol=1e-3, atol=1e-4)
    record = network.backbone.provenance
    assert network.backbone.normalises
    assert (record["package"], record["model"], record["weights"]) == (
        "mlcl",
        "mobilenetv2",
        "mine.safetensors",
    )
    assert record["trained_on"] == []
    # Without weights nothing is normalised, and there is nothing to record.
    plain = build_model("mobilenetv2", (3, 32, 32), 2, pretrained=False).backbone
    assert not plain.normalises
    assert plain.provenance is None


def spoil(path, how):
    tensors = load_file(path)
    if how == "missing":
        del tensors["blocks.3.2.bn2.bias"]
    elif how == "foreign":
        tensors = {f"layer.{name}": value for name, value in tensors.items()}
    elif how == "shape":
        tensors["conv_head.weight"] = torch.zeros(640, 320, 1, 1)
    save_file(tensors, path)
    if how == "truncated":
        path.write_bytes(path.read_bytes()[:-1000])
    elif how == "text":
        path.write_text("version https://git-lfs.github.com/spec/v1\n")


@pytest.mark.parametrize(
    ("how", "parts"),
    [
        ("missing", ["does not fit model 'mobilenetv2'", "1 of its 312 tensors", "'blocks.3.2.bn2.bias'"]),
        (
            "foreign",
            [
                "does not fit model 'mobilenetv2'",
                "the first is 'conv_stem.weight'",
                "not expected",
                "'layer.",
            ],
        ),
        (
            "shape",
            ["do not fit model 'mobilenetv2'", "'conv_head.weight'", "(640, 320, 1, 1)", "(1280, 320, 1, 1)"],
        ),
        ("truncated", ["mine.safetensors: holds no weights that can be read"]),
        ("text", ["mine.safetensors: holds no weights that can be read"]),
    ],
)
def test_files_that_do_not_fit_are_one_sentence(weights, how, parts):
    spoil(weights, how)
    with pytest.raises(InputError) as caught:
        build_model("mobilenetv2", (3, 32, 32), 2, pretrained=str(weights))
    sentence = str(caught.value)
    assert all(part in sentence for part in parts), sentence
    assert "\n" not in sentence


def test_weights_of_the_other_network_do_not_fit(weights):
    with pytest.raises(
        InputError, match=r"does not fit .* first is 'blocks\.5\.3\..* not expected, .*'blocks\.2\.2\."
    ):
        build_model("efficientnet-lite0", (3, 32, 32), 2, pretrained=str(weights))


@pytest.mark.parametrize(
    ("shape", "options", "sentence"),
    [
        ((3, 32, 32), {"pretrained": True}, "model.pretrained is True, but .* expected a file"),
        ((3, 32, 32), {"pretrained": "imagenet"}, "model.pretrained is 'imagenet', but .* expected a file"),
        ((3, 32, 32), {"pretrained": "no/such.pth"}, "no/such.pth: cannot be read"),
        ((3, 31, 32), {}, "at least 32 x 32 pixels, not 31 x 32"),
        ((4, 32, 32), {}, "1 or 3 channels, not 4"),
        ((12,), {}, "takes images"),
        ((3, 16, 16), {"resize": 0}, "resize is 0; expected 32 to 4096"),
    ],
)
def test_bad_input_is_one_sentence(shape, options, sentence):
    with pytest.raises(InputError, match=sentence):
        build_model("mobilenetv2", shape, 2, **options)


def test_grey_and_small_images():
    grey = build_model("mobilenetv2", (1, 32, 32), 2).eval()
    small = build_model("mobilenetv2", (3, 16, 16), 2, resize=32).eval()
    images = torch.rand(2, 1, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(grey.features(images), grey.features(images.repeat(1, 3, 1, 1)))
        assert small.features(torch.rand(2, 3, 16, 16)).shape == (2, 1280)


@pytest.mark.parametrize("name", NAMES)
def test_the_real_weights_are_of_imagenet(name):
    path = shared_data() / "weights" / FILES[name]
    if not path.is_file():
        pytest.skip(f"no pre-trained weights at {path}")
    backbone = build_model(name, (3, 96, 96), 20, pretrained=str(path)).backbone
    assert backbone.provenance["trained_on"] == ["ImageNet-1k"]
    assert len(backbone.provenance["file_sha256"]) == 64
    stored = load_file(path)
    assert all(torch.equal(value, stored[key]) for key, value in backbone.model.state_dict().items())


@pytest.mark.slow
def test_the_real_weights_see_what_is_in_an_image():
    """A probe on few VOC thumbnails: features of pre-trained weights rank persons, those of random weights hardly."""
    root = shared_data()
    path = root / "weights" / FILES["mobilenetv2"]
    if not path.is_file():
        pytest.skip(f"no pre-trained weights at {path}")
    import io
    import zipfile

    from PIL import Image
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    with (
        np.load(root / "voc2012" / "meta.npz") as meta,
        zipfile.ZipFile(root / "voc2012" / "thumbs96.zip") as archive,
    ):
        person = meta["labels"][:400, list(meta["classes"].astype(str)).index("person")]
        read = [
            np.asarray(Image.open(io.BytesIO(archive.read(f"{i.decode()}.jpg")))) for i in meta["ids"][:400]
        ]
    images = torch.from_numpy(np.stack(read)).permute(0, 3, 1, 2).float() / 255

    def probe(pretrained):
        network = build_model("mobilenetv2", (3, 96, 96), 2, pretrained=pretrained).eval()
        with torch.inference_mode():
            found = torch.cat([network.features(piece) for piece in images.split(50)]).numpy()
        found = (found - found[:300].mean(0)) / (found[:300].std(0) + 1e-6)
        fitted = LogisticRegression(C=0.001).fit(found[:300], person[:300])
        return roc_auc_score(person[300:], fitted.decision_function(found[300:]))

    assert probe(str(path)) > 0.8 > 0.75 > probe(None)
