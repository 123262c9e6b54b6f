"""Models of timm and torchvision as backbones, with the real packages and weights in local files."""

from __future__ import annotations

import json

import numpy as np
import pytest
import timm
import torch
import torchvision
from safetensors.torch import save_file

from mlcl.cli.main import main
from mlcl.config.resolve import config_from
from mlcl.datasets import open_store
from mlcl.errors import InputError
from mlcl.models import build_model
from mlcl.models.packages import PackageError
from mlcl.models.weight_files import tensors_sha256
from mlcl.runs.continuing import update
from mlcl.runs.features import embed_store
from mlcl.runs.run import resume, run
from mlcl.taggers.export import export
from mlcl.taggers.predict import predict
from mlcl.training.callbacks import Callback, Interrupted

SHORT = {
    "stream": {"tasks": 2},
    "memory": {"size": 20},
    "train": {"epochs": 1, "batch_size": 32, "lr": 0.01, "threads": 1},
}


def config(store, kind, **model):
    return config_from({"benchmark": str(store), "model": {"kind": kind, **model}, **SHORT})


@pytest.mark.parametrize(
    ("name", "map_size"),
    [
        ("timm:test_resnet", (1, 1)),
        ("timm:test_vit", (2, 2)),
        ("timm:test_convnext", (1, 1)),
        ("timm:test_efficientnet", (1, 1)),
        ("timm:swin_s3_tiny_224", (1, 1)),
        ("torchvision:shufflenet_v2_x0_5", None),
        ("torchvision:mobilenet_v3_small", (1, 1)),
        ("torchvision:squeezenet1_1", None),
        ("torchvision:resnet18", (1, 1)),
    ],
)
def test_vectors_are_the_packages_own_and_maps_fit_the_attention_head(name, map_size):
    images = torch.rand(2, 3, 32, 32)
    network = build_model(name, (3, 32, 32), 5).eval()
    backbone = network.backbone
    package, _, member = name.partition(":")
    whole = timm.create_model(member) if package == "timm" else torchvision.models.get_model(member)
    last = [m for m in whole.modules() if isinstance(m, torch.nn.Linear | torch.nn.Conv2d)][-1]
    inputs = last.in_features if isinstance(last, torch.nn.Linear) else last.in_channels
    assert (backbone.kind, backbone.width) == ("vector", inputs)
    with torch.no_grad():
        assert torch.equal(network.features(images), backbone.model(images))
        assert network(images).shape == (2, 5)
        if map_size is None:
            with pytest.raises(InputError, match=f"the attention head needs a feature map; model '{name}'"):
                build_model(name, (3, 32, 32), 5, head="attention")
            return
        network = build_model(name, (3, 32, 32), 5, head="attention").eval()
        network.head.add_session(range(5))
        assert network.backbone.map_size((3, 32, 32)) == map_size
        assert network(images).shape == (2, 5)


def test_timm_features_are_those_of_a_model_with_its_classifier():
    """The oracle: the classifier on our features gives the logits of the whole model."""
    whole = timm.create_model("test_resnet").eval()
    network = build_model("timm:test_resnet", (3, 64, 64), 5).eval()
    network.backbone.model.load_state_dict(
        {name: value for name, value in whole.state_dict().items() if not name.startswith("fc.")}
    )
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        assert torch.allclose(whole.fc(network.features(images)), whole(images), atol=1e-5)
        mapped = build_model("timm:test_resnet", (3, 64, 64), 5, head="attention").backbone.eval()
        mapped.model.load_state_dict(network.backbone.model.state_dict())
        assert torch.allclose(mapped(images), whole.forward_features(images))


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "squeezenet1_1", "vit_b_32"])
def test_torchvision_features_are_those_of_a_model_with_its_classifier(name):
    side = 224 if name.startswith("vit") else 64
    whole = torchvision.models.get_model(name).eval()
    linear = [n for n, m in whole.named_modules() if isinstance(m, torch.nn.Linear | torch.nn.Conv2d)][-1]
    network = build_model(f"torchvision:{name}", (3, side, side), 5).eval()
    wanted = network.backbone.model.state_dict()
    network.backbone.model.load_state_dict({n: v for n, v in whole.state_dict().items() if n in wanted})
    images = torch.rand(2, 3, side, side)
    seen = []
    whole.get_submodule(linear).register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    with torch.no_grad():
        whole(images)
        found = network.features(images)
        expected = (
            seen[0] if seen[0].ndim == 2 else seen[0].relu().mean((2, 3))
        )  # SqueezeNet pools afterwards
    assert torch.allclose(found, expected, atol=1e-5)


