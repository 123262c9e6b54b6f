"""``mlcl learn`` as a user types it."""

from __future__ import annotations

import os
import shlex
import sys

import numpy as np
import pytest

from children import complete
from mlcl.cli.main import main
from mlcl.engines.pool import EngineFailure
from mlcl.sklearn import ExactTagger, shards
from shard_files import Rows, distance, made_up, one_process, write_shard, write_shards

SHARDS = made_up(3)


@pytest.fixture
def data(tmp_path):
    write_shards(tmp_path / "data", SHARDS)
    return tmp_path / "data"


def test_a_tagger_from_shards(data, tmp_path, capsys):
    out = tmp_path / "out"
    arguments = [
        "learn",
        "--data",
        f"{data}/*.parquet",
        "--method",
        "exact",
        "--out",
        str(out),
        "--jobs",
        "1",
        "--held_out",
        "0",
    ]
    assert main(arguments) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [
        "4 labels; no rows were held out, so how good it is was not measured",
        str(out),
    ]
    assert "3 shards (3 new), 120 rows, 4 labels; done in" in shown.err
    assert distance(ExactTagger.load(out), one_process(SHARDS)) < 1e-9
    write_shard(data / "copy.parquet", SHARDS[0])
    assert main(arguments) == 0
    assert (
        f"{data}/copy.parquet has the content of {data}/000.parquet: counted once" in capsys.readouterr().err
    )


def test_counting_needs_no_torch():
    code = "import sys; from mlcl.cli import learn; print('torch' in sys.modules)"
    done = complete([sys.executable, "-c", code])
    assert done.stdout.splitlines()[-1] == "False", done.stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: Rows(rows.vectors[:, :4], rows.tags), "009.parquet has vectors of length 4, but "),
        (
            lambda rows: Rows(rows.vectors.astype(np.float64), rows.tags),
            "009.parquet has vectors of double, but ",
        ),
    ],
)
def test_a_shard_that_differs_is_named(data, tmp_path, capsys, change, message):
    write_shard(data / "009.parquet", change(SHARDS[1]))
    assert main(["learn", "--data", str(data), "--out", str(tmp_path / "out"), "--jobs", "1"]) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1


@pytest.mark.parametrize(
    "failure", [EngineFailure("a node was lost"), OSError(28, "No space left on device")]
)
def test_what_may_pass_ends_with_the_command_to_go_on(data, tmp_path, capsys, monkeypatch, failure):
    def fail(*_, **__):
        raise failure

    out = tmp_path / "an out"
    arguments = ["learn", "--data", str(data), "--out", str(out), "--jobs", "1"]
    with monkeypatch.context() as patch:
        patch.setattr(shards, "count_into", fail)
        assert main(arguments) == 3
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    command = shown.strip().partition("to go on: ")[2]
    assert shlex.split(command) == ["mlcl", *arguments]
    assert main(shlex.split(command)[1:]) == 0


def test_ctrl_c_is_resumable(data, tmp_path, capsys, monkeypatch):
    replace, calls = os.replace, []

    def interrupted(*names):
        calls.append(names)
        if len(calls) == 3:
            raise KeyboardInterrupt
        replace(*names)

    arguments = [
        "learn",
        str(data),
        "--out",
        str(tmp_path / "out"),
        "--jobs",
        "1",
        "--quiet",
        "--held_out",
        "0",
    ]
    monkeypatch.setattr(os, "replace", interrupted)
    assert main(arguments) == 3
    monkeypatch.undo()
    assert "interrupted; what was counted is kept; to go on: mlcl learn" in capsys.readouterr().err
    assert main(arguments) == 0
    assert distance(ExactTagger.load(capsys.readouterr().out.strip()), one_process(SHARDS)) < 1e-9


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "x"], "the following arguments are required: DATA"),
        (["absent", "--out", "x"], "dataset 'absent' was not found"),
        (["absent/*.parquet", "--out", "x"], "absent/*.parquet has no files"),
        (["absent", "--out", "x", "--jobs", "0"], "--jobs is 0; expected a whole number of at least 1"),
        (["absent", "--out", "x", "--held_out", "0.7"], "--held_out is 0.7"),
        (["absent/*.parquet", "--out", "x", "--address", "auto"], "--address auto is for --engine ray"),
        (["absent/*.parquet", "--out", "x", "--method", "er"], "--method is 'er'; expected exact"),
        (["digits", "--out", "x", "--annotated", "a"], "has no option --annotated"),
    ],
)
def test_bad_options(words, message, capsys):
    assert main(["learn", *words]) == 2
    assert message in capsys.readouterr().err
