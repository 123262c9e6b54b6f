"""``mlcl cp``: copy a shipped config or experiment to a file of your own."""

from __future__ import annotations

from pathlib import Path

from mlcl.cli.messages import say
from mlcl.cli.verbs import verb_parser
from mlcl.config.resolve import shipped
from mlcl.errors import InputError, nearest
from mlcl.files import write_text
from mlcl.sweeps.experiment import experiments


def main(arguments: list[str]) -> int:
    """Copy: ``mlcl cp NAME FILE.yaml``."""
    parser = verb_parser(
        "cp",
        "Copy a shipped config, to change and run it (mlcl run FILE), or an experiment (mlcl reproduce FILE).",
    )
    parser.add_argument(
        "name", help=f"a config from `mlcl ls configs`, or an experiment: {', '.join(experiments())}"
    )
    parser.add_argument("file", type=Path, help="the file to write")
    parser.add_argument("--overwrite", action="store_true", help="replace the file if it exists")
    given = parser.parse_args(arguments)
    known = shipped() | experiments()
    if given.name not in known:
        raise InputError(
            f"unknown config {given.name!r}; known are the configs {', '.join(shipped())} and the experiments "
            f"{', '.join(experiments())}.{nearest(given.name, known)}"
        )
    if given.file.exists() and not given.overwrite:
        raise InputError(f"{given.file} exists; choose another name, or add --overwrite.")
    try:
        write_text(given.file, known[given.name])
    except OSError as error:
        raise InputError(f"{given.file} cannot be written: {error.strerror}.") from None
    say(given.file)
    return 0
