"""Runs on a backbone of another package: weights are fetched once, recorded, and never again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from helpers import command_config, small_arrays
from mlcl.cli.main import main
from mlcl.config.resolve import config_from
from mlcl.datasets import open_store, prepare_source
from mlcl.errors import InputError
from mlcl.models import MODELS, build_model
from mlcl.models.packages import PackageBackbone, PackageError, Weights
from mlcl.runs.continuing import update
from mlcl.runs.features import embed_store
from mlcl.runs.run import resume, run
from mlcl.runs.trained import load_trained
from mlcl.taggers.export import export
from mlcl.taggers.predict import predict
from mlcl.training.callbacks import Callback, Interrupted

NAMES = np.array(["ant", "bee", "cat", "dog", "eel", "fox"])
SETTINGS = {
    "stream": {"tasks": 2},
    "model": {"kind": "fake:net", "pretrained": "coco.pth"},
    "memory": {"size": 20},
    "train": {"epochs": 2, "batch_size": 32, "lr": 0.05, "threads": 1},
}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 16, 3, stride=2), nn.BatchNorm2d(16)
        self.drop = nn.Dropout(0.3)

    def forward(self, images):
        return self.drop(self.norm(self.conv(images)).relu().mean((2, 3)))


@pytest.fixture
def fetched(monkeypatch):
    """A package with one model; the list grows by each time its weights are fetched."""
    calls = []

    def fetch(like):
        calls.append(1)
        generator = torch.Generator().manual_seed(9)
        names = [name for name, _ in like.named_parameters()]
        tensors = {name: torch.randn(like.state_dict()[name].shape, generator=generator) for name in names}
        provenance = {
            "package": "fake",
            "version": "1.2",
            "model": "net",
            "weights": "coco.pth",
            "source": "file",
        }
        return Weights(tensors, provenance | {"trained_on": ["MS-COCO"], "outputs": [80]})

    def build(member, input_shape, *, pretrained=None, resize=None):
        return PackageBackbone(
            f"fake:{member}",
            input_shape,
            Net(),
            to_map=lambda module, images: module.norm(module.conv(images)),
            resize=resize,
            statistics=((0.5,) * 3, (0.25,) * 3) if pretrained else None,
            fetch=fetch if pretrained else None,
        )

    MODELS.register_family("fake", members=dict, summary="A stand-in.")(build)
    yield calls
    del MODELS._families["fake"]


def make_store(folder, name, columns):
    train, test = (small_arrays(images=True, n=n, seed=i) for i, n in enumerate((90, 60)))
    keep = [labels[:, columns].any(1) for _, labels in (train, test)]
    arrays = {
        f"{kind}_{split}": part[rows][:, columns] if kind == "y" else part[rows]
        for split, both, rows in zip(("train", "test"), (train, test), keep, strict=True)
        for kind, part in zip("xy", both, strict=True)
    }
    np.savez(folder / f"{name}.npz", **arrays, classes=NAMES[columns])
    prepare_source("arrays", folder / f"{name}.npz", out=folder / name, jobs=1)
    return folder / name


@pytest.fixture
def store(tmp_path):
    return make_store(tmp_path, "my-coco", [0, 1, 2, 3])


def config(store, **changes):
    return config_from({"benchmark": str(store), "method": "rldam-wru", **SETTINGS, **changes})


@pytest.mark.slow
def test_a_whole_life_with_one_fetch(fetched, store, tmp_path):
    class Stop(Callback):
        def on_epoch(self, learner, loss, seconds):
            if learner.task_index == 1:
                raise Interrupted

    with pytest.warns(
        UserWarning, match=r"'coco\.pth' were trained on MS-COCO, the images of this benchmark"
    ):
        whole = run(config(store), out=tmp_path / "a")
    with pytest.warns(UserWarning, match="MS-COCO"), pytest.raises(Interrupted):
        run(config(store), out=tmp_path / "b", callback=Stop())
    assert len(fetched) == 2
    resumed = resume(tmp_path / "b")
    assert np.array_equal(resumed.matrix, whole.matrix)
    for name in ("a", "b"):
        record = json.loads((tmp_path / name / "result.json").read_text())["weights"]
        assert record["weights"] == "coco.pth"
        assert record["sha256"] == whole.learner.network.backbone.provenance["sha256"]
        assert "trained on MS-COCO" in record["leak"]
    trained = load_trained(tmp_path / "b")
    assert trained.network.backbone.provenance == record
    inputs = open_store(store).test.inputs
    scores = predict(tmp_path / "b", store, logits=True).values[-len(inputs) :]
    assert np.allclose(scores, whole.learner.predict(inputs), atol=1e-4)
    assert export(tmp_path / "b", tmp_path / "net.pt2") < 1e-4
    more = make_store(tmp_path, "more", [4, 5])
    extended = update(tmp_path / "b", more, out=tmp_path / "c", known=False)
    assert json.loads((tmp_path / "c" / "result.json").read_text())["weights"] == record
    assert extended.matrix.shape == (3, 3)
    assert len(fetched) == 2
    main(["report", str(tmp_path / "a"), str(tmp_path / "c"), "--out", str(tmp_path / "page.html")])
    page = (tmp_path / "page.html").read_text()
    assert "fake 1.2 net, weights coco.pth, trained on MS-COCO" in page
    assert "no measure of continual learning" in page


def test_a_run_stopped_before_its_first_checkpoint_fetches_again(fetched, store, tmp_path):
    class Stop(Callback):
        def on_step(self, learner, loss):
            raise KeyboardInterrupt

    with pytest.warns(UserWarning, match="MS-COCO"), pytest.raises(KeyboardInterrupt):
        run(config(store), out=tmp_path / "a", callback=Stop())
    assert not list((tmp_path / "a").glob("checkpoints/*"))
    with pytest.warns(UserWarning, match="MS-COCO"):
        resumed = resume(tmp_path / "a")
    with pytest.warns(UserWarning, match="MS-COCO"):
        whole = run(config(store))
    assert np.array_equal(resumed.matrix, whole.matrix)


def test_pretrained_weights_decide_how_inputs_are_normalised(fetched, store):
    plain = config(store, model={"kind": "fake:net"})
    with pytest.warns(UserWarning, match="MS-COCO"):
        learner = run(config(store)).learner
    assert torch.allclose(learner.normaliser.scale, torch.tensor(1 / 255))
    assert not torch.allclose(run(plain).learner.normaliser.scale, torch.tensor(1 / 255))
    assert run(plain).learner.network.backbone.provenance is None


@pytest.mark.parametrize("method", ["krt-r", "ewc"])
def test_attention_heads_and_fishers_take_such_a_backbone(fetched, store, tmp_path, method):
    settings = config(store, method=method, model={"kind": "fake:net"}, memory={}, train={"epochs": 1})
    result = run(settings, out=tmp_path / "a")
    assert result.learner.network.backbone.kind == ("map" if method == "krt-r" else "vector")
    assert np.isfinite(predict(tmp_path / "a", store).values).all()


def test_a_package_that_went_away_is_told(fetched, store, tmp_path, monkeypatch):
    run(config(store, model={"kind": "fake:net"}, train={"epochs": 1}), out=tmp_path / "a")

    def missing(*_, **__):
        raise PackageError("models 'fake:NAME' need fake; install it with: pip install 'mlcl[fake]'")

    monkeypatch.setattr("mlcl.runs.trained.build_model", missing)
    with pytest.raises(InputError, match=r"^models 'fake:NAME' need fake"):
        load_trained(tmp_path / "a")


def test_our_own_models_take_no_weights(store):
    with pytest.raises(InputError, match="model 'resnet8' takes no option 'pretrained'"):
        config(store, model={"kind": "resnet8", "pretrained": True})
    with pytest.raises(InputError, match="resize is 0; expected 1 to 4096"):
        build_model("timm:x", (3, 16, 16), 2, resize=0)
    with pytest.raises(InputError, match="takes no option 'resize'"):
        build_model("resnet8", (3, 16, 16), 2, resize=8)


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("false", False), ("a1_in1k", "a1_in1k"), ("x/w.pth", "x/w.pth")]
)
def test_the_command_line_takes_truth_names_and_files(text, value):
    words = ["--model", "timm:resnet18", "--model.pretrained", text, "--model.resize", "64"]
    model = command_config(words).model
    assert (model.kind, model.options) == ("timm:resnet18", {"pretrained": value, "resize": 64})


@pytest.mark.slow
def test_features_remember_their_weights_in_every_run(fetched, store, tmp_path, capsys):
    out = tmp_path / "features"
    with pytest.warns(UserWarning, match="trained on MS-COCO"):
        made = embed_store(str(store), "fake:net", pretrained="coco.pth", out=out)
    assert (made.rows, made.already_there) == (
        len(open_store(store).train) + len(open_store(store).test),
        False,
    )
    with pytest.warns(UserWarning, match=r"features: the weights 'coco\.pth' were trained on MS-COCO"):
        data = open_store(out, check=True)
    assert (data.kind, data.name, data.classes) == ("features", "my-coco", open_store(store).classes)
    network = build_model("fake:net", (3, 16, 16), 1, pretrained="coco.pth").eval()
    with torch.no_grad():
        images = torch.from_numpy(np.array(open_store(store).test.inputs)).float() / 255
        assert np.allclose(data.test.inputs, network.features(images), atol=1e-5)
    with pytest.warns(UserWarning, match="trained on MS-COCO"):
        result = run(config(out, validate=True, model={"kind": "linear"}), out=tmp_path / "a")
    record = json.loads((tmp_path / "a" / "result.json").read_text())
    assert record["weights"] is None
    assert record["features"] == result.learner.data.origin
    of = {"name": "my-coco", "fingerprint": open_store(store).fingerprint, "options": {}}
    assert record["features"]["of"] == of
    main(["report", str(tmp_path / "a"), "--out", str(tmp_path / "page.html")])
    assert "Features" in (tmp_path / "page.html").read_text()
    assert main(["data", "info", str(out), "--stream.tasks", "2"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "features of: fake 1.2 net, weights coco.pth, trained on MS-COCO" in told
    assert "WARNING: " in told


def test_without_weights_there_is_nothing_to_record(store, tmp_path):
    run(config(store, model={"kind": "resnet8", "width": 8}, train={"epochs": 1}), out=Path(tmp_path / "a"))
    record = json.loads((tmp_path / "a" / "result.json").read_text())
    assert record["weights"] is None
    assert record["features"] is None


@pytest.mark.slow
def test_a_pretrained_encoder_in_a_committee_is_fetched_once_and_recorded(fetched, store, tmp_path):
    class Stop(Callback):
        def on_task_end(self, learner):
            if learner.task_index == 1:
                raise Interrupted

    members = {"encoder": "fake:net", "encoder_options": {"pretrained": "coco.pth"}}
    exact = {"ridge": 0.3, "exponent": 0.0}
    model = {"kind": "resnet8", "width": 16}
    settings = config(store, method="committee", model=model, committee=members, exact=exact)
    with pytest.warns(UserWarning, match=r"'coco\.pth' were trained on MS-COCO"):
        whole = run(settings, out=tmp_path / "a")
    with pytest.warns(UserWarning, match="MS-COCO"), pytest.raises(Interrupted):
        run(settings, out=tmp_path / "b", callback=Stop())
    assert len(fetched) == 2
    resumed = resume(tmp_path / "b")
    assert np.array_equal(resumed.matrix, whole.matrix)
    record = json.loads((tmp_path / "b" / "result.json").read_text())
    assert record["weights"] is None
    assert record["encoder_weights"]["weights"] == "coco.pth"
    assert "trained on MS-COCO" in record["encoder_weights"]["leak"]
    trained = load_trained(tmp_path / "b")
    assert trained.committee.encoder.provenance == record["encoder_weights"]
    inputs = open_store(store).test.inputs
    assert np.array_equal(trained.logits(inputs), whole.learner.predict(inputs))
    main(["report", str(tmp_path / "b"), "--out", str(tmp_path / "page.html")])
    page = (tmp_path / "page.html").read_text()
    assert "Encoder weights" in page
    assert "no measure of continual learning" in page
    extended = update(tmp_path / "b", make_store(tmp_path, "more", [4, 5]), out=tmp_path / "c", known=False)
    assert extended.learner.encoder_provenance == record["encoder_weights"]
    assert len(fetched) == 2
