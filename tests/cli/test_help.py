"""Help, ``mlcl explain``, ``mlcl validate``: what a new user reads first."""

from __future__ import annotations

import re
from functools import cache

import pytest

from mlcl.cli.main import VERBS, main
from mlcl.cli.settings import COMMON, SHORT, short
from mlcl.config.resolve import read_yaml, settings, shipped
from mlcl.sweeps.experiment import experiments


def shown(arguments, capsys):
    try:
        code = main(arguments)
    except SystemExit as end:  # argparse prints help and ends
        code = end.code
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return captured.out


def test_help_of_run_is_short_and_says_what_each_setting_means(capsys):
    text = shown(["run", "--help"], capsys)
    assert len(text.splitlines()) <= 60
    assert max(map(len, text.splitlines())) <= 110
    assert "<class" not in text
    assert "Path to a configuration file" not in text
    for line in (
        "--memory.size N  .*stored.* .default: 200.",
        "--model NAME  .*mlcl ls models",
        "--train.lr X .*0.2",
    ):
        assert re.search(line, text), line


def test_every_setting_is_in_the_long_help(capsys):
    text = shown(["run", "--help", "all"], capsys)
    assert text == shown(["run", "--help-all"], capsys) == shown(["run", "--help=all"], capsys)
    words = set(re.findall(r"--[a-z_.]+", text))
    assert {f"--{short(name)}" for name in settings()} <= words
    assert set(COMMON) <= set(settings())
    assert set(SHORT) <= words


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_without_python_in_it(verb, capsys):
    text = shown([verb, "--help"], capsys)
    assert f"usage: mlcl {verb}" in text
    assert "<class" not in text
    assert len(text.splitlines()) <= 70


def test_help_does_not_break_names(capsys):
    text = shown(["reproduce", "--help"], capsys)
    assert all(name in text for name in experiments())
    assert "(default: that of the table's file, c-digits for most)" in re.sub(r"\s+", " ", text)


def test_mlcl_alone_says_what_to_do_next(capsys):
    text = shown([], capsys)
    assert "What to do next" in text
    for command in re.findall(r"^  mlcl (\w+)", text, re.MULTILINE):
        assert command in VERBS


def test_preparing_a_folder_names_its_test_share(capsys):
    assert "1/3" in re.sub(r"\s+", " ", shown(["data", "prepare", "folder", "--help"], capsys))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("memory.size", ["samples that may be stored", "int", "200", "every memory", "100 (c-scene)"]),
        ("--memory.size", ["samples that may be stored"]),
        ("loss.margin", ["float", "rldam", "3.5 (", "c-coco-small"]),
        ("train.lr", ["learning rate", "0.003 (krt"]),
        ("model.kind", ["resnet8 for images, mlp for vectors", "c-enron, c-scene"]),
        ("memory", ["--memory.size N", "--memory NAME"]),
        ("wru", ["memory.", "--memory.criterion ratio|prevalence"]),
        ("er", ["method.", "--loss bce", "--memory random"]),
        ("devices", ["train.devices", "--devices N"]),
        ("u", ["exact.unlabelled", "--unlabelled X|in-task|pooled"]),
        ("size", ["memory.size: "]),
    ],
)
def test_explain_says_what_is_known_of_a_name(name, words, capsys):
    text = shown(["explain", name], capsys)
    for word in words:
        assert word in text, text


def test_every_setting_is_explained(capsys, monkeypatch):
    monkeypatch.setattr("mlcl.cli.look.read_yaml", cache(read_yaml))  # the shipped configs are read once
    for name in settings():
        first = shown(["explain", name], capsys).splitlines()[0]
        assert first.startswith(f"{name}: "), first
        assert len(first) > len(name) + 5, first


LONG = [pytest.param(name, marks=pytest.mark.slow) for name in experiments() if name != "core"]


def test_a_table_is_checked_on_its_own_benchmark(tmp_path, capsys):
    file = tmp_path / "table.yaml"
    file.write_text("title: Mine\nbenchmark: c-voc-small\nrows: [{label: a, stream: {order: paper}}]\n")
    text = shown(["validate", str(file)], capsys)
    assert "1 rows on c-voc-small" in text
    assert "--benchmark c-voc-small --seeds 3" in text


@pytest.mark.parametrize("name", [*shipped(), "core", *LONG])
@pytest.mark.filterwarnings("ignore:.* of the file is not used")
def test_a_copy_of_everything_shipped_is_valid(name, tmp_path, capsys):
    file = tmp_path / "my file.yaml"
    shown(["cp", name, str(file)], capsys)
    text = shown(["validate", str(file)], capsys)
    assert "a good config" in text if name in shipped() else "a good experiment" in text
    assert f"'{file}'" in text  # quoted: the command that it shows can be pasted


@pytest.mark.parametrize("name", ["c-coco", "table1"])
def test_what_is_shipped_is_validated_by_name(name, capsys):
    assert f"{name}: a good" in shown(["validate", name], capsys)


@pytest.mark.parametrize(
    "words",
    [
        ["reproduce", "core", "--benchmark", "c-scene", "--benchmark=c-enron"],
        ["run", "--seed", "1", "--seed", "2"],
        ["learn", "data", "--out", "a", "--out", "b"],
    ],
)
def test_an_option_that_is_given_twice_is_refused(words, capsys):
    assert main(words) == 2
    assert " is given twice; expected it once." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("memory: {sise: 3}", "unknown field 'memory.sise'. Did you mean 'memory.size'"),
        ("memory: {size: many}", "memory.size is 'many'; expected int"),
        ("- 1", "expected a mapping of settings, got list"),
        ("rows: []", "rows is []; expected a list of rows"),
        ("rows: [{label: a, method: erx}]", "row 'a': unknown method 'erx'"),
        ("rows: [{label: a, loss: {kind: bce, margin: 1}}]", "row 'a': loss 'bce' takes no option 'margin'"),
        ("rows: [{label: a}]\nreference: b", "reference 'b' is not a row"),
        ("a: [", "not valid YAML"),
    ],
)
def test_validate_says_what_is_wrong_in_one_sentence(content, words, tmp_path, capsys):
    file = tmp_path / "mine.yaml"
    file.write_text(content)
    assert main(["validate", str(file)]) == 2
    captured = capsys.readouterr()
    assert words in captured.err, captured.err
    assert str(file) in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""
