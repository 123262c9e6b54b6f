"""How the documentation reads is checked, and the check can fail."""

from __future__ import annotations

import doctest
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import language
import search

TEXT = "# A page\n\nFor testers. At the end it passes.\n"


@pytest.fixture
def docs(tmp_path, monkeypatch):
    """An empty documentation, with a navigation."""
    for kind in language.KINDS:
        (tmp_path / "docs" / kind).mkdir(parents=True)
    (tmp_path / "mkdocs.yml").write_text("nav:\n  - howto/a.md\n  - tutorials/*.md\n")
    monkeypatch.setattr(language, "ROOT", tmp_path)
    monkeypatch.setattr(language, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(sys, "argv", ["language.py"])
    return tmp_path / "docs"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (TEXT, None),
        (TEXT + "We mend it.\n", "'mend'; write fix"),
        (TEXT + "`mend` is an option, and\n\n```\nplease mend\n```\n\nis code.\n", None),
        (TEXT + "word " * 700, " words; at most 600"),
        (TEXT.replace("For", "To"), "who it is for"),
        (TEXT + "[a](b.md)\n", "b.md leads nowhere"),
        (TEXT + "[a](a.md#x)\n", None),
        (TEXT + "it " * 40 + "goes on.\n", "a sentence has"),
    ],
)
def test_what_is_wrong_with_a_page_is_found(docs, text, fault, capsys, monkeypatch):
    (docs / "howto" / "a.md").write_text(text)
    if fault == "a sentence has":
        monkeypatch.setattr(language, "SENTENCE", 3)
    assert language.main() == (fault is not None)
    shown = capsys.readouterr().out
    assert fault is None or fault in shown


def test_a_page_without_a_place_and_too_many_words_are_found(docs, capsys, monkeypatch):
    (docs / "howto" / "b.md").write_text(TEXT)
    (docs / "tutorials" / "c.md").write_text(TEXT)
    monkeypatch.setattr(language, "WHOLE", 5)
    assert language.main() == 1
    shown = capsys.readouterr().out
    assert "docs/howto/b.md: not in the navigation" in shown
    assert "c.md: not" not in shown
    assert "docs: 20 words; at most 5" in shown


def test_examples_of_the_tool():
    found = doctest.testmod(language)
    assert found.attempted >= 3
    assert not found.failed


@pytest.mark.parametrize("query", search.QUERIES)
def test_the_title_of_the_page_that_answers_a_query_has_its_words(query):
    """The search itself is asked by `make docs`, in Chromium; titles decide there."""
    root = Path(__file__).resolve().parents[2] / "docs"
    title = (
        (root / f"{search.QUERIES[query].rstrip('/')}.md").read_text(encoding="utf-8").splitlines()[0].lower()
    )
    assert all(word in title for word in query.split())
