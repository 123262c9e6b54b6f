"""The README's code runs as it stands."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_a_block_of_the_readme_runs(block):
    exec(compile(block, "README.md", "exec"), {})


def test_the_end_of_the_demo_is_a_cell_of_the_committed_tables():
    """The demo has one thread, as tables have, so it is the first run of its row."""
    shown = README.read_text(encoding="utf-8").partition("Its output ends with")[2].partition("runs/demo")[0]
    with (README.parent / "results/beyond-c-digits/runs.csv").open(newline="") as file:
        cell = next(row for row in csv.DictReader(file) if (row["label"], row["seed"]) == ("rldam-wru", "0"))
    names = ["macro_auc", "forgetting", "head", "medium", "tail", "pooled_macro_auc", "pooled_map"]
    assert re.findall(r"\d+\.\d\d", shown) == [f"{float(cell[name]):.2f}" for name in names]


def test_there_is_a_block_for_each_piece():
    for word in ("MarginLoss", "select_wru", "macro_auc", "mlcl.run("):
        assert any(word in block for block in BLOCKS), word


def test_what_a_newcomer_looks_for_is_at_most_two_hops_away():
    """The questions of explanation/architecture.md: the training loop, the place of a new loss, the memory weight."""
    root, text = README.parent, README.read_text(encoding="utf-8")

    def linked(path: str) -> str:
        assert f"]({path})" in text, path
        return (root / path).read_text(encoding="utf-8")

    assert re.search(r"^def train\(", linked("src/mlcl/training/loop.py"), re.MULTILINE)
    assert re.search(r"```python\n(.*\n)*?@LOSSES\.register", linked("docs/howto/own-loss.md"))
    assert re.search(
        r'^#+ <a id="memory-weight"></a>.*\n(.*\n)*?.*`w_i` is',
        linked("docs/reference/specification.md"),
        re.M,
    )
    page = linked("docs/explanation/architecture.md")
    table = page.partition('id="three-questions"')[2].partition("\n## ")[0]
    for place in (
        "src/mlcl/training/loop.py",
        "howto/own-loss.md",
        "reference/specification.md#memory-weight",
    ):
        assert place in table, place
