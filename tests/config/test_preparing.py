"""How the data of shipped configs are made: what messages quote is what the headers say, and it makes that data."""

from __future__ import annotations

import dataclasses
import shlex

import pytest

from data import coco_files, voc_files, write_tree
from mlcl.cli.main import main
from mlcl.config.preparing import label_differences, preparation
from mlcl.config.resolve import resolve, shipped
from mlcl.datasets import KNOWN, open_store, prepare_source
from mlcl.runs.recording import load_benchmark

FIELD = {
    "voc2007": "mlcl data prepare voc --root VOCdevkit --year 2007 --size 224 --difficult exclude",
    "coco2014": "mlcl data prepare coco --root COCO --year 2014 --size 224 --crowds exclude",
}


@pytest.mark.parametrize("name", [name for name in shipped() if name.split("-")[0] in FIELD])
def test_the_hint_for_unprepared_data_keeps_to_the_protocol(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLCL_HOME", str(tmp_path))
    assert main(["run", name, "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert f"make it with: {FIELD[name.split('-')[0]]}" in said
    assert said.count("\n") == 1


def test_features_are_made_with_two_commands(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLCL_HOME", str(tmp_path))
    (tmp_path / "my.yaml").write_text(shipped()["voc2012-b0-c4-features"])
    assert main(["validate", str(tmp_path / "my.yaml")]) == 0
    said = capsys.readouterr().out
    assert (
        "make it with: mlcl data prepare voc --root VOCdevkit --year 2012 --size 96 && mlcl data features"
        in said
    )


def test_every_header_makes_the_data_of_its_config():
    for name, text in shipped().items():
        config = resolve(name=name)
        commands = preparation(config)
        assert all(command in text for command in commands)
        if config.data == "digits":
            assert commands == ()
            continue
        words = shlex.split(commands[0])
        known = next(KNOWN[base] for base in KNOWN if f"{config.data}-".startswith(f"{base}-"))
        assert words[:4] == ["mlcl", "data", "prepare", known.split()[0]]
        if "--size" in words:
            assert words[words.index("--size") + 1] in config.data.split("-")
    other = dataclasses.replace(resolve(name="voc2007-b0-c4"), data="elsewhere")
    assert preparation(other) == ()


@pytest.mark.parametrize(
    ("kind", "option", "benchmark"),
    [("voc", "difficult", "voc2007-b4-c2"), ("coco", "crowds", "coco2014-b0-c10")],
)
def test_a_run_on_a_store_with_other_labels_says_so(tmp_path, recwarn, kind, option, benchmark):
    write_tree(tmp_path, voc_files(3, 2, year=2007) if kind == "voc" else coco_files(3, 2, year=2014))
    stream = {"order": "sorted", "base": 0, "increment": None, "tasks": 1}
    said = {}
    for chosen in ("include", "exclude"):
        store = str(tmp_path / chosen)
        prepare_source(kind, tmp_path, out=store, size=8, **{option: chosen})
        assert open_store(store).options[option] == chosen
        recwarn.clear()
        load_benchmark(resolve(name=benchmark, given={"data": store, "stream": stream}))
        said[chosen] = [
            str(found.message) for found in recwarn if f"--{option} include" in str(found.message)
        ]
    data = benchmark.split("-")[0]
    assert said["exclude"] == []
    assert said["include"] == [
        f"{data} was prepared with --{option} include, but {benchmark} has its labels with --{option} exclude."
    ]


def test_what_a_store_does_not_record_is_not_compared():
    assert label_differences("voc2007-b4-c2", "voc2007", {}) == ()
    assert label_differences("mine", "voc2007", {"difficult": "include"}) == ()
    assert label_differences("c-voc", "voc2012", {"difficult": "include"}) == ()
