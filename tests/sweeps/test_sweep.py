"""Sweeps end to end: interrupted, killed, failed, continued; the same numbers on every engine."""

from __future__ import annotations

import csv
import io
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import mlcl
from children import child, wait_until
from mlcl.cli.main import main
from mlcl.config.resolve import merge
from mlcl.engines.pool import ThisProcess
from mlcl.errors import InputError
from mlcl.reports.page import write_files
from mlcl.sweeps import Finished, Position, SweepCallback, load_experiment, plan_runs, run_all
from mlcl.sweeps.overview import Overview
from mlcl.sweeps.sweep import Fingerprints, _Reporting, attempt, reuse, sweep_lock
from mlcl.training.callbacks import Callback, Interrupted

pytestmark = pytest.mark.slow  # whole sweeps

QUICK = {
    "model": {"kind": "mlp", "hidden": 8, "depth": 1},
    "memory": {"size": 24},
    "train": {"epochs": 2, "batch_size": 32, "lr": 0.1},
    "stream": {"tasks": 3},
}
FLAGS = [
    *("--model.kind", "mlp", "--model.hidden", "8", "--model.depth", "1", "--memory.size", "24"),
    *("--train.epochs", "2", "--train.batch_size", "32", "--train.lr", "0.1", "--stream.tasks", "3"),
]


def planned(store, out, *, seeds=1, given=None):
    return plan_runs(
        load_experiment("core"), benchmark=str(store), seeds=seeds, out=out, given=given or QUICK
    )[1]


def reproduce(store, out, *more, table="core", seeds=2, jobs=1):
    """The whole command."""
    given = ["--benchmark", str(store), "--seeds", str(seeds), "--jobs", str(jobs), "--out", str(out)]
    return main(["reproduce", str(table), *given, *FLAGS, *more])


@pytest.fixture(scope="module")
def finished(store, tmp_path_factory):
    out = tmp_path_factory.mktemp("sweep") / "core"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlcl.sweeps.sweep.choose_engine", lambda *_, **__: ThisProcess())
        assert reproduce(store, out) == 0
    return out


def matrices(out):
    return {
        path.parent.name: json.loads(path.read_text())["matrix"]
        for path in sorted(out.glob("runs/*/result.json"))
    }


def test_the_command_leaves_table_runs_figure_and_page(finished):
    names = {path.name for path in finished.iterdir()}
    tables = {f"{name}.csv" for name in ("table", "runs", "classes")}
    assert tables | {"table.md", "table.tex", "figure.svg", "figure.pdf", "report.html", "sweep.yaml"} < names
    runs = list(csv.DictReader((finished / "runs.csv").open()))
    assert [(run["label"], run["seed"]) for run in runs[:3]] == [("ft", "0"), ("ft", "1"), ("ft-rldam", "0")]
    table = list(csv.DictReader((finished / "table.csv").open()))
    for row in table:
        values = [float(run["macro_auc"]) for run in runs if run["label"] == row["label"]]
        assert float(row["macro_auc_mean"]) == pytest.approx(np.mean(values), abs=1e-5)
        assert float(row["macro_auc_std"]) == pytest.approx(np.std(values, ddof=1), abs=1e-5)
    assert (finished / "figure.pdf").read_bytes().startswith(b"%PDF")


def test_classes_are_written_as_the_runs_measured_them(finished):
    found = list(csv.DictReader((finished / "classes.csv").open()))
    for run in csv.DictReader((finished / "runs.csv").open()):
        result = json.loads((finished / run["folder"] / "result.json").read_text())
        lines = [line for line in found if (line["label"], line["seed"]) == (run["label"], run["seed"])]
        assert [line["class"] for line in lines] == result["classes"]
        assert [int(line["positive"]) for line in lines] == result["positive"]
        aucs = [float(line["auc"]) if line["auc"] else np.nan for line in lines]
        last = [np.nan if value is None else value for value in result["per_class"][-1]]
        np.testing.assert_allclose(aucs, last, atol=1e-5)
        for number, ids in enumerate(result["tasks"]):
            assert {lines[k]["task"] for k in ids} == {str(number)}


