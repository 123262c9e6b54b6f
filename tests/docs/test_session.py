"""The recorded first hour: every command of the page runs, and prints what the page says."""

from __future__ import annotations

import doctest
import math
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "tutorials" / "first-hour.md").read_text(encoding="utf-8")
sys.path.insert(0, str(ROOT / "tools"))

import session  # noqa: E402

DEMO = "make demo"
QUICK = ["--train.epochs", "1", "--train.batch_size", "512", "--model.width", "2"]
"""What the demo is run with here: what it prints has the same words, with other numbers."""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*hardly learnt")
def test_the_first_hour_from_top_to_bottom(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for step, found in session.replay(PAGE, more={DEMO: QUICK}):
        if step.command == DEMO:  # trained this little, a network has hardly learnt, and the run warns of it
            found = re.sub(r"^mlcl: warning: after task .*\n", "", found, flags=re.MULTILINE)
        slack = math.inf if step.command == DEMO else 3.0
        assert session.agrees(step.output, found, slack=slack), f"{step.command} printed:\n{found}"
    assert (tmp_path / "report.html").stat().st_size > 10_000
    assert (tmp_path / "scores.csv").read_text().count("\n") == 301


def test_the_page_goes_through_the_first_hour():
    commands = [step.command for step in session.steps(PAGE)]
    wanted = (
        "pip install .",
        DEMO,
        "mlcl data prepare folder ",
        "mlcl run --benchmark my-photos ",
        "mlcl compare runs/er runs/rldam-wru",
        "mlcl report ",
        "mlcl run --plugin my_memory.py ",
    )
    places = [next(i for i, command in enumerate(commands) if command.startswith(start)) for start in wanted]
    assert places == sorted(places)


def test_what_is_installed_is_this_package():
    """The line that installs is not run, but the project has the command of the page, for the Python of the page."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == "mlcl"
    assert "mlcl" in project["scripts"]
    assert f"Python {project['requires-python'].removeprefix('>=')} or newer" in PAGE


def test_only_commands_that_set_up_or_show_are_left_out():
    left_out = [step.command for step in session.steps(PAGE) if step.command.startswith(session.LEFT_OUT)]
    assert left_out == ["pip install .", "xdg-open report.html"]


def test_the_demo_is_a_run_of_the_makefile():
    assert session._words(DEMO) == ["mlcl", "run", "--out", "runs/demo", "--overwrite"]


@pytest.mark.parametrize(
    ("wanted", "found", "same"),
    [
        ("a 1 b", "a 1 b", True),
        ("a 1 b", "a 2 b", False),
        ("a 1.5", "a 3.5", True),
        ("a 1.5", "a 9.5", False),
        ("a 1.5 (... s)", "a 9.5 (... s)", False),
        ("│ er │ ... │", "│ er  │   12 │", True),
        ("├──┤", "├─────┤", True),
        ("a\nb", "a", False),
        ("", "mlcl: warning: x", False),
    ],
)
def test_what_counts_as_the_same_output(wanted, found, same):
    assert session.agrees(wanted, found) is same


def test_a_failing_command_is_an_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match=r"ended with code 2:\nmlcl: error: unknown command 'rnu'"):
        session.run("mlcl rnu")
    assert session.run("mlcl ls memories | grep wru").startswith("  wru ")


def test_recording_fills_in_what_commands_print(tmp_path):
    page = 'A\n\n```text title="a.txt"\none\ntwo\n```\n\n```console\n$ head -n 1 a.txt\nold\n$ cd x\nkept\n```\nB\n'
    assert session.record(page, tmp_path) == page.replace("old", "one")


def test_examples_of_the_tool():
    found = doctest.testmod(session)
    assert found.attempted >= 4
    assert not found.failed
