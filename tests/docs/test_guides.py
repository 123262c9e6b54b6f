"""The guides' code runs as it stands: Python blocks section by section, commands through the command line."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from data import shared_data
from estimator_checks import EXACT_EXCEPTIONS
from mlcl.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT / "tools"))

from session import files  # noqa: E402

EXTRAS = {"mlcl.metrics import MacroAUC": "torchmetrics"}
"""Words in a block that say which extra it needs."""


def blocks(text):
    """The fenced blocks of a text: (language, the file that it is to be, content)."""
    return re.findall(
        r'^```(python|bash|yaml)(?: title="([^"]+)")?\n(.*?)^```', text, re.DOTALL | re.MULTILINE
    )


def run(text, names):
    """Run the blocks of a text one after the other."""
    for language, file, block in blocks(text):
        if file:
            Path(file).write_text(block, encoding="utf-8")
            continue
        missing = [
            extra
            for words, extra in EXTRAS.items()
            if words in block and importlib.util.find_spec(extra) is None
        ]
        if missing:
            pytest.skip(f"the extra {missing[0]} is not installed: make test-extras")
        if language == "python":
            exec(compile(block, "guide", "exec"), names)
            continue
        for line in block.splitlines():
            verb, *arguments = shlex.split(line, comments=True)
            assert verb == "mlcl"
            assert main(arguments) == 0, line


OWN_DATA = ("own-table.md",)
"""Pages whose code needs what another page made; parts of one's own are run in test_docs.py."""
PAGES = [
    path.name
    for path in sorted((DOCS / "howto").glob("*.md"))
    if blocks(path.read_text(encoding="utf-8"))
    and path.name not in OWN_DATA
    and not (path.name.startswith("own-") and path.name != "own-data.md")
]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_how_to_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run((DOCS / "howto" / page).read_text(encoding="utf-8"), {})


@pytest.mark.parametrize("page", sorted((DOCS / "howto").glob("*.md")), ids=lambda page: page.stem)
def test_a_how_to_page_is_one_task_and_short(page):
    text = page.read_text(encoding="utf-8")
    assert len(text.split()) < 600
    assert re.match(r"# .*\n\nFor ", text), "it begins with who it is for"


@pytest.mark.slow
@pytest.mark.usefixtures("no_workers")
def test_the_researchers_guide_from_top_to_bottom(tmp_path, monkeypatch, capsys):
    """Sections build on one another: the data, runs of them, a table."""
    monkeypatch.chdir(tmp_path)
    run((DOCS / "tutorials/first-table.md").read_text(encoding="utf-8"), {})
    assert (tmp_path / "table" / "table.md").is_file()
    memory = files((DOCS / "tutorials/first-hour.md").read_text(encoding="utf-8"))["my_memory.py"]
    (tmp_path / "my_memory.py").write_text(memory, encoding="utf-8")
    run((DOCS / "howto/own-table.md").read_text(encoding="utf-8"), {})
    assert "mine" in (tmp_path / "my-table" / "table.md").read_text()
    assert (tmp_path / "report.html").is_file()
    assert "rldam-wru" in capsys.readouterr().out


@pytest.mark.slow
def test_the_guide_of_texts_from_top_to_bottom(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLCL_HOME", str(tmp_path / "home"))
    names = {}
    run((DOCS / "tutorials/texts.md").read_text(encoding="utf-8"), names)
    shown = capsys.readouterr().out
    assert "billing: probability" in shown
    assert names["tickets"].classes == ("billing", "crash", "login")


@pytest.mark.slow
def test_a_tagger_that_grows_for_years(tmp_path, monkeypatch, capsys):
    """On few packages, with few words, and a gate that lets what they lose pass; MLCL_PACKAGES=29813: as it stands."""
    monkeypatch.setenv("MLCL_DATA", str(shared_data()))
    monkeypatch.setenv("MLCL_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    text, names = (DOCS / "tutorials/growing.md").read_text(encoding="utf-8"), {}
    if "MLCL_PACKAGES" not in os.environ:
        text = text.replace("--group source", "--group source --encoder words,words=200,hashed=50")
        text = text.replace("--allow 5", "--allow 90")
    run(text, names)
    assert "unlike those learnt before" in names["refused"]
    tagger = names["mlcl"].load("packages")
    for label in ("interface::x11", "game::strategy", "role::application"):
        assert label in tagger.classes
    assert "role::program" not in tagger.classes
    assert len((tmp_path / "tags.csv").read_text().splitlines()) > 100
    shown = capsys.readouterr().out
    assert "interface::x11: probability" in shown


def test_the_exceptions_are_those_of_the_tests():
    """The guide lists the checks of scikit-learn that fail; so do the tests, which see that they do."""
    text = (DOCS / "reference/estimator-checks.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(check_(?!estimator`)\w+)`", text)) == set(EXACT_EXCEPTIONS)
