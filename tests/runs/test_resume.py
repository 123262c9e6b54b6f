"""`mlcl run` killed, stopped and resumed as its users meet it: processes, signals, exit codes, sentences."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from children import child, complete
from helpers import small_arrays
from mlcl.cli.main import main
from mlcl.datasets import prepare_source
from mlcl.engines.launching import endings

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
MLP = ["--model", "mlp", "--model.hidden", "16", "--model.depth", "1"]
SHORT = ["--memory.size", "30", "--train.batch_size", "16", "--train.lr", "0.1", "--stream.tasks", "3"]

# Runs jobs in children that kill themselves at the n-th of all places where a run touches the disk, steps, tests,
# or updates its memory. One host loads torch and Fabric (and does nothing with them, so that forks are safe) for all.
HOST = """
import json, os, signal, sys
from pathlib import Path
import torch
import lightning_fabric
import mlcl.cli.run
from mlcl.training.learner import Learner
from mlcl.cli.main import main
from mlcl.training.evaluation import Evaluations
from mlcl.memories import Memory

PLACES = ((os, "fsync"), (os, "replace"), (Learner, "learn"), (Evaluations, "add"),
          (Learner, "start_task"), (Memory, "update"), (torch.optim.SGD, "step"))

def child(arguments, left):
    def deadly(owner, name):
        function = getattr(owner, name)
        def tick():
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        def wrapped(*args, **kwargs):
            tick()
            result = function(*args, **kwargs)
            tick()
            return result
        setattr(owner, name, wrapped)
    for owner, name in PLACES:
        deadly(owner, name)
    sys.stdout = open(os.devnull, "w")
    os._exit(main(arguments))

def work(arguments, out, kills):
    codes = []
    for left in [*kills, -1]:
        begun = Path(out, "config.yaml").exists()
        pid = os.fork()
        if pid == 0:
            child(["resume", out, "--quiet"] if begun else arguments, left)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        if codes[-1] != -signal.SIGKILL:
            return codes

print(json.dumps([work(*job) for job in json.loads(sys.argv[1])]))
"""


def make_store(folder, *, images):
    train, test = (small_arrays(images=images, n=n, seed=seed) for n, seed in ((60, 0), (40, 1)))
    arrays = dict(zip(("x_train", "y_train", "x_test", "y_test"), (*train, *test), strict=True))
    np.savez(folder / "arrays.npz", **arrays)
    prepare_source("arrays", folder / "arrays.npz", out=folder / "store", jobs=1)
    return folder / "store"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("features"), images=False)


def options(store, method, *, epochs=2):
    return ["--benchmark", str(store), "--method", method, "--train.epochs", str(epochs), *MLP, *SHORT]


def matrix(folder):
    return json.loads((folder / "result.json").read_text())["matrix"]


@pytest.mark.slow
def test_runs_killed_again_and_again_end_with_the_same_matrix(store, tmp_path):
    """Four SIGKILLs at random places per method, 26 in all: inside steps, writes, evaluation, memory updates."""
    images_store = make_store(tmp_path, images=True)
    given = {name: options(store, name) for name in ("rldam-wru", "er-rs", "prs", "ocdm", "ewc", "lwf")}
    given["krt"] = [
        "--benchmark",
        str(images_store),
        "--method",
        "krt",
        "--model.width",
        "8",
        "--train.epochs",
        "1",
        *SHORT,
    ]
    rng = np.random.default_rng(7)
    jobs = []
    for name, settings in given.items():
        kills = rng.integers(12, 60, 2 if name == "krt" else 4).tolist()
        arguments = ["run", *settings, "--checkpoint.every", "3", "--quiet", "--out", str(tmp_path / name)]
        jobs.append((arguments, str(tmp_path / name), kills))
        jobs.append(
            (
                ["run", *settings, "--quiet", "--out", f"{tmp_path / name}-whole"],
                f"{tmp_path / name}-whole",
                [],
            )
        )
    command = [sys.executable, "-c", HOST, json.dumps(jobs)]
    done = complete(command, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    codes = json.loads(done.stdout)
    assert codes == [[-signal.SIGKILL] * len(kills) + [0] for _, _, kills in jobs], done.stderr
    assert sum(len(kills) for _, _, kills in jobs) == 26
    for name in given:
        assert matrix(tmp_path / name) == matrix(tmp_path / f"{name}-whole")
        assert not (tmp_path / name / "checkpoints").exists()


@pytest.mark.slow
def test_runs_with_plugins_killed_again_and_again_end_with_the_same_bits(store, tmp_path):
    """A gradient that is projected, a head of class means and a memory of losses, each killed four times."""
    examples = Path(__file__).resolve().parents[2] / "examples"
    chosen = {"agem": ["agem"], "nearest_mean": ["icarl"], "highest_loss": ["er", "--memory", "highest-loss"]}
    rng, jobs = np.random.default_rng(3), []
    for name, method in chosen.items():
        given = ["run", "--plugin", str(examples / f"{name}.py"), *options(store, method[0]), *method[1:]]
        for out, kills in ((name, rng.integers(12, 60, 4).tolist()), (f"{name}-whole", [])):
            path = str(tmp_path / out)
            jobs.append(([*given, "--checkpoint.every", "3", "--quiet", "--out", path], path, kills))
    done = complete([sys.executable, "-c", HOST, json.dumps(jobs)], env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[-signal.SIGKILL] * len(kills) + [0] for *_, kills in jobs], (
        done.stderr
    )
    for name in chosen:
        assert matrix(tmp_path / name) == matrix(tmp_path / f"{name}-whole")
        files = [tmp_path / out / "weights.safetensors" for out in (name, f"{name}-whole")]
        assert files[0].read_bytes() == files[1].read_bytes()


# A run that reports its fourth step and waits there until it may go on, so that nothing depends on how fast it is.
PAUSED = """
import sys
from mlcl.cli.main import main
from mlcl.training.learner import Learner
learn, calls = Learner.learn, 0
def pausing(self, *args):
    global calls
    calls += 1
    if calls == 4:
        print("paused", flush=True)
        sys.stdin.readline()
    return learn(self, *args)
