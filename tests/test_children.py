"""The helpers for child processes do what tests rely on: nothing is left, not even what is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from children import LIMIT, TOKEN, child, complete, descendants, wait_until

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks at /proc")
SLEEPER = "import subprocess, sys; subprocess.Popen(['sleep', '6000']); print('ready', flush=True); sys.stdin.read()"


def test_a_stopped_child_and_its_own_children_are_killed():
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    before = descendants(os.environ[TOKEN]).keys()
    with child([sys.executable, "-c", SLEEPER], **pipes) as process:
        assert process.stdout.readline() == b"ready\n"
        # The pipe of a new process closes a moment before the kernel shows its environment in /proc.
        wait_until(lambda: len(descendants(os.environ[TOKEN]).keys() - before) == 2, process)
        found = descendants(os.environ[TOKEN]).keys() - before
        for number in found:
            os.kill(number, signal.SIGSTOP)
    assert process.returncode == -signal.SIGKILL
    wait_until(lambda: not descendants(os.environ[TOKEN]).keys() & found)


def test_a_child_that_ends_before_the_event_fails_the_wait():
    with (
        child(
            [sys.executable, "-c", "raise SystemExit('no')"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
        pytest.raises(AssertionError, match=r"ended with code 1.*no"),
    ):
        wait_until(lambda: False, process)


@pytest.mark.slow
def test_an_orphan_in_a_session_of_its_own_fails_the_test(pytester_folder):
    """As the fixture of `conftest` sees it: in a session of pytest of its own."""
    (pytester_folder / "test_orphan.py").write_text(
        "import subprocess, sys\n"
        "def test_orphan():\n"
        "    code = \"import subprocess; subprocess.Popen(['sleep', '6000'], start_new_session=True)\"\n"
        "    subprocess.run([sys.executable, '-c', code], check=True)\n"
        "def test_tidy():\n"
        "    subprocess.run([sys.executable, '-c', ''], check=True)\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(pytester_folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = complete(command, cwd=pytester_folder, env=environment)
    assert "2 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "left behind: {" in done.stdout
    assert "sleep 6000" in done.stdout


@pytest.fixture
def pytester_folder(tmp_path):
    text = Path(__file__).with_name("conftest.py").read_text(encoding="utf-8")
    (tmp_path / "conftest.py").write_text(text.replace("_GRACE = 120.0", "_GRACE = 0.5"), encoding="utf-8")
    return tmp_path


def test_the_limit_is_one_of_minutes():
    assert LIMIT >= 300
