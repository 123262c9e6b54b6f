"""The README's code runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_a_block_of_the_readme_runs(block):
    exec(compile(block, "README.md", "exec"), {})


def test_there_is_a_block_for_each_piece():
    for word in ("MarginLoss", "select_wru", "macro_auc", "mlcl.run("):
        assert any(word in block for block in BLOCKS), word
