"""Settings without effect: which they are is measured by runs, and who hears of them."""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import pytest

from helpers import command_config
from mlcl import run
from mlcl.cli.main import main
from mlcl.config.resolve import checked, config_from, merge, resolve, shipped, to_yaml
from mlcl.config.schema import TrainConfig, to_dict
from mlcl.config.unused import OF_STEPS, unused_settings, without_effect
from mlcl.methods.presets import PRESETS
from mlcl.streams import Benchmark

OTHER = {
    "train.epochs": 3,
    "train.batch_size": 7,
    "train.optimiser": "adam",
    "train.lr": 0.01,
    "train.momentum": 0.1,
    "train.weight_decay": 0.3,
    "train.backbone_lr": 0.2,
    "train.freeze": "all",
    "train.freeze_statistics": True,
    "train.schedule": "cosine",
    "train.lr_drops": [0.0],
    "train.lr_factor": 0.9,
    "train.class_power": 1.0,
    "train.average": 0.9,
    "checkpoint.every": 1,
    "loss.scale": 3.0,
    "memory.size": 5,
    "memory.downscale": 1,
    "memory.batch_size": 3,
    "memory.sampling": "balanced",
    "memory.weight": "size",
    "memory.weight_scale": 2.0,
}
"""Another value than the default for each setting that may be without effect."""


def nested(name, value):
    section, _, key = name.partition(".")
    return {section: {key: value, **({"weight": "size"} if key == "weight_scale" else {})}}


@pytest.fixture(scope="module")
def benchmark():
    rng = np.random.default_rng(0)
    y = (rng.random((80, 15)) < 0.3).astype(np.uint8)
    x = (y + rng.normal(0, 0.5, y.shape)).astype(np.float32)
    return Benchmark.from_arrays(x[:60], y[:60], x[60:], y[60:], tasks=3, seed=0)


