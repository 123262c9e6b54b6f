"""What MkDocs calls while it builds the site; see mkdocs.yml. The work is done in `site_pages`."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))

from site_pages import (
    ROOT_PAGES,
    example_page,
    expand_nav,
    loaded_from_elsewhere,
    notebook_page,
    outside_page,
    page_name,
    site_links,
)

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
log = logging.getLogger("mkdocs.site_hook")
OUTSIDE = [*ROOT_PAGES, *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("examples/*.py"))]
_file_of_page: dict[str, str] = {str(outside_page(file)): file for file in OUTSIDE}


def on_config(config: Any) -> Any:
    """Expand the patterns of the navigation."""
    found = [
        path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*") if path.suffix in {".md", ".ipynb"}
    ]
    found = [file for file in found if ".ipynb_checkpoints" not in file]
    config.nav = expand_nav(config.nav, [*found, *_file_of_page])
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not in docs/ as Markdown: notebooks, examples, and files of the root."""
    for path in sorted(DOCS.glob("notebooks/*.ipynb")):
        name = path.relative_to(DOCS).as_posix()
        text = notebook_page(path.read_text(encoding="utf-8"), path.name)
        files.append(File.generated(config, page_name(name), content=text))
        _file_of_page[page_name(name)] = f"docs/{name}"
    for file in OUTSIDE:
        text = (ROOT / file).read_text(encoding="utf-8")
        text = example_page(text, file) if file.endswith(".py") else text
        files.append(File.generated(config, str(outside_page(file)), content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:  # noqa: ARG001
    """Make links of the repository links of the site."""
    name = page.file.src_uri
    return site_links(markdown, file=_file_of_page.get(name, f"docs/{name}"), page=name, root=ROOT)


def on_post_page(output: str, *, page: Any, config: Any) -> str:  # noqa: ARG001
    """Warn, which fails the strict build, of anything that a reader's browser would fetch from another host."""
    for tag in loaded_from_elsewhere(output):
        log.warning("%s loads from another host: %s", page.file.src_uri, tag)
    return output
