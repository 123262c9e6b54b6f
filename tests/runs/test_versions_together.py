"""Several processes change the version in use: none is lost without a word, and a gate that was named is passed."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from children import child
from helpers import EXACT, label_settings, label_store
from mlcl.cli.main import main
from mlcl.datasets import load_dataset, prepare_source
from mlcl.errors import InputError
from mlcl.files import FolderLock
from mlcl.metrics import Goal
from mlcl.runs import folder as files
from mlcl.runs import versions as chain
from mlcl.runs.continuing import update
from mlcl.runs.run import run
from mlcl.runs.trained import load_trained
from mlcl.runs.versions import claimed, current_number, locked, next_folder, rollback, use_version, versions
from mlcl.taggers import gate as gates
from mlcl.taggers.forget import forget
from mlcl.taggers.gate import check_gate, is_waiting, release
from mlcl.taggers.thresholds import set_thresholds
from mlcl.training.callbacks import Callback, Interrupted

TOLD = Path(__file__).parents[1] / "support" / "update_when_told.py"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    base = tmp_path_factory.mktemp("together")
    for name, columns, seed in (("old", [0, 1, 2, 3], 0), ("both", [4, 1, 2], 10), ("more", [3, 0], 20)):
        label_store(base, name, columns, seed=seed)
    data = load_dataset(str(base / "old"))
    np.savez(
        base / "spoilt.npz",
        x_train=data.train.inputs,
        y_train=1 - data.train.labels,
        x_test=data.test.inputs,
        y_test=data.test.labels,
        classes=np.array(data.classes),
    )
    prepare_source("arrays", base / "spoilt.npz", out=base / "spoilt", jobs=1)
    run(label_settings(base / "old", "exact", **EXACT), out=base / "exact")
    run(label_settings(base / "old", "exact", **EXACT, held_out=0.2), out=base / "held-out")
    run(label_settings(base / "old", "rldam-wru"), out=base / "trained")
    return base


@pytest.fixture
def root(place, tmp_path):
    return shutil.copytree(place / "exact", tmp_path / "tagger")


def use(root, number, *, why):
    with locked(root):
        use_version(root, number, why=why)


def history(root):
    record = json.loads((root / "current.json").read_text())
    return [(entry["from"], entry["to"], entry["why"]) for entry in record["history"]]


class Stop(Callback):
    def on_task_start(self, learner, task, steps):
        raise Interrupted


@pytest.mark.slow
def test_two_updates_at_once_do_not_lose_one_without_a_word(place, root):
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with contextlib.ExitStack() as stack:
        both = [
            stack.enter_context(
                child(
                    [sys.executable, TOLD, "update", root, "--data", place / store, "--quiet"],
                    **pipes,
                    text=True,
                )
            )
            for store in ("both", "more")
        ]
        assert [process.stdout.readline() for process in both] == ["ready\n"] * 2
        ends = [(*process.communicate("go\n"), process.returncode) for process in both]
    found = {Path(out.strip()).name for out, _, _ in ends}
    assert found == {"2", "3"}  # no number is given twice, and stdout names the version
    (first, _, code), (second, error, late) = ends
    assert (code, late) == (0, 4)
    root_, used, kept = str(root), Path(first.strip()), Path(second.strip())
    assert f"{kept} is kept, but not in use: it began from version 1, and version {used.name} came" in error
    assert error.strip().endswith(f"mlcl rollback {root_} --to {kept.name}")
    assert "Traceback" not in error
    assert history(root) == [(1, int(used.name), "update")]
    assert {v.number: (v.parent, v.current, v.finished) for v in versions(root)} == {
        1: (None, False, True),
        int(used.name): (1, True, True),
        int(kept.name): (1, False, True),
    }
    # What the sentence says works.
    assert main(error.strip().rpartition("mlcl ")[2].split()) == 0
    assert current_number(root) == int(kept.name)


def test_a_version_that_comes_too_late_is_kept_whatever_came_before_it(place, root, tmp_path, capsys):
    update(root, place / "both", out=next_folder(root))
    (tmp_path / "rows.txt").write_text("")
    assert main(["forget", str(root), "--label", "bee"]) == 0
    capsys.readouterr()
    assert release(root / "versions" / "2").newer == 3
    record = json.loads((root / "versions" / "2" / "gate.json").read_text())
    assert (record["passed"], record["newer"]) == (False, 3)
    assert current_number(root) == 3
    assert not is_waiting(root / "versions" / "2")
    # Its parent is in use again: nothing would be lost by it.
    rollback(root)
    assert release(root / "versions" / "2").passed
    assert current_number(root) == 2
    # Somebody rolls back while the rows of a gate are scored.
    gate = check_gate(root, place / "old", allow=100)
    update(root, place / "more", out=next_folder(root), gate=gate)
    judge = gates.judge

    def meanwhile(*arguments, **options):
        if current_number(root) == 2:
            rollback(root)
        return judge(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gates, "judge", meanwhile)
        done = release(root / "versions" / "4")
    assert (done.verdict.passed, done.newer, done.passed) == (True, 1, False)
    assert current_number(root) == 1


def test_a_label_is_not_forgotten_in_a_version_that_is_not_in_use_without_a_word(
    place, root, monkeypatch, capsys
):
    def meanwhile(*arguments, **options):
        receipt = forget(*arguments, **options)
        update(root, place / "both", out=root / "versions" / "7")
        release(root / "versions" / "7")
        return receipt

    monkeypatch.setattr("mlcl.taggers.forget.forget", meanwhile)
    assert main(["forget", str(root), "--label", "bee"]) == 4
    assert "version 7 came into use meanwhile" in capsys.readouterr().err
    assert current_number(root) == 7


def test_thresholds_that_are_chosen_while_a_version_is_made_are_not_lost_without_a_word(
    place, tmp_path, monkeypatch, capsys
):
    """The new version has the thresholds' goal of before; it is kept, and not in use."""
    root = shutil.copytree(place / "held-out", tmp_path / "tagger")
    read = files.read_environment

    def meanwhile(path):
        monkeypatch.setattr(files, "read_environment", read)
        assert main(["thresholds", str(root), "--recall", "0.9"]) == 0
        return read(path)

    monkeypatch.setattr(files, "read_environment", meanwhile)  # after thresholds were read
    assert main(["labels", str(root), "--rename", "ant=wasp"]) == 4
    assert "thresholds of version 1, from which it began, were chosen anew" in capsys.readouterr().err
    assert current_number(root) == 1
    begun = root / "versions" / "3"
    with pytest.raises(Interrupted):
        update(root, place / "more", out=begun, callback=Stop())
    assert main(["thresholds", str(root), "--cost", "5"]) == 0
    assert main(["resume", str(begun), "--quiet"]) == 0  # they are read when it goes on
    assert load_trained(root).thresholds.goal.kind == "cost"
    assert current_number(root) == 3