def scores(benchmark, *layers):
    """The bits of all measures of a run."""
    base = {"model": "linear", "train": {"epochs": 2, "batch_size": 16, "threads": 1}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        result = run(merge(base, *layers), benchmark=benchmark)
    return np.concatenate([result.per_class.ravel(), [result.pooled["map"]]]).tobytes()


METHODS = {
    "solved": {"method": "exact"},
    "cosine": {"method": "er", "train": {"schedule": "cosine"}},
    "no memory": {"method": "ft"},
}


@pytest.mark.parametrize("method", METHODS)
def test_settings_that_are_called_unused_change_no_bit_of_a_run(method, benchmark):
    plain = scores(benchmark, METHODS[method])
    unused = unused_settings(config_from(METHODS[method]))
    assert unused
    for name in unused:
        assert scores(benchmark, METHODS[method], nested(name, OTHER[name])) == plain, name


def test_settings_of_training_that_are_not_called_unused_change_a_trained_run(benchmark):
    """The list has no setting too many: with a method that trains and stores, each one of it makes a difference."""
    method = {"method": "er", "memory": {"size": 20}}
    plain = scores(benchmark, method)
    # A linear model has neither a backbone nor a batch normalisation, and vectors have one size.
    same = {
        "train.backbone_lr",
        "train.freeze",
        "train.freeze_statistics",
        "checkpoint.every",
        "memory.downscale",
    }
    for name in OTHER.keys() - same:
        assert scores(benchmark, method, nested(name, OTHER[name])) != plain, name


def test_every_setting_of_training_is_of_steps_or_named_here():
    others = {"normalise", "eval_batch_size", "device", "devices", "precision", "in_memory", "threads"}
    assert {f.name for f in dataclasses.fields(TrainConfig)} - set(OF_STEPS) == others | {
        "compile",
        "portable",
    }


@pytest.mark.parametrize("method", PRESETS)
def test_each_setting_without_effect_is_named_with_its_value_and_the_reason(method):
    given = checked({"method": method, "memory": {"size": 77}, "train": {"lr": 0.125}}, "command line")
    config = resolve(given=given)
    found = list(without_effect(config, given))
    solved, stores = config.model.head == "exact", config.memory.kind != "none"
    assert len(found) == (not stores) + solved
    for name, value in [("memory.size", "77")] * (not stores) + [("train.lr", "0.125")] * solved:
        (sentence,) = [text for text in found if text.startswith(f"{name} is {value}, which has no effect: ")]
        assert sentence.endswith(f"(method {method!r})")


@pytest.mark.parametrize("name", shipped())
@pytest.mark.parametrize("method", ["exact", "ft", "best"])
def test_what_a_shipped_config_its_copy_or_a_run_sets_for_all_methods_is_no_mistake(name, method, tmp_path):
    copy, again = tmp_path / "copy.yaml", tmp_path / "config.yaml"
    copy.write_text(shipped()[name])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = config_from({"benchmark": name, "method": method})
        assert command_config([str(copy), "--method", method]) == command_config([name, "--method", method])
        again.write_text(to_yaml(config))
        assert config_from(again) == config
        assert config_from(to_dict(config)) == config
        assert command_config([str(again)]) == config


def warned(capsys):
    return [line for line in capsys.readouterr().err.splitlines() if "no effect" in line]


def test_the_command_line_warns_in_one_line_each_and_runs(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")  # a narrow terminal breaks no warning
    rng = np.random.default_rng(0)
    y = (rng.random((40, 4)) < 0.4).astype(np.uint8)
    np.savez(tmp_path / "a.npz", x_train=y + 0.5, y_train=y, x_test=y - 0.5, y_test=y)
    assert (
        main(["data", "prepare", "arrays", "--root", f"{tmp_path}/a.npz", "--out", f"{tmp_path}/store"]) == 0
    )
    capsys.readouterr()
    words = ["--benchmark", f"{tmp_path}/store", "--method", "exact", "--stream.tasks", "2", "--quiet"]
    assert main(["run", *words, "--train.lr", "0.1", "--memory.size", "100", "--out", f"{tmp_path}/run"]) == 0
    why = "model.head is 'exact', which is solved and not trained (method 'exact')"
    lines = [
        f"mlcl: warning: train.lr is 0.1, which has no effect: {why}",
        "mlcl: warning: memory.size is 100, which has no effect: memory.kind is 'none' (method 'exact')",
    ]
    assert sorted(warned(capsys)) == sorted(lines)
    # Its config has these settings, and runs again without a word; so does what continues it.
    assert main(["run", f"{tmp_path}/run/config.yaml", "--quiet", "--out", f"{tmp_path}/again"]) == 0
    assert main(["validate", f"{tmp_path}/run"]) == 0
    assert warned(capsys) == []
    # Zero is what happens.
    assert (
        main(["run", *words, "--train.epochs", "0", "--memory.size", "0", "--out", f"{tmp_path}/zero"]) == 0
    )
    assert warned(capsys) == []
    more = np.concatenate([y, y[:, :1]], 1)
    np.savez(tmp_path / "b.npz", x_train=y + 0.5, y_train=more, x_test=y - 0.5, y_test=more)
    assert (
        main(["data", "prepare", "arrays", "--root", f"{tmp_path}/b.npz", "--out", f"{tmp_path}/more"]) == 0
    )
    extend = ["extend", f"{tmp_path}/run", "--data", f"{tmp_path}/more", "--quiet"]
    assert main([*extend, "--out", f"{tmp_path}/one"]) == 0
    assert warned(capsys) == []
    assert main([*extend, "--train.epochs", "3", "--out", f"{tmp_path}/two"]) == 0
    assert warned(capsys) == [f"mlcl: warning: train.epochs is 3, which has no effect: {why}"]


def test_a_short_file_is_by_hand_unless_the_command_line_chooses_the_method(tmp_path, capsys):
    file = tmp_path / "mine.yaml"
    file.write_text("method: exact\nmemory: {size: 100}\n")
    with pytest.warns(UserWarning, match="memory.size is 100, which has no effect"):
        config_from(file)
    with pytest.warns(UserWarning, match="memory.size is 100, which has no effect"):
        command_config([str(file)])
    assert main(["validate", str(file)]) == 0
    assert len(warned(capsys)) == 1
    file.write_text("method: er\nmemory: {size: 100}\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert command_config([str(file), "--method", "exact"]).model.head == "exact"


def test_a_sweep_warns_of_what_changes_none_of_its_rows(tmp_path):
    from mlcl.sweeps.experiment import load_experiment
    from mlcl.sweeps.plan import plan_runs

    path = tmp_path / "mine.yaml"
    rows = ["  - {label: a, method: exact}", "  - {label: b, method: ft}"]
    head = ["title: mine", "claim: none", "reference: a", "rows:"]
    path.write_text("\n".join([*head, *rows]))

    def plan(given):
        experiment = load_experiment(str(path))
        return plan_runs(experiment, benchmark="c-digits", seeds=1, out=tmp_path / "out", given=given)

    with pytest.warns(
        UserWarning, match="memory.size is 9, which has no effect in any row of mine: memory.kind"
    ):
        plan({"memory": {"size": 9}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan({"train": {"lr": 0.125}})  # of b
