"""What holds for all tests: the user's cache is left alone, time is no judge, and no child process is left behind."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

from children import TOKEN, descendants
from mlcl import plugins
from mlcl.registry import REGISTRATIONS

# Container images set PYTHONDONTWRITEBYTECODE; every worker would then compile and rewrite all test modules each time,
# which is half of the collection. What is written, __pycache__ as ever, is ignored by git.
sys.dont_write_bytecode = False

# A busy machine may take any time for an example.
settings.register_profile("mlcl", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("mlcl")

_TOKEN = f"{os.getpid()}-{time.time_ns()}"
os.environ[TOKEN] = _TOKEN  # before test modules are imported: some copy the environment
_GRACE = 120.0
"""Seconds in which the descendants of a killed process must notice that it is gone."""
_started = False


def _notice(event: str, _: object) -> None:
    global _started
    if event in ("subprocess.Popen", "os.fork", "os.posix_spawn"):
        _started = True


sys.addaudithook(_notice)


_TRACKERS = ("multiprocessing.resource_tracker", "joblib.externals.loky.backend.resource_tracker")
"""Modules that keep one helper for the life of this process, which starts no process itself."""


def _has_children() -> bool:
    """Whether there is a child, ended or not, besides the trackers: to look through /proc takes milliseconds."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    trackers = {_tracker(sys.modules[name]) for name in _TRACKERS if name in sys.modules}
    try:
        children = {
            int(n) for path in Path("/proc/self/task").glob("*/children") for n in path.read_text().split()
        }
    except OSError:  # a thread has ended meanwhile
        return True
    return not children or not children <= trackers  # none is listed where the kernel has no such file


def _tracker(module: ModuleType) -> int | None:
    return getattr(getattr(module, "_resource_tracker", None), "_pid", None)


@pytest.fixture(scope="session", autouse=True)
def _home(tmp_path_factory):
    """Tests never touch the user's cache."""
    patch = pytest.MonkeyPatch()
    patch.setenv("MLCL_HOME", str(tmp_path_factory.mktemp("home")))
    yield
    patch.undo()


@pytest.fixture(autouse=True)
def _no_plugin_is_left():
    """Nothing of a plugin outlives its test: every process that a later one starts would load it, and torch with it."""
    before, count = dict(plugins._loaded), len(REGISTRATIONS)
    yield
    if plugins._loaded.keys() != before.keys():
        REGISTRATIONS.undo_to(count)
        plugins._loaded.clear()
        plugins._loaded.update(before)


@pytest.fixture
def no_workers(monkeypatch):
    """The runs of a sweep are done in this process: a worker takes longer to start than they take."""
    from mlcl.engines.pool import ThisProcess

    monkeypatch.setattr("mlcl.sweeps.sweep.choose_engine", lambda *_, **__: ThisProcess())


@pytest.fixture(autouse=True)
def _no_child_is_left():
    """A test fails, and the process is killed, if one that it started is alive when it is over."""
    global _started
    if not Path("/proc/self/environ").exists():
        yield
        return
    before = descendants(_TOKEN) if _has_children() else {}
    _started = False
    yield
    if not _started and not _has_children():
        return
    deadline = time.monotonic() + _GRACE
    while left := {number: word for number, word in descendants(_TOKEN).items() if number not in before}:
        if time.monotonic() > deadline:
            break
        gc.collect()  # the workers of a loader end with it
        time.sleep(0.05)
    for number in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    assert not left, f"left behind: {left}"
