"""Which runs are in which table, and the warnings about those that cannot be read."""

from __future__ import annotations

import json
import shutil

import pytest

from mlcl.cli.main import main
from mlcl.errors import InputError
from mlcl.reports import sections
from mlcl.reports.gather import one_table
from mlcl.sweeps import TableRow
from mlcl.sweeps.record import SweepRecord, read_record, write_record


def change(folder, **fields):
    path = folder / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.fixture
def copies(runs, tmp_path):
    shutil.copytree(runs, tmp_path / "copies")
    return tmp_path / "copies"


def test_runs_of_one_method_are_one_row(runs):
    (section,) = sections([runs])
    assert [(group.label, len(group.runs)) for group in section.groups] == [
        ("er", 2),
        ("ft", 2),
        ("joint", 2),
        ("rldam-wru", 2),
    ]
    (one,) = sections([runs / "er-0"])
    assert [group.label for group in one.groups] == ["er"]


def test_rows_of_one_method_are_distinguished_by_their_settings(copies):
    config = json.loads((copies / "er-1" / "result.json").read_text())["config"]
    change(copies / "er-1", config=config | {"memory": config["memory"] | {"size": 99}})
    (section,) = sections([copies / "er-0", copies / "er-1", copies / "ft-0"])
    assert [group.label for group in section.groups] == ["er, memory.size 30", "er, memory.size 99", "ft"]


def test_the_same_run_twice_counts_once(copies, runs, recwarn):
    (section,) = sections([copies / "er-0", copies, copies / "er-0"])
    assert len(section.runs) == 8
    assert not recwarn.list
    with pytest.warns(UserWarning, match="repeats .*same settings and seed"):
        (section,) = sections([copies / "er-0", runs / "er-0"])
    assert len(section.runs) == 1


def test_benchmarks_are_not_mixed(copies, capsys):
    change(copies / "ft-0", benchmark="c-voc")
    found = sections([copies])
    assert [(section.title, len(section.runs)) for section in found] == [("c-digits", 7), ("c-voc", 1)]
    with pytest.raises(
        InputError, match=r"er-0 is of c-digits .* and .*ft-0 of c-voc .*expected runs of one benchmark"
    ):
        one_table(found)
    assert main(["compare", str(copies)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_same_benchmark_with_other_data_is_another(copies):
    (copies / "ft-0" / "environment.json").write_text(json.dumps({"data": {"fingerprint": "other"}}))
    titles = [section.title for section in sections([copies])]
    assert len(titles) == 2
    assert "3 tasks, data other" in titles[1]


def test_a_folder_that_cannot_be_read_is_a_warning(copies, tmp_path, capsys):
    (copies / "er-0" / "result.json").write_text("{")
    (copies / "ft-0" / "result.json").unlink()
    (tmp_path / "empty").mkdir()
    folders = [
        copies,
        copies / "ft-0",
        tmp_path / "empty",
        tmp_path / "absent",
        copies / "er-1" / "config.yaml",
    ]
    assert main(["compare", *map(str, folders)]) == 0
    captured = capsys.readouterr()
    warnings = captured.err.splitlines()
    assert len(warnings) == 5
    assert all(line.startswith("mlcl: warning: ") for line in warnings)
    for words in (
        "not valid JSON",
        "the run is not finished",
        "no run and no sweep",
        "does not exist",
        "is a file",
    ):
        assert any(words in line for line in warnings), words
    assert "rldam-wru" in captured.out


def test_if_nothing_is_left_that_is_bad_input(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert main(["compare", str(tmp_path / "empty")]) == 2
    assert "no run and no sweep" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(tmp_path / "x.html")]) == 2
    message = capsys.readouterr().err
    assert "no finished run in 2 folders" in message
    assert message.count("\n") == 1
    assert not (tmp_path / "x.html").exists()


def test_compare_puts_sweeps_and_runs_of_one_benchmark_into_one_table(sweep, runs, capsys):
    assert main(["compare", str(sweep), str(runs / "ft-0")]) == 0
    printed = capsys.readouterr().out
    assert "Runs on c-digits" in printed
    assert "vs er" in printed
    assert "ft" in printed


def record(**changes):
    rows = (
        TableRow("er", {}, "er", None, "er", {"macro_auc": 79.17}),
        TableRow("er, M 5", {}, "er", 5, "er", {}),
    )
    values = {
        "table": "t",
        "title": "T",
        "claim": "c: d",
        "benchmark": "c-digits",
        "command": "mlcl reproduce t",
        "seeds": 1,
        "metric": "macro_auc",
        "figure": "points",
        "axis": "",
        "rows": rows,
        "runs": (("er", 0, "runs/er-seed0"),),
        "failed": (("er, M 5", 0, "it broke"),),
    }
    return SweepRecord(**(values | changes))


def test_a_record_is_read_as_it_was_written(tmp_path):
    write_record(record(), tmp_path)
    assert read_record(tmp_path) == record()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[", "not valid YAML"),
        ("rows: &a [1]\ntitle: *a", "aliases"),  # nested aliases can take all memory
        ("3", "is not the record of a sweep"),
        ("rows: []", "is not the record of a sweep"),
        (None, "'nobody' is not a row"),
        ("../..", "outside the sweep"),
    ],
)
def test_a_bad_record_is_refused(tmp_path, text, words):
    if text is None:
        write_record(record(runs=(("nobody", 0, "runs/x"),)), tmp_path)
    elif text == "../..":
        write_record(record(runs=(("er", 0, "../../etc"),)), tmp_path)
    else:
        (tmp_path / "sweep.yaml").write_text(text)
    with pytest.raises(InputError, match=words):
        read_record(tmp_path)


def test_a_sweep_without_a_readable_run_is_refused(tmp_path):
    write_record(record(), tmp_path)
    with pytest.raises(InputError, match=r"cannot be read|no finished run"):
        sections([tmp_path])