def test_weights_do_not_depend_on_the_head_and_follow_from_the_seed():
    states = [
        build_model("timm:test_vit", (3, 32, 32), k, seed=seed).backbone.state_dict()
        for k, seed in ((5, 0), (9, 0), (5, 1))
    ]
    assert tensors_sha256(states[0]) == tensors_sha256(states[1]) != tensors_sha256(states[2])


@pytest.fixture
def weights(tmp_path):
    """Files as users have them: of timm with a classifier, in a wrapper under a false name, of torchvision."""
    torch.manual_seed(3)
    save_file(timm.create_model("test_resnet").state_dict(), tmp_path / "plain.safetensors")
    coco = timm.create_model("test_resnet", num_classes=80).state_dict()
    torch.save(
        {"state_dict": {f"module.{k}": v for k, v in coco.items()}}, tmp_path / "tresnet_m_224_21k.pth"
    )
    save_file(timm.create_model("test_vit").state_dict(), tmp_path / "vit.safetensors")
    detector = torchvision.models.get_model("mobilenet_v3_small").state_dict()
    torch.save(
        {f"backbone.{k}": v for k, v in detector.items()} | {"head.weight": torch.zeros(91, 4)},
        tmp_path / "detector.pth",
    )
    return tmp_path


def test_files_bring_weights_normalisation_and_provenance(weights):
    network = build_model(
        "timm:test_resnet", (1, 32, 32), 5, pretrained=str(weights / "plain.safetensors")
    ).eval()
    record = network.backbone.provenance
    assert (record["package"], record["version"]) == ("timm", timm.__version__)
    assert (record["weights"], record["outputs"], record["trained_on"]) == ("plain.safetensors", [1000], [])
    whole = timm.create_model("test_resnet")
    torch.manual_seed(3)
    whole = timm.create_model("test_resnet", num_classes=1000)
    trimmed = {k: v for k, v in whole.state_dict().items() if not k.startswith("fc.")}
    assert record["sha256"] == tensors_sha256(trimmed)
    configuration = timm.get_pretrained_cfg("test_resnet")
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (configuration.mean, configuration.std))
    grey = torch.rand(2, 1, 32, 32)
    with torch.no_grad():
        model = network.backbone.model
        assert torch.allclose(network.features(grey), model((grey.expand(-1, 3, -1, -1) - mean) / std))


def test_position_embeddings_are_fitted_to_the_size(weights):
    network = build_model("timm:test_vit", (3, 32, 32), 5, pretrained=str(weights / "vit.safetensors")).eval()
    whole = timm.create_model("test_vit", num_classes=0, img_size=32)
    assert network.backbone.model.pos_embed.shape == whole.pos_embed.shape
    resized = build_model(
        "timm:test_vit", (3, 32, 32), 5, pretrained=str(weights / "vit.safetensors"), resize=160
    )
    torch.manual_seed(3)
    timm.create_model("test_resnet"), timm.create_model("test_resnet", num_classes=80)
    assert torch.equal(resized.backbone.model.pos_embed, timm.create_model("test_vit").pos_embed)


def test_a_file_below_a_prefix_with_a_detectors_head(weights):
    network = build_model(
        "torchvision:mobilenet_v3_small", (3, 32, 32), 5, pretrained=str(weights / "detector.pth")
    )
    assert network.backbone.provenance["outputs"] == [91, 1000]