def test_two_processes_give_the_same_numbers_and_finished_runs_stay(store, finished, tmp_path, capsys):
    # Half of the runs are there already; what they hold must not be touched.
    here = tmp_path / "core"
    (here / "runs").mkdir(parents=True)
    for name in ("ft-seed0", "er-seed0", "er-seed1"):
        (finished / "runs" / name).rename(here / "runs" / name)
    try:
        before = {path: path.stat().st_mtime_ns for path in here.glob("runs/*/*")}
        assert reproduce(store, here, jobs=2) == 0
        captured = capsys.readouterr()
        assert captured.out.splitlines()[-1] == str(here)
        assert "3 of 8 runs were done before" in captured.err
        assert {path: path.stat().st_mtime_ns for path in before} == before
    finally:
        for name in ("ft-seed0", "er-seed0", "er-seed1"):
            (here / "runs" / name).rename(finished / "runs" / name)
    ours, theirs = matrices(here), matrices(finished)
    assert len(ours) == 5
    assert ours == {name: theirs[name] for name in ours}


def test_files_are_the_same_bytes_every_time(finished):
    before = {path.name: path.read_bytes() for path in finished.iterdir() if path.is_file()}
    names = write_files(finished)
    assert names
    assert {name: (finished / name).read_bytes() for name in names} == {name: before[name] for name in names}


def test_finished_runs_with_other_settings_or_data_are_not_lost(store, finished):
    runs = planned(store, finished, given=QUICK | {"train": QUICK["train"] | {"epochs": 3}})
    before = (runs[0].folder / "result.json").read_bytes()
    with pytest.raises(InputError, match=r"train.epochs is 2 there and 3 here.*add --overwrite"):
        run_all(runs)
    assert (runs[0].folder / "result.json").read_bytes() == before


class Log(SweepCallback):
    """Records all events, and kills the worker of one run."""

    def __init__(self, victim):
        self.victim, self.positions, self.ends = victim, [], []

    def on_progress(self, run, position):
        self.positions.append((run.label, position))
        if run is self.victim and position.epoch == 1:
            os.kill(_worker(), signal.SIGKILL)

    def on_run_end(self, finished):
        self.ends.append(finished)


def _worker():
    """The one worker process of this one."""
    (found,) = (
        number
        for path in Path("/proc/self/task").glob("*/children")
        for number in path.read_text().split()
        if b"mlcl.engines.children" in Path(f"/proc/{number}/cmdline").read_bytes()
    )
    return int(found)


def test_a_run_that_fails_or_is_killed_does_not_stop_the_rest(store, tmp_path):
    good, exploding, odd, corrupt = planned(store, tmp_path)
    exploding = replace(
        exploding,
        config=replace(
            exploding.config,
            train=replace(exploding.config.train, lr=1e30),
            loss=replace(exploding.config.loss, base="squared-hinge"),
        ),
    )
    # More threads than a number of torch holds: an unexpected error.
    odd = replace(odd, config=replace(odd.config, train=replace(odd.config.train, threads=2**70)))
    long = QUICK | {"train": QUICK["train"] | {"epochs": 500}}
    victim = planned(store, tmp_path / "victim", given=long)[0]
    corrupt.folder.mkdir(parents=True)
    (corrupt.folder / "config.yaml").write_text("seed: 0")
    (corrupt.folder / "environment.json").write_text('{"versions": {"mlcl": "0.1.0"}}')
    (corrupt.folder / "result.json").write_text('{"macro_auc": 7')
    (corrupt.folder / "metrics.jsonl.tmp").write_text("half")
    log = Log(victim)
    runs = [good, exploding, odd, victim, corrupt]
    with pytest.warns(
        UserWarning, match=r"is not valid JSON; expected the result of a finished run; it is run again"
    ):
        ends = run_all(runs, jobs=1, callback=log)
    assert [end.run for end in ends] == runs
    assert [end.result is not None for end in ends] == [True, False, False, False, True]
    assert "the loss became" in ends[1].error
    assert "\n" not in ends[2].error
    assert "Traceback" in odd.error_file.read_text()
    assert "ended by signal 9" in ends[3].error
    assert log.positions[:3] == [("ft", Position(0, 3, epoch, 2)) for epoch in (0, 1, 2)]
    assert len(log.ends) == 5


