"""What a run writes into its folder while it trains."""

from __future__ import annotations

import json

import numpy as np
import pytest

from helpers import settings_for, small_benchmark
from mlcl.config.resolve import config_from
from mlcl.runs.run import run


def test_a_run_folder_holds_what_was_measured(tmp_path):
    result = run(settings_for("rldam-wru"), benchmark=small_benchmark(), out=tmp_path / "run")
    written = json.loads((tmp_path / "run/result.json").read_text())
    assert written["macro_auc"] == pytest.approx(result.macro_auc)
    assert np.allclose(written["matrix"], result.matrix)
    assert np.mean(written["matrix"][-1]) == pytest.approx(written["macro_auc"])
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert sum(line["name"] == "test/macro_auc" for line in lines) == 9
    assert {line["task"] for line in lines} == {0, 1, 2}  # indices in JSON count from 0
    assert {line["epoch"] for line in lines if "epoch" in line} == {0, 1, 2}
    assert config_from(tmp_path / "run/config.yaml") == result.config
    assert {p.name for p in (tmp_path / "run").iterdir()} == {
        "config.yaml",
        "environment.json",
        "metrics.jsonl",
        "result.json",
        "weights.safetensors",
        "memory.safetensors",
        "calibration.json",
        "thresholds.json",
    }
