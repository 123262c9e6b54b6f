"""Logistic regression for all labels at once, beside scikit-learn's."""

import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from linear import Turned, regressions


@pytest.mark.parametrize("strength", [0.01, 1.0, 100.0])
def test_scores_are_those_of_scikit_learn(strength: float) -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((400, 20)) * np.logspace(0, -2, 20) + 3
    rows[:, 5] = rows[:, 4]  # a dependent column
    rows[:, 6] = 1.0  # a constant one
    scores = (rows - rows.mean(0)) @ rng.standard_normal((20, 4)) * 2 + rng.standard_normal((400, 4))
    labels = (scores > np.quantile(scores, [0.5, 0.8, 0.9, 0.98], axis=0).diagonal()).astype(float)
    turned = Turned.of(rows)
    new = rng.standard_normal((50, 20))
    scores = turned.apply(new) @ regressions(turned, labels, strength, tolerance=1e-7)
    for k in range(4):
        one = LogisticRegression(C=strength, tol=1e-10, max_iter=10_000).fit(rows, labels[:, k])
        expected = one.decision_function(new)
        np.testing.assert_allclose(scores[:, k], expected, atol=1e-3 * np.abs(expected).max())


def test_any_start_gives_the_same() -> None:
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((300, 8)).astype(np.float32)
    labels = rng.random((300, 3)) < [0.02, 0.3, 0.9]
    turned = Turned.of(rows)
    begun = regressions(turned, labels, 100.0)
    one = regressions(turned, labels, 0.1, tolerance=1e-6)
    np.testing.assert_allclose(regressions(turned, labels, 0.1, start=begun, tolerance=1e-6), one, atol=1e-4)


def test_a_label_without_positives_is_finite() -> None:
    rows = np.random.default_rng(2).standard_normal((50, 4))
    weights = regressions(Turned.of(rows), np.zeros((50, 1)), 1.0)
    assert np.isfinite(weights).all()
    assert weights[-1, 0] < -3
