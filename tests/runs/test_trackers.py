"""Trackers hear every value once, under ids that outlive an interruption; stand-ins take the place of the services."""

from __future__ import annotations

import contextlib
import json
import sys
from types import SimpleNamespace

import pytest

from helpers import SMALL, small_benchmark
from mlcl.cli.main import main
from mlcl.config.resolve import config_from
from mlcl.errors import InputError
from mlcl.runs.folder import TRACKERS as IDS
from mlcl.runs.run import run
from mlcl.runs.trackers import parse_trackers, tracked
from mlcl.training.learner import Learner


class Service:
    """Stands in for the modules wandb and mlflow and remembers what they were told."""

    def __init__(self):
        self.logged, self.ended, self.started = [], [], []
        self.tracking = SimpleNamespace(MlflowClient=lambda: self)

    def init(self, **options):
        self.started.append(options["id"])
        return SimpleNamespace(
            log=lambda values, step: self.logged.extend(
                (name, value, step) for name, value in values.items()
            ),
            finish=lambda exit_code: self.ended.append(exit_code),
        )

    def get_experiment_by_name(self, name):
        return None

    def create_experiment(self, name):
        return "experiment"

    def create_run(self, experiment, run_name):
        self.started.append(f"run{len(self.started)}")
        return SimpleNamespace(info=SimpleNamespace(run_id=self.started[-1]))

    def update_run(self, name, status):
        self.started.append(name)

    def log_param(self, *_):
        pass

    def log_metric(self, name, key, value, step):
        self.logged.append((key, value, step))

    def set_terminated(self, name, status):
        self.ended.append(status)


@pytest.fixture(params=["wandb", "mlflow"])
def service(request, monkeypatch):
    stand_in = Service()
    monkeypatch.setitem(sys.modules, request.param, stand_in)
    return request.param, stand_in


CONFIG = SMALL | {"method": "er"}


def test_values_and_ends_are_told(service, tmp_path):
    name, heard = service
    assert parse_trackers(f"{name}, {name}") == (name,)
    out = tmp_path / "run"
    with tracked((name,), out, config_from(CONFIG)) as callback:
        result = run(CONFIG, benchmark=small_benchmark(), out=out, callback=callback)
    losses = [(value, step) for key, value, step in heard.logged if key == "train/loss"]
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    written = [line["value"] for line in lines if line["name"] == "train/loss"]
    assert losses == [(value, step) for step, value in enumerate(written, 1)]
    told = [(value, step) for key, value, step in heard.logged if key == "test/macro_auc"]
    assert told[-1] == (pytest.approx(result.macro_auc), 9)
    assert [step for _, step in told] == [3, 6, 9]
    assert heard.ended == [{"wandb": 0, "mlflow": "FINISHED"}[name]]
    assert json.loads((out / IDS).read_text()) == {name: heard.started[0]}


def test_what_a_joint_run_measures_comes_after_its_last_epoch(service, tmp_path):
    # W&B drops values of an earlier step than the last one.
    name, heard = service
    config = CONFIG | {"method": "joint"}
    with tracked((name,), tmp_path / "run", config_from(config)) as callback:
        run(config, benchmark=small_benchmark(), out=tmp_path / "run", callback=callback)
    steps = [step for _, _, step in heard.logged]
    assert steps == sorted(steps)
    assert {step for key, _, step in heard.logged if key == "test/macro_auc"} == {9}


def test_a_run_that_is_gone_on_with_keeps_its_id_and_a_new_one_does_not(service, tmp_path):
    name, heard = service
    config = config_from(CONFIG)
    (tmp_path / IDS).write_text(json.dumps({name: "old"}))
    with tracked((name,), tmp_path, config) as callback:
        callback.on_task_start(SimpleNamespace(task_index=1, epoch=0, step=0), None, 3)
    assert heard.started == ["old"]
    with contextlib.suppress(KeyError), tracked((name,), tmp_path, config) as callback:
        callback.on_task_start(SimpleNamespace(task_index=0, epoch=0, step=0), None, 3)
        raise KeyError
    assert heard.started[-1] != "old"
    assert json.loads((tmp_path / IDS).read_text()) == {name: heard.started[-1]}
    assert heard.ended[-1] == {"wandb": 1, "mlflow": "FAILED"}[name]


def test_unknown_and_missing_trackers_are_told(monkeypatch):
    with pytest.raises(InputError, match=r"unknown tracker 'wandbb'.*Did you mean 'wandb'"):
        parse_trackers("wandbb")
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(InputError, match=r"pip install 'mlcl\[mlflow\]'"):
        parse_trackers("mlflow")
    assert parse_trackers("") == ()


def test_tensorboard_writes_event_files(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is an extra")
    out = tmp_path / "run"
    with tracked(("tensorboard",), out, config_from(CONFIG)) as callback:
        run(CONFIG, benchmark=small_benchmark(), out=out, callback=callback)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(out / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("train/loss")] == list(range(1, 10))


@pytest.mark.slow
def test_run_and_resume_tell_the_trackers_of_the_run(service, tmp_path, capsys, monkeypatch):
    name, heard = service
    out = tmp_path / "run"
    small = ["--benchmark", "c-digits", "--method", "ft", "--model.width", "16", "--stream.tasks", "2"]
    small += ["--train.epochs", "2", "--train.batch_size", "512", "--quiet", "--out", str(out)]
    learn, left = Learner.learn, [3]

    def stopped(self, *given):
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return learn(self, *given)

    monkeypatch.setattr(Learner, "learn", stopped)
    assert main(["run", *small, "--track", name]) == 3
    assert heard.ended == [1 if name == "wandb" else "FAILED"]
    assert main(["resume", str(out), "--quiet"]) == 0
    assert heard.ended[1:] == [0 if name == "wandb" else "FINISHED"]
    assert [step for key, _, step in heard.logged if key == "train/loss"] == [1, 2, 3, 4]
    capsys.readouterr()
    assert main(["run", *small, "--overwrite", "--track", "nobody"]) == 2
    assert "unknown tracker 'nobody'" in capsys.readouterr().err
