"""``mlcl theory`` as its users meet it: on a benchmark, on a store, and on a finished run."""

from __future__ import annotations

import csv
import json
import re
import shutil
import warnings
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure
from safetensors.numpy import load_file, save_file

from helpers import SMALL, small_arrays, small_benchmark
from mlcl.cli.main import main
from mlcl.cli.report import FILES
from mlcl.config.resolve import merge
from mlcl.datasets import prepare_source
from mlcl.errors import InputError
from mlcl.labels import LabelCounts
from mlcl.memories import MEMORIES
from mlcl.reports import theory as report
from mlcl.reports.drawing import to_file
from mlcl.reports.theory import diagnosis_figure
from mlcl.runs.continuing import update
from mlcl.runs.recording import load_benchmark
from mlcl.runs.run import run
from mlcl.streams import Benchmark
from mlcl.theory import class_risks, diagnose, diagnose_run, optimal_margins

NAMES = np.array(["ant", "bee", "cat", "dog", "eel", "[red]fox", "gnu", "hen"])


def make_store(folder, name, columns):
    arrays = {}
    for split, (n, seed) in {"train": (120, 0), "test": (60, 1)}.items():
        x, y = small_arrays(n=n, classes=8, seed=seed)
        keep = y[:, columns].any(1)
        arrays |= {f"x_{split}": x[keep], f"y_{split}": y[keep][:, columns]}
    np.savez(folder / f"{name}.npz", **arrays, classes=NAMES[columns])
    prepare_source("arrays", folder / f"{name}.npz", out=folder / name, jobs=1)
    return folder / name


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A store, another with new classes, and runs on them."""
    base = tmp_path_factory.mktemp("theory")
    store, more = make_store(base, "store", range(6)), make_store(base, "more", [6, 7])
    shared = merge(SMALL, {"benchmark": str(store), "stream": {"tasks": 3}})
    for method in ("rldam-wru", "er", "krt-r", "joint"):
        model = {"memory": {"kind": "herding"}, "method": "er"} if method == "krt-r" else {"method": method}
        run(merge(shared, model), out=base / method)
    update(base / "rldam-wru", str(more), out=base / "extended", known=False)
    return base


def read(out):
    rows = {name: list(csv.DictReader((out / name).open())) for name in FILES if name.endswith("csv")}
    return json.loads((out / "theory.json").read_text()), rows["theory-tasks.csv"], rows["theory-classes.csv"]


@pytest.mark.slow
def test_a_benchmark_with_the_memory_that_a_run_would_have(folder, tmp_path, capsys):
    """Nothing is trained, and what is looked at is exactly what the run stored."""
    out = tmp_path / "out"
    settings = ["--benchmark", str(folder / "store"), "--stream.tasks", "3", "--memory.size", "30"]
    assert main(["theory", *settings, "--model", "mlp", "--out", str(out), "--classes"]) == 0
    output = capsys.readouterr().out
    assert output.splitlines()[-1] == str(out)
    for words in ("store, seed 0: memory wru holds 30 of 30", "not a guarantee", "1-Lipschitz", "[red]fox"):
        assert words in output
    assert "Risk ratio" not in output
    assert sorted(p.name for p in out.iterdir()) == sorted(FILES)
    found, tasks, classes = read(out)
    stored = json.loads((folder / "rldam-wru/result.json").read_text())["memory"]
    assert [task["stored"] for task in found["tasks"]] == stored
    by_run = diagnose_run(folder / "rldam-wru")
    for task, other in zip(found["tasks"], by_run.tasks, strict=True):
        assert task["gap"] == pytest.approx(other.gap)
        assert task["memory_complexity"] == pytest.approx(other.memory.complexity)
        assert task["proposition"]["difference"] < 1e-6
    assert found["network"] is None
    assert len(tasks) == 3
    assert [row["class"] for row in classes] == [
        NAMES[k] for k in np.concatenate([t.class_ids for t in by_run.tasks])
    ]
    assert float(tasks[0]["data_deviation"]) == pytest.approx(found["tasks"][0]["data_deviation"])
    assert classes[0]["risk_ratio"] == ""


@pytest.mark.slow
def test_a_finished_run_with_its_own_memory_and_network(folder, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["theory", str(folder / "er"), "--out", str(out)]) == 0
    output = capsys.readouterr().out
    assert "memory random holds 30 of 30" in output
    assert "Risk ratio: by the trained network" in output
    assert "(Loss 'bce' has none; these are RLDAM's.)" in output
    found, _, classes = read(out)
    # by hand: rows from the file, logits through the public door, risks by the sum over samples
    from mlcl.runs.trained import load_trained

    trained = load_trained(folder / "er")
    memory = load_file(folder / "er/memory.safetensors")
    benchmark = load_benchmark(trained.config)
    rows = {row["class"]: row for row in classes}
    for t, task in enumerate(benchmark.tasks):
        logits = trained.logits(benchmark.dataset.train.inputs[task.train])[:, task.classes]
        labels, margins = benchmark.task_labels(task), optimal_margins(task.counts)
        kept = np.searchsorted(task.train, memory[f"{t}.rows"])
        full = class_risks(logits, labels, task.counts, margins=margins)
        part = class_risks(logits[kept], labels[kept], task.counts, margins=margins)
        own = class_risks(logits[kept], labels[kept], LabelCounts.of(labels[kept]), margins=margins)
        for k, name in enumerate(benchmark.classes[c] for c in task.classes):
            assert float(rows[name]["risk"]) == pytest.approx(full[k], rel=1e-5)
            assert float(rows[name]["risk_ratio"]) == pytest.approx(part[k] / full[k], rel=1e-5)
            if rows[name]["risk_ratio_own"]:
                assert float(rows[name]["risk_ratio_own"]) == pytest.approx(own[k] / full[k], rel=1e-5)
    assert found["network"] == "trained"


@pytest.mark.parametrize(
    ("method", "tasks", "stored"), [("krt-r", 3, 30), ("joint", 1, 0), ("extended", 4, 30)]
)
def test_every_kind_of_run(folder, method, tasks, stored, capsys):
    with_data = method != "extended"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = diagnose_run(folder / method)
    assert found.trained == with_data
    assert (found.stored, len(found.tasks)) == (stored, tasks)
    warned = [str(w.message) for w in caught if "not kept" in str(w.message)]
    assert len(warned) == (not with_data)
    if not with_data:
        assert found.tasks[-1].classes == ("gnu", "hen")
    assert main(["theory", str(folder / method), "--classes"]) == 0
    captured = capsys.readouterr()
    assert ("the run was extended, and the data of its old tasks are not kept" in captured.err) != with_data
    assert ("no memory" in captured.out) == (stored == 0)
    assert ("How far the memory is" in captured.out) == (stored > 0)


@pytest.mark.parametrize("kind", MEMORIES.names())
def test_every_memory_of_any_size(kind, folder):
    shared = {"benchmark": str(folder / "store"), "stream": {"tasks": 2}, "model": "mlp"}
    if kind == "herding":
        with pytest.raises(InputError, match=r"memory\.kind is 'herding', which chooses by the features"):
            diagnose(shared | {"memory": {"kind": kind}})
        return
    for size in (0, 7, 60, 10_000):
        found = diagnose(shared | {"memory": {"kind": kind, "size": size}})
        rows = sum(task.counts.total for task in found.tasks)
        assert found.stored == (0 if kind == "none" else min(size, rows))
        drawn = diagnosis_figure(found)
        assert ("Tau of" in drawn.alt) == (found.stored > 0)
        table = report.to_json(found)
        assert len(table["classes"]) == 6
        if found.stored == rows:  # the memory is the data
            assert all(task.memory == task.data and task.gap_prevalence == 0 for task in found.tasks)
            assert all(task.ratio_counts == pytest.approx(1) for task in found.tasks)


def test_wru_is_nearer_than_random_rows():
    """What WRU is for, on the embedded benchmark; the exact expectation is the reference."""
    wru, random = (diagnose({"memory": {"kind": kind}}) for kind in ("wru", "random"))
    assert all(task.gap_prevalence < task.random.gap_prevalence / 2 for task in wru.tasks)
    assert all(abs(task.ratio_counts - 1).max() < 0.5 for task in wru.tasks)
    assert sum(task.gap for task in wru.tasks) < sum(task.gap for task in random.tasks)


def test_margins_of_the_settings(folder):
    shared = {"benchmark": str(folder / "store"), "stream": {"tasks": 1}, "model": "mlp"}
    loss = {"kind": "rldam", "margin": 3.0, "power": 0.5, "margin_count": "minority", "base": "hinge"}
    (task,) = diagnose(shared | {"loss": loss}).tasks
    least = np.minimum(task.counts.positive, task.counts.negative)
    assert task.margins == pytest.approx(3 / np.sqrt(least))
    assert main(["theory", "--loss.margin", "0"]) == 2


def test_every_axis_of_the_figure_has_numbers(folder):
    """Counts of less than one order of magnitude have no power of ten between them."""
    figure = Figure()
    diagnosis_figure(
        diagnose({"benchmark": str(folder / "store"), "model": "mlp", "stream": {"tasks": 2}})
    ).draw(figure)
    for axes in figure.axes:
        low, high = axes.xaxis.get_view_interval()
        assert sum(low <= place <= high for place in axes.xaxis.get_majorticklocs()) > 1, axes.get_title()


@pytest.mark.slow
def test_the_figure_has_words_and_is_the_same_every_time(folder, tmp_path, capsys):
    assert main(["theory", str(folder / "rldam-wru"), "--out", str(tmp_path)]) == 0
    drawn = diagnosis_figure(diagnose_run(folder / "rldam-wru"))
    assert (tmp_path / "theory.svg").read_bytes() == to_file(drawn, "svg")
    root = ElementTree.fromstring((tmp_path / "theory.svg").read_text())
    words = {child.tag.split("}")[1]: child.text for child in root if child.text}
    assert root.get("role") == "img"
    assert words["title"] == "Theory as a diagnostic"
    assert words["desc"] == read(tmp_path)[0]["figure"] == drawn.alt
    assert re.search(r"numeric optimum of Proposition 1 differ by \S+ at most", words["desc"])
    assert "by the network" in words["desc"]
    assert b"/Title" in (tmp_path / "theory.pdf").read_bytes()


@pytest.mark.slow
def test_files_are_kept_unless_overwrite_is_given(folder, tmp_path, capsys):
    (tmp_path / "theory.svg").write_text("mine")
    (tmp_path / "notes.txt").write_text("mine")
    assert main(["theory", str(folder / "joint"), "--out", str(tmp_path)]) == 2
    assert "theory.svg exists; choose another folder, or add --overwrite" in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes.txt", "theory.svg"]
    assert (tmp_path / "theory.svg").read_text() == "mine"
    assert main(["theory", str(folder / "joint"), "--out", str(tmp_path), "--overwrite"]) == 0
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "theory.svg").read_text() != "mine"


def test_a_run_whose_data_are_gone_still_has_terms_and_gaps(tmp_path):
    arrays = small_benchmark()
    run(SMALL | {"method": "rldam-wru"}, benchmark=arrays, out=tmp_path / "run")
    with pytest.warns(UserWarning, match="arrays that were given in Python.*so risks are left out"):
        found = diagnose_run(tmp_path / "run")
    assert not found.trained
    expected = diagnose(SMALL | {"method": "rldam-wru"}, benchmark=arrays)
    assert [task.gap for task in found.tasks] == [task.gap for task in expected.tasks]
    assert all(np.isnan(task.ratio).all() for task in found.tasks)


def damaged(folder, tmp_path, **changes):
    path = shutil.copytree(folder / "rldam-wru", tmp_path / "damaged")
    content = load_file(path / "memory.safetensors")
    for name, change in changes.items():
        content[name.replace("_", ".")] = change(content[name.replace("_", ".")])
    save_file(content, path / "memory.safetensors")
    result = json.loads((path / "result.json").read_text())
    del result["sha256"]
    (path / "result.json").write_text(json.dumps(result))
    return path


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("0_classes", lambda a: a + 99, "task 1 has the classes"),
        ("0_classes", lambda a: a - a, "task 1 has the classes"),
        ("0_positive", lambda a: a + 1, "total"),
        ("0_negative", lambda a: a - 1, "contradict"),
        ("0_labels", lambda a: a + 7, "only 0 and 1"),
        ("0_labels", lambda a: a[:3], "shape"),
        ("header", lambda a: a[:-4], "does not fit"),
    ],
)
def test_a_memory_that_does_not_fit_is_one_sentence(folder, tmp_path, capsys, name, change, words):
    path = damaged(folder, tmp_path, **{name: change})
    assert main(["theory", str(path)]) == 2
    error = capsys.readouterr().err
    assert re.search(words, error), error
    assert error.count("\n") == 1


def test_rows_of_other_tasks_are_noticed(folder, tmp_path):
    path = damaged(folder, tmp_path, **{"0_rows": lambda a: a + 10_000})
    with pytest.warns(UserWarning, match="the memory holds rows of other tasks"):
        assert not diagnose_run(path).trained


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing"], "unknown config 'nothing'"),
        (["absent.yaml"], "absent.yaml: cannot be read"),
        (["{run}", "--memory.size", "3"], "is a run and is looked at as it is, but settings of --memory"),
        (["{base}"], "is no finished store"),
        (["--memory.kind", "wur"], "unknown memory 'wur'.*Did you mean 'wru'"),
        (["--memroy.kind", "wru"], "unknown option '--memroy.kind'"),
        (["--out", "{run}/config.yaml"], "is a file; expected a folder"),
        (["--loss.margin", "0"], "margin is 0.0"),
        (["x" * 5000], "unknown config"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(arguments, words, folder, capsys):
    places = {"run": folder / "er", "base": folder}
    assert main(["theory", *(word.format(**places) for word in arguments)]) == 2
    captured = capsys.readouterr()
    assert re.search(words, captured.err), captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_a_run_that_is_not_finished(folder, tmp_path, capsys):
    path = shutil.copytree(folder / "er", tmp_path / "open")
    (path / "result.json").unlink()
    assert main(["theory", str(path)]) == 2
    assert "is not finished; resume it with: mlcl resume" in capsys.readouterr().err


def test_the_page_shows_what_is_printed(capsys):
    page = (Path(__file__).resolve().parents[2] / "docs/explanation/theory.md").read_text(encoding="utf-8")
    assert main(["theory"]) == 0
    output = capsys.readouterr().out
    shown = page[page.index("Imbalance terms of Theorem 1") : page.index("```\n\nHow to read it")]
    assert shown.count("│") == 90
    assert output.startswith(shown)
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(block, "docs/explanation/theory.md", "exec"), {})
    assert len(capsys.readouterr().out.splitlines()) >= 3


def test_help(capsys):
    assert main(["theory", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "A diagnostic, not a guarantee" in text
    assert "the exact learner's closed form" in text


def test_a_benchmark_of_vectors_checks_the_exact_learner_too():
    rng = np.random.default_rng(0)
    y = (rng.random((200, 4)) < 0.3).astype(np.uint8)
    x = (y @ rng.normal(size=(4, 6)) + rng.normal(size=(200, 6))).astype(np.float32)
    stream = Benchmark.from_arrays(x, y, x, y, tasks=2)
    found = diagnose({"model": "mlp", "memory": {"size": 20}}, benchmark=stream)
    assert found.directions is not None
    assert max(found.directions.pairwise, found.directions.reweighted) < 1e-8 < found.directions.pooled
    assert any("Exact learner, by a numeric optimiser" in line for line in report.lines(found))
    assert report.to_json(found)["directions"]["pooled"] == found.directions.pooled
    images = diagnose({"memory": {"size": 20}})
    assert images.directions is None
    assert any(
        "not checked, because images become feature vectors only in a run" in x for x in report.lines(images)
    )


@pytest.mark.parametrize("images", [False, True], ids=["vectors", "images"])
def test_an_exact_run_checks_the_exact_learner_too(images, tmp_path, capsys):
    arrays = [part for n, seed in ((120, 0), (60, 1)) for part in small_arrays(images=images, n=n, seed=seed)]
    names = ("x_train", "y_train", "x_test", "y_test")
    np.savez(tmp_path / "raw.npz", **dict(zip(names, arrays, strict=True)))
    prepare_source("arrays", tmp_path / "raw.npz", out=tmp_path / "store", jobs=1)
    model = {"model": {"kind": "patches", "centres": 24, "dimensions": 30}} if images else {}
    settings = {"benchmark": str(tmp_path / "store"), "stream": {"tasks": 2}, "method": "exact", **model}
    run(settings, out=tmp_path / "run")
    assert main(["theory", str(tmp_path / "run")]) == 0
    assert "Exact learner, by a numeric optimiser" in " ".join(capsys.readouterr().out.split())
    found = diagnose_run(tmp_path / "run").directions
    assert max(found.pairwise, found.reweighted) < 1e-6 < found.pooled


def test_a_run_that_is_not_checked_says_why(folder):
    (line,) = [line for line in report.lines(diagnose_run(folder / "er")) if line.startswith("Exact learner")]
    assert "by a numeric optimiser" in line  # vectors are what they are, whatever was trained on them
    with pytest.warns(UserWarning, match="were not found"):
        found = diagnose_run(folder / "extended")
    assert "Exact learner: its closed form was not checked, because the data were not found." in report.lines(
        found
    )
