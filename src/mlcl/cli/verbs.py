"""The parser of verbs that take no settings of a run; it needs no torch, as settings do."""

from __future__ import annotations

import argparse
from typing import Any

from mlcl.errors import InputError


class VerbParser(argparse.ArgumentParser):
    """Raises what is wrong as an `InputError` of one sentence, as everything else does."""

    def error(self, message: str) -> Any:
        """Raise instead of printing the usage."""
        raise InputError(f"{self.prog}: {message}.")


def verb_parser(name: str, description: str) -> VerbParser:
    """Return the parser of a verb that takes no settings of a run."""
    return VerbParser(
        prog=f"mlcl {name}",
        description=description,
        allow_abbrev=False,
        epilog="--plugin FILE.py | package.module loads parts of your own first.",
    )
