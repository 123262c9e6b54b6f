"""The closed form against the explicit minimiser over all pairs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from mlcl.exact import Learner, Moments, Options, Sums, solution, solve
from mlcl.exact.solution import DOUBT, Inverse, class_ridge, feature_scale, groups, quadratic

BOTH = pytest.mark.parametrize("shared", [False, True])


def problem(seed, *, positives=12, negatives=25, d=4):
    rng = np.random.default_rng(seed)
    return 0.7 + rng.normal(size=(positives, d)), rng.normal(size=(negatives, d)) * rng.uniform(0.5, 2, d)


def direction(positive, negative, *, ridge, exponent=0.0, spread=1.0, shared=False):
    """The weights of a class with these rows; None if it has none."""
    labels = np.arange(len(positive) + len(negative))[:, None] < len(positive)
    sums = Sums.of(np.vstack([positive, negative]).astype(float), labels, shared=shared)
    found = list(groups(sums, [0], unlabelled=1.0, spread=spread, exponent=exponent))
    return found[0].weights(ridge)[0] if found else None


@given(st.integers(0, 10**6), st.sampled_from([0.01, 0.3, 5.0]), st.sampled_from([0.0, 0.5, 1.0]))
@settings(max_examples=25)
def test_it_minimises_the_squared_loss_over_all_pairs(seed, ridge, exponent):
    positive, negative = problem(seed)
    found = direction(positive, negative, ridge=ridge, exponent=exponent)
    variances = np.vstack([positive, negative]).var(0)
    pairs = (positive[:, None] - negative[None]).reshape(-1, 4)
    spread = np.cov(positive.T, bias=True) + np.cov(negative.T, bias=True)
    own = class_ridge(np.array([ridge]), np.array([12]), 4, shared=False)
    penalty = own * (np.diag(spread) / variances**exponent).mean() * variances**exponent

    def loss(w):
        return ((1 - pairs @ w) ** 2).mean() + (penalty * w**2).sum()

    explicit = minimize(loss, np.zeros(4), tol=1e-12).x
    cosine = found @ explicit / np.linalg.norm(found) / np.linalg.norm(explicit)
    assert cosine == pytest.approx(1, abs=1e-6)


@BOTH
def test_a_class_without_positives_or_negatives_has_no_weights(shared):
    rows, nothing = np.eye(3), np.zeros((0, 3))
    for p, n in ((rows, nothing), (nothing, rows)):
        assert direction(p, n, ridge=1.0, shared=shared) is None


@BOTH
def test_one_positive_and_one_negative_give_their_difference(shared):
    w = direction(np.array([[3.0, 1.0]]), np.array([[1.0, 0.0]]), ridge=0.1, shared=shared)
    np.testing.assert_allclose(w / np.linalg.norm(w), np.array([2.0, 1.0]) / np.sqrt(5), rtol=1e-4)


@BOTH
def test_equal_rows_and_dependent_features_give_finite_weights(shared):
    assert not direction(np.zeros((3, 2)), np.zeros((3, 2)), ridge=0.1, shared=shared).any()
    rows = np.random.default_rng(0).normal(size=(20, 1)) @ np.ones((1, 5))
    for ridge in (0.0, 1e-12, 1.0):
        w = direction(rows + 1, rows, ridge=ridge, shared=shared)
        assert np.isfinite(w).all()
        assert (w > 0).all()


@BOTH
def test_constant_features_have_no_weight(shared):
    positive, negative = problem(1)
    positive[:, 2] = negative[:, 2] = 7.0
    for exponent in (0.5, 1.0):
        w = direction(positive, negative, ridge=0.1, exponent=exponent, shared=shared)
        assert w[2] == 0
        assert w[[0, 1, 3]].all()


def test_the_variance_of_scores():
    positive, _ = problem(2)
    weights = np.random.default_rng(0).normal(size=(3, 4))
    np.testing.assert_allclose(
        quadratic(weights, Moments.of(positive)), (positive @ weights.T).var(0), rtol=1e-10
    )


@pytest.mark.parametrize("exponent", [0.0, 0.5])
def test_along_leading_directions_the_positives_have_their_own_covariance(exponent):
    """And given their values along these, they vary as in the shared form without any."""
    rng = np.random.default_rng(0)
    labels = rng.random((200, 2)) < [0.2, 0.4]
    mixing = rng.normal(size=(6, 6))
    rows = (
        rng.normal(size=(200, 6)) @ mixing * np.where(labels[:, :1], rng.uniform(0.3, 3, 6), 1)
        + labels[:, 1:]
    )
    lead = rng.normal(size=(6, 2))
    sums = Sums.of(rows, labels, shared=True, lead=lead)
    scale = feature_scale(rows.var(0), exponent)
    every, directions = np.cov(rows.T, bias=True) * np.outer(scale, scale), lead / scale[:, None]
    values, basis = np.linalg.eigh(every)
    group = next(iter(groups(sums, [0, 1], unlabelled=1.0, spread=0.3, exponent=exponent)))
    found, inverse = group.weights(0.7), Inverse.of(group, 0.7)
    turned = np.abs(group.vectors / scale[:, None])
    np.testing.assert_allclose(turned, np.abs(basis), atol=1e-8)
    for k in range(2):
        own = rows[labels[:, k]]
        ratio = own.var(0) / rows.var(0)
        shared = basis @ np.diag(values * (ratio @ basis**2)) @ basis.T
        known = np.cov((own * scale @ directions).T, bias=True)
        slopes = shared @ directions @ np.linalg.inv(directions.T @ shared @ directions)
        rest = shared - slopes @ directions.T @ shared
        share = len(own) / (len(own) + DOUBT)
        spread = (1 - share) * shared + share * (rest + slopes @ known @ slopes.T)
        ridge = class_ridge(np.array([0.7]), np.array([len(own)]), 6, shared=True) * np.trace(every) / 6
        matrix = every + 0.3 * spread + ridge * np.eye(6)
        gap = own.mean(0) - rows[~labels[:, k]].mean(0)
        np.testing.assert_allclose(found[k], scale * np.linalg.solve(matrix, scale * gap), rtol=1e-8)
        traces = [np.trace(np.linalg.solve(matrix, one)) for one in (spread, every)]
        np.testing.assert_allclose([one[k] for one in inverse.traces()], traces, rtol=1e-8)
        w = found[k] / scale
        assert group.variance(found @ group.back)[k] == pytest.approx(w @ spread @ w, rel=1e-8)


def test_the_ridge_of_a_rare_class_is_larger():
    found = class_ridge(np.array([0.5]), np.array([1e9, 1]), 100, shared=False)
    np.testing.assert_allclose(found, [0.5, 50.5], rtol=1e-6)
    assert class_ridge(np.array([0.5]), np.array([1]), 100, shared=True) == pytest.approx(15.5)


@BOTH
def test_directions_that_no_row_has_left_do_not_count(shared):
    """Of 20 rows with 300 features, 237 directions of the map are random: they hold rounding, and new rows."""
    rng = np.random.default_rng(0)
    rows, new = rng.normal(size=(2, 20, 300))
    learner = Learner.begin(rows, dimensions=256, form="shared" if shared else "full")
    learner = learner.learn(rows, rng.random((20, 1)) < 0.5, [0])
    for exponent in (0.5, 1.0):
        scale = feature_scale(learner.sums.total.variances, exponent)
        assert np.count_nonzero(scale) == 19
        group = next(iter(groups(learner.sums, [0], unlabelled=1.0, spread=0.3, exponent=exponent)))
        weights = group.weights(1.0)[0]
        seen, unseen = (learner.features(some) @ weights for some in (rows, new))
        assert unseen.std() < 3 * seen.std()
    units = feature_scale(np.array([1e24, 1.0]), 1.0)
    assert (units > 0).all()


def test_one_decomposition_serves_all_blocks_when_unlabelled_rows_are_negatives(monkeypatch):
    rng = np.random.default_rng(0)
    labels = rng.random((600, 6)) < 0.2
    rows = rng.normal(size=(600, 80)) + labels @ rng.normal(size=(6, 80))
    learner, whole = Learner.begin(rows, dimensions=None, form="shared"), range(6)
    for part in (slice(0, 2), slice(2, 4), slice(4, 6)):
        at = slice(100 * part.start, 100 * part.stop)
        learner = learner.learn(rows[at], labels[at, part], whole[part])
    calls = []
    decomposed = solution._decomposed

    def counted(*given):
        calls.append(given)
        return decomposed(*given)

    monkeypatch.setattr(solution, "_decomposed", counted)
    fixed = Options(unlabelled=1.0, exponent=0.5)
    found = solve(learner, fixed).weights
    assert len(calls) == 1
    solve(learner, Options(unlabelled=0.0, exponent=0.5))
    assert len(calls) == 4
    # Rows that were not annotated count as negatives: the same as labels that are known to be absent.
    known = np.zeros_like(labels)
    for part in (slice(0, 2), slice(2, 4), slice(4, 6)):
        at = slice(100 * part.start, 100 * part.stop)
        known[at, part] = labels[at, part]
    other = Learner.begin(rows, dimensions=None, form="shared").learn(rows, known, whole)
    np.testing.assert_allclose(
        found / np.linalg.norm(found, axis=1, keepdims=True),
        (w := solve(other, fixed).weights) / np.linalg.norm(w, axis=1, keepdims=True),
        atol=1e-6,
    )
