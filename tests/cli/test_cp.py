"""``mlcl cp``: a config of your own."""

from __future__ import annotations

import pytest

import mlcl
from mlcl.cli.main import main


def test_cp_gives_a_config_to_change(capsys, tmp_path):
    path = tmp_path / "mine.yaml"
    assert main(["cp", "c-digits", str(path)]) == 0
    assert main(["cp", "c-digits", str(path)]) == 2
    assert "exists" in capsys.readouterr().err
    assert mlcl.Config() is not None
    from mlcl.config.resolve import config_from

    assert config_from(path) == config_from("c-digits")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["cp", "c-digts", "x.yaml"], "unknown config 'c-digts'"),
        (["cp", "c-digits"], "required: FILE"),
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
