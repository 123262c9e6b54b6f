"""Threads that leave their cores to other programs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from children import complete
from mlcl.engines import cores, launching


@pytest.mark.parametrize("given", [{}, {"OMP_WAIT_POLICY": "ACTIVE"}, {"GOMP_SPINCOUNT": "7"}])
@pytest.mark.parametrize("busy", [False, True])
def test_waiting_threads_leave_their_cores_unless_the_user_decided(given, busy, monkeypatch):
    monkeypatch.setattr(os, "environ", dict(given))
    monkeypatch.setattr(cores, "running", lambda: 1000 if busy else 1)
    cores.share_cores()
    spins = cores.BUSY_SPINS if busy else cores.SPINS
    assert os.environ == (given or {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": spins})


def test_processes_that_python_launches_leave_their_cores_too(monkeypatch):
    """The first process may have loaded torch long before; the others have not."""

    class Launched(Exception):
        pass

    def popen(command, env, **_):
        raise Launched(env["OMP_WAIT_POLICY"], env["GOMP_SPINCOUNT"])

    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cores, "running", lambda: 1)
    monkeypatch.setattr(subprocess, "Popen", popen)
    with pytest.raises(Launched) as found:
        launching._Others(2, print, (), {})
    assert found.value.args == ("PASSIVE", cores.SPINS)
    assert "GOMP_SPINCOUNT" not in os.environ


def test_what_the_machine_says_of_itself(tmp_path):
    (tmp_path / "loadavg").write_text("0.20 0.18 0.12 5/319 4711\n")
    assert cores.running(str(tmp_path / "loadavg")) == 5
    (tmp_path / "loadavg").write_text("nonsense")
    assert cores.running(str(tmp_path / "loadavg")) == 0


@pytest.mark.skipif(not hasattr(os, "sched_setscheduler"), reason="not Linux")
def test_a_policy_that_the_user_chose_stays():
    code = """
import os
from mlcl.engines.cores import ask_for_short_slices
nice = os.nice(3)  # more than what these tests run with
ask_for_short_slices()
assert os.sched_getscheduler(0) == os.SCHED_OTHER and os.getpriority(os.PRIO_PROCESS, 0) == nice
os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
assert not ask_for_short_slices() and os.sched_getscheduler(0) == os.SCHED_BATCH
"""
    done = complete([sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr
