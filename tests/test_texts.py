"""Text from outside: what is shown, what is written, and that there is no other way to write it."""

from __future__ import annotations

import ast
import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlcl
from mlcl.texts import csv_line, csv_text, inert, visible

PACKAGE = Path(mlcl.__file__).parent
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(st.text())
def test_visible_text_is_one_line_that_does_nothing(text):
    shown = visible(text)
    assert shown.isprintable()
    assert not text.isprintable() or shown == text


def test_lines_and_tabs_stay_where_they_are_wanted():
    assert visible("a\n\tb\x1b", lines=True) == "a\n\tb\\x1b"


@given(st.lists(st.lists(NAMES, min_size=2, max_size=2)))
def test_csv_reads_back(rows):
    text = csv_text(["a", "b"], rows)
    assert list(csv.reader(io.StringIO(text, newline=""))) == [["a", "b"], *rows]


@given(st.lists(st.lists(NAMES)))
def test_tags_in_a_cell_read_back(rows):
    lines = [csv_line(tags, delimiter=";") for tags in rows]
    text = csv_text(["id", "tags"], enumerate(lines))
    _, *read = csv.reader(io.StringIO(text, newline=""))
    assert [next(csv.reader(io.StringIO(cell, newline=""), delimiter=";"), []) for _, cell in read] == rows


def test_a_file_name_that_is_no_unicode_is_spelled_out():
    assert csv_text(["id"], [["caf\udce9.png"]]).encode() == b"id\ncaf\\udce9.png\n"


@pytest.mark.parametrize("cell", ["=1+1", "+a", "-a", "@a", "\ta", "\ra", "\n=a", "\uff1d1"])
def test_text_is_no_formula(cell):
    assert inert(cell) == f"'{cell}"


@pytest.mark.parametrize("cell", ["a=1", "-1.5", "+2e3", -1.5, 3, ""])
def test_numbers_and_other_text_stay(cell):
    assert inert(cell) == cell


ALLOWED = {
    "import rich": {"cli.progress", "cli.terminal", "reports.rendering", "sweeps.overview"},
    "Console": {"cli.progress"},
    "Text.from_markup": set(),
    "print": set(),
    "csv.writer": {"texts"},
    "sys.stdout.write": {"cli.messages"},
    "sys.stderr.write": {"cli.messages", "engines.launching"},
    "Environment": {"reports.rendering"},
}
"""What shows or writes text, and the modules that may use it: they make text from outside safe."""


def used(path):
    """What a module uses of the things that show or write text."""
    for node in ast.walk(ast.parse(path.read_text())):
        modules = [
            getattr(node, "module", None),
            *(alias.name for alias in getattr(node, "names", []) if isinstance(node, ast.Import)),
        ]
        if isinstance(node, ast.Import | ast.ImportFrom) and "rich" in {
            str(m).partition(".")[0] for m in modules
        }:
            yield "import rich"
        elif isinstance(node, ast.Call) and (name := ast.unparse(node.func)) in ALLOWED:
            yield name


def test_text_is_shown_and_written_where_it_is_made_safe():
    found = {
        (what, ".".join(path.relative_to(PACKAGE).with_suffix("").parts))
        for path in PACKAGE.rglob("*.py")
        for what in used(path)
    }
    assert {(what, module) for what, module in found if module not in ALLOWED[what]} == set()
    assert {what for what, _ in found} >= {"import rich", "csv.writer", "sys.stdout.write", "Environment"}
