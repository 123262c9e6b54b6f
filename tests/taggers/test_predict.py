"""Use after training: scores of new inputs, and exported networks that give the same."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import sys

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from PIL import Image

from helpers import SMALL, SMALL_IMAGES, small_benchmark
from mlcl.cli.main import main
from mlcl.config.resolve import config_from, merge
from mlcl.datasets import prepare_source
from mlcl.errors import InputError
from mlcl.runs.run import run
from mlcl.runs.trained import load_trained
from mlcl.taggers.export import ExportError, export
from mlcl.taggers.predict import predict
from mlcl.training.callbacks import Callback, Interrupted

KINDS = ("features", "images", "krt", "joint-krt", "exact", "committee")


def settings(kind):
    if kind == "features":
        return config_from(merge(SMALL, {"method": "rldam-wru", "train": {"epochs": 1}}))
    if kind == "exact":
        return config_from({"method": "exact", "model": {"kind": "patches", "centres": 16, "dimensions": 20}})
    if kind == "committee":
        members = {"encoder": "patches", "encoder_options": {"centres": 16, "dimensions": 20}, "moments": 0.5}
        changes = {"method": "committee", "committee": members, "train": {"epochs": 1}}
        return config_from(merge(SMALL_IMAGES, changes))
    method = {"images": {"method": "er"}, "krt": {"method": "krt"}, "joint-krt": {"method": "joint"}}[kind]
    head = {"model": {"head": "attention"}} if kind == "joint-krt" else {}
    width = {"model": {"width": 16}} if kind == "images" else {}
    return config_from(merge(SMALL_IMAGES, method, head, width, {"train": {"epochs": 1}}))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Finished runs of every kind, with their results."""
    base = tmp_path_factory.mktemp("trained")
    return {
        kind: run(settings(kind), benchmark=small_benchmark(images=kind != "features"), out=base / kind)
        for kind in KINDS
    }


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_run_scores_as_the_learner_did(kind, trained):
    result = trained[kind]
    inputs = result.learner.data.test.inputs
    assert np.array_equal(load_trained(result.folder).logits(inputs), result.learner.predict(inputs))


