"""Experiments: the content of the shipped YAML files, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcl.cli.main import main
from mlcl.config.resolve import merge, resolve
from mlcl.errors import InputError
from mlcl.files import slug
from mlcl.methods.presets import PRESETS
from mlcl.sweeps import experiments, load_experiment, parse_experiment
from mlcl.sweeps.plan import plan_runs

# Tables 1 and 2 of the paper, typed once more by hand: Macro-AUC on C-VOC, C-COCO, C-NUS.
TABLE1 = {
    "ft": (53.62, 69.46, 66.91),
    "ft-rldam": (70.30, 70.07, 67.89),
    "er": (79.17, 72.68, 69.31),
    "er-rs": (79.18, 73.07, 70.14),
    "prs": (76.96, 70.83, 69.64),
    "ocdm": (79.98, 74.79, 73.23),
    "krt": (79.22, 74.30, 75.23),
    "rldam-wru": (88.69, 77.93, 79.77),
}
TABLE1_FORGETTING_VOC = [45.63, 23.24, 3.44, 2.31, 0.95, -0.19, 3.93, 2.05]
TABLE2_VOC = [79.17, 83.04, 84.92, 78.80, 86.29, 88.69]
TABLE3_COCO = {"er": [63.36, 62.68, 63.97, 62.53, 69.47], "rldam-wru": [75.78, 76.03, 77.15, 77.55, 77.93]}


def test_the_shipped_tables_are_those_of_the_paper():
    assert set(experiments()) == {
        *("core", "weights", "presets", "table1", "table2", "table3"),
        *("batch", "ewc", "lambda", "curves", "imbalance"),
        *("beyond", "beyond-parts", "beyond-memory", "beyond-imbalance"),
        *("reweight", "classes", "exact", "fixed", "bytes", "committee", "mlcil", "mlcil-tuned"),
        *("krt", "orders", "equal"),
    }
    for number, benchmark in enumerate(("c-voc", "c-coco-small", "c-nus")):
        rows = load_experiment("table1").rows_on(benchmark)
        assert {row.label: row.published["macro_auc"] for row in rows} == {
            name: values[number] for name, values in TABLE1.items()
        }
    voc = load_experiment("table1").rows_on("c-voc-small")
    assert [row.published["forgetting"] for row in voc] == TABLE1_FORGETTING_VOC
    assert [row.published["macro_auc"] for row in load_experiment("table2").rows_on("c-voc")] == TABLE2_VOC
    sizes = load_experiment("table3").rows_on("c-coco")
    for series, values in TABLE3_COCO.items():
        assert [row.published["macro_auc"] for row in sizes if row.series == series] == values
    assert not load_experiment("table1").rows_on("c-digits")[0].published


@pytest.mark.parametrize("name", sorted(experiments()))
def test_every_shipped_row_is_a_config_that_can_be_run(name):
    experiment = load_experiment(name)
    for row in experiment.rows_on("c-digits"):
        assert resolve(given=merge({"benchmark": "c-digits"}, row.settings)).benchmark == "c-digits"


def test_the_ablation_sets_what_it_says():
    rows = load_experiment("table2").rows_on("c-digits")
    parts = [resolve(given=row.settings) for row in rows]
    assert [(config.loss.kind, config.memory.kind) for config in parts] == [
        ("bce", "random"),
        ("ru", "random"),
        ("ru", "wru"),
        ("margin", "random"),
        ("rldam", "random"),
        ("rldam", "wru"),
    ]


def test_the_axis_multiplies_rows_and_references_follow_it():
    table3 = load_experiment("table3")
    assert [row.x for row in table3.rows_on("c-voc")[::2]] == [200, 500, 1000, 1500, 2000]
    digits = table3.rows_on("c-digits")
    assert [row.x for row in digits[::2]] == [50, 200, 500, 1000]
    assert [row.reference for row in digits[:4]] == ["er, M 50", "er, M 50", "er, M 200", "er, M 200"]
    assert digits[3].settings["memory"]["size"] == 200
    margins = load_experiment("lambda").rows_on("c-coco")
    assert [row.settings["loss"]["margin"] for row in margins] == [n / 10 for n in range(11)]
    assert {row.reference for row in margins} == {margins[0].label}


def test_a_row_may_have_other_settings_on_some_benchmarks():
    text = """
rows:
  - {label: a, method: er, threshold: 0.5, train: {lr: 0.1}, benchmarks: {c-coco: {threshold: 0.7, train: {epochs: 2}}}}
