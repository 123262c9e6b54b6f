"""``mlcl completion``: the script completes in the shells themselves."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
from pathlib import Path

import pytest

from children import LIMIT
from mlcl.cli.completion import USE, options, script
from mlcl.cli.main import VERBS, main

CASES = [
    ("mlcl expl", ["explain"]),
    ("mlcl run --memory.si", ["--memory.size"]),
    ("mlcl run --memory wr", ["wru"]),
    ("mlcl run --stream.setting ", ["overlap", "disjoint"]),
    ("mlcl run c-dig", ["c-digits"]),
    ("mlcl reproduce table", ["table1", "table2", "table3"]),
    ("mlcl data prepare fold", ["folder"]),
]
"""What was typed before the key, and the words that complete it."""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """The file that each shell sources."""
    folder = tmp_path_factory.mktemp("completion")
    for shell, first in USE.items():
        (folder / shell).write_text(f"{first}\n{script()}", encoding="utf-8")
    return folder


@pytest.mark.parametrize("shell", USE)
def test_the_script_is_printed_with_the_line_to_add(shell, capsys):
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"# In ~/.{shell}rc: source <(mlcl completion {shell})\n")
    assert text.endswith(script())


def test_the_script_is_whole():
    text = script()
    for verb in VERBS:
        assert f"\n      {verb}) words=" in text, verb
    assert "--memory.size" in options("run")
    assert "--test-fraction" in options("data")


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(("typed", "wanted"), [*CASES, ("mlcl compare zzz", [])])
def test_bash_completes(typed, wanted, scripts):
    words = typed.split(" ")
    line = " ".join(f"'{word}'" for word in words)
    call = f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _mlcl"
    command = f"source {scripts / 'bash'}; {call}; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.split() == wanted
    assert done.stderr == ""


class Zsh:
    """A zsh that believes to have a user: keys go in, what the screen shows comes out."""

    def __init__(self, home: Path) -> None:
        self.screen, inside = pty.openpty()
        self.process = subprocess.Popen(
            ["zsh", "-f", "-i"],  # -f: without the files of this machine
            stdin=inside,
            stdout=inside,
            stderr=inside,
            start_new_session=True,
            cwd=home,
            env=os.environ | {"HOME": str(home), "TERM": "dumb"},
        )
        os.close(inside)
        # Control-X ends a case: it shows the line as it is now, and empties it.
        self.type("show() { print -r -- \"<<$BUFFER>>\"; BUFFER= }; zle -N show; bindkey '^X' show\n")

    def type(self, keys: str) -> None:
        os.write(self.screen, keys.encode())

    def read_until(self, end: str) -> str:
        """Return what is shown; a shell that has died raises an OSError, one that hangs fails."""
        text = ""
        while end not in text:
            assert select.select([self.screen], [], [], LIMIT)[0], text
            text += os.read(self.screen, 65536).decode(errors="replace")
        return text

    def complete(self, typed: str) -> tuple[str, str]:
        """Return the completed line, and all that was shown on the way."""
        self.type(f"{typed}\t\x18")
        text = self.read_until(">>\r\n")
        return text.rpartition("<<")[2].partition(">>")[0], text

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.screen)


@pytest.fixture(
    scope="module", params=["", "autoload -Uz compinit && compinit -i -D\n"], ids=["bare", "set up"]
)
def zsh(request, scripts, tmp_path_factory):
    """A zsh that has sourced the script, without and with a completion system set up before."""
    shell = Zsh(tmp_path_factory.mktemp("zsh"))
    try:
        shell.type(f"{request.param}source {scripts / 'zsh'}\n")
        yield shell
    finally:
        shell.close()


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
@pytest.mark.parametrize(("typed", "wanted"), CASES)
def test_zsh_completes(typed, wanted, zsh):
    line, shown = zsh.complete(typed)
    assert "not found" not in shown
    if len(wanted) == 1:
        assert line == f"{typed.rpartition(' ')[0]} {wanted[0]} "
    else:
        assert line == typed
        assert all(word in shown.replace(typed, "") for word in wanted)
