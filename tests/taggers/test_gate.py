"""What a gate sees and does not see: small losses of many updates, many small losses, labels that were shuffled."""

from __future__ import annotations

import copy
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import expit
from scipy.stats import norm

from helpers import EXACT, label_settings
from mlcl.cli.main import main
from mlcl.datasets import Dataset, prepare_source, read_ids
from mlcl.metrics.changes import ModelAnswers, auc_changes, pooled_changes
from mlcl.runs.run import run
from mlcl.runs.trained import load_trained
from mlcl.runs.versions import baseline_number, current_folder, pin, prune, versions
from mlcl.taggers import Refused, load
from mlcl.taggers.gate import Verdict, judge, unlike

CLASSES = [f"label {k}" for k in range(8)]
WEIGHTS = np.random.default_rng(0).normal(size=(8, 12))


def rows(seed, n, *, noise=1.0):
    """Vectors and labels of eight labels, each a direction of the vectors."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 12)).astype(np.float32)
    return x, (x @ WEIGHTS.T + 2 * noise * rng.normal(size=(n, 8)) > 3.5).astype(np.uint8)


def shuffled(seed, y, share):
    """Labels of which a share of the rows has those of another row."""
    rng = np.random.default_rng(seed)
    some = np.flatnonzero(rng.random(len(y)) < share)
    y = y.copy()
    y[some] = y[rng.permutation(some)]
    return y


def store(folder, name, train, test):
    """A prepared store of training and test rows."""
    np.savez(
        folder / f"{name}.npz",
        x_train=train[0],
        y_train=train[1],
        x_test=test[0],
        y_test=test[1],
        classes=np.array(CLASSES),
    )
    prepare_source("arrays", folder / f"{name}.npz", out=folder / name, jobs=1)
    return folder / name


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    base = tmp_path_factory.mktemp("gate")
    test = rows(1, 1500)
    store(base, "first", rows(0, 600), test)
    x, y = rows(2, 3000)
    wrong = np.random.default_rng(0).random((3000, 1)) < 0.52
    store(base, "spoilt", (np.where(wrong, -x, x), y), test)
    store(base, "more", rows(3, 200), test)
    settings = label_settings(base / "first", "exact", **EXACT, held_out=0.3)
    run(settings, out=base / "tagger")
    return base


@pytest.fixture
def tagger(made, tmp_path):
    """A tagger of its own for each test, and the stores that it may learn from."""
    shutil.copytree(made / "tagger", tmp_path / "tagger")
    for name in ("first", "spoilt", "more"):
        (tmp_path / name).symlink_to(made / name)
    return tmp_path


def test_a_loss_that_an_earlier_gate_allowed_is_held_against_the_baseline(tagger, capsys):
    root = tagger / "tagger"
    allowed = ["--gate", str(tagger / "first"), "--quiet", "--even-unlike", "--allow"]
    assert main(["update", str(root), "--data", str(tagger / "spoilt"), *allowed, "100"]) == 0
    assert current_folder(root).name == "2"
    lost = json.loads((root / "versions" / "2" / "gate.json").read_text())["pooled"][0]
    assert lost["after"] - lost["before"] < -0.02
    assert main(["update", str(root), "--data", str(tagger / "more"), *allowed, "1"]) == 4
    assert "the AUC of all labels" in capsys.readouterr().err
    record = json.loads((root / "versions" / "3" / "gate.json").read_text())
    assert (record["reasons"], record["against"]) == ([], 2)  # nothing was lost against the parent
    assert (record["passed"], record["baseline"]["against"], record["baseline"]["passed"]) == (
        False,
        1,
        False,
    )
    assert main(["versions", str(root), "--pin", "2"]) == 0
    assert baseline_number(root) == 2
    assert main(["update", str(root), "--data", str(tagger / "more"), *allowed, "1"]) == 0
    assert current_folder(root).name == "4"
    assert baseline_number(root) == 2
    prune(root, 1)
    assert [v.number for v in versions(root)] == [1, 2, 4]
    assert main(["versions", str(root), "--pin", "9"]) == 2
    pin(root, 1)


def test_what_could_not_be_seen_is_said(tagger, tmp_path):
    x, y = rows(5, 400)
    y[:, 0] = 0
    y[:3, 0] = 1
    few = store(tmp_path, "few", rows(6, 50), (x, y))
    trained = load_trained(tagger / "tagger", current=False)
    verdict = judge(trained, trained, few)
    assert verdict.passed
    assert verdict.not_gated == ("label 0",)
    assert np.isinf(verdict.smallest[0])
    assert (verdict.smallest[1:] == 1).all()  # the same model twice: no noise


def test_labels_that_are_shuffled_are_noticed_before_they_are_learnt(tagger):
    root = tagger / "tagger"
    noticed, alarms = [], []
    for seed in range(30):
        x, y = rows(100 + seed, 400)
        for share, found in ((1 / 3, noticed), (0.0, alarms)):
            data = Dataset.of("new", CLASSES, x, shuffled(seed, y, share), x[:9], y[:9])
            found.append(unlike(root, data) is not None)
    assert np.mean(noticed) >= 0.95
    assert np.mean(alarms) <= 0.05


def test_rows_of_a_new_kind_are_not_taken_for_shuffled_ones(tagger):
    x, y = rows(200, 600)
    moved = x[:, np.random.default_rng(1).permutation(12)]  # the same labels, of other features
    assert unlike(tagger / "tagger", Dataset.of("moved", CLASSES, moved, y, x[:9], y[:9])) is None
    wrong = shuffled(3, y, 1.0)
    assert unlike(tagger / "tagger", Dataset.of("wrong", CLASSES, moved, wrong, x[:9], y[:9])) is not None


def test_an_update_with_shuffled_labels_learns_nothing_unless_told_to(tagger, capsys):
    root = tagger / "tagger"
    before = [v.number for v in versions(root)]
    assert main(["update", str(root), "--data", str(tagger / "spoilt"), "--quiet"]) == 4
    error = capsys.readouterr().err
    assert "unlike those learnt before" in error
    assert "--even-unlike" in error
    assert [v.number for v in versions(root)] == before
    with pytest.raises(Refused, match="nothing was learnt"):
        load(root).update(tagger / "spoilt")


def test_rows_of_a_gate_in_groups_count_as_one(tagger, capsys):
    ids = read_ids(tagger / "first")
    lines = [f"{name},{number // 10}" for number, name in enumerate(ids)]
    (tagger / "groups.csv").write_text("\n".join(["id,group", *lines]))
    trained = load_trained(tagger / "tagger", current=False)
    other = replace(trained, network=copy.deepcopy(trained.network))
    weight = other.network.head.linear.weight
    weight.data = weight.data + torch.linspace(-0.2, 0.2, weight.numel()).reshape(weight.shape)
    alone = judge(trained, other, tagger / "first")
    grouped = judge(trained, other, tagger / "first", groups=str(tagger / "groups.csv"))
    assert (grouped.changes.fewer < alone.changes.fewer).all()
    root, gate = str(tagger / "tagger"), ["--gate-groups", str(tagger / "groups.csv")]
    given = ["update", root, "--data", str(tagger / "more"), "--quiet"]
    assert main([*given, *gate]) == 2
    assert "without --gate" in capsys.readouterr().err
    assert main([*given, "--gate", str(tagger / "first"), *gate]) == 0
    record = json.loads((tagger / "tagger" / "versions" / "2" / "gate.json").read_text())
    assert record["pooled"][0]["rows"] <= 150
    assert main([*given, "--gate", str(tagger / "first"), "--gate-groups", str(tagger / "tagger")]) == 2


def passed_updates(seed, loss):
    """How many of three updates pass that each lose some AUC of eight labels; noise is as between two fits."""
    rng = np.random.default_rng(seed)
    y = rng.random((1200, 8)) < np.geomspace(0.04, 0.3, 8)
    shared, made = rng.normal(size=y.shape), []
    for update in range(4):
        gap = np.sqrt(2) * norm.ppf(0.9 - loss * update)
        scores = np.sqrt(0.95) * shared + np.sqrt(0.05) * rng.normal(size=y.shape) + gap * y
        p = expit(gap * (scores - gap / 2) + np.log(y.mean(0)))
        made.append(ModelAnswers(scores, p, p > 0.3))
        earlier = dict.fromkeys((update - 1, 0)) if update else ()
        for other in earlier:
            level = 1 - 0.05 / len(earlier)
            changes = auc_changes(made[other].scores, scores, y, level=(1 + level) / 2)
            pooled = tuple(pooled_changes(made[other], made[update], y))
            names = tuple(CLASSES)
            if not Verdict(1, "", len(y), 1.0, level, names, changes, pooled, (), (), ()).passed:
                return update - 1
    return 3


def test_two_points_lost_by_every_update_are_refused_by_the_third_and_nothing_lost_is_not():
    assert np.mean([passed_updates(seed, 0.02) < 3 for seed in range(12)]) >= 0.95
    assert np.mean([passed_updates(100 + seed, 0.0) < 3 for seed in range(12)]) <= 0.1
