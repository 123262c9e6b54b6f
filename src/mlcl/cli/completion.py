"""``mlcl completion``: a script that completes commands, options and names in bash or zsh.

Options are read off the help of the verbs and names off the registries, so the script knows what mlcl knows.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Literal, get_args, get_origin

from mlcl.cli import ls
from mlcl.cli.helping import short
from mlcl.cli.main import VERBS
from mlcl.cli.messages import page
from mlcl.cli.verbs import verb_parser
from mlcl.config.parts import REGISTRIES
from mlcl.config.resolve import settings, shipped
from mlcl.datasets import SOURCES
from mlcl.methods.presets import ALIASES, PRESETS
from mlcl.models import HEADS
from mlcl.registry import members
from mlcl.sweeps.experiment import experiments

USE = {
    "bash": "# In ~/.bashrc: source <(mlcl completion bash)",
    # bashcompinit needs compdef; -i, because a question about insecure folders would stop every new shell
    "zsh": "# In ~/.zshrc: source <(mlcl completion zsh)\n"
    "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i }\n"
    "autoload -Uz bashcompinit && bashcompinit",
}
SCRIPT = """\
_mlcl() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} words=
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W {verbs} -- "$cur"))
    return
  fi
  case $prev in
{values}
  esac
  if [ -z "$words" ]; then
    case ${{COMP_WORDS[1]}} in
{options}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}
complete -o bashdefault -o default -F _mlcl mlcl
"""


def main(arguments: list[str]) -> int:
    """Print the script: ``mlcl completion bash | zsh``."""
    parser = verb_parser(
        "completion", "Print a script that completes commands: source <(mlcl completion bash)"
    )
    parser.add_argument("shell", choices=tuple(USE), help="the shell")
    shell = parser.parse_args(arguments).shell
    page(f"{USE[shell]}\n{script()}")
    return 0


def script() -> str:
    """Return the script."""
    return SCRIPT.format(
        verbs=shlex.quote(" ".join(VERBS)),
        values="\n".join(_case(f"--{name}", words, 4) for name, words in option_values().items()),
        options="\n".join(_case(verb, [*operands().get(verb, ()), *options(verb)], 6) for verb in VERBS),
    )


def option_values() -> dict[str, Sequence[str]]:
    """Return the words that may follow an option, where they are known.

    >>> option_values()["stream.setting"], "wru" in option_values()["memory"]
    (('overlap', 'disjoint'), True)
    """
    found: dict[str, Sequence[str]] = {
        name: tuple(str(word) for member in members([option.type]) for word in get_args(member))
        for name, option in settings().items()
        if any(get_origin(member) is Literal for member in members([option.type]))
    }
    found |= {short(f"{part}.kind"): registry.names() for part, registry in REGISTRIES.items()}
    return found | {
        "model.head": HEADS.names(),
        "method": [*PRESETS, *ALIASES],
        "benchmark": list(shipped()),
        "stream.order": ("random", "sorted", "alphabetical", "paper"),
    }


def operands() -> dict[str, Sequence[str]]:
    """Return the names that a verb takes."""
    tables = list(experiments())
    return {
        "run": list(shipped()),
        "ls": list(ls.SECTIONS),
        "explain": [*settings(), *PRESETS],
        "cp": [*shipped(), *tables],
        "reproduce": tables,
        "data": ["prepare", "features", "info", *SOURCES.names()],
        "theory": list(shipped()),
        "completion": list(USE),
    }


def options(verb: str) -> list[str]:
    """Return the options of a verb, as its help shows them.

    >>> options("compare")
    ['--help', '--on', '--plugin']
    """
    calls = (
        [["--help", "all"]]
        if verb != "data"
        else [
            *(["prepare", kind, "--help"] for kind in SOURCES.names()),
            ["features", "--help"],
            ["info", "--help", "all"],
        ]
    )
    text = io.StringIO()
    for call in calls:
        with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
            importlib.import_module(f"mlcl.cli.{verb}").main(call)
    return sorted({*re.findall(r"(?<![\w-])--[a-z][\w.-]*[\w]", text.getvalue()), "--plugin"})


def _case(pattern: str, words: Iterable[str], indent: int) -> str:
    return f"{'':{indent}}{pattern}) words={shlex.quote(' '.join(words))} ;;"