def test_a_joint_run_is_done_when_its_last_epoch_is(store):
    positions = []
    settings = QUICK | {"benchmark": str(store), "method": "joint"}
    mlcl.run(settings, callback=_Reporting(positions.append))
    shares = [position.share for position in positions]
    assert shares == [epoch / 6 for epoch in range(7)]  # two epochs for each of three tasks


def test_an_interrupted_run_resumes_from_its_checkpoint(store, finished, tmp_path):
    (planned_run,) = [run for run in planned(store, tmp_path) if run.label == "rldam-wru"]

    class Stop(Callback):
        def on_task_start(self, learner, task, steps):
            if task.index == 1:
                raise Interrupted

    with pytest.raises(Interrupted):
        mlcl.run(planned_run.config, out=planned_run.folder, callback=Stop())
    assert (planned_run.folder / "checkpoints").is_dir()
    positions = []
    result, error = attempt(planned_run, positions.append)
    assert error == ""
    assert positions[0] == Position(1, 3, 0, 2)  # the first task is not learnt again
    assert result["matrix"] == matrices(finished)["rldam-wru-seed0"]
    # Settings have changed since the interruption: it runs from the start.
    shutil.rmtree(planned_run.folder)
    with pytest.raises(Interrupted):
        mlcl.run(planned_run.config, out=planned_run.folder, callback=Stop())
    changed = replace(planned_run.config, train=replace(planned_run.config.train, lr=0.2))
    positions.clear()
    result, error = attempt(replace(planned_run, config=changed), positions.append)
    assert positions[0] == Position(0, 3, 0, 2)
    assert result["config"]["train"]["lr"] == 0.2


