"""Five questions of a newcomer: each is answered two clicks from the landing page at most."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"

QUESTIONS = {
    "I have texts and tags": (["tutorials/texts.md"], "mlcl learn 2024.csv --out tickets"),
    "My labels changed: a new one": (["howto/add-a-label.md"], "mlcl update tagger --data"),
    "My labels changed: a new name": (["howto/rename-a-label.md"], "mlcl labels tagger --rename"),
    "Is RLDAM better for me?": (["evidence/verdicts.md"], "RLDAM + WRU"),
    "How do I add a memory to my loop?": (["howto/keep-samples.md"], "mlcl.ReplaySampler("),
    "How do I write a memory?": (["howto/own-memory.md"], "@MEMORIES.register("),
    "Can I trust the probabilities?": (
        ["howto/probabilities.md", "evidence/probabilities.md"],
        "Calibration error",
    ),
}
"""Question: the clicks from docs/index.md, and words that answer it on the last page."""


def links(page: str) -> set[str]:
    """The pages that a page links to, from the folder of the documentation."""
    folder = (DOCS / page).parent
    targets = re.findall(r"\]\(([^)#\s]+\.md)", (DOCS / page).read_text(encoding="utf-8"))
    return {(folder / target).resolve().relative_to(DOCS.parent).as_posix() for target in targets}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_answered_in_two_clicks(question):
    clicks, answer = QUESTIONS[question]
    assert len(clicks) <= 2
    for page, target in zip(["index.md", *clicks], clicks, strict=False):
        assert f"docs/{target}" in links(page), (page, target)
    assert answer in (DOCS / clicks[-1]).read_text(encoding="utf-8")


def test_the_landing_page_has_three_doors():
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    assert re.findall(r"^## .*\{#(\w+)\}", text, re.MULTILINE) == ["tagger", "researcher", "piece"]
