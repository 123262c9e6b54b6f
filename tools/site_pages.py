"""Pure functions of the documentation site: which pages there are, notebooks as text, links that work in both places.

The same Markdown is read on a code host, where links run through the repository, and in the site, whose pages are
``docs/`` and a few files from outside it.
"""

from __future__ import annotations

import inspect
import json
import posixpath
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

ROOT_PAGES = {"README.md": "readme.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Files outside ``docs/`` that are pages of the site, and their names there."""

EXAMPLES = re.compile(r"examples/(\w+)\.py")
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^(```|~~~).*?^\1[^\S\n]*$", re.DOTALL | re.MULTILINE)
_LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(?:https?:)?//"
    r"|<link\b(?![^>]*rel=[\"']?canonical)[^>]*\bhref=[\"']?(?:https?:)?//",
    re.IGNORECASE,
)


def expand_nav(nav: Sequence[Any], pages: Iterable[str]) -> list[Any]:
    """Put the pages that match in the place of each pattern, sorted; a page that stands elsewhere is not repeated.

    >>> expand_nav([{"Guides": ["guides/b*.md", "guides/*.md"]}, "x*.md"], ["guides/a.md", "guides/b.md"])
    [{'Guides': ['guides/b.md', 'guides/a.md']}]
    """
    known, taken = sorted(pages), set(_plain(nav))

    def expand(items: Sequence[Any]) -> list[Any]:
        out: list[Any] = []
        for item in items:
            if isinstance(item, dict):
                out += [{title: expand(v) if isinstance(v, list) else v} for title, v in item.items()]
            elif "*" in item:
                found = [page for page in known if fnmatch(page, item) and page not in taken]
                taken.update(found)
                out += [page_name(page) for page in found]
            else:
                out.append(item)
        return out

    return expand(nav)


def _plain(nav: Sequence[Any]) -> Iterable[str]:
    """Yield the pages that the navigation names one by one."""
    for item in nav:
        for value in item.values() if isinstance(item, dict) else [item]:
            if isinstance(value, list):
                yield from _plain(value)
            elif "*" not in value:
                yield value


def page_name(file: str) -> str:
    """Return the page made from a file of ``docs/``: a notebook's is Markdown beside it.

    >>> page_name("notebooks/loop.ipynb"), page_name("data.md")
    ('notebooks/loop.md', 'data.md')
    """
    return file.removesuffix(".ipynb") + ".md" if file.endswith(".ipynb") else file


def outside_page(file: str) -> str | None:
    """Return the page made from a file outside ``docs/``, or None: scripts of ``examples/`` and `ROOT_PAGES` have one.

    >>> outside_page("examples/loop.py"), outside_page("README.md"), outside_page("Makefile")
    ('examples/loop.md', 'readme.md', None)
    """
    script = EXAMPLES.fullmatch(file)
    return f"examples/{script[1]}.md" if script else ROOT_PAGES.get(file)


def example_page(source: str, file: str) -> str:
    """Return a script as a page.

    >>> print(example_page("1 + 1", "examples/sum.py"))
    # examples/sum.py
    <BLANKLINE>
    ```python
    1 + 1
    ```
    """
    return f"# {file}\n\n```python\n{source.rstrip()}\n```"


def notebook_page(text: str, name: str) -> str:
    """Return a notebook as Markdown: its cells in order, and where to get it.

    >>> cells = [{"cell_type": "markdown", "source": ["# Title"]}, {"cell_type": "code", "source": "1 + 1"}]
    >>> print(notebook_page(json.dumps({"cells": cells}), "sum.ipynb"))
    # Title
    <BLANKLINE>
    ```python
    1 + 1
    ```
    <BLANKLINE>
    This page is a notebook: [sum.ipynb](sum.ipynb).
    """
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
    return "\n\n".join([*parts, f"This page is a notebook: [{name}]({name})."])


def site_links(markdown: str, *, file: str, page: str, root: Path) -> str:
    """Turn links of a file of the repository into links of its page in the site.

    A file that is no page of the site cannot be reached from there: its link becomes its text. What does not exist is
    left as it is, for the strict build to complain of. Blocks of code stay untouched.

    Args:
        markdown: the text.
        file: its path in the repository.
        page: its path among the site's sources.
        root: the repository.
    """

    def rewrite(match: re.Match[str]) -> str:
        mark, text, target = match.groups()
        path, anchor, fragment = target.partition("#")
        if not path or ":" in path or path.startswith("/"):
            return match[0]
        found = posixpath.normpath(posixpath.join(posixpath.dirname(file), path))
        if (outside := outside_page(found)) and (root / found).exists():
            inside = outside
        elif found.startswith("docs/"):
            inside = found.removeprefix("docs/")
            if inside.endswith(".ipynb") and posixpath.basename(file) != posixpath.basename(inside):
                inside = page_name(inside)
        elif (root / found).exists():
            return text
        else:
            return match[0]
        return (
            f"{mark}[{text}]({posixpath.relpath(inside, posixpath.dirname(page) or '.')}{anchor}{fragment})"
        )

    out, end = [], 0
    for block in _FENCE.finditer(markdown):
        out += [_LINK.sub(rewrite, markdown[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*out, _LINK.sub(rewrite, markdown[end:])])


def with_examples(text: str) -> str:
    """Put a doctest that stands at the margin under a heading of its own.

    >>> with_examples("Add.\\n\\n>>> 1 + 1\\n2").splitlines()
    ['Add.', '', 'Examples:', '    >>> 1 + 1', '    2']
    """
    lines = inspect.cleandoc(text).splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith(">>>")), None)
    if start is None:
        return text
    return "\n".join(
        [*lines[:start], "Examples:", *(f"    {line}" if line else "" for line in lines[start:])]
    )


def loaded_from_elsewhere(html: str) -> list[str]:
    """Return the tags of a page that would load something from another host; plain links do not.

    >>> loaded_from_elsewhere('<a href="https://x.org">x</a> <script src="https://x.org/a.js"></script>')
    ['<script src="https://']
    """
    return [match[0] for match in _LOADED.finditer(html)]
