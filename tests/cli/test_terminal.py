"""What a run shows: counts with their nouns, tasks from 1, and why a measure is undefined."""

from __future__ import annotations

import io
import re
import warnings

import numpy as np
import pytest
from rich.console import Console

from helpers import SMALL, small_arrays, small_benchmark
from mlcl.cli.main import main
from mlcl.cli.progress import TimeLeft
from mlcl.cli.terminal import Terminal, result_lines, result_table
from mlcl.datasets import prepare_source
from mlcl.runs.continuing import update
from mlcl.runs.run import run
from mlcl.streams import Benchmark

QUICK = {**SMALL, "train": {"epochs": 2, "batch_size": 32, "lr": 0.1}}


def shown(benchmark, **options):
    """The lines that a run shows while it trains, and after it."""
    file = io.StringIO()
    with Terminal(Console(file=file, width=160)) as shows:
        result = run({**QUICK, **options}, benchmark=benchmark, callback=shows)
    after = io.StringIO()
    Console(file=after, width=160).print(result_table(result))
    return file.getvalue(), after.getvalue() + "\n".join(result_lines(result))


def test_rows_are_called_what_they_are_and_values_are_labelled(monkeypatch):
    monkeypatch.setattr("mlcl.cli.terminal.time.monotonic", iter(range(0, 10_000, 11)).__next__)
    during, after = shown(small_benchmark(tasks=3))
    assert re.search(r"^task 1/3: \d+ vectors, 2 classes \(", during)
    assert "nan" not in during + after
    rows = re.findall(r"^  Macro-AUC: (.*)   \((?:\d+\.\d+|under 0\.01) s\)$", during, re.MULTILINE)
    assert [len(re.findall(r"task \d \d+\.\d", row)) for row in rows] == [1, 2, 3]
    assert re.search(r"^  epoch 1/2  loss \d\.\d+  (?:\d+\.\d+|under 0\.01) s", during, re.MULTILINE)
    assert "over all classes and test vectors" in after


def test_no_frame_of_the_bar_shows_a_loss_before_there_is_one():
    file = io.StringIO()
    terminal = Terminal(Console(file=file, width=160, force_terminal=True))
    with terminal as shows:
        run(QUICK, benchmark=small_benchmark(tasks=2), callback=shows)
    frames = file.getvalue()
    assert "epoch 1" in frames
    assert not re.search(r"\bnan\b", frames)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_one_class_per_task_is_explained_before_and_after():
    benchmark = small_benchmark(tasks=6)
    with pytest.warns(UserWarning, match=r"undefined \(nan\) in every task, and so is the headline"):
        _, after = shown(benchmark)
    assert re.search(r"^Macro-AUC -   forgetting -", after, re.MULTILINE)
    assert "stream.negatives is 'all'" in after
    assert "6 classes without a positive or a negative test vector in the task were left out" in after
    assert not re.search(r"\bnan\b(?!\))", after)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_undefined_measure_is_explained_in_tables_and_on_the_page(tmp_path, capsys):
    run(QUICK, benchmark=small_benchmark(tasks=6), out=tmp_path / "run")
    assert main(["compare", str(tmp_path / "run")]) == 0
    assert "A dash under Macro-AUC: it is undefined where" in capsys.readouterr().out
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "page.html")]) == 0
    assert "A dash under Macro-AUC: it is undefined where" in (tmp_path / "page.html").read_text()


def test_the_time_left_is_over_all_tasks():
    clock = iter([0.0, 10.0, 20.0, 30.0]).__next__
    left = TimeLeft(clock)
    left.begin(4, rest=10, later=90)  # four steps of the task were made before the run resumed
    assert str(left) == ""
    for _ in range(6):
        left.step()
    assert str(left) == "about 5 min left"  # 6 steps in 20 s, 90 to come
    left.begin(0, rest=50, later=40)
    assert str(left) == "about 8 min left"


def store(folder, name, labels, seed):
    x, y = small_arrays(n=120, classes=len(labels), seed=seed)
    test = small_arrays(n=60, classes=len(labels), seed=seed + 1)
    pad = [np.pad(part, ((0, 0), (0, 6 - part.shape[1]))) for part in (x, test[0])]
    np.savez(
        folder / f"{name}.npz",
        x_train=pad[0],
        y_train=y,
        x_test=pad[1],
        y_test=test[1],
        classes=np.array(labels),
    )
    return prepare_source("arrays", folder / f"{name}.npz", out=folder / name, jobs=1).path


def test_an_extended_run_says_why_nothing_is_pooled(tmp_path):
    old, new = store(tmp_path, "old", list("abcd"), 0), store(tmp_path, "new", list("xy"), 5)
    run({**QUICK, "benchmark": str(old), "stream": {"tasks": 2}}, out=tmp_path / "run")
    result = update(tmp_path / "run", str(new), out=tmp_path / "more", known=False)
    (line,) = [line for line in result_lines(result) if line.startswith("pooled")]
    assert line.endswith("(undefined: no vector has the labels of both old and new classes)")
    assert "nan" not in line


def test_one_class_that_is_left_out_is_one(tmp_path):
    x, y = small_arrays(n=120, classes=6)
    test_x, test_y = small_arrays(n=60, classes=6, seed=1)
    test_y[:, 5] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the note that the line refers to
        benchmark = Benchmark.from_arrays(x, y, test_x, test_y, tasks=2)
        result = run({"method": "exact"}, benchmark=benchmark, out=tmp_path / "run")
    (line,) = [line for line in result_lines(result) if "left out" in line]
    assert line.startswith("1 class without a positive or a negative test vector in the task was left out")
    assert line.endswith("warnings.txt names it")


def test_many_notes_are_one_line_and_a_file(tmp_path, capsys):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((60, 5)), np.zeros((60, 20), np.uint8)
    y[np.arange(60), np.arange(60) % 20] = 1  # one label per row: no row with two
    y[:, 0] |= rng.random(60) < 0.3
    np.savez(tmp_path / "raw.npz", x_train=x, y_train=y, x_test=x[:12], y_test=y[:12])
    prepare_source("arrays", tmp_path / "raw.npz", out=tmp_path / "store")
    out = tmp_path / "run"
    settings = [
        "--stream.tasks",
        "2",
        "--stream.order",
        "sorted",
        "--train.epochs",
        "1",
        "--memory.size",
        "10",
    ]
    assert main(["run", "--benchmark", str(tmp_path / "store"), *settings, "--out", str(out)]) == 0
    captured = capsys.readouterr()
    (line,) = [line for line in captured.err.splitlines() if "notes on the tasks" in line]
    assert len(line) < 400
    notes = (out / "warnings.txt").read_text().splitlines()
    assert line.startswith(f"mlcl: warning: {len(notes)} notes on the tasks: ")
    assert all(note.startswith(("task 1 ", "task 2 ")) for note in notes)
    assert f"{out}/warnings.txt names them" in captured.out
    assert main(["data", "info", str(tmp_path / "store"), *settings[:4]]) == 0
    info = capsys.readouterr().out
    assert [f"WARNING: {note}" in info for note in notes] == [True] * len(notes)


def test_a_warning_is_shown_once(capsys, monkeypatch):
    from mlcl.cli import look

    def warn_twice(what=None, pattern=None):
        for _ in range(2):
            with warnings.catch_warnings():
                warnings.warn("beware", UserWarning, stacklevel=1)
        return 0

    monkeypatch.setattr(look, "ls", warn_twice)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main(["ls"]) == 0
    assert capsys.readouterr().err == "mlcl: warning: beware\n"
