"""Pieces of Markdown whose texts come from outside: escaped text, tables, code blocks."""

from __future__ import annotations

import re
from collections.abc import Sequence


def escaped(text: object) -> str:
    r"""Return text that Markdown shows as it is, on one line: no markup, no table cell, no HTML.

    >>> print(escaped("a|b <script> [x](y)\n# *z*"))
    a\|b \<script\> \[x\]\(y\) \# \*z\*
    """
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~&$])", r"\\\1", one_line(text))


def one_line(text: object) -> str:
    """Return text without line breaks and control characters: a line of dashes would end the header."""
    return "".join(c if c.isprintable() else " " for c in str(text))


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of cells that are Markdown already; all columns but the first are numbers."""
    lines = [f"| {' | '.join(heads)} |", f"|---|{'---:|' * (len(heads) - 1)}"]
    return "\n".join([*lines, *(f"| {' | '.join(cells)} |" for cells in rows)])


def fenced(text: str, language: str) -> str:
    """Return a code block whose fence is longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
