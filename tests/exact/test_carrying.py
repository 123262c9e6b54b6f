"""Sums carried over to other features: exact where the drift is linear, a regression where it is not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from mlcl.exact import Learner, Options, carried, linear_map, solve

LEAST = 1e-13
"""A ridge that regularises nothing."""


def drifted(seed, *, d=5, e=5, n=200):
    """Rows, labels of two classes, and the rows after a linear drift."""
    rng = np.random.default_rng(seed)
    labels = rng.random((n, 2)) < 0.3
    old = rng.normal(size=(n, d))
    old[:, :2] += labels
    return old, labels, old @ rng.normal(size=(d, e)) + rng.normal(size=e)


@given(st.integers(0, 1000))
def test_sums_carried_along_a_linear_drift_are_those_of_the_new_features(seed):
    old, labels, new = drifted(seed)
    hand = np.arange(0, 200, 4)  # the map is fitted on some rows; the sums are of all
    learner = Learner.begin(old).learn(old, labels[:, :1], [0]).learn(old[:50], labels[:50, 1:], [1])
    found = carried(learner, old[hand], new[hand], ridge=LEAST)
    again = Learner(found.features, found.sums.zeros(5))
    again = again.learn(new, labels[:, :1], [0]).learn(new[:50], labels[:50, 1:], [1])
    pairs = zip(
        found.sums.positive + found.sums.annotated, again.sums.positive + again.sums.annotated, strict=True
    )
    for mine, theirs in pairs:
        assert mine.count == theirs.count
        np.testing.assert_allclose(mine.sum, theirs.sum, atol=1e-5)
        np.testing.assert_allclose(mine.second, theirs.second, atol=1e-4, rtol=1e-6)


def test_the_weights_that_follow_are_those_of_the_new_features():
    old, labels, new = drifted(3)
    options = Options(ridge=0.1, exponent=0.0)
    learner = carried(Learner.begin(old).learn(old, labels, [0, 1]), old[:40], new[:40], ridge=LEAST)
    direct = Learner.begin(new).learn(new, labels, [0, 1])
    np.testing.assert_allclose(
        solve(learner, options).scores(new), solve(direct, options).scores(new), atol=1e-6
    )


def test_wide_features_are_projected_before_and_after():
    old, labels, new = drifted(5, d=12, e=9)
    learner = Learner.begin(old, dimensions=6).learn(old, labels, [0, 1])
    found = carried(learner, old, new, dimensions=4)
    assert (found.features.features, found.features.dimension) == (9, 4)
    assert found.sums.dimension == 4
    assert np.isfinite(solve(found).scores(new)).all()


@pytest.mark.parametrize("ridge", [1e-6, 0.1, 10.0])
def test_the_map_is_a_ridge_regression(ridge):
    rng = np.random.default_rng(0)
    old, new = rng.normal(size=(30, 4)) * [1, 2, 3, 4], rng.normal(size=(30, 3))
    matrix, shift = linear_map(old, new, ridge=ridge)
    oracle = Ridge(alpha=ridge * len(old) * old.var(0).mean()).fit(old, new)
    np.testing.assert_allclose(matrix, oracle.coef_, atol=1e-10)
    np.testing.assert_allclose(shift, oracle.intercept_, atol=1e-10)


def test_features_that_never_vary_give_a_map_to_the_new_mean():
    matrix, shift = linear_map(np.ones((4, 2)), np.arange(8.0).reshape(4, 2))
    assert not matrix.any()
    np.testing.assert_allclose(shift, [3.0, 4.0])
