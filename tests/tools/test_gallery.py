"""The gallery shows every verb, and what it shows is what the verbs print."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mlcl.cli.main import VERBS

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import gallery  # noqa: E402
import session  # noqa: E402

PAGE = gallery.PAGE.read_text(encoding="utf-8")
SHOWN = gallery.sections(PAGE)
QUICK = [entry for entry in gallery.ENTRIES if entry.quick]


def test_every_verb_is_in_the_gallery():
    verbs = [entry.verb for entry in gallery.ENTRIES]
    missing = [verb for verb in VERBS if verb not in verbs]
    assert not missing, f"add to ENTRIES in tools/gallery.py, then make gallery: {', '.join(missing)}"
    assert set(verbs) == {"", *VERBS}
    assert len(set(verbs)) == len(verbs)


@pytest.mark.parametrize("entry", gallery.ENTRIES, ids=lambda entry: entry.verb or "alone")
def test_the_page_shows_the_commands_of_an_entry(entry):
    section = SHOWN[gallery.heading(entry)]
    assert [step.command for step in session.steps(section)] == list(entry.commands)
    assert all(step.output for step in session.steps(section)), "every command prints something"
    assert any(f"mlcl {entry.verb}".strip() in command for command in entry.commands)
    assert entry.text in section
    for picture in entry.pictures:
        assert f"![{picture.text}](../images/gallery/{picture.name}.png)" in section


def test_there_is_nothing_else_on_the_page():
    assert list(SHOWN) == [gallery.heading(entry) for entry in gallery.ENTRIES]
    assert PAGE.startswith(gallery.HEAD)


@pytest.mark.parametrize("entry", QUICK, ids=lambda entry: entry.verb or "alone")
def test_what_a_verb_prints_is_on_the_page(entry, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert gallery.show(entry) == SHOWN[gallery.heading(entry)], "renew it: python tools/gallery.py --quick"


def test_verbs_without_training_are_compared():
    assert {"", "ls", "explain", "validate"} <= {entry.verb for entry in QUICK}


def test_pictures_are_small_and_none_is_left_over():
    named = {f"{picture.name}.png" for entry in gallery.ENTRIES for picture in entry.pictures}
    files = {path.name: path.stat().st_size for path in gallery.PICTURES.iterdir()}
    assert set(files) == named
    assert max(files.values()) < 150_000
    assert {"run.png", "run-phone.png", "comparison.png", "comparison-phone.png", "theory.png"} <= named
