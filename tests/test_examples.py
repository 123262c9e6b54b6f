"""The examples run, and show what they are to show. Those that need an extra are in tests/extras."""

from __future__ import annotations

import runpy
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def test_the_plain_loop_forgets_less_with_a_memory(capsys):
    main = runpy.run_path(str(EXAMPLES / "pytorch_loop.py"))["main"]
    with_memory, without = (main(size, pictures=1200) for size in (200, 0))
    assert with_memory > without + 0.03
    assert "after task 5: Macro-AUC" in capsys.readouterr().out
