"""Influences of rows: against leaving rows out and drawing them anew; intervals: by the coverage that they promise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtri
from sklearn.metrics import average_precision_score, brier_score_loss, f1_score, roc_auc_score

from mlcl.metrics.influence import (
    ap_influence,
    auc_influence,
    auc_intervals,
    brier_influence,
    f1_influence,
)


def drawn(seed, n=300, digits=1):
    """Labels and scores between 0 and 1, with ties."""
    rng = np.random.default_rng(seed)
    y = rng.random(n) < 0.2
    return y, np.round(1 / (1 + np.exp(1 - rng.normal(1.5 * y, 1))), digits)


MEASURES = {
    "auc": (auc_influence, lambda y, s: roc_auc_score(y, s)),
    "ap": (ap_influence, lambda y, s: average_precision_score(y, s)),
    "brier": (brier_influence, lambda y, s: -brier_score_loss(y, s)),
    "f1": (lambda s, y: f1_influence((s > 0.5)[:, None], y[:, None]), lambda y, s: f1_score(y, s > 0.5)),
}


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("digits", [1, 12])
def test_values_and_influences(name, digits):
    influences, measure = MEASURES[name]
    y, s = drawn(3, digits=digits)
    value, influence = influences(s, y)
    assert value == pytest.approx(measure(y, s))
    assert influence.sum() == pytest.approx(0, abs=1e-12)
    # A row that is left out takes its influence with it, but for terms of the second order.
    without = np.array([measure(np.delete(y, i), np.delete(s, i)) for i in range(len(y))])
    assert np.corrcoef(value - without, influence)[0, 1] > 0.995
    rng = np.random.default_rng(0)
    rows = rng.integers(0, len(y), (600, len(y)))
    spread = np.std([measure(y[r], s[r]) for r in rows])
    assert np.sqrt(np.square(influence).sum()) == pytest.approx(spread, rel=0.12)


@pytest.mark.parametrize(("positives", "negatives"), [(5, 200), (20, 500), (8, 12)])
@pytest.mark.parametrize("auc", [0.6, 0.8, 0.95])
def test_the_interval_of_an_auc_covers_it_as_often_as_it_says(positives, negatives, auc):
    rng = np.random.default_rng(1)
    sets = 500  # each a class
    labels = np.repeat([[True], [False]], [positives, negatives], axis=0) & np.ones(sets, np.bool_)
    scores = rng.normal(ndtri(auc) * np.sqrt(2) * labels, 1)
    low, high = auc_intervals(scores, labels)
    covered = np.mean((low <= auc) & (auc <= high))
    assert 0.92 <= covered <= 0.99
    assert (high <= 1).all()
    assert (np.concatenate([low, -high]).reshape(2, -1).sum(0) < 0).all()


def test_a_perfect_class_of_few_rows_is_not_certain_and_one_without_a_side_has_none():
    labels = np.arange(40)[:, None] < [5, 0, 20]
    low, high = auc_intervals(np.where(labels, 1.0, 0.0), labels)
    assert high[0] == 1
    assert 0.5 < low[0] < 0.95 < 1
    assert low[2] > low[0]
    assert np.isnan([low[1], high[1]]).all()
    known = np.ones_like(labels)
    known[:, 0] = np.arange(40) % 2 == 0
    part = auc_intervals(np.where(labels, 1.0, 0.0)[::2], labels[::2])
    assert auc_intervals(np.where(labels, 1.0, 0.0), labels, mask=known)[0][0] == part[0][0]
