"""Jobs in workers: every answer once, failures as exceptions, lost workers, and no process that stays."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest

import pool_jobs
from children import child, complete, wait_until
from mlcl.engines.children import ProcessError
from mlcl.engines.cluster import Cluster, choose_engine
from mlcl.engines.cores import cores
from mlcl.engines.pool import LocalWorkers, Lost, Needs, ThisProcess
from mlcl.errors import InputError

PATHS = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@pytest.mark.parametrize("engine", [ThisProcess(), LocalWorkers(1), LocalWorkers(3)])
def test_every_job_has_its_answer(engine):
    jobs = list(range(20))
    assert sorted(engine.each(pool_jobs.square, jobs)) == [(job, job * job) for job in jobs]


def test_large_answers_and_more_workers_than_jobs():
    found = dict(LocalWorkers(8).each(pool_jobs.big, [1, 5_000_000]))
    assert {job: len(answer) for job, answer in found.items()} == {1: 1, 5_000_000: 5_000_000}
    assert list(LocalWorkers(2).each(pool_jobs.square, [])) == []


def test_workers_have_one_thread_and_what_the_jobs_need(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    engine, needs = LocalWorkers(2), Needs(environment={"POOL_TEST": "here"})
    found = [answer for _, answer in engine.each(pool_jobs.process, [1, 2, 3], needs=lambda _: needs)]
    assert {answer[1:] for answer in found} == {("1", "here")}
    assert len({answer[0] for answer in found} - {os.getpid()}) in (1, 2)
    assert "POOL_TEST" not in os.environ


def test_a_lost_worker_loses_its_own_job_only():
    found = dict(LocalWorkers(2).each(pool_jobs.die_at_three, [1, 2, 3, 4, 5]))
    assert {job: answer for job, answer in found.items() if job != 3} == {1: 1, 2: 2, 4: 4, 5: 5}
    assert isinstance(found[3], Lost)
    assert "ended by signal 9" in found[3].reason


def test_a_job_whose_worker_was_lost_is_given_out_again(tmp_path, monkeypatch):
    monkeypatch.setenv("POOL_MARKS", str(tmp_path))
    begun = []
    found = LocalWorkers(2).each(pool_jobs.die_once, [1, 2, 3], attempts=2, started=begun.append)
    assert sorted(found) == [(1, 1), (2, 2), (3, 3)]
    assert sorted(begun) == [1, 2, 3]


@pytest.mark.parametrize(
    ("function", "error", "words"),
    [
        (pool_jobs.refuse, InputError, r"^the second is bad$"),
        (pool_jobs.full, OSError, "No space left on device"),
        (pool_jobs.odd, ProcessError, "^a worker failed: KeyError: 'an odd one'"),
    ],
)
def test_an_exception_of_a_job_is_raised_here(function, error, words):
    with pytest.raises(error, match=words) as caught:
        list(LocalWorkers(2).each(function, [1, 2, 3]))
    if error is OSError:
        assert (caught.value.errno, caught.value.filename) == (28, "somewhere")
    if error is ProcessError:
        assert "pool_jobs.py" in caught.value.__notes__[0]


def test_reports_come_before_the_answer():
    said = []
    found = LocalWorkers(2).each(
        pool_jobs.count_up, [2, 3], progress=lambda job, number: said.append((job, number))
    )
    assert sorted(found) == [(2, 2), (3, 3)]
    assert sorted(said) == [(2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]


def test_closing_ends_the_workers():
    """That none stays is asserted after every test."""
    stream = LocalWorkers(2).each(pool_jobs.square, list(range(1000)))
    with contextlib.closing(stream):
        next(stream)


def test_workers_end_with_a_process_that_is_killed(tmp_path):
    code = (
        "import sys, pool_jobs as p, mlcl.engines.pool as e; [*e.LocalWorkers(1).each(p.sleep, sys.argv[1:])]"
    )
    with child([sys.executable, "-c", code, tmp_path / "pid"], env=PATHS) as process:
        wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), process)
        process.send_signal(signal.SIGKILL)
        process.wait()
    wait_until(lambda: not Path("/proc", (tmp_path / "pid").read_text()).exists())


def test_a_script_needs_no_guard_and_its_folder_is_not_searched_first(tmp_path):
    (tmp_path / "script.py").write_text(
        "import pool_jobs\nfrom mlcl.engines.pool import LocalWorkers\n"
        "print(sorted(LocalWorkers(2).each(pool_jobs.square, [1, 2])))\n"
    )
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "queue.py").write_text("raise SystemExit('a file of the folder was run')\n")
    done = complete([sys.executable, tmp_path / "script.py"], env=PATHS, cwd=tmp_path / "here")
    assert (done.returncode, done.stdout) == (0, "[(1, 1), (2, 4)]\n"), done.stderr


def test_the_choice_of_an_engine():
    assert choose_engine("local") == LocalWorkers(cores())
    assert choose_engine("local", jobs=3) == LocalWorkers(3)
    with pytest.raises(InputError, match="--jobs is 0; expected at least 1"):
        choose_engine("local", jobs=0)
    with pytest.raises(InputError, match="--address a:1 is for --engine ray; the engine is 'local'"):
        choose_engine("local", address="a:1")
    pytest.importorskip("ray", reason="ray is an extra")
    assert choose_engine("ray", address="a:1") == Cluster("a:1", None)
