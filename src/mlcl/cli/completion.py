"""``mlcl completion``: a script that completes commands, options and names in bash or zsh.

Options are those of the verbs and names those of the registries, so the script knows what mlcl knows.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, get_args, get_origin

from mlcl.cli import data
from mlcl.cli.look import LISTS
from mlcl.cli.main import VERBS, find_verb
from mlcl.cli.messages import page
from mlcl.cli.settings import short
from mlcl.cli.verbs import takes_settings, verb_parser
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


def completion(shell: Literal["bash", "zsh"]) -> int:
    """Print a script that completes commands: source <(mlcl completion bash).

    Args:
        shell: the shell.
    """
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
        "ls": list(LISTS),
        "explain": [*settings(), *PRESETS],
        "cp": [*shipped(), *tables],
        "reproduce": tables,
        "data": ["prepare", "features", "info", *SOURCES.names()],
        "theory": list(shipped()),
        "completion": list(USE),
    }


def options(verb: str) -> list[str]:
    """Return the options of a verb.

    >>> options("compare")
    ['--help', '--on', '--plugin']
    """
    functions: list[Callable[..., int]] = [data.features, data.info] if verb == "data" else [find_verb(verb)]
    parsers = [verb_parser(verb, one) for one in functions]
    if verb == "data":
        parsers += [data.prepare_parser(kind) for kind in SOURCES.names()]
    found = {word for parser in parsers for word in parser._option_string_actions if word.startswith("--")}
    if any(map(takes_settings, functions)):
        found |= {f"--{short(name)}" for name in settings()} | {f"--{name}" for name in settings()}
    return sorted({*found, "--plugin"})


def _case(pattern: str, words: Iterable[str], indent: int) -> str:
    return f"{'':{indent}}{pattern}) words={shlex.quote(' '.join(words))} ;;"
