"""Rows that a ContinualTagger does not train on: its probabilities and thresholds come from them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcl.errors import InputError
from mlcl.metrics import Goal, brier_score, choose_thresholds, macro_auc
from mlcl.sklearn import ContinualTagger
from mlcl.sklearn.held_out import HeldOut, choose_held_out
from mlcl.sklearn.learning import logits
from taggers import problem


def two_calls(**params):
    """A linear tagger after two calls, each with two new classes on rows of its own."""
    x, y = problem(600, noise=0.8)
    tagger = ContinualTagger(random_state=0, **{"held_out": 0.3, "memory_size": 150, **params})
    tagger.partial_fit(x[:300], y[:300, :2], classes=["a", "b"])
    return tagger.partial_fit(x[300:], y[300:, 2:], classes=["c", "d"]), x, y


def test_what_is_held_out_is_in_no_memory_and_knows_the_labels_of_its_call():
    tagger, x, y = two_calls()
    held = tagger._learnt.held_out
    assert len(held) == 150
    where = {tuple(row): number for number, row in enumerate(x)}
    rows = np.array([where[tuple(row)] for row in held.inputs])
    stored = np.array([where[tuple(row)] for row in tagger.memory_inputs_])
    assert not np.isin(rows, stored).any()
    assert np.array_equal(held.known, np.c_[rows < 300, rows < 300, rows >= 300, rows >= 300])
    assert np.array_equal(held.labels, np.where(held.known, y[rows], 0))
    assert np.array_equal(held.logits, logits(tagger._learnt, held.inputs))
    total = tagger._learnt.counts.positive + tagger._learnt.counts.negative
    assert (total == 210).all()


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6), st.floats(0, 0.9), st.integers(1, 30))
def test_no_class_of_a_call_loses_its_last_positive(seed, share, rows):
    rng = np.random.default_rng(seed)
    labels = (rng.random((rows, 3)) < 0.2).astype(np.uint8)
    held = choose_held_out(labels, share, rng)
    assert held.sum() <= share * rows
    assert np.array_equal(labels[~held].any(0), labels.any(0))


def test_every_row_ever_held_out_has_the_same_chance():
    rng, found = np.random.default_rng(0), HeldOut.empty(1)
    for call in range(10):
        inputs = np.full((100, 1), call, np.float32)
        found = found.add(inputs, np.zeros((100, 1), np.uint8), np.array([0]), classes=1, most=300, rng=rng)
    assert len(found) == 300
    calls = np.bincount(found.inputs[:, 0].astype(int), minlength=10)
    assert (np.abs(calls - 30) < 20).all()  # 30 expected, with a standard deviation of 5


def test_a_call_changes_no_class_but_its_own_without_a_shared_layer():
    x, y = problem(400)
    tagger = ContinualTagger(random_state=0).partial_fit(x[:200], y[:200, :2], classes=["a", "b"])
    before = logits(tagger._learnt, x)
    tagger.partial_fit(-x[200:], y[200:, 2:], classes=["c", "d"])
    assert logits(tagger._learnt, x)[:, :2] == pytest.approx(before, abs=1e-12)  # another shape, other sums
    tagger.partial_fit(x[200:], y[200:, 1:2], classes=["b"])
    after = logits(tagger._learnt, x)
    assert after[:, 0] == pytest.approx(before[:, 0], abs=1e-12)
    assert np.abs(after[:, 1] - before[:, 1]).max() > 1e-3


def test_how_a_class_is_learnt_does_not_depend_on_the_others_of_its_call():
    x, y = problem(300)
    together, alone = (ContinualTagger(random_state=0, held_out=0.0).fit(x, y[:, :k]) for k in (2, 1))
    found = [logits(one._learnt, x)[:, 0] for one in (together, alone)]
    np.testing.assert_allclose(*found, atol=1e-3)


def test_probabilities_are_better_with_held_out_rows_and_keep_the_auc():
    test, truth = problem(800, seed=1, noise=0.8)
    scores = {}
    for share in (0.0, 0.3):
        tagger, _, _ = two_calls(held_out=share)
        found = tagger.predict_proba(test)
        scores[share] = brier_score(found, truth)
        raw = logits(tagger._learnt, test)
        assert (
            macro_auc(found, truth)
            == macro_auc(raw, truth)
            == tagger.score(test, truth, classes=list("abcd"))
        )
    assert scores[0.3] < scores[0.0]


def test_predictions_follow_the_goal_that_is_set_without_training():
    tagger, x, _ = two_calls()
    held, before = tagger._learnt.held_out, tagger.predict_proba(x)
    for goal in (Goal(), Goal("f1-overall"), Goal("precision", 0.9), Goal("recall", 0.95), Goal("cost", 4.0)):
        tagger.set_params(decide=goal.kind, decide_value=goal.value)
        p = tagger.predict_proba(held.inputs)
        wanted = choose_thresholds(p, held.labels, goal=goal, mask=held.known).values
        assert tagger.thresholds_ == pytest.approx(wanted)
        assert np.array_equal(tagger.predict(x), before > tagger.thresholds_)
    assert np.array_equal(tagger.predict_proba(x), before)
    without, _, _ = two_calls(held_out=0.0)
    assert np.array_equal(without.thresholds_, np.full(4, 0.5))


def test_a_saved_tagger_decides_and_goes_on_the_same(tmp_path):
    tagger, x, y = two_calls()
    tagger.save(tmp_path / "t")
    loaded = ContinualTagger.load(tmp_path / "t")
    assert np.array_equal(loaded.thresholds_, tagger.thresholds_)
    assert np.array_equal(loaded.predict_proba(x), tagger.predict_proba(x))
    for one in (tagger, loaded):
        one.partial_fit(x[:200], y[:200, :1], classes=["a"])
    assert np.array_equal(loaded.predict_proba(x), tagger.predict_proba(x))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"held_out": 0.95}, "held_out is 0.95"),
        ({"decide": "f2"}, "decide is 'f2'"),
        ({"decide": "recall"}, "recall is None"),
        ({"hidden": 8}, "hidden"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(params, message):
    x, y = problem(20)
    with pytest.raises(InputError, match=message):
        ContinualTagger(**params).fit(x, y)
