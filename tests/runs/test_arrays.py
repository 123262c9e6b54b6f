"""Runs on arrays that were given in Python: recorded as what they are, and never mistaken for shipped data."""

from __future__ import annotations

import json

import pytest
import yaml

from helpers import SMALL, small_benchmark
from mlcl.cli.main import main
from mlcl.config.resolve import config_from
from mlcl.errors import InputError
from mlcl.runs.folder import read_config
from mlcl.runs.run import resume, run
from mlcl.training.callbacks import Callback, Interrupted

QUICK = {**SMALL, "train": {"epochs": 1, "batch_size": 32, "lr": 0.1}}


class Stop(Callback):
    """Stops after the first task."""

    def on_task_end(self, learner):
        raise Interrupted


def photos(**options):
    return small_benchmark(name="my-photos", tasks=2, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "photos"
    run({**QUICK, "method": "er"}, benchmark=photos(setting="disjoint", seed=3), out=out)
    return out


def test_a_run_on_arrays_records_them(folder):
    benchmark = photos(setting="disjoint", seed=3)
    result = json.loads((folder / "result.json").read_text())
    config = yaml.safe_load((folder / "config.yaml").read_text())
    data = f"arrays:{benchmark.dataset.fingerprint}"
    for found in (config, result["config"]):
        assert (found["benchmark"], found["data"]) == ("my-photos", data)
        assert found["stream"] | {"tasks": 2, "setting": "disjoint", "seed": 3} == found["stream"]
    assert result["benchmark"] == "my-photos"
    assert result["data"]["fingerprint"] == benchmark.dataset.fingerprint
    assert (result["data"]["train"], result["data"]["test"]) == ([120, 6], [80, 6])
    assert json.loads((folder / "environment.json").read_text())["data"] == result["data"]


def test_its_config_is_refused_without_the_arrays(folder, capsys, tmp_path):
    first = (folder / "config.yaml").read_text().splitlines()[0]
    assert first.startswith("# trained on arrays given in Python")
    assert main(["run", str(folder / "config.yaml"), "--out", str(tmp_path / "again")]) == 2
    error = capsys.readouterr().err
    assert "arrays that were given in Python" in error
    assert "mlcl.Benchmark.from_arrays" in error
    assert "mlcl data prepare arrays" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "again").exists()


def test_with_the_arrays_it_runs_again(folder, tmp_path):
    again = run(folder / "config.yaml", benchmark=photos(setting="disjoint", seed=3), out=tmp_path / "again")
    assert json.loads((folder / "result.json").read_text())["matrix"] == again.matrix.tolist()


def test_a_stopped_run_on_arrays_resumes_with_them_only(tmp_path):
    out = tmp_path / "run"
    with pytest.raises(Interrupted):
        run(QUICK, benchmark=photos(), out=out, callback=Stop())
    with pytest.raises(InputError, match="arrays that were given in Python"):
        resume(out)
    with pytest.raises(InputError, match="the data changed"):
        resume(out, benchmark=small_benchmark(name="my-photos", tasks=2, seed=9, n=90))
    assert resume(out, benchmark=photos()).config == read_config(out)


def test_an_explicit_order_is_recorded_and_read_back(tmp_path):
    result = run(QUICK, benchmark=small_benchmark(tasks=[[5, 0, 1], [2, 3, 4]]), out=tmp_path / "run")
    assert read_config(tmp_path / "run").stream.order == [[5, 0, 1], [2, 3, 4]]
    assert [ids.tolist() for ids in (task.classes for task in result.learner.tasks)] == [[5, 0, 1], [2, 3, 4]]


def test_a_model_that_nobody_chose_fits_the_arrays():
    settings = {key: value for key, value in QUICK.items() if key != "model"}
    assert run(settings, benchmark=photos()).config.model.kind == "mlp"
    assert config_from(settings).model.kind == "resnet8"
