"""``mlcl ls``: every list, and globs."""

from __future__ import annotations

import pytest

from mlcl.cli.main import main


def test_ls_names_everything_and_globs(capsys):
    assert main(["ls"]) == 0
    text = capsys.readouterr().out
    for word in (
        "methods:",
        "rldam-wru",
        "losses:",
        "asl",
        "memories:",
        "wru",
        "models:",
        "resnet8",
        "c-digits",
    ):
        assert word in text
    assert main(["ls", "methods", "ft*"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["ft", "ft-rldam"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ls", "method"], "unknown list 'method'.*Did you mean 'methods'"),
        (["ls", "a", "b", "c"], "unrecognized arguments"),
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
