"""From tables to runs, and which earlier runs count as done."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mlcl.config.resolve import config_from
from mlcl.config.schema import flat, to_dict
from mlcl.errors import InputError
from mlcl.plugins import Plugin
from mlcl.runs.folder import read_result_json
from mlcl.sweeps import load_experiment, parse_experiment, plan_runs
from mlcl.sweeps.plan import earlier


def plan(name="core", given=None, seeds=2, out=None, **options):
    return plan_runs(
        load_experiment(name),
        benchmark="c-digits",
        seeds=seeds,
        out=out or Path("out"),
        given=given,
        **options,
    )


@pytest.mark.slow
def test_the_first_seed_comes_first_and_names_are_stable():
    rows, runs = plan()
    assert [(run.label, run.seed) for run in runs] == [(row.label, seed) for seed in (0, 1) for row in rows]
    assert [run.folder.as_posix() for run in runs[:2]] == ["out/runs/ft-seed0", "out/runs/ft-rldam-seed0"]
    assert all(run.config.seed == run.seed and run.config.train.threads == 1 for run in runs)
    assert [to_dict(run.config) for run in runs] == [to_dict(run.config) for run in plan()[1]]


def test_settings_override_those_of_all_rows_that_take_them():
    _, runs = plan(given={"train": {"epochs": 2, "threads": 2}, "loss": {"margin": 0.5}}, seeds=1)
    assert all(run.config.train.epochs == 2 and run.config.train.threads == 2 for run in runs)
    assert {run.label: run.config.loss.options.get("margin") for run in runs} == {
        "ft": None,
        "er": None,
        "ft-rldam": 0.5,
        "rldam-wru": 0.5,
    }


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("core", {"method": "er"}, "--method is what the rows of core choose"),
        ("core", {"seed": 3}, "--seed .*the number of seeds is set with --seeds"),
        ("core", {"loss": {"kind": "ru"}}, "--loss.kind is what the rows"),
        ("table3", {"memory": {"size": 5}}, "--memory.size is what the rows of table3 choose"),
        ("core", {"regulariser": {"strength": 2.0}}, "--regulariser.strength is an option of no row of core"),
    ],
)
def test_settings_that_would_make_rows_the_same_are_refused(name, given, words):
    with pytest.raises(InputError, match=words):
        plan(name, given)


def test_no_seed_is_refused():
    with pytest.raises(InputError, match="--seeds is 0; expected at least 1"):
        plan(seeds=0)


def test_a_reference_that_is_not_a_row_on_a_benchmark_is_refused():
    text = "rows: [{label: er, method: er}]\nreference: nobody\naxis: {setting: memory.size, values: [5, 6]}"
    with pytest.raises(
        InputError, match=r"reference 'nobody' is not a row on c-digits; rows are: er, memory.size 5"
    ):
        parse_experiment("mine", text, source="mine.yaml").rows_on("c-digits")


@pytest.fixture
def done(tmp_path):
    """A planned run with the files of a finished one."""
    run = plan(seeds=1, out=tmp_path, given={"train": {"epochs": 6}})[1][0]
    run.folder.mkdir(parents=True)
    result = {
        "macro_auc": 70.0,
        "matrix": [[70.0]],
        "config": to_dict(run.config),
        "benchmark": "c-digits",
        "method": "ft",
        "seed": 0,
    }
    (run.folder / "result.json").write_text(json.dumps(result))
    (run.folder / "environment.json").write_text(json.dumps({"data": {"fingerprint": "abc"}}))
    return run


def test_only_the_same_settings_on_the_same_data_are_done(done):
    assert earlier(done, "abc").result["macro_auc"] == 70.0
    other = replace(done, config=replace(done.config, train=replace(done.config.train, epochs=99)))
    assert earlier(other, "abc").other == "train.epochs is 6 there and 99 here"
    assert "fingerprint abc, now it is xyz" in earlier(done, "xyz").other
    assert earlier(replace(done, folder=done.folder.with_name("absent")), "abc").result is None


def test_a_changed_plugin_makes_another_run(done):
    plugin = Plugin("/somewhere/mine.py", "1" * 64)
    path = done.folder / "environment.json"
    environment = json.loads(path.read_text())
    path.write_text(json.dumps(environment | {"plugins": [plugin.record()]}))
    same = replace(done, plugins=(plugin,))
    assert earlier(same, "abc").result is not None
    other = replace(done, plugins=(replace(plugin, sha256="2" * 64),))
    assert earlier(other, "abc").result is None
    assert earlier(other, "abc").other == "the plugin /somewhere/mine.py has changed since"
    path.write_text(json.dumps(environment | {"plugins": "none"}))
    assert earlier(same, "abc").other


def test_a_run_from_before_a_setting_existed_had_its_default(done):
    path = done.folder / "result.json"
    result = json.loads(path.read_text())
    del result["config"]["train"]["eval_batch_size"], result["config"]["augment"]
    path.write_text(json.dumps(result))
    assert earlier(done, "abc").result is not None


def test_a_committee_from_before_a_setting_of_committees_existed_had_its_default(done):
    """A section that only some runs have; its defaults are not among those of every config."""
    committee = replace(done, config=config_from({"method": "committee"}))
    path = done.folder / "result.json"
    result = json.loads(path.read_text())
    result["config"] = to_dict(committee.config)
    del result["config"]["committee"]["teach"]
    path.write_text(json.dumps(result))
    assert earlier(committee, "abc").result is not None
    taught = replace(done, config=config_from({"method": "committee", "committee": {"teach": 1.0}}))
    assert earlier(taught, "abc").other == "committee.teach is 0.0 there and 1.0 here"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is not valid JSON; expected the result of a finished run"),
        ("[]", "holds a list; expected a JSON object"),
        ("{}", "has no field 'macro_auc'"),
        ('{"macro_auc": "high"}', "macro_auc is 'high'"),
        ('{"macro_auc": true}', "macro_auc is 'True'"),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_a_corrupt_result_is_one_sentence_and_not_done(done, content, words):
    (done.folder / "result.json").write_text(content)
    with pytest.raises(InputError, match=words):
        read_result_json(done.folder)
    state = earlier(done, "abc")
    assert state.result is None
    assert "result.json" in state.broken


def test_a_result_of_absurd_size_is_not_read(done, monkeypatch):
    monkeypatch.setattr("mlcl.runs.folder.MAX_RESULT_BYTES", 10)
    with pytest.raises(InputError, match="larger than 10 bytes"):
        read_result_json(done.folder)


def test_flat_names():
    assert flat({"a": {"b": {"c": 1}}, "d": [2]}) == {"a.b.c": 1, "d": [2]}
