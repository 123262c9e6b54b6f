"""Raw data through ``prepare``, ``info`` and a short ``run``, as a user types them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from data import nus_files, shared_data, write_tree
from helpers import small_arrays
from mlcl.cli.main import main

QUICK = ["--train.epochs", "1", "--memory.size", "10", "--train.batch_size", "32", "--quiet"]


def goes_through(tmp_path, capsys, kind, root, *, size=16, tasks=2, model="resnet8", options=()):
    store, out = tmp_path / "store", tmp_path / "run"
    sized = [] if size is None else ["--size", str(size)]
    assert main(["data", "prepare", kind, "--root", str(root), "--out", str(store), *sized, *options]) == 0
    assert capsys.readouterr().out == f"{store}\n"
    assert main(["data", "prepare", kind, "--root", str(root), "--out", str(store), *sized, *options]) == 0
    assert "was there already" in capsys.readouterr().err
    assert main(["data", "info", str(store), "--classes"]) == 0
    told = capsys.readouterr().out
    assert "training and" in told
    assert "training rows:" in told
    arguments = ["--benchmark", str(store), "--stream.tasks", str(tasks), "--model", model, "--out", str(out)]
    assert main(["run", *arguments, *QUICK]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    result = json.loads((out / "result.json").read_text())
    assert len(result["matrix"]) == tasks
    assert result["benchmark"] == "store"
    return result


def test_official_voc(tmp_path, capsys):
    goes_through(tmp_path, capsys, "voc", shared_data() / "raw/voc2012/VOCdevkit")


def test_official_coco(tmp_path, capsys):
    goes_through(tmp_path, capsys, "coco", shared_data() / "raw/coco2017")


def test_official_nus_wide(tmp_path, capsys):
    known = np.load(shared_data() / "nuswide" / "labels_all.npz")
    labels = np.unpackbits(known["labels_packed"], axis=1)[:, :81]
    common = np.argsort(-labels.sum(0))[
        :6
    ]  # a small sample of all 81 would leave most of them without a positive
    rows = np.random.default_rng(0).choice(len(labels), 120, replace=False)
    classes = [str(known["classes"][k]) for k in common]
    write_tree(tmp_path / "raw", nus_files(labels[rows][:, common], 80, classes))
    goes_through(tmp_path, capsys, "nus-wide", tmp_path / "raw")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "tasks"),
    [("Scene.arff.bz2", 3), ("Music.arff", 2), ("Enron.arff.bz2", 5), ("mulan/flags.arff.gz", 2)],
)
def test_arff(tmp_path, capsys, file, tasks):
    root = shared_data() / "arff" / file
    goes_through(tmp_path, capsys, "arff", root, size=None, tasks=tasks, model="mlp")


def test_arrays(tmp_path, capsys):
    (x, y), (u, v) = small_arrays(), small_arrays(seed=1)
    np.savez(tmp_path / "mine.npz", x_train=x, y_train=y, x_test=u, y_test=v)
    goes_through(tmp_path, capsys, "arrays", tmp_path / "mine.npz", size=None, model="mlp")


@pytest.mark.slow
def test_info_draws_the_papers_figure_and_keeps_what_is_there(tmp_path, capsys):
    figure = tmp_path / "figure.svg"
    assert main(["data", "info", "c-digits", "--figure", str(figure)]) == 0
    assert figure.read_text().startswith("<?xml")
    assert main(["data", "info", "c-digits", "--figure", str(figure)]) == 2
    assert "exists" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["data", "prepar"], "unknown command 'data prepar'.*Did you mean 'prepare'"),
        (["data", "prepare", "vok", "--root", "x"], "unknown .*'vok'.*Did you mean 'voc'"),
        (["data", "prepare", "voc"], "required: --root"),
        (["data", "prepare", "voc", "--root", "absent"], "absent"),
        (["data", "prepare", "voc", "--root", ".", "--size", "big"], "invalid int value: 'big'"),
        (["data", "info", "c-digts"], "unknown benchmark 'c-digts'"),
        (["data", "info", "c-voc"], "mlcl data prepare voc --root VOCdevkit .*--size 224"),
        (["run", "c-coco", "--out", "x"], "mlcl data prepare coco --root COCO .*--size 224"),
        (["data", "info", "c-digits", "--figure", "x.gif"], "expected a file that ends in .svg"),
    ],
)
def test_bad_input_is_one_sentence(arguments, words, capsys, monkeypatch, tmp_path):
    import re

    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    told = capsys.readouterr().err
    assert re.search(words, told), told
    assert told.count("\n") == 1
    assert not list(tmp_path.iterdir())