def test_thresholds_of_a_version_that_went_out_of_use_are_not_written(place, tmp_path, monkeypatch):
    root = shutil.copytree(place / "held-out", tmp_path / "tagger")
    assert main(["labels", str(root), "--rename", "ant=wasp"]) == 0
    before = (root / "versions" / "2" / "thresholds.json").read_bytes()
    held_out = files.read_held_out

    def meanwhile(path, result):
        rollback(root)
        return held_out(path, result)

    monkeypatch.setattr(files, "read_held_out", meanwhile)
    with pytest.raises(InputError, match="came into use meanwhile; nothing was written"):
        set_thresholds(root, Goal("recall", 0.9))
    assert (root / "versions" / "2" / "thresholds.json").read_bytes() == before


def test_changes_of_the_version_in_use_follow_one_another(root, place, monkeypatch):
    """Another one begins while the first has read the record and not written it; it must not start from that."""
    for number in (2, 3):
        shutil.copytree(place / "exact", root / "versions" / str(number))
    first, arrived = threading.get_ident(), threading.Event()
    read, write, lock = files.read_current, files.write_current, FolderLock.__init__

    def reading(path):
        found = read(path)
        if threading.get_ident() != first:
            arrived.set()
        return found

    def locking(self, *arguments, **options):
        if threading.get_ident() != first:
            arrived.set()
        lock(self, *arguments, **options)

    other = threading.Thread(target=use, args=(root, 3), kwargs={"why": "second"})

    def writing(path, record):
        if threading.get_ident() == first:
            other.start()
            arrived.wait()
        write(path, record)

    monkeypatch.setattr(files, "read_current", reading)
    monkeypatch.setattr(files, "write_current", writing)
    monkeypatch.setattr(FolderLock, "__init__", locking)
    use(root, 2, why="first")
    other.join()
    assert history(root) == [(1, 2, "first"), (2, 3, "second")]
    assert not (root / ".lock").exists()


def test_a_number_is_given_once(root, monkeypatch):
    (root / "versions").mkdir()
    (root / "versions" / "20261118").mkdir()
    (root / "versions" / "notes.txt").write_text("of the user")
    taken, seen = chain._taken, []

    def late(folder):
        found = taken(folder)
        if not seen:  # another process takes the number between the look and the making
            seen.append(1)
            (folder / "versions" / "2").mkdir()
        return found

    monkeypatch.setattr(chain, "_taken", late)
    with claimed(root) as path:
        assert path == root / "versions" / "3"
        (path / "config.yaml").write_text("x")
    assert path.exists()
    with claimed(root) as path:
        assert path.name == "4"
    assert not path.exists()  # nothing was written to it
    (root / "versions" / "100000").mkdir()
    with pytest.raises(InputError, match="expected numbers below 100000"), claimed(root):
        pass


