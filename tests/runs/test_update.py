"""A finished run learns more rows of known labels, new labels, or both; versions, their gate, and the way back."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest

from helpers import EXACT, label_settings, label_store
from mlcl.cli.main import main
from mlcl.datasets import load_dataset
from mlcl.errors import InputError
from mlcl.exact import ExactLearner, Options, solve
from mlcl.files import FolderLock
from mlcl.metrics import Goal
from mlcl.runs import folder as files
from mlcl.runs.continuing import begin_from, extended_benchmark, load_base, update
from mlcl.runs.run import resume, run
from mlcl.runs.trained import load_trained
from mlcl.runs.versions import current_folder, locked, next_folder, prune, rollback, use_version, versions
from mlcl.taggers.gate import judge, release
from mlcl.taggers.predict import predict
from mlcl.taggers.thresholds import set_thresholds
from mlcl.training.callbacks import Callback, Interrupted
from mlcl.training.learner import Learner


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    base = tmp_path_factory.mktemp("stores")
    return {
        "old": label_store(base, "old", [0, 1, 2, 3]),
        "both": label_store(base, "both", [4, 1, 2], seed=10),
        "more": label_store(base, "more", [3, 0], seed=20),
        "images": label_store(base, "images", [0, 1], images=True),
    }


@pytest.fixture(scope="module")
def trained(stores, tmp_path_factory):
    return run(
        label_settings(stores["old"], "rldam-wru"), out=tmp_path_factory.mktemp("runs") / "trained"
    ).folder


@pytest.fixture(scope="module")
def exact(stores, tmp_path_factory):
    settings = label_settings(stores["old"], "exact", **EXACT)
    return run(settings, out=tmp_path_factory.mktemp("runs") / "exact").folder


def everything(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def written(folder):
    return json.loads((folder / "result.json").read_text())


def test_a_row_contributes_for_the_classes_of_its_own_store(trained, stores):
    base = load_base(trained)
    settings = label_settings(stores["both"], "rldam-wru")
    learner = Learner(base.trained.config, extended_benchmark(base, settings, known=True))
    begin_from(learner, base)
    learner.start_task(learner.tasks[2])
    assert learner.data.classes == ("ant", "bee", "cat", "dog", "eel")
    expected = np.zeros((3, 5), bool)
    for task, ids in enumerate([*load_trained(trained).tasks, [4, 1, 2]]):
        expected[task, ids] = True
    assert np.array_equal(learner.setup.known.of_tasks.numpy(), expected)
    # Counts of a known class are those of both stores; the labels of a new row are those of its store, by name.
    data = load_dataset(str(stores["both"]))
    before = learner.memory.tasks
    old = {k: n for part in before for k, n in zip(part.classes, part.counts.positive, strict=True)}
    assert learner.counts.positive[1] == old[1] + data.train.labels[:, 1].sum()
    assert learner.counts.positive[3] == old[3]
    row = learner.tasks[2].train[0]
    assert np.array_equal(learner.data.train.labels[row][[4, 1, 2]], data.train.labels[0])
    assert not learner.data.train.labels[row][[0, 3]].any()


def test_a_trained_run_learns_known_and_new_labels_twice(trained, stores, tmp_path):
    before = everything(trained)
    second = update(trained, stores["both"], out=tmp_path / "second")
    assert everything(trained) == before
    assert second.matrix.shape == (3, 3)
    assert second.matrix[2, 2] > 75
    assert np.isfinite(second.per_class[-1]).all()
    # Steps and rows count all tasks, as seconds do.
    tasks = [len(load_dataset(str(stores["both"])).train)]
    assert second.steps > written(trained)["steps"] > 0
    assert second.rows >= written(trained)["rows"] + tasks[0]
    third = update(tmp_path / "second", stores["more"], out=tmp_path / "third")
    assert third.matrix.shape == (4, 4)
    assert third.learner.data.classes == ("ant", "bee", "cat", "dog", "eel")  # no new label at all
    assert np.isfinite(third.matrix[-1]).all()
    assert written(tmp_path / "third")["tasks"][2:] == [[4, 1, 2], [3, 0]]
    assert len(third.learner.memory) <= 24
    assert predict(tmp_path / "third", stores["more"]).classes == third.learner.data.classes


def test_the_exact_learner_ends_where_all_rows_at_once_do(exact, stores, tmp_path):
    update(exact, stores["both"], out=tmp_path / "second")
    update(tmp_path / "second", stores["more"], out=tmp_path / "third")
    first = load_base(exact)
    learner = ExactLearner.from_arrays({name: value.numpy() for name, value in first.kept.exact.items()})
    scale, shift = (getattr(first.trained.normaliser, name).numpy() for name in ("scale", "shift"))
    for name, ids in (("more", [3, 0]), ("both", [4, 1, 2])):  # in the other order
        data = load_dataset(str(stores[name])).train
        learner = learner.learn(data.inputs * scale + shift, data.labels, ids)
    config = first.trained.config.exact
    options = Options(
        unlabelled=config.unlabelled, goal=config.goal, ridge=config.ridge, exponent=config.exponent
    )
    expected = solve(learner, options)
    found = load_trained(tmp_path / "third").network.head.linear
    assert np.allclose(found.weight.numpy(), expected.weights, rtol=1e-4, atol=1e-5)
    assert np.allclose(found.bias.numpy(), expected.intercepts, rtol=1e-4, atol=1e-5)


class Stop(Callback):
    def on_step(self, learner, loss):
        raise Interrupted


def test_a_stopped_update_resumes_to_the_same_bits(trained, stores, tmp_path):
    update(trained, stores["both"], out=tmp_path / "whole")
    with pytest.raises(Interrupted):
        update(trained, stores["both"], out=tmp_path / "part", callback=Stop())
    resume(tmp_path / "part")
    whole, part = (written(tmp_path / name) for name in ("whole", "part"))
    assert whole["matrix"] == part["matrix"]
    assert whole["sha256"] == part["sha256"]


def test_versions_form_a_chain_that_can_be_moved_and_rolled_back(exact, stores, tmp_path, capsys):
    root = shutil.copytree(exact, tmp_path / "tagger")
    before = everything(root)
    assert main(["update", str(root), "--data", str(stores["both"]), "--quiet"]) == 0
    assert capsys.readouterr().out == f"{root / 'versions' / '2'}\n"
    assert current_folder(root) == root / "versions" / "2"
    assert main(["update", str(root), "--data", str(stores["more"]), "--quiet"]) == 0
    moved = tmp_path / "elsewhere"
    root.rename(moved)
    found = versions(moved)
    assert [(v.number, v.parent, v.current, v.intact) for v in found] == [
        (1, None, False, None),
        (2, 1, False, True),
        (3, 2, True, True),
    ]
    assert everything(moved).items() >= before.items()
    assert predict(moved, stores["more"]).classes[-1] == "eel"
    assert main(["versions", str(moved)]) == 0
    assert "update" in capsys.readouterr().out
    assert main(["compare", str(moved)]) == 0
    shown = capsys.readouterr().out
    assert "mean of the 4 labels of all" in shown
    assert main(["compare", str(moved), str(moved / "versions" / "2")]) == 0
    assert capsys.readouterr().out == shown  # a version that is named again is shown once
    assert main(["compare", str(moved), "--on", str(stores["both"])]) == 0
    shown = capsys.readouterr().out
    assert "eel" in shown
    assert "gnu" not in shown
    assert main(["rollback", str(moved)]) == 0
    assert rollback(moved).number == 1
    assert "eel" not in predict(moved, stores["more"]).classes
    with pytest.raises(InputError, match="no version before the current one"):
        rollback(moved)
    # From version 1 a fourth one branches off; numbers are never used again.
    assert next_folder(moved).name == "4"
    update(moved, stores["more"], out=next_folder(moved))
    assert release(moved / "versions" / "4").passed
    assert [(v.number, v.parent, v.current) for v in versions(moved)][-1] == (4, 1, True)
    assert rollback(moved, to=3).number == 3
    for number, words in ((3, "current already"), (9, "does not exist; there are: 1, 2, 3, 4")):
        with pytest.raises(InputError, match=words):
            rollback(moved, to=number)
    history = json.loads((moved / "current.json").read_text())["history"]
    assert [(entry["from"], entry["to"], entry["why"]) for entry in history][-2:] == [
        (1, 4, "update"),
        (4, 3, "rollback"),
    ]
    with pytest.raises(InputError, match="has later versions"):
        run(label_settings(stores["old"], "exact", **EXACT), out=moved, overwrite=True)
    (moved / "versions" / "2" / "memory.safetensors").write_bytes(b"changed")
    assert [v.intact for v in versions(moved)] == [None, True, False, True]
    (moved / "current.json").write_text('{"version": "../.."}')
    with pytest.raises(InputError, match="expected a number from 1 on"):
        load_trained(moved)


def test_old_versions_are_deleted_on_request_alone(exact, stores, tmp_path, capsys):
    root = shutil.copytree(exact, tmp_path / "root")
    for _ in range(4):
        assert main(["update", str(root), "--data", str(stores["more"]), "--quiet"]) == 0
    (root / "versions" / "3" / "mine.txt").write_text("precious")
    scores = load_trained(root).logits(load_dataset(str(stores["old"])).test.inputs)
    rollback(root, to=4)
    lock = FolderLock(root / "versions" / "2")
    assert (
        prune(root, 1) == []
    )  # 2 is in use by a process, 3 holds a file of a user, 4 is in use, 5 is the newest
    lock.release()
    capsys.readouterr()
    assert main(["versions", str(root), "--keep", "1"]) == 0
    shown = capsys.readouterr()
    assert "deleted: 2" in shown.err
    assert [v.number for v in versions(root)] == [1, 3, 4, 5]
    assert (root / "versions" / "3" / "mine.txt").read_text() == "precious"
    (root / "versions" / "3" / "mine.txt").unlink()
    assert prune(root, 1) == [3]
    (left,) = (v for v in versions(root) if v.current)
    assert (left.number, left.parent) == (4, None)
    with pytest.raises(InputError, match="no version before the current one; give --to N"):
        rollback(root)
    assert main(["update", str(root), "--data", str(stores["more"]), "--quiet"]) == 0
    assert current_folder(root).name == "6"
    assert load_trained(root).logits(load_dataset(str(stores["old"])).test.inputs) == (
        pytest.approx(scores, rel=1e-4, abs=1e-4)
    )
    assert main(["versions", str(root), "--keep", "0"]) == 2


def held_out(folder):
    return files.read_held_out(folder, files.read_result(folder))


@pytest.mark.parametrize("share", [0.3, None])
def test_held_out_rows_stay_and_are_scored_by_the_new_weights(stores, tmp_path, share):
    settings = label_settings(stores["old"], "exact", **EXACT, held_out=0.3)
    run(settings, out=tmp_path / "first")
    before, old = set_thresholds(tmp_path / "first", Goal("recall", 0.5, 0.6)), held_out(tmp_path / "first")
    assert before.thresholds.reached.any()
    settings = dataclasses.replace(settings, data=str(stores["both"]), held_out=share)
    update(tmp_path / "first", config=settings, out=tmp_path / "second")
    after, found = load_trained(tmp_path / "second"), held_out(tmp_path / "second")
    assert len(found.rows) == len(found.inputs)
    assert (found.rows >= 0).any() == (share is not None)
    assert np.allclose(found.logits, after.logits(found.inputs), atol=1e-5)
    for row, inputs in enumerate(old.inputs):
        (place,) = np.flatnonzero((found.inputs == inputs).all(axis=1))
        assert np.array_equal(found.labels[place, :4], old.labels[row])
        assert found.known[place].tolist() == [True] * 4 + [False] * (len(after.classes) - 4)
    assert not np.allclose(found.logits[found.rows < 0][:, :4], old.logits, atol=1e-3)
    assert after.thresholds.goal == before.thresholds.goal
    assert after.thresholds.reached[
        [0, 3]
    ].all()  # ant and dog: no rows of theirs came, and they are certified again
    again = after.calibration.thresholds(found, after.thresholds.goal)
    assert np.array_equal(again.values, after.thresholds.values)


def test_a_row_that_was_held_out_and_is_learnt_later_is_no_unseen_row_any_more(stores, tmp_path):
    settings = label_settings(stores["old"], "exact", **EXACT, held_out=0.3)
    run(settings, out=tmp_path / "first")
    settings = dataclasses.replace(settings, held_out=0.1)
    update(tmp_path / "first", config=settings, out=tmp_path / "second")
    found = held_out(tmp_path / "second")
    old, own = (set(map(bytes, found.inputs[one])) for one in (found.rows < 0, found.rows >= 0))
    assert len(own) == round(0.1 * len(load_dataset(str(stores["old"])).train))
    assert old
    assert old <= own  # what was held out before, and was not held out again, was learnt
    assert len(old) < len(held_out(tmp_path / "first").rows)


def spoilt_store(folder, store):
    """A store of the same labels whose training labels are the other way round: what no gate should let pass."""
    data = load_dataset(str(store))
    np.savez(
        folder / "spoilt.npz",
        x_train=data.train.inputs,
        y_train=1 - data.train.labels,
        x_test=data.test.inputs,
        y_test=data.test.labels,
        classes=np.array(data.classes),
    )
    from mlcl.datasets import prepare_source

    prepare_source("arrays", folder / "spoilt.npz", out=folder / "spoilt", jobs=1)
    return folder / "spoilt"


def test_the_gate_refuses_a_version_that_lost_and_keeps_it_aside(trained, stores, tmp_path, capsys):
    root = shutil.copytree(trained, tmp_path / "tagger")
    spoilt = spoilt_store(tmp_path, stores["old"])
    gate = ["--gate", str(stores["old"]), "--quiet"]
    assert main(["update", str(root), "--data", str(spoilt), *gate]) == 4
    error = capsys.readouterr().err
    assert "the gate refused" in error
    assert f"{root} stays in use" in error
    assert "Traceback" not in error
    assert current_folder(root) == root
    assert [v.gate for v in versions(root)] == [None, False]
    record = json.loads((root / "versions" / "2" / "gate.json").read_text())
    assert record["lost"]
    assert all(record["labels"][name]["high"] < -1 for name in record["lost"])
    assert main(["update", str(root), "--data", str(stores["both"]), "--gate", str(stores["both"])]) == 0
    assert "the gate passed it" in capsys.readouterr().err
    assert current_folder(root).name == "3"
    with locked(root):
        use_version(root, 2, why="on purpose")
    assert current_folder(root).name == "2"


def test_the_gate_compares_what_both_versions_know(trained, stores, tmp_path):
    update(trained, stores["both"], out=tmp_path / "second")
    old, new = load_trained(trained), load_trained(tmp_path / "second")
    verdict = judge(old, new, stores["both"], allow=100)
    assert verdict.labels == ("bee", "cat")
    assert verdict.new == ("eel",)
    assert verdict.passed
    back = judge(new, old, stores["both"], allow=0)
    assert back.gone == ("eel",)
    assert np.allclose(back.changes.change, -verdict.changes.change)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["update"], "required: DIR"),
        (["update", "RUN"], "required: --data"),
        (["update", "RUN", "--data", "old", "--allow", "-1", "--gate", "old"], "--allow"),
        (["update", "RUN", "--data", "old", "--gate", "images"], "has inputs of shape (3, 16, 16)"),
        (["update", "RUN", "--data", "images"], "has inputs of shape (3, 16, 16)"),
        (["update", "RUN", "--data", "old", "--memory.size", "9"], "may change only"),
        (["versions", "absent"], "holds no run"),
        (["rollback", "RUN"], "no version before"),
        (["rollback", "RUN", "--to", "2"], "does not exist"),
    ],
)
def test_what_cannot_be_updated_is_one_sentence(arguments, words, trained, stores, capsys):
    names = {"RUN": trained, **stores}
    assert main([str(names.get(word, word)) for word in arguments]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert not (trained / "versions").exists()