"""
    experiment = parse_experiment("mine", text, source="mine.yaml")
    voc, coco = (experiment.rows_on(name)[0].settings for name in ("c-voc-small", "c-coco-small"))
    assert (voc["threshold"], voc["train"]) == (0.5, {"lr": 0.1})
    assert (coco["threshold"], coco["train"]) == (0.7, {"lr": 0.1, "epochs": 2})


OWN = {
    "mlcil": "voc2012-b0-c4-features",
    "mlcil-tuned": "voc2012-b0-c4-tuned",
    "fixed": "c-voc-features",
    "bytes": "c-voc-features",
    "krt": "c-voc-small",
    "orders": "c-voc-small",
    "reweight": "c-voc-small",
    "classes": "c-enron",
}


@pytest.mark.parametrize("name", [*OWN, "core"])
def test_a_table_runs_on_its_own_benchmark_unless_another_is_chosen(name, tmp_path, monkeypatch):
    own, commands = OWN.get(name, "c-digits"), []
    monkeypatch.setattr("mlcl.cli.reproduce._reproduce", commands.append)
    assert main(["reproduce", name]) == main(["reproduce", name, "--benchmark", "c-scene"])
    command, chosen = commands
    assert (command.benchmark, command.out) == (own, Path("results") / f"{name}-{own}")
    _, runs = plan_runs(command.experiment, benchmark=command.benchmark, seeds=1, out=tmp_path)
    assert {run.config.benchmark for run in runs} == {own}
    assert chosen.benchmark == "c-scene"


def test_all_other_tables_run_on_the_embedded_benchmark():
    found = {name: load_experiment(name).benchmark for name in experiments()}
    assert found == dict.fromkeys(experiments(), "c-digits") | OWN


def test_the_benchmark_of_a_table_may_be_a_folder(tmp_path):
    text = f"rows: [{{label: a}}]\nbenchmark: {tmp_path}"
    assert parse_experiment("mine", text, source="mine.yaml").benchmark == str(tmp_path)


def test_l3a_has_the_ridge_of_the_table_by_default():
    row = next(
        row for row in load_experiment("mlcil").rows_on("voc2012-b0-c4-features") if row.label == "l3a"
    )
    preset = resolve(given={"benchmark": "voc2012-b0-c4-features", "method": "l3a"})
    table = resolve(given=merge({"benchmark": "voc2012-b0-c4-features"}, row.settings))
    assert preset.exact == table.exact
    assert table.exact.ridge == 1000


def test_presets_are_all_methods_except_for_the_base():
    labels = [row.label for row in load_experiment("presets").rows_on("c-digits")]
    assert labels == [name for name in PRESETS if name != "replay"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rows: [", "not valid YAML"),
        ("[]", "expected a mapping with a list of 'rows'"),
        ("rows: []", "expected a list of rows"),
        ("rows: all", "expected a list of rows, or 'presets'"),
        ("rows: [{method: er}]", "row 0 has no 'label'"),
        ("rows: [{label: a, method: er}]\nsubtitle: x", "unknown field 'subtitle'.*Did you mean 'title'"),
        ("rows: [{label: a, method: er}, {label: 'A ', method: ft}]", "rows 'a' and 'A ' have the same name"),
        ("rows: [{label: a, methd: er}]", "row 'a': unknown field 'methd'. Did you mean 'method'"),
        ("rows: [{label: a, memory: {size: many}}]", "memory.size is 'many'"),
        ("rows: [{label: a}]\nreference: b", "reference 'b' is not a row; rows are: a"),
        ("rows: [{label: a}]\nmetric: auc", "metric is 'auc'; expected one of: macro_auc"),
        ("rows: [{label: a}]\nfigure: lines", "figure 'lines' needs an 'axis'"),
        ("rows: [{label: a}]\naxis: 3", "axis is 3; expected a mapping"),
        ("rows: [{label: a}]\naxis: {setting: memory.size}", "values of axis 'memory.size' are None"),
        ("rows: [{label: a}]\naxis: {setting: memory.size, values: [1, 1]}", "expected distinct values"),
        ("rows: [{label: a}]\naxis: {setting: memory.sise, values: [1]}", "Did you mean 'memory.size'"),
        ("rows: [{label: a, memory: {size: 3}}]\naxis: {setting: memory.size, values: [1]}", "is the axis"),
        ("rows: [{label: a, published: 7}]", "published is 7"),
        ("rows: [{label: a, benchmarks: 7}]", "row 'a': benchmarks is 7; expected benchmarks with settings"),
        ("rows: [{label: a, benchmarks: {c-coco: {lr: 1}}}]", "row 'a' on c-coco: unknown field 'lr'"),
        (
            "rows: [{label: a, benchmarks: {b: {memory: {size: 3}}}}]\naxis: {setting: memory.size, values: [1]}",
            "is the axis",
        ),
        ("rows: [{label: a, published: {c-voc: {macro_auc: high}}}]", "published macro_auc is 'high'"),
        ("rows: [{label: a, published: {c-voc: {auc: 1}}}]", "published metric is 'auc'"),
        ("rows: [{label: a}]\ncommon: x", "common is 'x'; expected a mapping"),
        ("rows: [{label: a}]\nbenchmark: 3", "benchmark is 3; expected the name of a benchmark"),
        ("rows: [{label: a}]\nbenchmark: c-digit", "unknown benchmark 'c-digit'.*Did you mean 'c-digits'"),
    ],
)
def test_an_error_in_a_file_is_one_sentence(text, words):
    with pytest.raises(InputError, match=words) as error:
        parse_experiment("mine", text, source="mine.yaml")
    assert str(error.value).startswith("mine.yaml")
    assert "\n" not in str(error.value)


def test_unknown_tables_and_files(tmp_path):
    with pytest.raises(InputError, match=r"unknown table 'tabel1'.*Did you mean 'table1'"):
        load_experiment("tabel1")
    with pytest.raises(InputError, match=r"absent\.yaml: cannot be read"):
        load_experiment(str(tmp_path / "absent.yaml"))


@settings(deadline=None, max_examples=50)
@given(st.text(max_size=30))
def test_a_slug_is_one_safe_part_of_a_path(text):
    made = slug(text)
    assert not set(made) & set("/\\\0 \n")
    assert made not in ("..", ".")


@settings(deadline=None, max_examples=50)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["rows", "label", "axis", "setting", "values", "method", "published", "common", "x"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_any_yaml_is_read_or_refused(content):
    message = ""
    try:
        parse_experiment("any", yaml.safe_dump(content), source="any.yaml")
    except InputError as error:
        message = str(error)
    assert "\n" not in message
