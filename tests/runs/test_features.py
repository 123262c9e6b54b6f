"""Frozen features of our own models: made once, gone on with, and refused where they make no sense."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import torch

from helpers import small_arrays
from mlcl.cli.main import main
from mlcl.datasets import cache_dir, open_store, prepare_source, read_ids
from mlcl.errors import InputError
from mlcl.models import build_model
from mlcl.runs.features import Encoder, embed_store
from mlcl.runs.run import run
from mlcl.runs.trained import load_trained

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
def test_an_interrupted_store_is_gone_on_with(store, tmp_path, monkeypatch):
    whole = embed_store(str(store), "resnet8", out=tmp_path / "a")

    def stop(done, total):
        if done >= 256:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed_store(str(store), "resnet8", out=tmp_path / "b", progress=stop)
    assert not (tmp_path / "b").exists()
    embedded = []
    original = Encoder.__call__

    def counted(self, inputs, **options):
        embedded.append(len(inputs))
        return original(self, inputs, **options)

    monkeypatch.setattr(Encoder, "__call__", counted)
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
    original = Encoder.__call__

    def broken(self, inputs, **options):
        found = original(self, inputs, **options)
        found[-1] = np.nan
        return found

    monkeypatch.setattr(Encoder, "__call__", broken)
    with (
        pytest.warns(UserWarning, match="random weights"),
        pytest.raises(InputError, match="no finite numbers for row 127"),
    ):
        embed_store(str(store), "resnet8", out=tmp_path / "f")
    assert not list(tmp_path.iterdir())