def start(store, out):
    """The command in a process of its own, with runs too long to end."""
    # Ctrl-C as in a terminal: a shell that starts the tests in the background makes them ignore it.
    listen = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{listen}; import sys; from mlcl.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "reproduce", "core"]
    arguments = ["--benchmark", str(store), "--jobs", "1", "--seeds", "1", "--out", str(out)]
    flags = [flag if flag != "2" else "100000" for flag in FLAGS]
    return child([*command, *arguments, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_training(out, process):
    def training():
        return any("train/loss" in path.read_text() for path in out.glob("runs/*/metrics.jsonl"))

    wait_until(training, process)


def children(pid):
    found = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    )
    return [int(word) for word in found.stdout.split()]


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes through /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupt_or_a_kill_leaves_no_worker_behind(store, tmp_path, how):
    out = tmp_path / "core"
    with start(store, out) as process:
        wait_for_training(out, process)
        workers = children(process.pid)
        assert workers
        if how == signal.SIGINT:
            os.killpg(process.pid, how)  # as a terminal does: the workers receive it too
        else:
            process.kill()
        _, errors = process.communicate()
        if how == signal.SIGINT:
            assert process.returncode == 3
            assert "interrupted: 0 of 4 runs are done; the same command continues" in errors
            assert "Traceback" not in errors
        wait_until(lambda: not any(alive(pid) for pid in workers))


def test_two_commands_do_not_share_a_folder(tmp_path):
    with (
        sweep_lock(tmp_path / "out"),
        pytest.raises(InputError, match="in use by another process"),
        sweep_lock(tmp_path / "out"),
    ):
        pass
    with sweep_lock(tmp_path / "out"):
        pass
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written to"), sweep_lock(tmp_path / "file"):
        pass


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tabel1"], "unknown table 'tabel1'.*Did you mean 'table1'"),
        ([], "TABLE"),
        (["core", "--benchmark", "c-digts"], "unknown benchmark 'c-digts'.*Did you mean 'c-digits'"),
        (["core", "--seeds", "0"], "--seeds is 0"),
        (["core", "--seeds", "two"], "seeds"),
        (["core", "--sedes", "2"], "unknown option '--sedes'. Did you mean '--seed"),
        (["core", "--jobs", "0"], "--jobs is 0"),
        (["core", "--engine", "slurm"], "engine"),
        (["core", "--address", "auto"], "--address auto is for --engine ray"),
        (["core", "--stream.tasks", "21"], "tasks is 21"),
        (["core", "--train.epochs", "0"], "train.epochs is 0"),
        (["table3", "--memory.size", "7"], "--memory.size is what the rows of table3 choose"),
        (["mine.yaml"], "mine.yaml: cannot be read"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(arguments, words, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *arguments]) == 2
    captured = capsys.readouterr()
    assert re.search(words, captured.err), captured.err
    assert captured.err.count("\n") == 1
    assert not list(tmp_path.glob("results/*/runs"))


def test_a_missing_store_is_reported_with_the_command_that_prepares_it(tmp_path):
    run = plan_runs(load_experiment("core"), benchmark="c-digits", seeds=1, out=tmp_path)[1][0]
    with pytest.raises(InputError, match="mlcl data prepare voc"):
        Fingerprints().of(replace(run.config, data="voc2012-64"))


@pytest.mark.skipif(
    (platform.system(), platform.machine()) != ("Linux", "x86_64"),
    reason="train.portable is for Linux on x86_64",
)
def test_workers_have_what_a_portable_run_needs(store, tmp_path):
    run = planned(store, tmp_path, given=merge(QUICK, {"train": {"portable": True}}))[0]
    (end,) = run_all([run], jobs=1)
    assert end.error == ""
    assert end.result["config"]["train"]["portable"] is True
    assert json.loads((run.folder / "environment.json").read_text())["instructions"] == "AVX2"


def test_without_ray_the_extra_is_named(store, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'mlcl\[ray\]'"):
        run_all(planned(store, tmp_path), engine="ray")


def test_ray_gives_the_same_numbers(store, finished, tmp_path):
    pytest.importorskip("ray", reason="ray is an extra")
    runs = planned(store, tmp_path)[:2]
    bad = replace(runs[1], config=replace(runs[1].config, model=replace(runs[1].config.model, hidden=2**40)))
    ends = run_all([runs[0], bad], engine="ray", jobs=1)
    theirs = json.loads((finished / "runs" / runs[0].folder.name / "result.json").read_text())
    assert ends[0].result["matrix"] == theirs["matrix"]
    assert (runs[0].folder / "weights.safetensors").exists()
    assert ends[1].result is None
    assert "Traceback" in bad.error_file.read_text()
    again = run_all([runs[0]], engine="ray", jobs=1)
    assert again[0].was_there
    with pytest.raises(InputError, match="no Ray cluster answers"):
        run_all([runs[1]], engine="ray", address="127.0.0.1:1")


def test_the_overview_counts_and_estimates(tmp_path):
    runs = plan_runs(load_experiment("core"), benchmark="c-digits", seeds=1, out=tmp_path)[1]
    screen = io.StringIO()
    overview = Overview(runs, Console(file=screen, width=120, force_terminal=False))
    with overview:
        overview.on_run_end(Finished(runs[0], {"macro_auc": 1.0}, was_there=True))
        overview.on_run_start(runs[1])
        assert overview.time_left() is None
        overview.running[runs[1]].since -= 60.0
        overview.on_progress(runs[1], Position(0, 2, 1, 2))
        # A quarter took a minute: three for this one, four for each of the two that wait.
        assert overview.time_left() == pytest.approx(11 * 60, rel=0.01)
        Console(file=screen, width=120).print(overview.render())
        overview.on_run_end(Finished(runs[1], {"macro_auc": 61.239, "forgetting": None, "seconds": 61.0}))
        overview.on_run_start(runs[2])
        overview.on_run_end(Finished(runs[2], None, "it broke"))
    text = screen.getvalue()
    assert "task 1/2, epoch 1/2" in text
    assert re.search(r"1 of 4 runs done, 1 running, 2 waiting, 0 failed, about 1[12] min left", text)
    assert "[2/4] ft-rldam, seed 0: Macro-AUC 61.24, forgetting -, 1 min 1 s" in text
    assert "[3/4] er, seed 0: failed: it broke" in text


@pytest.mark.usefixtures("no_workers")
def test_runs_of_other_sweeps_are_copied_not_redone(store, finished, tmp_path, capsys):
    table = tmp_path / "two.yaml"
    table.write_text(
        "title: two\nreference: replay\n"
        "rows: [{label: replay, method: er}, {label: new, method: ft, loss: ru}]\n"
    )
    out = tmp_path / "two"
    # A table of copies, with nothing run.
    assert reproduce(store, tmp_path / "alone", "--done", "--reuse", str(finished), table=table) == 0
    assert "2 of 4 runs are there" in " ".join(capsys.readouterr().err.split())
    assert reproduce(store, out, "--reuse", str(finished), table=table) == 0
    assert f"2 of 4 runs were taken from {finished}" in " ".join(capsys.readouterr().err.split())
    for seed in range(2):
        mine, theirs = out / "runs" / f"replay-seed{seed}", finished / "runs" / f"er-seed{seed}"
        assert (mine / "environment.json").read_bytes() == (theirs / "environment.json").read_bytes()
    assert not list((out / "runs").glob(".*"))
    assert reproduce(store, out, "--reuse", str(tmp_path), table=table) == 2
    assert f"--reuse {tmp_path} holds no runs" in " ".join(capsys.readouterr().err.split())


def test_a_table_of_what_is_done_runs_nothing(store, finished, tmp_path, capsys):
    out = tmp_path / "core"
    (out / "runs").mkdir(parents=True)
    assert reproduce(store, out, "--done") == 2
    assert f"none of the 8 runs is in {out} yet" in " ".join(capsys.readouterr().err.split())
    for name in ("er-seed0", "rldam-wru-seed0", "rldam-wru-seed1"):
        shutil.copytree(finished / "runs" / name, out / "runs" / name)
    assert reproduce(store, out, "--done") == 0
    assert "3 of 8 runs are there" in capsys.readouterr().err
    table = list(csv.DictReader((out / "table.csv").open()))
    assert [(row["label"], row["seeds"]) for row in table] == [("er", "1"), ("rldam-wru", "2")]
    assert len(list((out / "runs").iterdir())) == 3


@pytest.mark.usefixtures("no_workers")
def test_chosen_rows_alone_are_run(store, finished, tmp_path, capsys):
    out = tmp_path / "core"
    (out / "runs").mkdir(parents=True)
    shutil.copytree(finished / "runs" / "ft-seed0", out / "runs" / "ft-seed0")
    assert reproduce(store, out, "--rows", "er", seeds=1) == 0
    table = list(csv.DictReader((out / "table.csv").open()))
    assert [row["label"] for row in table] == ["ft", "er"]
    assert sorted(path.name for path in (out / "runs").iterdir()) == ["er-seed0", "ft-seed0"]
    assert reproduce(store, out, "--rows", "err", seeds=1) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "--rows: no row 'err'; rows are: ft; ft-rldam; er; rldam-wru. Did you mean 'er'" in message


@pytest.mark.parametrize("name", ["runs", "runs/0"])
def test_a_sweep_writes_through_no_link(name, store, tmp_path):
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "thesis.txt").write_text("years of work")
    runs = planned(store, tmp_path / "sweep")
    link = tmp_path / "sweep" / name.replace("0", runs[0].folder.name)
    link.parent.mkdir(parents=True)
    link.symlink_to(docs)
    with pytest.raises(InputError, match=f"{link.name} is a link, and mlcl writes"):
        run_all(runs, jobs=1)
    with pytest.raises(InputError, match=f"{link.name} is a link, and mlcl writes"):
        reuse(runs, [])
    assert [path.name for path in docs.iterdir()] == ["thesis.txt"]
