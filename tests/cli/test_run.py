"""``mlcl run``: outputs, folders, exit codes, and sentences."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mlcl.cli.main import main

QUICK = ["--train.epochs", "1", "--train.batch_size", "256", "--memory.size", "40", "--model.width", "2"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "first"
    assert main(["run", "--out", str(out), *QUICK]) == 0
    return out


@pytest.mark.slow
def test_a_run_ends_in_a_table_and_the_folder(capsys, tmp_path):
    out = tmp_path / "run"
    assert main(["run", "c-digits", "--method", "er", "--out", str(out), "--seed", "3", *QUICK]) == 0
    stdout = capsys.readouterr().out
    assert stdout.splitlines()[-1] == str(out)
    assert "er on c-digits, seed 3" in stdout
    assert "forgetting" in stdout
    result = json.loads((out / "result.json").read_text())
    assert result["config"]["memory"]["kind"] == "random"
    assert np.array(result["matrix"]).shape == (5, 5)
    assert 0 <= result["macro_auc"] <= 100
    assert result["macro_auc"] == pytest.approx(np.mean(result["matrix"][-1]))


@pytest.mark.slow
def test_quiet_prints_the_folder_only_and_its_config_runs_again(capsys, tmp_path, finished):
    out = tmp_path / "again"
    assert main(["run", str(finished / "config.yaml"), "--quiet", "--out", str(out)]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{out}\n"
    first, second = (json.loads((folder / "result.json").read_text()) for folder in (finished, out))
    assert first["matrix"] == second["matrix"]


@pytest.mark.slow
def test_an_existing_folder_is_kept_unless_told(capsys, tmp_path, finished):
    before = (finished / "result.json").read_bytes()
    assert main(["run", "--out", str(finished), *QUICK]) == 2
    assert "exists; choose another folder, or add --overwrite" in capsys.readouterr().err
    assert (finished / "result.json").read_bytes() == before
    (tmp_path / "thesis.tex").write_text("years of work")
    assert main(["run", "--out", str(tmp_path), "--overwrite", *QUICK]) == 2
    assert "no run of mlcl; nothing was overwritten" in capsys.readouterr().err
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


@pytest.mark.slow
def test_runs_without_a_folder_never_collide(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert main(["run", "--quiet", *QUICK, "--stream.tasks", "2"]) == 0
    assert capsys.readouterr().out.split() == [
        "runs/c-digits-rldam-wru-seed0",
        "runs/c-digits-rldam-wru-seed0-2",
    ]


def test_a_loss_that_explodes_stops_the_run(capsys, tmp_path):
    arguments = [
        "--train.lr",
        "1e30",
        "--loss.base",
        "squared-hinge",
        "--quiet",
        "--out",
        str(tmp_path / "x"),
    ]
    assert main(["run", *QUICK, *arguments]) == 1
    assert "the loss became" in capsys.readouterr().err
    assert not (tmp_path / "x/result.json").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--method", "erx"], "unknown method 'erx'.*Did you mean 'er'"),
        (["run", "--benchmark", "c-digts"], "unknown benchmark 'c-digts'.*Did you mean 'c-digits'"),
        (["run", "--benchmark", "x" * 5000], "unknown benchmark .x"),
        (["run", "--benchmark", __file__], "is a file; expected a shipped name, or the folder of a store"),
        (["run", "c-digts"], "unknown config 'c-digts'.*Did you mean 'c-digits'"),
        (["run", "absent.yaml"], "absent.yaml: cannot be read"),
        (["run", "--memory.size", "-1"], "memory.size is -1; expected a number of at least 0"),
        (["run", "--memory.size", "many"], "memory.size is 'many'; expected int"),
        (["run", "--train.epochs", "0"], "train.epochs is 0; expected a number of at least 1"),
        (["run", "--memroy.size", "3"], "unknown option '--memroy.size'. Did you mean '--memory.size'"),
        (["run", "--see", "3"], "unknown option .--see.. Did you mean .--seed."),
        (["run", "--stream.tasks", "21"], "tasks is 21"),
        (["run", "--model", "mlp"], "model 'mlp' takes feature vectors"),
        (["run", "--method", "krt", "--model.kind", "resnet9"], "unknown model 'resnet9'"),
        (["run", "--loss", "bce", "--loss.margin", "2"], "loss 'bce' takes no option 'margin'"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(arguments, words, capsys, monkeypatch, tmp_path):
    import re

    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert re.search(words, captured.err), captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    assert not list(tmp_path.iterdir())


def test_a_folder_in_the_place_of_a_config_is_not_called_an_unknown_name(tmp_path, monkeypatch, capsys):
    (tmp_path / "store").mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(["run", "store"]) == 2
    expected = "a config, as a file or by name (a store is given as --benchmark store)."
    assert capsys.readouterr().err == f"mlcl: error: store is a folder; expected {expected}\n"
