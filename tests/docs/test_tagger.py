"""The walk of docs/tutorials/images.md: from images to a service, an update behind the gate, and back."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "tutorials" / "images.md").read_text(encoding="utf-8")
sys.path.insert(0, str(ROOT / "tools"))

import session  # noqa: E402


@pytest.mark.slow
def test_the_walk_from_top_to_bottom(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLCL_HOME", str(tmp_path / "cache"))
    for step, found in session.replay(PAGE):
        wanted, shown = (re.sub(r"\b[0-9a-f]{16}\b", session.FREE, text) for text in (step.output, found))
        assert session.agrees(wanted, shown), f"{step.command} printed:\n{found}"
    history = json.loads((tmp_path / "tagger" / "current.json").read_text())["history"]
    assert [(entry["from"], entry["to"]) for entry in history] == [(1, 2), (2, 1), (1, 3)]
    assert (tmp_path / "tagger.html").stat().st_size > 10_000
    assert (
        "cross" in json.loads((tmp_path / "tagger" / "versions" / "2" / "result.json").read_text())["classes"]
    )


def test_the_walk_goes_the_whole_way():
    commands = [step.command for step in session.steps(PAGE)]
    wanted = (
        "data prepare",
        "run",
        "report",
        "thresholds",
        "card",
        "ask.py",
        "update",
        "versions",
        "drift",
        "rollback",
    )
    starts = [f"mlcl {word}" if not word.endswith(".py") else f"python {word}" for word in wanted]
    places = [next(i for i, command in enumerate(commands) if command.startswith(start)) for start in starts]
    assert places == sorted(places)
    assert "--gate" in next(command for command in commands if command.startswith("mlcl update"))