@pytest.mark.slow
def test_a_resumed_update_is_judged_by_its_gate(place, tmp_path, monkeypatch, capsys):
    root = shutil.copytree(place / "trained", tmp_path / "tagger")
    train = update

    def stopped(*arguments, callback, **options):
        return train(*arguments, callback=Stop(), **options)

    def begin(store, *more):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("mlcl.runs.continuing.update", stopped)
            with pytest.raises(Interrupted):
                main(["update", str(root), "--data", str(place / store), "--quiet", *more])
        return max((root / "versions").iterdir())

    monkeypatch.chdir(place)
    path = begin("spoilt", "--gate", "old", "--allow", "2")
    monkeypatch.chdir(tmp_path)  # the gate is found from anywhere
    assert main(["resume", str(path), "--quiet"]) == 4
    error = capsys.readouterr().err
    assert f"the gate refused {path}: more than 2 points lost on" in error
    assert current_number(root) == 1
    assert json.loads((path / "gate.json").read_text())["allow"] == 2
    assert main(["resume", str(path)]) == 0  # refused, so not asked again
    assert "nothing to resume" in capsys.readouterr().err
    path = begin("both", "--gate", str(place / "old"), "--allow", "100")
    assert main(["resume", str(path)]) == 0
    assert "the gate passed it" in capsys.readouterr().err
    assert current_number(root) == 3
    # Without a gate it is taken into use as well, as `mlcl update` would have done.
    path = begin("more")
    assert main(["resume", str(path), "--quiet"]) == 0
    assert history(root) == [(1, 3, "update"), (3, 4, "update")]
    # One that an older mlcl began does not say what it must pass.
    path = begin("more")
    record = json.loads((path / "extends.json").read_text())
    del record["gate"]
    (path / "extends.json").write_text(json.dumps(record))
    assert main(["resume", str(path), "--quiet"]) == 0
    assert "does not say which gate it must pass" in capsys.readouterr().err
    assert current_number(root) == 4


def test_a_version_that_was_killed_before_its_gate_passes_it_on_resume(place, root, capsys):
    gate = check_gate(root, place / "old", allow=100)
    update(root, place / "both", out=next_folder(root), gate=gate)
    assert is_waiting(root / "versions" / "2")
    assert main(["resume", str(root / "versions" / "2"), "--quiet"]) == 0
    assert capsys.readouterr().out == f"{root / 'versions' / '2'}\n"
    assert current_number(root) == 2
    assert not is_waiting(root / "versions" / "2")
    rollback(root)
    assert (
        main(["resume", str(root / "versions" / "2")]) == 0
    )  # it was in use once: to go back was a decision
    assert current_number(root) == 1


def test_a_gate_whose_store_has_changed_judges_nothing(place, root):
    gate = check_gate(root, place / "old")
    other = files.Gate(gate.store, "0123456789abcdef", 1.0)
    update(root, place / "both", out=next_folder(root), gate=other)
    with pytest.raises(InputError, match="has another fingerprint"):
        release(root / "versions" / "2")
    assert current_number(root) == 1
    for bad in (
        {"store": "x"},
        {"store": 1, "fingerprint": "x", "allow": 1.0},
        [],
        {**vars(gate), "allow": -1},
    ):
        path = root / "versions" / "2" / "extends.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"gate": bad}))
        with pytest.raises(
            InputError, match=r"extends.json: gate is .*; expected store, fingerprint and allow"
        ):
            release(root / "versions" / "2")


def test_a_refused_command_leaves_no_empty_version(place, root, capsys):
    assert main(["update", str(root), "--data", str(place / "absent"), "--quiet"]) == 2
    assert main(["forget", str(root), "--label", "zebra"]) == 2
    assert not (root / "versions").exists()
    capsys.readouterr()


def test_a_run_that_names_itself_is_one_sentence(place, root, tmp_path, capsys):
    record = {"run": str(root), "fingerprint": files.fingerprint(root), "known": True}
    (root / "extends.json").write_text(json.dumps(record))
    (tmp_path / "rows.txt").write_text("0\n")
    assert (
        main(["forget", str(root), "--rows", str(tmp_path / "rows.txt"), "--out", str(tmp_path / "x")]) == 2
    )
    assert "runs in a circle" in capsys.readouterr().err
