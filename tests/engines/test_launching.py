"""Processes that fail, die or are left alone: an exception in the first one, and an end for all."""

from __future__ import annotations

import os
import signal
import socket
import sys

import pytest
import torch

import team_failing
from children import complete
from mlcl.engines import launching
from mlcl.engines.children import ProcessError
from mlcl.errors import InputError

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        ("input", InputError, r"^the second cannot come\.$"),
        ("error", ProcessError, "process 1 of the run failed: ValueError: the second has enough"),
        ("dead", ProcessError, "process 1 of the run failed: it ended with code 9"),
    ],
)
def test_the_failure_of_another_process_is_an_exception_here(kind, error, words):
    with pytest.raises(error, match=words) as caught:
        team_failing.failing(kind)
    assert ("team_failing.py" in "".join(getattr(caught.value, "__notes__", ()))) == (kind == "error")
    assert not torch.distributed.is_initialized()


@pytest.mark.slow
def test_a_process_that_does_not_notice_the_failure_of_another_is_ended():
    code = "import team_failing, mlcl.engines.launching as l; l.PATIENCE = 0.5; team_failing.unnoticed()"
    done = complete([sys.executable, "-c", code], env=ENVIRONMENT)
    assert done.returncode == 1
    assert done.stderr == "mlcl: error: process 1 of the run failed: it ended with code 9\n"


def test_the_others_end_when_the_first_process_is_killed():
    code = "import team_failing; team_failing.abandoned()"
    # Returns when the second process, which holds the same pipe, has ended too: of itself it sleeps longer.
    done = complete([sys.executable, "-c", code], env=ENVIRONMENT)
    assert done.returncode == -signal.SIGKILL
    assert done.stderr.strip().isdecimal()


def test_the_port_where_processes_meet_is_held_until_they_do():
    others = launching._start(2, team_failing.abandoned, (), {})
    try:
        with socket.socket() as somebody, pytest.raises(OSError, match="in use"):
            somebody.bind(("127.0.0.1", others.port))
    finally:
        others.end()