@pytest.mark.parametrize(
    ("name", "model", "sentence"),
    [
        ("timm:test_resnet", {"pretrained": "vit.safetensors"}, r"does not fit model .* tensors are missing"),
        ("timm:test_resnet", {"pretrained": "a1_in1k"}, r"no weights 'a1_in1k'.*known are: r160_in1k"),
        ("timm:test_resnet.r160_in1k", {"pretrained": "other"}, "expected one of them"),
        ("timm:test_resnet.r160_in", {}, r"Did you mean 'r160_in1k'\?"),
        ("timm:test_mambaout", {"pretrained": True}, "has no pre-trained weights"),
        ("timm:resnet19", {}, r"unknown model 'timm:resnet19'.*Did you mean 'timm:resnet18'\?"),
        ("timm:vit_tiny_patch16_224", {"resize": 8}, "model 'timm:vit_tiny_patch16_224' .*8 x 8"),
        ("torchvision:resnet19", {}, r"Did you mean 'torchvision:resnet18'\?"),
        ("torchvision:deeplabv3_resnet50", {}, "no classification model of this name"),
        ("torchvision:resnet18", {"pretrained": "IMAGENET1K_V9"}, r"Did you mean 'IMAGENET1K_V1'\?"),
        ("torchvision:inception_v3", {}, r"does not take images of 3 x 32 x 32 \(model.resize"),
        (
            "torchvision:vit_b_32",
            {"resize": 33},
            "model 'torchvision:vit_b_32' cannot be built for images of 33",
        ),
        ("torchvision:resnet18", {"resize": 5000}, "expected 1 to 4096"),
    ],
)
def test_what_does_not_fit_is_one_sentence(weights, name, model, sentence):
    if str(model.get("pretrained", "")).endswith(".safetensors"):
        model = model | {"pretrained": str(weights / model["pretrained"])}
    with pytest.raises(InputError, match=sentence) as caught:
        build_model(name, (3, 32, 32), 5, **model)
    assert "\n" not in str(caught.value)


def test_named_weights_come_from_the_package(weights, monkeypatch):
    """No network here: what the packages would download is put in its place."""
    published = torchvision.models.get_model("squeezenet1_1").state_dict()
    one = torchvision.models.get_model_weights("squeezenet1_1").IMAGENET1K_V1
    monkeypatch.setattr(type(one), "get_state_dict", lambda self, **_: published)
    record = build_model("torchvision:squeezenet1_1", (3, 32, 32), 5, pretrained=True).backbone.provenance
    assert (record["weights"], record["trained_on"]) == ("IMAGENET1K_V1", ["ImageNet-1k"])
    assert (record["source"], record["outputs"]) == (one.url, [1000])
    configuration = timm.get_pretrained_cfg("test_resnet")
    monkeypatch.setattr(configuration.__class__, "state_dict", None, raising=False)
    monkeypatch.setattr(
        "timm.models._builder.load_state_dict_from_hf",
        lambda *_, **__: dict(timm.create_model("test_resnet").state_dict()),
    )
    record = build_model("timm:test_resnet", (3, 32, 32), 5, pretrained="r160_in1k").backbone.provenance
    assert (record["weights"], record["trained_on"]) == ("r160_in1k", ["ImageNet-1k"])
    assert record["source"] == "https://huggingface.co/timm/test_resnet.r160_in1k"


def test_weights_that_cannot_be_fetched_are_one_sentence(monkeypatch):
    def offline(*_, **__):
        raise OSError("Name or service not known\nRetry later.")

    monkeypatch.setattr("timm.models._builder.load_state_dict_from_hf", offline)
    with pytest.raises(
        PackageError, match=r"'r160_in1k' .* could not be fetched .*not known Retry later; get the file"
    ):
        build_model("timm:test_resnet", (3, 32, 32), 5, pretrained=True)
    one = torchvision.models.get_model_weights("resnet18").IMAGENET1K_V1
    monkeypatch.setattr(type(one), "get_state_dict", offline)
    with pytest.raises(PackageError, match=r"'IMAGENET1K_V1' .* could not be fetched from https://download"):
        build_model("torchvision:resnet18", (3, 32, 32), 5, pretrained=True)


@pytest.mark.parametrize("kind", ["timm:test_resnet", "timm:test_vit", "torchvision:mobilenet_v3_small"])
def test_a_whole_life(kind, pictures, weights, tmp_path):
    class Stop(Callback):
        def on_task_end(self, learner):
            raise Interrupted

    file = {"timm:test_resnet": "plain.safetensors", "timm:test_vit": "vit.safetensors"}.get(
        kind, "detector.pth"
    )
    path = weights / file
    settings = config(pictures, kind, pretrained=str(path))
    if file == "detector.pth":
        with pytest.warns(UserWarning, match="a classifier of 91 outputs, as MS-COCO would give"):
            whole = run(settings, out=tmp_path / "a")
        assert any(isinstance(m, torch.nn.Dropout) for m in whole.learner.network.modules())
    else:
        whole = run(settings, out=tmp_path / "a")
    with pytest.raises(Interrupted):
        run(settings, out=tmp_path / "b", callback=Stop())
    path.unlink()  # nothing after this needs the file
    resumed = resume(tmp_path / "b")
    assert np.array_equal(resumed.matrix, whole.matrix)
    record = json.loads((tmp_path / "b" / "result.json").read_text())["weights"]
    assert (record["weights"], record["source"]) == (file, "file")
    scores = predict(tmp_path / "b", pictures, logits=True).values
    assert np.allclose(scores[96:], whole.learner.predict(open_store(pictures).test.inputs), atol=1e-4)
    assert export(tmp_path / "b", tmp_path / "net.pt2") < 1e-4
    extended = update(tmp_path / "b", more_labels(tmp_path), out=tmp_path / "c", known=False)
    assert extended.matrix.shape == (3, 3)
    assert json.loads((tmp_path / "c" / "result.json").read_text())["weights"] == record


def more_labels(folder):
    from helpers import small_arrays
    from mlcl.datasets import prepare_source

    arrays = {}
    for number, (split, count) in enumerate((("train", 60), ("test", 30))):
        inputs, labels = small_arrays(images=True, n=count, seed=5 + number)
        arrays |= {f"x_{split}": inputs.repeat(2, axis=2).repeat(2, axis=3), f"y_{split}": labels[:, :2]}
    np.savez(folder / "more.npz", **arrays, classes=np.array(["new", "newer"]))
    prepare_source("arrays", folder / "more.npz", out=folder / "more", jobs=1)
    return folder / "more"


@pytest.mark.parametrize("method", ["krt-r", "ewc"])
def test_attention_and_fishers(method, pictures):
    settings = {"benchmark": str(pictures), "method": method, "model": {"kind": "timm:test_vit"}}
    result = run(settings | {"stream": {"tasks": 2}, "train": {"epochs": 1, "threads": 1}})
    assert np.isfinite(result.matrix).all()


def test_the_leak_of_the_field(pictures, weights, tmp_path, capsys):
    """KRT's file: published as ImageNet-21k, trained on MS-COCO."""
    words = ["run", "--benchmark", str(pictures), "--model", "timm:test_resnet", "--stream.tasks", "2"]
    words += ["--model.pretrained", str(weights / "tresnet_m_224_21k.pth"), "--train.epochs", "1"]
    assert main([*words, "--out", str(tmp_path / "a")]) == 0
    told = capsys.readouterr()
    assert "warning: the weights 'tresnet_m_224_21k.pth' were trained on MS-COCO" in told.err
    assert "MS_COCO_TRresNet_M_224_81.8.pth" in told.err
    assert "weights tresnet_m_224_21k.pth, trained on MS-COCO" in " ".join(told.out.split())
    assert main(["report", str(tmp_path / "a"), "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "timm 1." in page
    assert "were trained on MS-COCO, the images of this benchmark" in page


def test_frozen_features(pictures, weights, tmp_path, capsys):
    out = tmp_path / "features"
    words = [
        "data",
        "features",
        str(pictures),
        "--model",
        "timm:test_vit",
        "--resize",
        "64",
        "--out",
        str(out),
    ]
    assert main([*words, "--pretrained", str(weights / "vit.safetensors"), "--quiet"]) == 0
    data = open_store(out, check=True)
    network = build_model(
        "timm:test_vit", (3, 32, 32), 1, pretrained=str(weights / "vit.safetensors"), resize=64
    ).eval()
    images = torch.from_numpy(np.array(open_store(pictures).train.inputs)).float() / 255
    with torch.no_grad():
        assert np.allclose(data.train.inputs, network.features(images), atol=1e-4)
    assert data.origin["sha256"] == network.backbone.provenance["sha256"]
    words = [
        "run",
        "--benchmark",
        str(out),
        "--model",
        "linear",
        "--stream.tasks",
        "2",
        "--train.epochs",
        "1",
    ]
    assert main([*words, "--quiet", "--out", str(tmp_path / "run")]) == 0
    record = json.loads((tmp_path / "run" / "result.json").read_text())
    assert record["features"]["model"] == "test_vit"
    with pytest.warns(UserWarning, match="random weights"):
        embed_store(str(pictures), "torchvision:shufflenet_v2_x0_5", out=tmp_path / "random")
    assert open_store(tmp_path / "random").train.inputs.shape == (96, 1024)


def test_models_are_listed(capsys):
    assert main(["ls", "models", "timm:test_res*"]) == 0
    assert capsys.readouterr().out.split() == ["timm:test_resnet", "weights:", "r160_in1k"]
    assert main(["ls", "models", "torchvision:resnet5*"]) == 0
    assert "IMAGENET1K_V2" in capsys.readouterr().out
