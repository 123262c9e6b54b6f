"""Probabilities and thresholds of a run: what they are fitted on, what is stored, what is measured."""

from __future__ import annotations

import hashlib
import json
import shutil

import numpy as np
import pytest
from scipy.special import expit, logit

from helpers import SMALL, small_arrays, small_benchmark
from mlcl.config.resolve import config_from, merge
from mlcl.errors import InputError
from mlcl.files import json_digest
from mlcl.metrics import Goal, brier_score, calibration_error, choose_thresholds, log_loss, macro_auc
from mlcl.runs import folder as files
from mlcl.runs.run import resume, run
from mlcl.runs.trained import load_trained
from mlcl.streams import Benchmark, keep_out
from mlcl.taggers.predict import predict
from mlcl.training.callbacks import Callback, Interrupted

HELD = {"held_out": 0.3}


def settings(**more):
    return config_from(merge(SMALL, {"method": "rldam-wru", "train": {"epochs": 2}}, more))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One run without held-out rows, one with."""
    base = tmp_path_factory.mktemp("calibrated")
    return {
        name: run(settings(**more), benchmark=small_benchmark(n=240), out=base / name)
        for name, more in (("counts", {}), ("rows", HELD), ("bce", {"loss": {"kind": "bce"}}))
    }


def change_record(folder, change):
    """Change the result.json of a run, as somebody who knows of checksums would."""
    listed = json.loads((folder / files.RESULT).read_text())
    change(listed)
    (folder / files.RESULT).write_text(json.dumps(listed))


def test_held_out_rows_are_trained_on_for_no_class():
    whole = small_benchmark(n=240)
    part = keep_out(whole, share=0.3, seed=1)
    used = np.unique(np.concatenate([task.train for task in whole.tasks]))
    assert len(part.held_out) == round(0.3 * len(used))
    for before, after in zip(whole.tasks, part.tasks, strict=True):
        assert not np.isin(after.train, part.held_out).any()
        assert set(before.train) - set(after.train) <= set(part.held_out)
        labels = whole.dataset.train.labels[np.ix_(after.train, after.classes)]
        assert np.array_equal(after.counts.positive, labels.sum(0))
        assert np.array_equal(before.test, after.test)
    assert part.tasks_fingerprint != whole.tasks_fingerprint
    again = keep_out(whole, share=0.3, seed=1).held_out
    assert np.array_equal(part.held_out, again)
    assert not np.array_equal(part.held_out, keep_out(whole, share=0.3, seed=2).held_out)


def test_no_class_loses_its_last_positive():
    x, y = small_arrays(n=60, classes=4)
    y[:, 3] = 0
    y[7, 3] = 1
    from mlcl.streams import Benchmark

    whole = Benchmark.from_arrays(x, y, x, y, tasks=2, seed=0)
    for seed in range(8):
        part = keep_out(whole, share=0.9, seed=seed)
        assert 7 not in part.held_out
        assert all(len(task.train) and (task.counts.positive > 0).all() for task in part.tasks)


def test_without_held_out_rows_nothing_of_a_run_changes_and_the_shift_is_that_of_the_counts(runs):
    result = runs["counts"]
    assert "held_out" not in json.loads((result.folder / "result.json").read_text())["config"]
    assert not (result.folder / files.HELD_OUT).exists()
    benchmark = result.learner.benchmark
    rows = len(np.unique(np.concatenate([task.train for task in benchmark.tasks])))
    prior = (result.positive + 0.5) / (rows + 1)
    lines = result.calibrated.calibration.lines
    assert np.allclose(lines.offset, logit(prior))  # a balanced loss learns at one half
    assert np.array_equal(lines.slope, np.ones(6))
    bce = runs["bce"]
    inside = (bce.positive + 0.5) / (bce.learner.counts.positive + bce.learner.counts.negative + 1)
    assert np.allclose(bce.calibrated.calibration.lines.offset, logit(prior) - logit(inside))
    assert np.array_equal(bce.calibrated.thresholds.values, np.full(6, 0.5))


def test_with_held_out_rows_lines_and_thresholds_are_fitted_on_them(runs):
    result = runs["rows"]
    held = result.calibrated.held_out
    learner = result.learner
    assert np.array_equal(np.sort(held.rows), learner.benchmark.held_out)
    assert np.array_equal(held.inputs, learner.data.train.inputs[held.rows])
    assert np.array_equal(held.labels, learner.data.train.labels[held.rows])
    assert np.array_equal(held.logits, learner.predict(learner.data.train.inputs[held.rows]))
    found = result.calibrated.calibration.probabilities(held.logits)
    chosen = choose_thresholds(found, held.labels)
    assert np.array_equal(result.calibrated.thresholds.values, chosen.values)
    raw = brier_score(expit(held.logits.astype(float)), held.labels)
    assert brier_score(found, held.labels) < raw


def test_what_was_fitted_is_read_back_as_it_was(runs):
    for result in runs.values():
        saved = files.read_result(result.folder)
        calibration = files.read_calibration(result.folder, saved)
        thresholds = files.read_thresholds(result.folder, saved)
        for name in ("prior", "own", "rows"):
            assert np.array_equal(getattr(calibration, name), getattr(result.calibrated.calibration, name))
        assert np.array_equal(calibration.lines.slope, result.calibrated.calibration.lines.slope)
        assert np.array_equal(calibration.lines.offset, result.calibrated.calibration.lines.offset)
        assert np.array_equal(thresholds.values, result.calibrated.thresholds.values)
        assert thresholds.goal == result.calibrated.thresholds.goal
        held = files.read_held_out(result.folder, saved)
        assert (held is None) == (result.calibrated.held_out is None)
        if held is not None:
            assert np.array_equal(held.logits, result.calibrated.held_out.logits)
            other = calibration.thresholds(held, Goal("recall", 0.9))
            files.write_thresholds(result.folder, other, saved.classes)
            assert np.array_equal(files.read_thresholds(result.folder, saved).values, other.values)
            files.write_thresholds(result.folder, thresholds, saved.classes)


def test_the_result_says_how_good_the_probabilities_are_on_test_rows(runs):
    result = runs["rows"]
    data = result.learner.data.test
    found = load_trained(result.folder).calibration.probabilities(result.learner.predict(data.inputs))
    saved = files.read_result(result.folder).calibration
    assert saved["brier"] == pytest.approx(brier_score(found, data.labels))
    assert saved["log_loss"] == pytest.approx(log_loss(found, data.labels))
    assert saved["calibration_error"] == pytest.approx(
        calibration_error(found, data.labels, average="pooled")
    )
    assert saved["per_class"]["brier"] == pytest.approx(
        brier_score(found, data.labels, average=None).tolist()
    )
    share = runs["rows"].calibrated.calibration.prior
    assert saved["brier_prior"] == pytest.approx(float(((data.labels - share) ** 2).mean()))


def test_predictions_are_the_calibrated_probabilities_and_keep_the_macro_auc(runs, tmp_path):
    result = runs["rows"]
    data = result.learner.data.test
    np.save(tmp_path / "x.npy", data.inputs)
    scores = predict(result.folder, tmp_path / "x.npy")
    logits = predict(result.folder, tmp_path / "x.npy", logits=True)
    wanted = result.calibrated.calibration.probabilities(result.learner.predict(data.inputs))
    assert scores.values == pytest.approx(wanted, abs=1e-6)
    assert macro_auc(scores.values, data.labels) == macro_auc(logits.values, data.labels)
    tags = scores.tags()
    assert [set(row) for row in tags] == [
        {scores.classes[k] for k in np.flatnonzero(row > result.calibrated.thresholds.values)}
        for row in scores.values
    ]
    with pytest.raises(InputError, match="logits have no thresholds"):
        logits.tags()


def test_a_run_of_an_earlier_version_has_the_sigmoid(runs, tmp_path):
    old = tmp_path / "old"
    shutil.copytree(runs["counts"].folder, old)
    for name in (files.CALIBRATION, files.THRESHOLDS):
        (old / name).unlink()
    change_record(old, lambda listed: listed["sha256"].pop(files.CALIBRATION))
    trained = load_trained(old)
    logits = np.array([[0.0, 1, -1, 2, -2, 3]])
    assert np.allclose(trained.calibration.probabilities(logits), expit(logits))
    assert np.array_equal(trained.thresholds.values, np.full(6, 0.5))


class StopAtEnd(Callback):
    """Interrupts a run after its last task."""

    def on_task_end(self, learner):
        if learner.task_index == 3:
            raise Interrupted


def test_a_run_resumed_after_its_last_task_is_calibrated_the_same(runs, tmp_path):
    with pytest.raises(Interrupted):
        run(settings(**HELD), benchmark=small_benchmark(n=240), out=tmp_path / "r", callback=StopAtEnd())
    again = resume(tmp_path / "r", benchmark=small_benchmark(n=240))
    whole = runs["rows"].calibrated
    assert np.array_equal(again.calibrated.calibration.lines.offset, whole.calibration.lines.offset)
    assert again.calibrated.measured["brier"] == whole.measured["brier"]


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(InputError, match="held_out is"):
        config_from({"held_out": share})


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("CALIBRATION", {"slope": [1, 2]}, "slope is .* one finite number per class"),
        ("CALIBRATION", {"slope": [0.0] * 6}, "a slope is not positive"),
        ("CALIBRATION", {"classes": list("abcdef")}, "classes are not those of the run"),
        ("CALIBRATION", {"prior": [0.0] * 6}, "prior holds a share"),
        ("CALIBRATION", {"rows": None}, "rows is None"),
        ("CALIBRATION", {"format": 7}, "has the format 7"),
        ("THRESHOLDS", {"thresholds": "high"}, "thresholds is 'high'"),
        ("THRESHOLDS", {"goal": "best"}, "goal is 'best'"),
        ("THRESHOLDS", {"own": [1] * 6}, "expected true or false per class"),
    ],
)
def test_a_file_that_was_tampered_with_is_refused(name, change, message, runs, tmp_path):
    shutil.copytree(runs["rows"].folder, tmp_path / "run")
    path = tmp_path / "run" / getattr(files, name)
    fields = json.loads(path.read_text()) | change
    fields.pop("sha256", None)
    path.write_text(json.dumps(fields | {"sha256": json_digest(fields)}))
    checksum = hashlib.sha256(path.read_bytes()).hexdigest()
    if name == "CALIBRATION":
        change_record(tmp_path / "run", lambda listed: listed["sha256"].update({path.name: checksum}))
    with pytest.raises(InputError, match=message):
        load_trained(tmp_path / "run")


def test_held_out_scores_that_do_not_fit_are_refused(runs, tmp_path):
    shutil.copytree(runs["rows"].folder, tmp_path / "run")
    path = tmp_path / "run" / files.HELD_OUT
    path.write_bytes(path.read_bytes()[:-4] + b"\0\0\0\1")
    with pytest.raises(InputError, match="is damaged"):
        files.read_held_out(tmp_path / "run", files.read_result(tmp_path / "run"))


def test_labels_that_are_not_known_are_no_negatives_of_the_probabilities():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 4)).astype(np.float32)
    y = (x[:, :2] + rng.normal(0, 1, (2000, 2)) > [0.0, 1.0]).astype(np.uint8)
    known = rng.random((1000, 2)) < 0.4
    parts = x[:1000], y[:1000] * known, x[1000:], y[1000:]
    data = Benchmark.from_arrays(*parts, tasks=1, known_train=known, negatives="all")
    result = run(config_from({"method": "exact"}), benchmark=data)
    found = result.calibrated.calibration.probabilities(result.learner.test_scores()).mean(axis=0)
    assert (
        np.abs(found - y[1000:].mean(axis=0)).max() < 0.05
    )  # .25 and more where unknown labels were negatives