Learner.learn = pausing
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_writes_a_checkpoint_and_says_how_to_go_on(number, store, tmp_path, capsys):
    out = tmp_path / "a run"
    given = options(store, "rldam-wru")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    # Ctrl-C as a terminal gives it: a shell that started the tests in the background would have it ignored.
    code = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler){PAUSED}"
    command = [sys.executable, "-c", code, "run", *given, "--out", str(out)]
    with child(command, env=ENVIRONMENT, **pipes) as process:
        assert "paused\n" in iter(process.stdout.readline, ""), process.communicate()[1]
        # Another process on the same folder is refused meanwhile.
        assert main(["resume", str(out)]) == 2
        assert "in use by another process" in capsys.readouterr().err
        process.send_signal(number)
        stdout, stderr = process.communicate("go on\n")
    assert process.returncode == 3, stderr
    assert f"interrupted; resume with: mlcl resume '{out}'" in stderr
    assert "Traceback" not in stderr
    assert str(out) not in stdout
    newest = max((out / "checkpoints").glob("*.json"))
    assert json.loads(newest.read_text())["position"]["step"] > 0
    assert main(["resume", str(out), "--quiet"]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert main(["run", *given, "--quiet", "--out", str(tmp_path / "whole")]) == 0
    assert matrix(out) == matrix(tmp_path / "whole")


@pytest.mark.slow
def test_a_run_whose_terminal_has_gone_can_be_resumed(store, tmp_path, capsys):
    out = tmp_path / "run"
    here, there = pty.openpty()
    command = [sys.executable, "-c", PAUSED, "run", *options(store, "er"), "--out", str(out)]
    with child(command, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=there, stderr=there) as process:
        os.close(there)
        shown = b""
        while b"paused" not in shown:
            shown += os.read(here, 4096)
        os.close(here)  # what is written from now on is an error
        process.send_signal(signal.SIGHUP)
        process.communicate(b"go on\n")
    assert process.returncode == 3
    newest = max((out / "checkpoints").glob("*.json"))
    assert json.loads(newest.read_text())["position"]["step"] > 0
    assert main(["resume", str(out), "--quiet"]) == 0


def test_a_program_that_shall_outlive_its_terminal_does():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        assert endings() == [signal.SIGTERM]
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        assert endings() == [signal.SIGTERM, signal.SIGHUP]
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.slow
def test_a_second_interrupt_does_not_wait(store, tmp_path):
    code = """
import os, signal, sys, time
from mlcl.cli.main import main
from mlcl.training.learner import Learner
learn = Learner.learn
def slow(self, *args):
    if self.task_index == 1:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(6000)
    return learn(self, *args)
Learner.learn = slow
sys.exit(main(sys.argv[1:]))
"""
    out = tmp_path / "run"
    command = [sys.executable, "-c", code, "run", *options(store, "er"), "--quiet", "--out", str(out)]
    done = complete(command, env=ENVIRONMENT)  # the limit is below the sleep: it was cut short
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    assert main(["resume", str(out), "--quiet"]) == 0
    assert main(["run", *options(store, "er"), "--quiet", "--out", str(tmp_path / "whole")]) == 0
    assert matrix(out) == matrix(tmp_path / "whole")


def test_resuming_a_finished_run_says_so(store, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["run", *options(store, "ft", epochs=1), "--quiet", "--out", str(out)]) == 0
    before = {p.name: p.read_bytes() for p in out.iterdir()}
    capsys.readouterr()
    assert main(["resume", str(out)]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{out}\n"
    assert "is finished" in captured.err
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before
    (out / "result.json").write_text('{"matrix": [[')
    assert main(["resume", str(out)]) == 2
    assert (
        "is not valid JSON; expected a file of a run; to do the run again: mlcl run"
        in capsys.readouterr().err
    )


def test_a_full_disk_is_one_sentence_and_the_run_goes_on_later(store, tmp_path, capsys, monkeypatch):
    import errno

    out, fsync, count = tmp_path / "run", os.fsync, 0

    def full(number):
        nonlocal count
        count += 1
        if count > 20:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(number)

    monkeypatch.setattr(os, "fsync", full)
    arguments = ["run", *options(store, "er"), "--checkpoint.every", "1", "--quiet", "--out", str(out)]
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "No space left on device; the last good checkpoint stays; resume with: mlcl resume" in captured.err
    monkeypatch.setattr(os, "fsync", fsync)
    assert main(["resume", str(out), "--quiet"]) == 0
    assert main(["run", *options(store, "er"), "--quiet", "--out", str(tmp_path / "whole")]) == 0
    assert matrix(out) == matrix(tmp_path / "whole")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["resume"], "required: DIR"),
        (["resume", "absent"], "absent holds no run"),
        (["resume", "x" * 300], "xxx holds no run"),
        (["run", "--checkpoint.every", "0"], "checkpoint.every is 0; expected a number of at least 1"),
    ],
)
def test_bad_input_is_one_sentence(arguments, words, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1
