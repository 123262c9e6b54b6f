"""The closed form against the explicit minimiser over all pairs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from mlcl.exact import Learner, Moments
from mlcl.exact.solution import (
    Spectrum,
    class_ridge,
    direction,
    directions,
    feature_scale,
    inverted,
    quadratic,
)


def problem(seed, *, positives=12, negatives=25, d=4):
    rng = np.random.default_rng(seed)
    return 0.7 + rng.normal(size=(positives, d)), rng.normal(size=(negatives, d)) * rng.uniform(0.5, 2, d)


@given(st.integers(0, 10**6), st.sampled_from([0.01, 0.3, 5.0]), st.sampled_from([0.0, 0.5, 1.0]))
@settings(max_examples=25)
def test_it_minimises_the_squared_loss_over_all_pairs(seed, ridge, exponent):
    positive, negative = problem(seed)
    p, n = Moments.of(positive), Moments.of(negative)
    variances = (p + n).variances
    found = direction(p, n, ridge=ridge, scale=feature_scale(variances, exponent))
    pairs = (positive[:, None] - negative[None]).reshape(-1, 4)
    spread = np.cov(positive.T, bias=True) + np.cov(negative.T, bias=True)
    penalty = ridge * (np.diag(spread) / variances**exponent).mean() * variances**exponent

    def loss(w):
        return ((1 - pairs @ w) ** 2).mean() + (penalty * w**2).sum()

    explicit = minimize(loss, np.zeros(4), tol=1e-12).x
    cosine = found @ explicit / np.linalg.norm(found) / np.linalg.norm(explicit)
    assert cosine == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("positives", [2, 12, 60])
def test_many_ridges_at_once(positives):
    p, n = (Moments.of(rows) for rows in problem(0, positives=positives, d=20))
    scale, ridges = feature_scale((p + n).variances, 0.5), np.array([1e-3, 0.1, 10.0])
    many = directions(p, n, ridges=ridges, scale=scale)
    for ridge, w in zip(ridges, many, strict=True):
        np.testing.assert_allclose(w, direction(p, n, ridge=ridge, scale=scale), rtol=1e-8)
        inverse, gap, added = inverted(p, n, ridge=ridge, scale=scale)
        np.testing.assert_allclose(scale * (inverse @ gap), w, rtol=1e-8)
        assert added == pytest.approx(ridge * Spectrum.of(p, n, scale).level)


def test_a_class_without_positives_or_negatives_has_no_weights():
    rows, nothing = Moments.of(np.eye(3)), Moments.zeros(3)
    for p, n in ((rows, nothing), (nothing, rows)):
        assert not direction(p, n, ridge=1.0, scale=np.ones(3)).any()
        assert not directions(p, n, ridges=np.ones(2), scale=np.ones(3)).any()


def test_one_positive_and_one_negative_give_their_difference():
    p, n = Moments.of(np.array([[3.0, 1.0]])), Moments.of(np.array([[1.0, 0.0]]))
    w = direction(p, n, ridge=0.1, scale=np.ones(2))
    np.testing.assert_allclose(w / np.linalg.norm(w), np.array([2.0, 1.0]) / np.sqrt(5), rtol=1e-4)


def test_equal_rows_and_dependent_features_give_finite_weights():
    same = Moments.of(np.zeros((3, 2)))
    assert not direction(same, same, ridge=0.1, scale=np.ones(2)).any()
    assert not directions(same, same, ridges=np.ones(1), scale=np.ones(2)).any()
    rows = np.random.default_rng(0).normal(size=(20, 1)) @ np.ones((1, 5))
    p, n = Moments.of(rows + 1), Moments.of(rows)
    for ridge in (0.0, 1e-12, 1.0):
        w = direction(p, n, ridge=ridge, scale=np.ones(5))
        assert np.isfinite(w).all()
        assert (w > 0).all()


def test_constant_features_have_no_weight():
    positive, negative = problem(1)
    positive[:, 2] = negative[:, 2] = 7.0
    p, n = Moments.of(positive), Moments.of(negative)
    for exponent in (0.5, 1.0):
        w = direction(p, n, ridge=0.1, scale=feature_scale((p + n).variances, exponent))
        assert w[2] == 0
        assert w[[0, 1, 3]].all()


def test_the_variance_of_scores():
    positive, _ = problem(2)
    weights = np.random.default_rng(0).normal(size=(3, 4))
    np.testing.assert_allclose(
        quadratic(weights, Moments.of(positive)), (positive @ weights.T).var(0), rtol=1e-10
    )


def test_the_ridge_of_a_rare_class_is_larger():
    assert class_ridge(0.5, 1e9, 100) == pytest.approx(0.5)
    assert class_ridge(0.5, 1, 100) == pytest.approx(50.5)


def test_directions_that_no_row_has_left_do_not_count():
    """Of 20 rows with 300 features, 237 directions of the map are random: they hold rounding, and new rows."""
    rng = np.random.default_rng(0)
    rows, new = rng.normal(size=(2, 20, 300))
    learner = Learner.begin(rows, dimensions=256).learn(rows, rng.random((20, 1)) < 0.5, [0])
    for exponent in (0.5, 1.0):
        scale = feature_scale(learner.sums.total.variances, exponent)
        assert np.count_nonzero(scale) == 19
        weights = direction(*learner.sums.sides(0, 1.0), ridge=1.0, scale=scale)
        seen, unseen = (learner.features(some) @ weights for some in (rows, new))
        assert unseen.std() < 3 * seen.std()
    units = feature_scale(np.array([1e24, 1.0]), 1.0)
    assert (units > 0).all()
