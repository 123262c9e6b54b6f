"""Frozen features of our own models: made once, gone on with, and refused where they make no sense."""

from __future__ import annotations

import errno
import hashlib
import json
import shlex
import warnings
import zipfile

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from data import coco_files, shared_data, voc_files, write_tree
from helpers import small_arrays
from mlcl.cli.main import main
from mlcl.datasets import cache_dir, open_store, prepare_source, read_ids
from mlcl.datasets.writing import Ledger, features_plan
from mlcl.engines.pool import EngineFailure
from mlcl.errors import InputError
from mlcl.models import build_model
from mlcl.runs.continuing import update
from mlcl.runs.features import ImageEncoder, embed_store
from mlcl.runs.run import run
from mlcl.runs.trained import load_trained
from mlcl.taggers.predict import predict

RANDOM = "ignore:model 'resnet8' has random weights"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store of 300 + 150 images: the border of the splits lies inside a chunk of rows."""
    folder = tmp_path_factory.mktemp("store")
    train, test = (small_arrays(images=True, n=n, seed=i) for i, n in enumerate((300, 150)))
    arrays = dict(zip(("x_train", "y_train", "x_test", "y_test"), (*train, *test), strict=True))
    np.savez(folder / "pictures.npz", **arrays)
    prepare_source("arrays", folder / "pictures.npz", out=folder / "pictures", jobs=1)
    return folder / "pictures"


def expected(store, seed=0):
    """Embeddings the plain way: all images at once, in [0, 1], without statistics of later tasks."""
    data = open_store(store)
    images = [torch.from_numpy(np.array(split.inputs)).float() / 255 for split in (data.train, data.test)]
    network = build_model("resnet8", images[0].shape[1:], 1, seed=seed).eval()
    with torch.no_grad():
        return [network.features(part).numpy() for part in images]


@pytest.mark.filterwarnings(RANDOM)
@pytest.mark.parametrize("batch_size", [7, 128, 1000])
def test_features_are_those_of_the_network(store, tmp_path, batch_size):
    calls = []
    made = embed_store(
        str(store),
        "resnet8",
        out=tmp_path / "f",
        batch_size=batch_size,
        progress=lambda *at: calls.append(at),
    )
    data = open_store(tmp_path / "f", check=True)
    for split, want in zip((data.train, data.test), expected(store), strict=True):
        assert split.inputs.dtype == np.float32
        assert np.allclose(split.inputs, want, atol=1e-4)
    assert np.array_equal(data.train.labels, open_store(store).train.labels)
    assert read_ids(tmp_path / "f") == read_ids(store)
    assert (made.rows, calls[-1]) == (450, (450, 450))
    assert not (tmp_path / "f.partial").exists()


@pytest.mark.filterwarnings(RANDOM)
@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "could not be written: No space left on device; "),
        (EngineFailure("all encoders on the cluster were lost: a node died"), "were lost: a node died; "),
        (KeyboardInterrupt(), "error: interrupted; "),
    ],
)
def test_what_may_pass_ends_with_the_command_to_go_on(store, tmp_path, capsys, monkeypatch, failure, words):
    record, calls = Ledger.record, []

    def fails(self, chunk, bad):
        record(self, chunk, bad)
        calls.append(chunk)
        if len(calls) == 2:
            raise failure

    arguments = [
        "data",
        "features",
        str(store),
        "--model",
        "resnet8",
        "--out",
        str(tmp_path / "b"),
        "--quiet",
    ]
    monkeypatch.setattr(Ledger, "record", fails)
    assert main(arguments) == 3
    shown = capsys.readouterr().err.splitlines()[-1]
    assert f"{words}what was embedded is kept; to go on: " in shown
    command = shlex.split(shown.partition("to go on: ")[2])
    assert command == ["mlcl", *arguments]
    assert main(command[1:]) == 0
    assert len(calls) == len(set(calls)) == 4  # nothing is embedded twice


@pytest.mark.filterwarnings(RANDOM)
def test_an_interrupted_store_is_gone_on_with(store, tmp_path, monkeypatch):
    whole = embed_store(str(store), "resnet8", out=tmp_path / "a")

    def stop(done, total):
        if done >= 256:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed_store(str(store), "resnet8", out=tmp_path / "b", progress=stop)
    assert not (tmp_path / "b").exists()
    embedded = []
    original = ImageEncoder.__call__

    def counted(self, inputs, **options):
        embedded.append(len(inputs))
        return original(self, inputs, **options)

    monkeypatch.setattr(ImageEncoder, "__call__", counted)
    embed_store(str(store), "resnet8", out=tmp_path / "b")
    assert sum(embedded) == 450 - 256 + 1  # one row tells the width
    assert (tmp_path / "b" / "inputs.npy").read_bytes() == (whole.path / "inputs.npy").read_bytes()
    assert embed_store(str(store), "resnet8", out=tmp_path / "b").already_there
    # Other weights are other content: nothing of the old work is gone on with.
    with pytest.raises(InputError, match="store of other content"):
        embed_store(str(store), "resnet8", out=tmp_path / "b", seed=1)
    embed_store(str(store), "resnet8", out=tmp_path / "b", seed=1, overwrite=True)
    assert np.allclose(open_store(tmp_path / "b").train.inputs, expected(store, seed=1)[0], atol=1e-4)


def test_random_weights_are_warned_of_and_recorded(store, tmp_path):
    with pytest.warns(UserWarning, match="model 'resnet8' has random weights"):
        embed_store(str(store), "resnet8", out=tmp_path / "f", seed=5)
    manifest = json.loads((tmp_path / "f" / "manifest.json").read_text())
    record = manifest["provenance"]["options"]
    assert (record["model"], record["weights"], record["seed"]) == ("resnet8", None, 5)
    assert record["normalised"] == "to [0, 1]"
    assert len(record["sha256"]) == 64
    assert str(tmp_path) not in json.dumps(manifest)


def test_the_backbone_of_a_run(store, tmp_path):
    settings = {
        "benchmark": str(store),
        "stream": {"tasks": 2},
        "model": {"kind": "resnet8", "width": 16},
        "train": {"epochs": 1, "threads": 1},
    }
    run(settings, out=tmp_path / "run")
    with pytest.warns(UserWarning, match=r"weights of 'run' were trained on this very dataset"):
        embed_store(str(store), str(tmp_path / "run"), out=tmp_path / "f")
    with pytest.warns(UserWarning, match="this very dataset"):
        data = open_store(tmp_path / "f")
    trained = load_trained(tmp_path / "run")
    with torch.no_grad():
        images = trained.normaliser(torch.from_numpy(np.array(open_store(store).test.inputs)))
        assert np.allclose(data.test.inputs, trained.network.features(images), atol=1e-5)
    assert data.origin["source"] == "run"
    with pytest.raises(InputError, match="is a run with weights of its own"):
        embed_store(str(store), str(tmp_path / "run"), pretrained=True)


@pytest.mark.filterwarnings(RANDOM)
def test_the_command_by_name_and_for_digits(store, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("MLCL_HOME", str(tmp_path))
    assert main(["data", "features", str(store), "--model", "resnet8", "--quiet"]) == 0
    out = capsys.readouterr().out.strip()
    assert out == str(cache_dir() / "stores" / "pictures-resnet8")
    assert main(["data", "features", str(store), "--model", "resnet8"]) == 0
    assert "was there already" in capsys.readouterr().err
    # The embeddings are data like any other.
    assert main(["run", "--benchmark", "pictures-resnet8", "--data", "pictures-resnet8"]) == 2
    capsys.readouterr()
    words = ["--model", "linear", "--stream.tasks", "2", "--train.epochs", "1", "--quiet"]
    assert main(["run", "--benchmark", out, *words, "--out", str(tmp_path / "r")]) == 0
    assert json.loads((tmp_path / "r" / "result.json").read_text())["input_shape"] == [64]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--model", "resnet9"], "unknown model 'resnet9'"),
        (["--model", "mlp"], "takes feature vectors"),
        (["--model", "resnet8", "--batch-size", "0"], "batch_size is 0"),
        (["--model", "resnet8", "--pretrained"], "takes no option 'pretrained'"),
        (["--model", "resnet8", "--resize", "8"], "takes no option 'resize'"),
        ([], "the following arguments are required: --model"),
    ],
)
def test_bad_input_is_one_sentence(store, tmp_path, capsys, words, sentence):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert main(["data", "features", str(store), *words, "--out", str(tmp_path / "f")]) == 2
    error = capsys.readouterr().err.strip()
    assert sentence in error
    assert "\n" not in error
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings(RANDOM)
def test_features_of_features_and_odd_places(store, tmp_path):
    embed_store(str(store), "resnet8", out=tmp_path / "f")
    with pytest.raises(InputError, match="holds feature vectors already"):
        embed_store(str(tmp_path / "f"), "resnet8")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match="is not a store, so it is left alone"):
        embed_store(str(store), "resnet8", out=tmp_path / "mine", overwrite=True)
    with pytest.raises(InputError, match="was not found"):
        embed_store("no-such-store", "resnet8")


def test_features_that_are_no_numbers_are_refused(store, tmp_path, monkeypatch):
    original = ImageEncoder.__call__

    def broken(self, inputs, **options):
        found = original(self, inputs, **options)
        found[-1] = np.nan
        return found

    monkeypatch.setattr(ImageEncoder, "__call__", broken)
    with (
        pytest.warns(UserWarning, match="random weights"),
        pytest.raises(InputError, match="no finite numbers for row 127"),
    ):
        embed_store(str(store), "resnet8", out=tmp_path / "f")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_weights_that_are_no_numbers_are_refused_by_features_and_run(tmp_path, capsys):
    inputs, labels = small_arrays(images=True, n=60, seed=1)
    inputs = inputs.repeat(2, axis=2).repeat(2, axis=3)
    np.savez(tmp_path / "a.npz", x_train=inputs, y_train=labels, x_test=inputs, y_test=labels)
    prepare_source("arrays", tmp_path / "a.npz", out=tmp_path / "a", jobs=1)
    tensors = build_model("mobilenetv2", (3, 32, 32), 1, seed=4).backbone.model.state_dict()
    tensors["conv_stem.weight"][0] = torch.nan
    weights = tmp_path / "nan.safetensors"
    save_file(tensors, weights)
    for words in (
        ["data", "features", str(tmp_path / "a"), "--model", "mobilenetv2", "--pretrained", str(weights)],
        [
            "run",
            "--benchmark",
            str(tmp_path / "a"),
            "--model",
            "mobilenetv2",
            "--model.pretrained",
            str(weights),
        ],
    ):
        assert main([*words, "--quiet", "--out", str(tmp_path / "out")]) == 2
        error = capsys.readouterr().err.splitlines()[-1]
        assert f"{weights}: 27 of 864 values of 'conv_stem.weight' are no finite numbers" in error
        assert not (tmp_path / "out").exists()


def embedded(folder, name, columns, *, seed, enlarge=1):
    """Return a store of features of a small store, with some of its classes, by the random weights of a seed."""
    inputs, labels = small_arrays(images=True, n=120, seed=3)
    inputs = inputs.repeat(enlarge, axis=2).repeat(enlarge, axis=3)
    keep = labels[:, columns].any(1)
    inputs, labels = inputs[keep], labels[keep][:, columns]
    classes = np.array(["ant", "bee", "cat", "dog", "eel", "fox"])[columns]
    half = len(labels) // 2
    np.savez(
        folder / f"{name}.npz",
        x_train=inputs[:half],
        y_train=labels[:half],
        x_test=inputs[half:],
        y_test=labels[half:],
        classes=classes,
    )
    prepare_source("arrays", folder / f"{name}.npz", out=folder / name, jobs=1)
    return embed_store(str(folder / name), "resnet8", out=folder / f"{name}-features", seed=seed).path


@pytest.mark.filterwarnings(RANDOM, "ignore:after task")
def test_features_of_two_encoders_are_never_mixed(tmp_path):
    old, new = [0, 1, 2, 3], [4, 5]
    first = embedded(tmp_path, "first", old, seed=0)
    settings = {
        "benchmark": str(first),
        "stream": {"tasks": 2},
        "model": {"kind": "linear"},
        "memory": {"size": 10},
        "train": {"epochs": 1, "threads": 1},
    }
    run(settings, out=tmp_path / "run")
    alien, same = (embedded(tmp_path, f"more{seed}", new, seed=seed) for seed in (1, 0))
    origins = [open_store(store).origin for store in (alien, first)]
    assert origins[0]["sha256"] != origins[1]["sha256"]
    for call in (
        lambda: predict(tmp_path / "run", alien),
        lambda: update(tmp_path / "run", alien, out=tmp_path / "bad", known=False),
    ):
        with pytest.raises(InputError, match="has features of another encoder") as caught:
            call()
        sentence = str(caught.value)
        assert all(
            f"resnet8, random weights, sha256 {origin['sha256'][:12]}" in sentence for origin in origins
        )
        assert "\n" not in sentence
        assert sentence.startswith(f"{alien} has features of another encoder")  # the store, not its dataset
    assert not (tmp_path / "bad").exists()
    assert predict(tmp_path / "run", same).values.shape[1] == 4
    extended = update(tmp_path / "run", same, out=tmp_path / "good", known=False)
    assert extended.learner.data.origin["sha256"] == origins[1]["sha256"]
    record = json.loads((tmp_path / "good" / "result.json").read_text())
    assert record["features"]["sha256"] == origins[1]["sha256"]
    with pytest.raises(InputError, match="has features of another encoder"):
        predict(tmp_path / "good", alien)
    # The command line: one sentence, exit code 2.
    assert main(["predict", str(tmp_path / "run"), str(alien), "--out", str(tmp_path / "scores.csv")]) == 2


@pytest.mark.filterwarnings(RANDOM, "ignore:after task")
def test_features_of_images_of_another_size_are_refused(tmp_path):
    first = embedded(tmp_path, "first", [0, 1, 2, 3], seed=0)
    settings = {"benchmark": str(first), "stream": {"tasks": 2}, "model": {"kind": "linear"}}
    run(settings | {"memory": {"size": 10}, "train": {"epochs": 1, "threads": 1}}, out=tmp_path / "run")
    larger = embedded(tmp_path, "larger", [3, 4, 5], seed=0, enlarge=2)
    small, large = (open_store(store).origin for store in (first, larger))
    assert small["sha256"] == large["sha256"]
    side = small["image_size"][0]
    assert large["image_size"] == [2 * side, 2 * side]
    for call in (
        lambda: predict(tmp_path / "run", larger),
        lambda: update(tmp_path / "run", larger, out=tmp_path / "bad", known=False),
        lambda: update(tmp_path / "run", larger, out=tmp_path / "bad"),
    ):
        with pytest.raises(
            InputError, match=rf"the size of images \({2 * side} x {2 * side}, not {side} x {side}\)"
        ):
            call()
    assert not (tmp_path / "bad").exists()


@pytest.mark.filterwarnings(RANDOM)
@pytest.mark.parametrize(
    ("kind", "option", "benchmark"),
    [("voc", "difficult", "voc2007-b4-c2"), ("coco", "crowds", "coco2014-b0-c10")],
)
def test_features_keep_the_options_of_the_labels(tmp_path, capsys, kind, option, benchmark):
    from mlcl.config.preparing import label_differences

    write_tree(tmp_path, voc_files(3, 2, year=2007) if kind == "voc" else coco_files(3, 2, year=2014))
    shown = {}
    for chosen in ("include", "exclude"):
        images, out = tmp_path / chosen, tmp_path / f"{chosen}-features"
        prepare_source(kind, tmp_path, out=images, size=8, **{option: chosen})
        embed_store(str(images), "resnet8", out=out)
        data = open_store(out)
        assert data.options == open_store(images).options
        assert data.options[option] == chosen
        assert len(label_differences(benchmark, data.name, data.options)) == (chosen == "include")
        capsys.readouterr()
        assert main(["data", "info", str(out), "--stream.tasks", "1", "--validate"]) == 0
        (shown[chosen],) = [line for line in capsys.readouterr().out.splitlines() if "prepared with" in line]
        assert f"{option} {chosen}" in shown[chosen]
        settings = {"benchmark": str(out), "stream": {"tasks": 1}, "method": "exact"}
        result = run(settings | {"train": {"threads": 1}}, out=tmp_path / f"run-{chosen}")
        assert result.learner.data.options == data.options
        written = json.loads((tmp_path / f"run-{chosen}" / "result.json").read_text())
        assert written["features"]["of"]["options"] == data.options
    assert shown["include"] != shown["exclude"]


@pytest.mark.filterwarnings(RANDOM)
@pytest.mark.parametrize("of", [{"name": "pictures", "fingerprint": "0"}, None, "pictures"])
def test_features_from_before_options_were_recorded_still_load(store, tmp_path, capsys, of):
    out = embed_store(str(store), "resnet8", out=tmp_path / "f").path
    assert main(["data", "info", str(out), "--stream.tasks", "2"]) == 0
    assert "prepared with" not in capsys.readouterr().out  # arrays have no options
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["provenance"]["options"]["of"] = of
    (out / "manifest.json").write_text(json.dumps(manifest))
    assert open_store(out).options == {}
    assert main(["data", "info", str(out), "--stream.tasks", "2"]) == 0
    assert "prepared with: not recorded" in capsys.readouterr().out


@pytest.mark.filterwarnings(RANDOM)
def test_a_store_from_before_sizes_and_options_were_recorded_is_not_made_again(store, tmp_path):
    made = embed_store(str(store), "resnet8", out=tmp_path / "f").path / "manifest.json"
    manifest = json.loads(made.read_text())
    del manifest["provenance"]["options"]["image_size"]
    del manifest["provenance"]["options"]["of"]["options"]
    made.write_text(json.dumps(manifest))
    assert embed_store(str(store), "resnet8", out=tmp_path / "f").already_there
    # The plan of such a store has the same fingerprint as it had then.
    options = manifest["provenance"]["options"]
    data = open_store(store)
    assert features_plan(data, read_ids(store), 64, options).fingerprint(None) == manifest["plan"]


@pytest.mark.filterwarnings(RANDOM, "ignore:after task")
def test_features_without_a_record_are_warned_of(tmp_path):
    known = embedded(tmp_path, "known", [0, 1, 2, 3], seed=0)
    data = open_store(known)
    np.savez(
        tmp_path / "bare.npz",
        x_train=data.train.inputs,
        y_train=data.train.labels,
        x_test=data.test.inputs,
        y_test=data.test.labels,
        classes=np.array(data.classes),
    )
    bare = prepare_source("arrays", tmp_path / "bare.npz", out=tmp_path / "bare", jobs=1).path
    for name, trained_on, given in (("a", known, bare), ("b", bare, known)):
        settings = {"benchmark": str(trained_on), "stream": {"tasks": 2}, "model": {"kind": "linear"}}
        run(settings | {"train": {"epochs": 1, "threads": 1}}, out=tmp_path / name)
        with pytest.warns(UserWarning, match="does not record which encoder made its features"):
            predict(tmp_path / name, given)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            predict(tmp_path / name, trained_on)


@pytest.mark.filterwarnings("ignore:after task")
@pytest.mark.slow
def test_a_pretrained_encoder_from_images_to_the_report(tmp_path, monkeypatch, capsys):
    """The documented commands on small images: prepare, features by the encoder's file, run, report."""
    monkeypatch.setenv("MLCL_HOME", str(tmp_path / "home"))
    parts = [small_arrays(images=True, n=n, seed=i) for i, n in enumerate((64, 60))]
    arrays = {
        f"{kind}_{split}": part.repeat(2, axis=2).repeat(2, axis=3) if kind == "x" else part
        for split, both in zip(("train", "test"), parts, strict=True)
        for kind, part in zip("xy", both, strict=True)
    }
    np.savez(tmp_path / "small.npz", **arrays)
    prepare_source("arrays", tmp_path / "small.npz", out=tmp_path / "home" / "stores" / "small-32", jobs=1)
    encoder = build_model("mobilenetv2", (3, 32, 32), 1, seed=4).backbone
    weights = tmp_path / "mobilenetv2_in1k.safetensors"
    save_file(encoder.model.state_dict(), weights)
    words = ["data", "features", "small-32", "--model", "mobilenetv2", "--pretrained", str(weights)]
    assert main([*words, "--quiet"]) == 0
    store = capsys.readouterr().out.strip()
    assert store == str(tmp_path / "home" / "stores" / "small-32-mobilenetv2_in1k")
    data = open_store(store, check=True)
    network = build_model("mobilenetv2", (3, 32, 32), 1, pretrained=str(weights)).eval()
    images = torch.from_numpy(np.array(arrays["x_test"])).float() / 255
    with torch.no_grad():
        assert np.allclose(data.test.inputs, network.features(images), atol=1e-4)
    checksum = hashlib.sha256(weights.read_bytes()).hexdigest()
    assert (data.origin["trained_on"], data.origin["file_sha256"]) == (["ImageNet-1k"], checksum)
    words = ["run", "--benchmark", store, "--model", "mlp", "--stream.tasks", "2", "--train.epochs", "1"]
    assert main([*words, "--quiet", "--out", str(tmp_path / "run")]) == 0
    assert json.loads((tmp_path / "run" / "result.json").read_text())["features"] == data.origin
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "mobilenetv2, weights mobilenetv2_in1k.safetensors, trained on ImageNet-1k" in page
    assert f"sha256 {data.origin['sha256'][:12]}, sha256 of the file {checksum}" in page


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # classes without positives, as the sample is small
def test_the_documented_commands_on_real_thumbnails(tmp_path, monkeypatch, capsys):
    """The first images of VOC, the real weights, and the shipped benchmark that finds what the commands made."""
    real = shared_data()
    weights = real / "weights" / "mobilenetv2_100.safetensors"
    if not weights.is_file():
        pytest.skip(f"no pre-trained weights at {weights}")
    monkeypatch.setenv("MLCL_HOME", str(tmp_path / "home"))
    root = tmp_path / "voc2012"
    root.mkdir()
    with np.load(real / "voc2012" / "meta.npz") as meta:
        rows = np.concatenate([np.flatnonzero(meta["split"] == part)[:150] for part in (b"train", b"val")])
        np.savez(
            root / "meta.npz",
            **{key: meta[key][rows] for key in ("ids", "labels", "split")},
            classes=meta["classes"],
        )
        names = [f"{name.decode()}.jpg" for name in meta["ids"][rows]]
    with (
        zipfile.ZipFile(real / "voc2012" / "thumbs96.zip") as full,
        zipfile.ZipFile(root / "thumbs96.zip", "w") as few,
    ):
        for name in names:
            few.writestr(name, full.read(name))
    assert (
        main(["data", "prepare", "thumbs", "--root", str(root), "--size", "96", "--jobs", "1", "--quiet"])
        == 0
    )
    words = [
        "data",
        "features",
        "voc2012-96",
        "--model",
        "mobilenetv2",
        "--pretrained",
        str(weights),
        "--quiet",
    ]
    assert main(words) == 0
    capsys.readouterr()
    assert main(["run", "c-voc-features", "--quiet", "--out", str(tmp_path / "run")]) == 0
    record = json.loads((tmp_path / "run" / "result.json").read_text())
    assert record["features"]["trained_on"] == ["ImageNet-1k"]
    assert record["features"]["leak"] is None
    assert record["features"]["file_sha256"] == hashlib.sha256(weights.read_bytes()).hexdigest()
    assert record["input_shape"] == [1280]
    assert record["pooled"]["macro_auc"] > 65  # of 150 images; random weights are near 50


@pytest.mark.slow
def test_patches_are_learnt_from_the_training_split_without_labels(store, tmp_path):
    """No warning of random weights; the store says where its features come from, and runs take them."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        embed_store(str(store), "patches", out=tmp_path / "f")
    data = open_store(tmp_path / "f")
    assert data.train.inputs.shape == (300, 400)
    covariance = np.cov(np.array(data.train.inputs, np.float64).T)
    assert np.allclose(covariance, np.diag(np.diag(covariance)), atol=1e-3 * covariance.max())
    assert data.origin["weights"] == "learnt from the images of the training split, without labels"
    result = run({"benchmark": str(tmp_path / "f"), "method": "exact", "stream": {"tasks": 2}})
    assert result.macro_auc > 75
    assert result.learner.head.sums["head"].learner.features.dimension == 400
