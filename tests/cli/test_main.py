"""The entry point: help, version, unknown verbs, and no torch before a verb needs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import mlcl
from mlcl.cli.main import main


def test_help_and_import_do_not_load_torch():
    code = (
        "import sys, mlcl, mlcl.cli.main; mlcl.cli.main.main(['--help']); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'sklearn', 'lightning_fabric', 'matplotlib')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "usage: mlcl" in done.stdout


def test_the_installed_command_runs():
    command = Path(sys.executable).with_name("mlcl")
    done = subprocess.run([command, "--version"], capture_output=True, text=True, check=False, env=os.environ)
    assert done.stdout == f"mlcl {mlcl.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rnu"], "unknown command 'rnu'; known are: .*Did you mean 'run'"),
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
