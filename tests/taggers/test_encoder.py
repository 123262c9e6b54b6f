"""The encoder of a tagger is carried from the data into its folder, and on into every version and copy."""

from __future__ import annotations

from dataclasses import replace

import pytest

import mlcl
from helpers import label_settings, label_store, settings_for, small_benchmark
from mlcl.cli.main import main
from mlcl.datasets import load_dataset
from mlcl.errors import InputError
from mlcl.runs.run import run
from mlcl.streams import build_benchmark

ENCODER = b"what makes vectors of texts"


def encoded(store):
    """The benchmark of a store whose vectors were made of other inputs."""
    return build_benchmark(replace(load_dataset(str(store)), encoder=ENCODER), tasks=1)


@pytest.fixture
def tagger(tmp_path):
    store = label_store(tmp_path, "store", [0, 1, 2, 3])
    run(label_settings(store, "exact", model={"kind": "fixed"}), benchmark=encoded(store), out=tmp_path / "t")
    return tmp_path / "t"


def test_every_version_and_copy_has_it(tagger, tmp_path):
    assert mlcl.load(tagger).encoder == ENCODER
    more = label_store(tmp_path, "more", [1, 4], seed=7)
    assert main(["update", str(tagger), "--data", str(more), "--quiet"]) == 0
    assert main(["labels", str(tagger), "--rename", "bee=wasp"]) == 0
    assert main(["forget", str(tagger), "--label", "ant"]) == 0
    for number in (2, 3, 4):
        assert (tagger / "versions" / str(number) / "encoder.safetensors").read_bytes() == ENCODER
    assert main(["merge", str(tagger), str(tagger), "--out", str(tmp_path / "merged")]) == 0
    mlcl.load(tmp_path / "merged").save(tmp_path / "copy")
    assert mlcl.load(tmp_path / "copy").encoder == ENCODER
    assert main(["check", str(tagger)]) == 0


def test_a_network_has_it(tmp_path):
    benchmark = small_benchmark()
    data = replace(benchmark.dataset, encoder=ENCODER)
    run(settings_for("er"), benchmark=replace(benchmark, dataset=data), out=tmp_path / "run")
    assert mlcl.load(tmp_path / "run").encoder == ENCODER


def test_another_one_is_refused(tagger, tmp_path, capsys):
    (tagger / "encoder.safetensors").write_bytes(b"another")
    with pytest.raises(InputError, match=r"encoder\.safetensors: is damaged"):
        mlcl.load(tagger)
    assert main(["check", str(tagger)]) == 2
    assert "encoder.safetensors" in capsys.readouterr().out


def test_taggers_of_two_encoders_are_not_merged(tagger, tmp_path, capsys):
    store = label_store(tmp_path, "plain", [0, 1])
    run(label_settings(store, "exact", model={"kind": "fixed"}), out=tmp_path / "plain-tagger")
    assert main(["merge", str(tagger), str(tmp_path / "plain-tagger"), "--out", str(tmp_path / "m")]) == 2
    assert "have other encoders" in capsys.readouterr().err
    assert not (tmp_path / "m").exists()
