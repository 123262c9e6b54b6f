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


def test_commands_that_only_look_do_not_load_scikit_learn():
    code = "import sys; from mlcl.cli.main import main; main(['ls', 'methods']); sys.exit('sklearn' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "rldam-wru" in done.stdout


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


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("mlcl ls methods >&-", 0, ""),
        ("mlcl nonsense 2>&-", 2, ""),
        ("mlcl nonsense <&- >&-", 2, "unknown command"),
        ("mlcl ls methods >/dev/full", 1, "No space left on device"),
        ("mlcl nonsense 2>/dev/full", 2, ""),
        ("(sleep 0.1; mlcl ls methods; echo $? >&2) | true", 0, "1\n"),
    ],
)
def test_a_stream_that_nobody_reads_is_no_traceback(line, code, words):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = ["sh", "-c", line]
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == code
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == bool(words)


def test_text_that_the_terminal_cannot_show_is_spelled_out():
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [Path(sys.executable).with_name("mlcl"), "caf\u00e9"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 2
    assert "caf\\xe9" in done.stderr


@pytest.mark.parametrize(
    "error",
    [MemoryError("Unable to allocate 3 GiB"), RuntimeError("DefaultCPUAllocator: can't allocate memory")],
)
def test_too_little_memory_is_one_sentence(error, monkeypatch, capsys):
    def without(arguments):
        raise error

    monkeypatch.setattr("mlcl.cli.main._verb", without)
    assert main(["ls"]) == 1
    assert capsys.readouterr().err == f"mlcl: error: not enough memory: {error}\n"
