"""Two processes on a CPU against one: gradients, batch statistics, whole runs, signals, torchrun.

To start a process costs seconds, so each test starts its second one once and does all it can with it (`team`).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import team
from children import complete, wait_until
from helpers import SMALL, small_arrays, small_benchmark
from mlcl.cli.main import main
from mlcl.cli.run import Signals
from mlcl.config.schema import Config, TrainConfig
from mlcl.engines.launching import leave
from mlcl.errors import InputError
from mlcl.runs.checkpoints import Checkpoint, Identity, refuse_changes, warn_of_versions
from mlcl.runs.run import resume, run
from mlcl.training.callbacks import Callback, CallbackList, Interrupted
from mlcl.training.learner import Learner
from mlcl.training.processes import Processes, settled
from mlcl.training.state import State

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.mark.slow
def test_gradients_and_statistics_of_every_loss_are_those_of_one_process():
    """In float64, with 9 rows for two processes, and with 1."""
    first, second = team.primitives()
    assert first.keys() == second.keys()
    assert max(first.values()) < 1e-12
    assert max(second.values()) < 1e-12


@pytest.mark.slow
def test_whole_runs_agree_with_one_process():
    both, sums = team.all_runs()
    assert sums[0] == sums[1]  # the processes hold the same weights
    for name in team.RUNS:
        alone, shared = team.learn(name, 1), both[name]
        assert shared["rows"].tolist() == alone["rows"].tolist(), name
        assert shared["counts"].tolist() == alone["counts"].tolist(), name
        for field in ("matrix", "per_class", "scores"):
            assert np.allclose(shared[field], alone[field], atol=1e-5, equal_nan=True), (name, field)
        for key, value in alone["weights"].items():
            assert torch.allclose(shared["weights"][key], value, atol=1e-5), (name, key)


def children():
    return set(Path("/proc/self/task", str(os.getpid()), "children").read_text().split())


class Terminate(Callback):
    """Sends this process a SIGTERM in the middle of the second task."""

    def __init__(self):
        self.before = children()  # of other tests, such as multiprocessing's tracker, which stays

    def on_step(self, learner, loss):
        if (learner.task_index, learner.epoch, learner.step) == (1, 1, 1):
            self.others = children() - self.before
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["rldam-wru", "taught-committee"])
def test_a_run_of_two_processes_is_stopped_and_goes_on(method, tmp_path):
    config = {
        **SMALL,
        "method": method,
        "train": {**SMALL["train"], "epochs": 2, "devices": 2, "device": "cpu"},
    }
    benchmark, terminate = small_benchmark(), Terminate()
    with Signals() as signals, pytest.raises(Interrupted):
        run(config, benchmark=benchmark, out=tmp_path / "run", callback=CallbackList(terminate, signals))
    newest = max((tmp_path / "run/checkpoints").glob("*.json"))
    assert json.loads(newest.read_text())["position"] == {"task": 1, "epoch": 1, "step": 1, "in_task": True}
    assert terminate.others
    assert not any(Path("/proc", number).exists() for number in terminate.others)

    result = resume(tmp_path / "run", benchmark=benchmark)
    assert not torch.distributed.is_initialized()
    alone = run({**config, "train": {**config["train"], "devices": 1}}, benchmark=benchmark)
    assert np.allclose(result.matrix, alone.matrix, atol=1e-3)
    assert result.learner.memory.rows.tolist() == alone.learner.memory.rows.tolist()
    inputs = benchmark.dataset.test.inputs  # the learner can be used when the others have gone
    assert np.allclose(result.learner.predict(inputs), alone.learner.predict(inputs), atol=1e-4)
    written = json.loads((tmp_path / "run/result.json").read_text())
    assert written["config"]["train"]["devices"] == 2


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    from mlcl.datasets import prepare_source

    folder = tmp_path_factory.mktemp("store")
    arrays = dict(zip(("x_train", "y_train"), small_arrays(n=60), strict=True))
    arrays |= dict(zip(("x_test", "y_test"), small_arrays(n=40, seed=1), strict=True))
    np.savez(folder / "arrays.npz", **arrays)
    prepare_source("arrays", folder / "arrays.npz", out=folder / "store", jobs=1)
    return folder / "store"


def options(store, epochs):
    given = {"benchmark": store, "model": "mlp", "model.hidden": 16, "model.depth": 1, "stream.tasks": 3}
    given |= {"memory.size": 30, "train.batch_size": 16, "train.lr": 0.1, "train.epochs": epochs}
    return [word for name, value in given.items() for word in (f"--{name}", str(value))]


def matrix(folder):
    return json.loads((folder / "result.json").read_text())["matrix"]


@pytest.mark.slow
def test_torchrun(store, tmp_path, capsys):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "mlcl", "run"]
    command += [*options(store, 2), "--out", str(tmp_path / "run")]
    done = complete(command, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(tmp_path / "run")
    assert done.stdout.count("Macro-AUC in points") == 1  # one process talks
    assert "devices: 2" in (tmp_path / "run/config.yaml").read_text()
    assert main(["run", *options(store, 2), "--quiet", "--out", str(tmp_path / "alone")]) == 0
    assert np.allclose(matrix(tmp_path / "run"), matrix(tmp_path / "alone"), atol=1e-3)
    capsys.readouterr()


@pytest.mark.skipif(sys.platform != "linux", reason="threads have names in /proc")
def test_leaving_a_group_ends_its_threads(tmp_path):
    """A thread of a group that outlives its owner may abort the process when Python ends."""
    from torch.nn.parallel import DistributedDataParallel

    def threads():
        found = []
        for path in Path("/proc/self/task").glob("*/comm"):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                found.append(path.read_text().strip())
        return found

    meeting = f"file://{tmp_path / 'meeting'}"
    torch.distributed.init_process_group("gloo", init_method=meeting, rank=0, world_size=1)
    try:
        wrapped = DistributedDataParallel(torch.nn.Linear(2, 2))
        wrapped.itself = [wrapped]  # a cycle, as wrapped networks of a run are in
        wrapped(torch.ones(1, 2)).sum().backward()
        del wrapped
        assert "pt_gloo_runloop" in threads()
    finally:
        leave()
    # A thread that has been joined is listed until the system has cleared it away.
    wait_until(lambda: "pt_gloo_runloop" not in threads())


def test_a_learner_of_several_processes_does_not_begin_alone():
    config = {**SMALL, "train": {**SMALL["train"], "devices": 2, "device": "cpu"}}
    from mlcl.config.resolve import config_from

    with pytest.raises(InputError, match=r"train\.devices is 2, but this process is alone"):
        Learner(config_from(config), small_benchmark())


def test_devices_follow_torchrun(monkeypatch):
    assert settled(Config()) == Config()
    for name, value in {
        "TORCHELASTIC_RUN_ID": "x",
        "RANK": "1",
        "WORLD_SIZE": "4",
        "LOCAL_WORLD_SIZE": "2",
    }.items():
        monkeypatch.setenv(name, value)
    assert settled(Config()).train.devices == 4
    assert settled(Config(train=TrainConfig(devices=4))).train.devices == 4
    with pytest.raises(InputError, match=r"train\.devices is 3, but torchrun started 4 processes"):
        settled(Config(train=TrainConfig(devices=3)))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--devices", "0"], "train.devices is 0; expected a number of at least 1"),
        (["--devices", "two"], "train.devices"),
        (["--train.device", "tpux"], "train.device 'tpux' with train.devices 1 cannot be used"),
    ],
)
def test_bad_devices_are_one_sentence(arguments, words, store, tmp_path, capsys):
    assert main(["run", *options(store, 1), *arguments, "--out", str(tmp_path / "run")]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_pieces_are_dealt_out_in_rounds():
    class Pretended(Processes):
        size, rank = 3, 2

    pieces = [slice(0, 4), slice(4, 8), slice(8, 12), slice(12, 13)]
    dealt = list(Pretended(None).pieces(iter(pieces)))
    assert dealt == [(slice(8, 12), [4, 4, 4]), (slice(13, 13), [1, 0, 0])]


def test_another_number_of_devices_is_a_warning_when_a_run_goes_on():
    before, now = (Identity("x", {"train": {"devices": n}}, "data", "tasks") for n in (2, 1))
    refuse_changes(before, now, source=Path("x"))
    found = Checkpoint(Path("x"), State({}, {}), before, 0, {"torch": "0.1"})
    with pytest.warns(UserWarning, match="0.1") as told:
        warn_of_versions(found, now)
    assert any("begun with train.devices 2 and resumes with 1" in str(warning.message) for warning in told)