def test_arrays_become_a_table_with_a_column_a_class(trained, tmp_path, capsys):
    result = trained["features"]
    inputs = result.learner.data.test.inputs
    np.save(tmp_path / "new.npy", inputs)
    out = tmp_path / "scores.csv"
    assert main(["predict", str(result.folder), str(tmp_path / "new.npy"), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    rows = list(csv.reader(io.StringIO(out.read_text())))
    assert rows[0] == ["id", *result.learner.data.classes]
    assert [row[0] for row in rows[1:]] == [str(i) for i in range(len(inputs))]
    found = np.array([[float(cell) for cell in row[1:]] for row in rows[1:]], np.float32)
    logits = torch.from_numpy(result.learner.predict(inputs)).double()
    prior = torch.from_numpy(result.calibrated.calibration.prior)  # the balanced loss learnt at one half
    assert np.allclose(found, (logits + prior.logit()).sigmoid().numpy(), atol=1e-6)
    np.savez(tmp_path / "new.npz", x=inputs)
    arguments = ["predict", str(result.folder), str(tmp_path / "new.npz"), "--logits", "--out"]
    assert main([*arguments, str(tmp_path / "scores.npz")]) == 0
    with np.load(tmp_path / "scores.npz") as found:
        assert np.array_equal(found["scores"], logits)
        assert found["classes"].tolist() == list(result.learner.data.classes)
    assert main([*arguments, str(out)]) == 2
    assert "exists; choose another name, or add --overwrite" in capsys.readouterr().err
    assert main([*arguments, str(out), "--overwrite"]) == 0


def test_a_store_is_scored_whole(trained, tmp_path, capsys):
    result = trained["features"]
    data = result.learner.data
    arrays = {"x_train": data.train.inputs, "y_train": data.train.labels}
    arrays |= {"x_test": data.test.inputs, "y_test": data.test.labels}
    np.savez(tmp_path / "arrays.npz", **arrays)
    prepare_source("arrays", tmp_path / "arrays.npz", out=tmp_path / "store", jobs=1)
    scores = predict(result.folder, tmp_path / "store", logits=True)
    assert scores.ids[0] == "train-0"
    assert scores.ids[-1] == f"test-{len(data.test) - 1}"
    assert np.array_equal(scores.values[len(data.train) :], result.learner.predict(data.test.inputs))
    words = ["predict", str(result.folder), str(tmp_path / "store"), "--out", str(tmp_path / "scores.npz")]
    capsys.readouterr()
    assert main(words) == 0
    parts = f"first its {len(data.train)} training rows, then its {len(data.test)} test rows"
    assert parts in capsys.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="file names are Unicode on this machine")
def test_a_file_name_that_is_no_unicode_is_spelled_out(trained, tmp_path, capsys):
    result = trained["images"]
    folder = tmp_path / "pictures"
    folder.mkdir()
    image = Image.fromarray(result.learner.data.test.inputs[0].transpose(1, 2, 0))
    for name in (b"caf\xe9.png", b"two\nlines.png"):
        with open(os.fsencode(folder) + b"/" + name, "wb") as file:
            image.save(file, "png")
    words = ["predict", str(result.folder), str(folder)]
    assert main([*words, "--out", str(tmp_path / "scores.csv")]) == 0
    assert main([*words, "--tags", "--out", str(tmp_path / "tags.csv")]) == 0
    for name in ("scores.csv", "tags.csv"):
        ids = [row[0] for row in csv.reader((tmp_path / name).open(newline="", encoding="utf-8"))]
        assert ids[1:] == ["caf\\udce9.png", "two\nlines.png"]
    assert main([*words, "--out", str(tmp_path / "scores.npz")]) == 0
    capsys.readouterr()
    assert main([*words, "--tags"]) == 0
    out = capsys.readouterr().out
    assert [line.split("\t")[0] for line in out.splitlines()] == ["caf\\udce9.png", "two\\nlines.png"]


def test_only_a_csv_file_is_for_a_spreadsheet(trained, tmp_path, capsys):
    np.save(tmp_path / "x.npy", trained["features"].learner.data.test.inputs)
    words = [
        "predict",
        str(trained["features"].folder),
        str(tmp_path / "x.npy"),
        "--for-spreadsheet",
        "--out",
    ]
    assert main([*words, str(tmp_path / "scores.npz")]) == 2
    assert "--for-spreadsheet is for a .csv" in capsys.readouterr().err


def test_pictures_are_decoded_as_a_store_does(trained, tmp_path):
    result = trained["images"]
    inputs = result.learner.data.test.inputs[:5]
    for i, image in enumerate(inputs):
        place = tmp_path / "pictures" / f"{i % 2}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.transpose(1, 2, 0)).save(place / f"{i}.png")
    (tmp_path / "pictures/notes.txt").write_text("not a picture")
    scores = predict(result.folder, tmp_path / "pictures", logits=True)
    assert scores.ids == ("0/0.png", "0/2.png", "0/4.png", "1/1.png", "1/3.png")
    assert np.allclose(scores.values, result.learner.predict(inputs[[0, 2, 4, 1, 3]]), atol=1e-5)
    one = predict(result.folder, tmp_path / "pictures/1/3.png", logits=True)
    assert one.ids == ("3.png",)
    assert np.allclose(one.values, scores.values[4:], atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "make", "words"),
    [
        ("features", lambda p: None, "does not exist"),
        (
            "features",
            lambda p: np.save(p, np.zeros((2, 9))),
            r"shape \(9,\), but the network was trained on \(6,\)",
        ),
        ("features", lambda p: np.save(p, np.zeros((10**15, 0), np.float32)), r"inputs of shape \(0,\), but"),
        ("features", lambda p: np.save(p, np.full((2, 6), np.nan)), "finite"),
        ("features", lambda p: p.write_bytes(b"garbage"), "is not a readable .npy"),
        ("features", lambda p: np.save(p, np.array([{}]), allow_pickle=True), "is not a readable .npy"),
        ("images", lambda p: p.mkdir(), "holds no image"),
        ("images", lambda p: (p.mkdir(), (p / "a.jpg").write_bytes(b"x")), "a.jpg is not an image"),
        ("features", lambda p: (p.mkdir(), (p / "a.jpg").write_bytes(b"x")), "not on square images"),
    ],
)
def test_inputs_that_do_not_fit_are_one_sentence(kind, make, words, trained, tmp_path):
    path = tmp_path / "input.npy"
    make(path)
    with pytest.raises(InputError, match=words):
        predict(trained[kind].folder, path)


