"""Pieces of Markdown whose texts come from outside: escaped text, tables, code blocks."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mlcl.texts import visible


def escaped(text: object) -> str:
    r"""Return text that Markdown shows as it is, wherever it stands: no markup, no table cell, no HTML, no new line.

    >>> print(escaped("a|b <script> [x](y) # *z*"))
    a\|b \<script\> \[x\]\(y\) \# \*z\*
    """
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~&$])", r"\\\1", visible(text))


def in_cell(text: object) -> str:
    r"""Return text that Markdown shows as it is in the cell of a table, with no more backslashes than it takes.

    >>> print(in_cell("a|b <script> [x](y) [1.2, 3.4] (R&B)"))
    a\|b \<script> [x\](y) [1.2, 3.4] (R&B)
    """
    return re.sub(r"([\\|*_`<$]|~(?=~)|\](?=[(\[:])|&(?=#?\w+;))", r"\\\1", visible(text))


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of cells that are Markdown already; all columns but the first are numbers."""
    lines = [f"| {' | '.join(heads)} |", f"|---|{'---:|' * (len(heads) - 1)}"]
    return "\n".join([*lines, *(f"| {' | '.join(cells)} |" for cells in rows)])


def fenced(text: str, language: str) -> str:
    """Return a code block whose fence is longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{visible(text, lines=True).rstrip()}\n{fence}"
