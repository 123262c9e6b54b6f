"""The documentation's code runs as it stands: examples of pages, and notebooks; links lead somewhere."""

from __future__ import annotations

import doctest
import importlib
import json
import re
import sys
from pathlib import Path

import pytest

import mlcl
from mlcl.config.parts import REGISTRIES
from mlcl.datasets import SOURCES
from mlcl.methods.presets import PRESETS

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT / "tools"))

import site_pages  # noqa: E402
from site_pages import (  # noqa: E402
    ROOT_PAGES,
    expand_nav,
    loaded_from_elsewhere,
    notebook_page,
    page_name,
    site_links,
)

PAGES = [ROOT / name for name in ROOT_PAGES] + sorted(DOCS.rglob("*.md"))
NOTEBOOKS = sorted(DOCS.glob("notebooks/*.ipynb"))
BLOCKS = [
    pytest.param(block, id=f"{page}-{number}")
    for page in ("index.md", "extending.md")
    for number, block in enumerate(
        re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    )
]


@pytest.fixture
def own_registries(monkeypatch):
    """Let an example register what it likes, without a trace in other tests."""
    for registry in (*REGISTRIES.values(), SOURCES):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    before = dict(PRESETS)
    yield
    PRESETS.clear()
    PRESETS.update(before)


@pytest.mark.usefixtures("own_registries")
@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_of_a_page_runs(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "docs", "exec"), {"__name__": "example"})


def test_there_is_an_example_for_each_part_that_can_be_added():
    text = (DOCS / "extending.md").read_text(encoding="utf-8")
    for words in ("LOSSES.register(", "MEMORIES.register(", "SOURCES.register(", "PRESETS["):
        assert words in text


def cells(notebook: Path, kind: str) -> list[dict]:
    return [
        cell
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == kind
    ]


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(notebook, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    space = {"__name__": "__main__"}
    for cell in cells(notebook, "code"):
        exec(compile("".join(cell["source"]), f"{notebook.name}:{cell['id']}", "exec"), space)


def test_notebooks_are_stored_without_outputs():
    assert {path.stem for path in NOTEBOOKS} >= {
        "the-loss-in-your-loop",
        "a-tagger-that-gains-labels",
        "compare-methods",
    }
    for notebook in NOTEBOOKS:
        assert all(
            cell["outputs"] == [] and cell["execution_count"] is None for cell in cells(notebook, "code")
        )


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_inside_the_repository_lead_to_files(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    for target in targets:
        path = target.partition("#")[0]
        assert not path or ":" in path or (page.parent / path).exists(), target


def test_the_api_has_a_page_for_every_public_name():
    """A name of `mlcl` is documented where it is defined, and a room's page documents the room."""
    pages = "\n".join(page.read_text(encoding="utf-8") for page in DOCS.glob("api/*.md"))
    documented = set(re.findall(r"^::: (\S+)", pages, re.MULTILINE))
    index = (DOCS / "api" / "index.md").read_text(encoding="utf-8")
    for name in set(mlcl.__all__) - {"__version__"}:
        room = mlcl._HOME[name]
        assert room in documented, room
        assert f"#{room}.{name})" in index, name
        exported = getattr(importlib.import_module(room), "__all__", None)
        assert exported is None or name in exported


def test_links_of_the_repository_become_links_of_the_site():
    text = "[a](../README.md#results) [b](results.md) ![c](images/report.png) [d](../Makefile) [e](https://x.org/y)"
    assert site_links(text, file="docs/surprises.md", page="surprises.md", root=ROOT) == (
        "[a](readme.md#results) [b](results.md) ![c](images/report.png) d [e](https://x.org/y)"
    )
    text = "[a](docs/methods.md) ![b](docs/images/report.png) [c](CONTRIBUTING.md) [d](nowhere.md) [e](#here)"
    assert site_links(text, file="README.md", page="readme.md", root=ROOT) == (
        "[a](methods.md) ![b](images/report.png) [c](contributing.md) [d](nowhere.md) [e](#here)"
    )
    text = "[a](../results.md) [b](../../CHANGELOG.md) [c](compare-methods.ipynb)"
    found = site_links(text, file="docs/notebooks/x.ipynb", page="notebooks/x.md", root=ROOT)
    assert found == "[a](../results.md) [b](../changelog.md) [c](compare-methods.md)"
    text = "[a](../../examples/pytorch_loop.py) [b](../../examples/nowhere.py)"
    found = site_links(text, file="docs/guides/x.md", page="guides/x.md", root=ROOT)
    assert found == "[a](../examples/pytorch_loop.md) [b](../../examples/nowhere.py)"
    code = "```\n[a](../README.md)\n```\n"
    assert site_links(code, file="docs/x.md", page="x.md", root=ROOT) == code


def test_a_page_is_found_by_one_pattern_only():
    nav = ["index.md", {"A": ["a/first.md", "a/*.md"]}, {"B": "b.md"}, "*.md", "none/*.md"]
    found = expand_nav(nav, ["index.md", "b.md", "c.md", "a/first.md", "a/x.md", "a/n.ipynb"])
    assert found == ["index.md", {"A": ["a/first.md", "a/x.md"]}, {"B": "b.md"}, "c.md"]


def test_a_notebook_is_a_page_that_holds_all_of_it():
    for notebook in NOTEBOOKS:
        page = notebook_page(notebook.read_text(encoding="utf-8"), notebook.name)
        for kind in ("markdown", "code"):
            assert all("".join(cell["source"]) in page for cell in cells(notebook, kind))
        assert page.startswith("# ")
        assert page_name(notebook.name) == f"{notebook.stem}.md"


@pytest.mark.parametrize(
    ("html", "foreign"),
    [
        ('<script src="https://x.org/a.js"></script>', True),
        ("<script src=//x.org/a.js></script>", True),
        ('<link rel="stylesheet" href="https://x.org/a.css">', True),
        ('<img alt="" src="https://x.org/a.png">', True),
        ('<link rel="canonical" href="https://x.org/">', False),
        ('<a href="https://x.org/">x</a><script src="assets/a.js"></script>', False),
    ],
)
def test_what_a_browser_would_fetch_elsewhere_is_found(html, foreign):
    assert bool(loaded_from_elsewhere(html)) is foreign


def test_examples_of_the_sites_functions():
    found = doctest.testmod(site_pages)
    assert found.attempted > 5
    assert not found.failed
