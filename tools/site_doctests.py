"""A Griffe extension: doctests at the end of a docstring become its examples, and not quotations of quotations."""

from __future__ import annotations

import inspect
from typing import Any

import griffe


def with_examples(text: str) -> str:
    """Put a doctest that stands at the margin under a heading of its own.

    >>> print(with_examples("Add.\\n\\n>>> 1 + 1\\n2"))
    Add.
    <BLANKLINE>
    Examples:
        >>> 1 + 1
        2
    """
    lines = inspect.cleandoc(text).splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith(">>>")), None)
    if start is None:
        return text
    return "\n".join(
        [*lines[:start], "Examples:", *(f"    {line}" if line else "" for line in lines[start:])]
    )


class Doctests(griffe.Extension):
    """Rewrites every docstring as it is read."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:  # noqa: ARG002
        """Called for each module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = with_examples(obj.docstring.value)
