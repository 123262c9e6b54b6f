"""``mlcl cp``: copy a shipped config to a file of your own."""

from __future__ import annotations

import sys
from pathlib import Path

from mlcl.cli.options import verb_parser
from mlcl.config.resolve import shipped
from mlcl.errors import InputError, nearest


def main(arguments: list[str]) -> int:
    """Copy: ``mlcl cp NAME FILE.yaml``."""
    parser = verb_parser("cp", "Copy a shipped config to a file, to change and run it.")
    parser.add_argument("name", help="a name from `mlcl ls configs`")
    parser.add_argument("file", type=Path, help="the file to write")
    parser.add_argument("--overwrite", action="store_true", help="replace the file if it exists")
    given = parser.parse_args(arguments)
    configs = shipped()
    if given.name not in configs:
        known = ", ".join(configs)
        raise InputError(f"unknown config {given.name!r}; known are: {known}.{nearest(given.name, configs)}")
    if given.file.exists() and not given.overwrite:
        raise InputError(f"{given.file} exists; choose another name, or add --overwrite.")
    try:
        given.file.write_text(configs[given.name], encoding="utf-8")
    except OSError as error:
        raise InputError(f"{given.file} cannot be written: {error.strerror}.") from None
    sys.stdout.write(f"{given.file}\n")
    return 0
