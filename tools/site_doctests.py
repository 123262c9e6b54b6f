"""A Griffe extension: doctests at the end of a docstring become its examples, and not quotations of quotations."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import griffe

sys.path.insert(0, str(Path(__file__).parent))

from site_pages import with_examples


class Doctests(griffe.Extension):
    """Rewrites every docstring as it is read."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:  # noqa: ARG002
        """Called for each module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = with_examples(obj.docstring.value)
