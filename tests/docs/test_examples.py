"""The examples run, and show what they are to show. Those that need an extra are in tests/extras."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.slow
def test_the_plain_loop(capsys):
    """It learns, and stores what it may. That a memory pays shows in a whole run of it: docs/guides/engineer.md."""
    main = runpy.run_path(str(EXAMPLES / "pytorch_loop.py"))["main"]
    assert main(200, train_size=1500, epochs=3) > 0.55
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert "over 20 labels, 200 rows stored" in lines[-1]
    main(0, train_size=100, epochs=1)
    assert "over 20 labels, 0 rows stored" in capsys.readouterr().out
