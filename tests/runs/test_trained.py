"""A finished run that somebody sent is no larger in memory than its weights say."""

from __future__ import annotations

import json
import shutil

import pytest
import yaml

from helpers import small_benchmark
from mlcl.errors import InputError
from mlcl.runs.run import run
from mlcl.runs.trained import load_trained


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "run"
    settings = {"method": "er", "model": {"kind": "mlp", "hidden": 8}, "train": {"epochs": 1}}
    run(settings, benchmark=small_benchmark(), out=out)
    return out


def test_a_network_that_its_weights_do_not_hold_is_not_built(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    path = tmp_path / "run" / "config.yaml"
    config = yaml.safe_load(path.read_text())
    config["model"]["hidden"] = 6000
    path.write_text(yaml.safe_dump(config))
    with pytest.raises(InputError, match=r"config\.yaml: model\.hidden is '6000', but result\.json says"):
        load_trained(tmp_path / "run")
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    result["config"]["model"]["hidden"] = 6000
    (tmp_path / "run" / "result.json").write_text(json.dumps(result))
    with pytest.raises(
        InputError, match=r"weights\.safetensors does not fit .* a network of more than 16,\d+,\d+ num"
    ):
        load_trained(tmp_path / "run")
    assert load_trained(finished).network is not None
