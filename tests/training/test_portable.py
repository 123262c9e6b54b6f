"""``train.portable``: the environment is required, set once, and inherited. The bits: tests/tools/test_reference.py."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from children import complete
from helpers import SMALL, small_benchmark
from mlcl.cli.main import main
from mlcl.config.resolve import config_from, merge
from mlcl.config.schema import TrainConfig
from mlcl.errors import InputError
from mlcl.runs.run import run
from mlcl.training.loop import train
from mlcl.training.portable import (
    ENVIRONMENT,
    NotPortable,
    deterministic,
    require_portable,
    restart,
    set_environment,
)

PORTABLE = TrainConfig(portable=True)
ON_X86 = (platform.system(), platform.machine()) == ("Linux", "x86_64")
needs_x86 = pytest.mark.skipif(not ON_X86, reason="train.portable is for Linux on x86_64")


@pytest.fixture
def unprepared(monkeypatch):
    """An environment that numpy and torch were loaded without what they need, whatever the tests were started with."""
    monkeypatch.delenv("MKL_CBWR", raising=False)
    monkeypatch.delenv("MLCL_PORTABLE", raising=False)
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")


@pytest.fixture
def prepared(unprepared, monkeypatch):
    """An environment as it must be, on a processor with AVX2; each test changes one thing."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    monkeypatch.setattr(np, "show_config", lambda mode: {"SIMD Extensions": {"found": ["X86_V3"]}})


@pytest.mark.usefixtures("unprepared")
def test_without_the_environment_a_run_is_refused_before_it_begins(tmp_path):
    settings = merge(SMALL, {"train": {"portable": True}})
    with pytest.raises(NotPortable, match=r"set_environment\(\) before they are imported") as caught:
        run(settings, benchmark=small_benchmark(), out=tmp_path / "run")
    assert all(f"{name}=" in str(caught.value) for name in ENVIRONMENT)
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("unprepared")
def test_a_process_that_calls_main_is_not_replaced(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(os, "execve", lambda *_: pytest.fail("this process is the tests' own"))
    assert main(["run", "--portable", "--out", str(tmp_path / "out")]) == 2
    assert "call mlcl.training.portable.set_environment()" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("prepared")
def test_what_was_loaded_too_early_is_noticed(monkeypatch):
    require_portable(PORTABLE)
    with monkeypatch.context() as patch:
        patch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
        with pytest.raises(NotPortable):
            require_portable(PORTABLE)
    for name in ("X86_V4", "AVX512_SKX"):
        monkeypatch.setattr(
            np, "show_config", lambda mode, name=name: {"SIMD Extensions": {"found": ["AVX2", name]}}
        )
        with pytest.raises(NotPortable):
            require_portable(PORTABLE)


@pytest.mark.usefixtures("prepared")
def test_other_processors_are_refused_in_a_sentence(monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    with pytest.raises(InputError, match="torch finds DEFAULT here; it needs a processor with AVX2"):
        require_portable(PORTABLE)
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(InputError, match="this is Linux on aarch64; it needs Linux on x86_64"):
        require_portable(PORTABLE)
    require_portable(TrainConfig())  # nothing is required of other runs


@pytest.mark.usefixtures("unprepared")
def test_the_environment_can_be_set_before_numpy_and_torch_only(monkeypatch):
    with pytest.raises(InputError, match="after numpy and torch had been imported"):
        set_environment()
    assert "MKL_CBWR" not in os.environ
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.setattr(sys, "modules", {})
    set_environment()
    assert os.environ == ENVIRONMENT


@pytest.mark.usefixtures("unprepared")
def test_a_command_is_started_anew_once(monkeypatch):
    started = SimpleNamespace(calls=[])
    monkeypatch.setattr(os, "execve", lambda *call: started.calls.append(call))
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "mlcl", "run", "--portable"])
    restart()
    ((path, command, environment),) = started.calls
    assert (path, command[1:]) == (sys.executable, ["-m", "mlcl", "run", "--portable"])
    assert environment.items() >= ENVIRONMENT.items()
    assert environment["PATH"] == os.environ["PATH"]
    monkeypatch.setenv("MLCL_PORTABLE", environment["MLCL_PORTABLE"])  # as the new process finds it
    with pytest.raises(InputError, match="MKL_CBWR is not set"):
        restart()
    assert len(started.calls) == 1


def test_algorithms_are_deterministic_inside_only():
    with deterministic(TrainConfig()):
        assert not torch.are_deterministic_algorithms_enabled()
    memory: Any = torch.utils.deterministic
    before = memory.fill_uninitialized_memory
    with contextlib.suppress(KeyError), deterministic(PORTABLE):
        assert torch.are_deterministic_algorithms_enabled()
        raise KeyError  # a failure inside leaves nothing behind
    assert not torch.are_deterministic_algorithms_enabled()
    assert memory.fill_uninitialized_memory == before


@pytest.mark.usefixtures("prepared")
def test_training_is_deterministic_if_portable():
    from mlcl.training.callbacks import Callback
    from mlcl.training.learner import Learner

    seen = []

    class Spy(Callback):
        def on_step(self, learner, loss):
            seen.append(torch.are_deterministic_algorithms_enabled())

    threads = torch.get_num_threads()
    try:
        for portable in (True, False):
            config = config_from(merge(SMALL, {"train": {"epochs": 1, "portable": portable}}))
            train(Learner(config, small_benchmark()), callback=Spy())
            assert set(seen) == {portable}
            seen.clear()
    finally:
        torch.set_num_threads(threads)


SPY = """
import json, os
from mlcl.methods import PRESETS, Preset
PRESETS["spied"] = Preset("a plugin must register something", "")
with open({path!r}, "a") as file:
    file.write(json.dumps([os.getpid(), dict(os.environ)]) + "\\n")
"""
QUICK = """
data: digits
method: er
model: {kind: resnet8, width: 2}
memory: {size: 20}
train: {epochs: 1, batch_size: 256, portable: true, devices: 2}
"""


@needs_x86
@pytest.mark.slow
def test_the_command_line_sets_the_environment_once_and_others_inherit_it(tmp_path):
    """A plugin, which every process loads first of all, writes down who they are and what they find."""
    log, out = tmp_path / "log", tmp_path / "run"
    (tmp_path / "spy.py").write_text(SPY.format(path=str(log)))
    (tmp_path / "quick.yaml").write_text(QUICK)
    plain = {name: value for name, value in os.environ.items() if name not in ENVIRONMENT}
    plain["PYTHONPATH"] = os.pathsep.join(sys.path)

    def mlcl(*words):
        command = [sys.executable, "-m", "mlcl", *words, "--plugin", tmp_path / "spy.py", "--quiet"]
        done = complete(command, env=plain)
        assert done.returncode == 0, done.stderr
        calls = [json.loads(line) for line in log.read_text().splitlines()]
        log.unlink()
        return [(pid, environment.items() >= ENVIRONMENT.items()) for pid, environment in calls]

    first = mlcl("run", tmp_path / "quick.yaml", "--out", out)
    main_process, child = first[0][0], first[-1][0]
    assert first == [(main_process, False), (main_process, True), (child, True)]
    assert child != main_process
    before = json.loads((out / "result.json").read_text())
    assert before["config"]["train"]["portable"] is True
    (out / "result.json").unlink()  # as if it had been stopped
    again = mlcl("resume", out)
    assert [prepared for _, prepared in again] == [False, True, True]
    after = json.loads((out / "result.json").read_text())
    assert after["matrix"] == before["matrix"]
