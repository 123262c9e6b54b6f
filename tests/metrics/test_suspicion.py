"""Suspected label errors: the rule cell by cell, and planted errors found."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from mlcl.metrics.suspicion import suspected_errors


def slowly(p, y, known):
    """Return suspected cells and how sure the model is of the opposite, one cell after the other."""
    found = {}
    for k in range(y.shape[1]):
        ones = [p[i, k] for i in range(len(y)) if known[i, k] and y[i, k]]
        zeros = [p[i, k] for i in range(len(y)) if known[i, k] and not y[i, k]]
        for i in range(len(y)):
            if not known[i, k]:
                continue
            if y[i, k] and zeros and p[i, k] <= sum(zeros) / len(zeros):
                found[i, k] = 1 - p[i, k]
            if not y[i, k] and ones and p[i, k] >= sum(ones) / len(ones):
                found[i, k] = p[i, k]
    return found


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 3), st.booleans())
def test_cell_by_cell(seed, n, classes, masked):
    rng = np.random.default_rng(seed)
    p = rng.integers(0, 1025, (n, classes)) / 1024  # sums are exact in any order
    y = rng.integers(0, 2, (n, classes))
    known = rng.random((n, classes)) < 0.7 if masked else np.ones((n, classes), bool)
    cells = suspected_errors(p, y, mask=known if masked else None)
    expected = slowly(p, y, known)
    assert {(i, k) for i, k in cells.tolist()} == set(expected)
    doubts = [expected[i, k] for i, k in cells.tolist()]
    assert doubts == sorted(doubts, reverse=True)


@pytest.mark.parametrize("share", [0.02, 0.1])
def test_planted_errors_are_found(share):
    rng = np.random.default_rng(1)
    weights = 6 * rng.standard_normal((6, 4))

    def draw(n):
        x = rng.standard_normal((n, 6))
        return x, (x @ weights - 7 + rng.logistic(size=(n, 4)) > 0).astype(int)

    (x, y), (x_test, clean) = draw(500), draw(1500)
    models = [LogisticRegression().fit(x, column) for column in y.T]
    p = np.stack([model.predict_proba(x_test)[:, 1] for model in models], axis=1)
    planted = np.random.default_rng(0).random(clean.shape) < share
    cells = suspected_errors(p, np.where(planted, 1 - clean, clean))
    doubt = np.zeros(clean.shape)
    doubt[cells[:, 0], cells[:, 1]] = np.arange(len(cells), 0, -1)
    assert roc_auc_score(planted.ravel(), doubt.ravel()) > 0.85  # chance: 0.5
    first = cells[: int(planted.sum())]
    assert planted[first[:, 0], first[:, 1]].mean() > 0.7  # chance: the share


def test_a_class_without_positives_or_negatives_has_no_suspects():
    p = np.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.3]])
    assert suspected_errors(p, [[0, 1], [0, 1], [0, 1]]).shape == (0, 2)