def test_runs_that_cannot_be_used_are_one_sentence(trained, tmp_path):
    class Stop(Callback):
        def on_step(self, learner, loss):
            raise Interrupted

    with pytest.raises(Interrupted):
        run(settings("features"), benchmark=small_benchmark(), out=tmp_path / "part", callback=Stop())
    with pytest.raises(InputError, match="is not finished; resume it with: mlcl resume"):
        load_trained(tmp_path / "part")
    folder = shutil.copytree(trained["features"].folder, tmp_path / "copy")
    weights = (folder / "weights.safetensors").read_bytes()
    (folder / "weights.safetensors").write_bytes(weights[:-100])
    with pytest.raises(InputError, match=r"weights.safetensors: is damaged"):
        load_trained(folder)
    flipped = bytearray(weights)
    flipped[-5] ^= 1
    (folder / "weights.safetensors").write_bytes(flipped)
    with pytest.raises(InputError, match=r"damaged: its checksum is not the one in result.json"):
        load_trained(folder)
    result = json.loads((folder / "result.json").read_text())
    result.pop("sha256")
    (folder / "result.json").write_text(json.dumps(result))
    (folder / "weights.safetensors").write_bytes(
        (trained["images"].folder / "weights.safetensors").read_bytes()
    )
    with pytest.raises(InputError, match="does not fit the run"):
        load_trained(folder)
    (folder / "weights.safetensors").unlink()
    with pytest.raises(InputError, match="cannot be read"):
        load_trained(folder)
    (folder / "result.json").write_text(json.dumps({**result, "input_shape": [6, "x"]}))
    with pytest.raises(InputError, match=r"input_shape is .*; expected \[C, H, W\] or \[D\]"):
        load_trained(folder)
    (folder / "result.json").write_text(json.dumps({**result, "tasks": [*result["tasks"][:-1], [0]]}))
    with pytest.raises(InputError, match="contradict each other"):
        load_trained(folder)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_an_exported_program_gives_the_same_scores(kind, trained, tmp_path, capsys):
    result = trained[kind]
    out = tmp_path / "model.pt2"
    assert main(["export", str(result.folder), "--format", "torch", "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    inputs = np.array(result.learner.data.test.inputs[:7])
    scores = torch.export.load(out).module()(torch.from_numpy(inputs)).detach().numpy()
    np.save(tmp_path / "x.npy", inputs)
    assert np.allclose(scores, predict(result.folder, tmp_path / "x.npy").values, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_an_onnx_file_gives_the_same_scores(kind, trained, tmp_path):
    onnx = pytest.importorskip("onnx", reason="ONNX is an extra")
    pytest.importorskip("onnxscript", reason="ONNX is an extra")
    from onnx.reference import ReferenceEvaluator

    result = trained[kind]
    out = tmp_path / "model.onnx"
    export(result.folder, out, format="onnx", logits=True)
    inputs = np.array(result.learner.data.test.inputs[:7])
    (scores,) = ReferenceEvaluator(onnx.load(out)).run(None, {"inputs": inputs})
    assert np.allclose(scores, result.learner.predict(inputs), atol=1e-4)
    assert main(["export", str(result.folder), "--out", str(out), "--overwrite"]) == 0  # the name says ONNX
    model = onnx.load(out)
    (found,) = ReferenceEvaluator(model).run(None, {"inputs": inputs})
    np.save(tmp_path / "x.npy", inputs)
    wanted = predict(result.folder, tmp_path / "x.npy")
    assert np.allclose(found, wanted.values, atol=1e-5)
    notes = {one.key: json.loads(one.value) for one in model.metadata_props}
    assert notes["classes"] == list(wanted.classes)
    assert notes["thresholds"] == wanted.thresholds.tolist()


def test_an_export_that_differs_is_not_written(trained, tmp_path, monkeypatch):
    monkeypatch.setattr("mlcl.taggers.export.TOLERANCE", -1.0)
    with pytest.raises(ExportError, match="differ by"):
        export(trained["features"].folder, tmp_path / "model.pt2")
    assert not list(tmp_path.iterdir())


def test_without_onnx_the_sentence_says_what_to_install(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "onnx", None)
    arguments = [
        "export",
        str(trained["features"].folder),
        "--format",
        "onnx",
        "--out",
        str(tmp_path / "m.onnx"),
    ]
    assert main(arguments) == 2
    assert "pip install 'mlcl[onnx]'" in capsys.readouterr().err
    arguments[-1] = str(tmp_path / "m.pt")
    assert main(arguments) == 2
    assert "expected .onnx" in capsys.readouterr().err


def test_vectors_of_tables_and_names_of_arrays(trained, tmp_path):
    folder = trained["features"].folder
    x = np.random.default_rng(0).normal(size=(3, load_trained(folder).input_shape[0])).astype(np.float32)
    expected = predict(folder, write_npy(tmp_path / "x.npy", x)).values
    names = ["one", "two", "three"]
    columns = {"vector": x.tolist(), "id": names, "tags": [["a"], [], ["b"]]}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    head = ",".join(f"f{k}" for k in range(x.shape[1]))
    rows = (f"{name}," + ",".join(map(repr, row.tolist())) for name, row in zip(names, x, strict=True))
    (tmp_path / "t.csv").write_text(f"id,{head}\n" + "\n".join(rows))
    np.savez(tmp_path / "t.npz", x=x, ids=names)
    np.save(tmp_path / "ids.npy", np.array(names))
    for name in ("t.parquet", "t.csv", "t.npz", "x.npy"):
        found = predict(folder, tmp_path / name)
        assert found.ids == tuple(names)
        assert np.array_equal(found.values, expected)
    np.save(tmp_path / "ids.npy", np.array(names[:2]))
    with pytest.raises(InputError, match=r"has ids of shape \(2,\) for 3 inputs"):
        predict(folder, tmp_path / "x.npy")
    pyarrow.parquet.write_table(pyarrow.table({"vector": x[:, :2].tolist()}), tmp_path / "t.parquet")
    with pytest.raises(
        InputError, match=r"t\.parquet has inputs of shape \(2,\), but the network was trained on"
    ):
        predict(folder, tmp_path / "t.parquet")


def write_npy(path, array):
    np.save(path, array)
    return path
