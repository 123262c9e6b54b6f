"""The one kind of error that is the user's to mend: bad input, told in one sentence."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Bad input from outside. Its message names the file or field, the value, and what was expected.

    The command line prints the message alone and exits with code 2.
    """


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint with the closest known name, or an empty string.

    >>> nearest("rldam-wur", ["ft", "er", "rldam-wru"])
    " Did you mean 'rldam-wru'?"
    """
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean {found[0]!r}?" if found else ""
