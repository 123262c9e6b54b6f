"""What sums predict of unseen rows, against leaving out one row after another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from mlcl.exact import Sums
from mlcl.exact.moments import Moments
from mlcl.exact.solution import all_rows, class_ridge, groups
from mlcl.exact.unseen import Unseen, unseen


def problem(seed=0, *, n=120, d=6, noise=1.0, shift=1.0):
    rng = np.random.default_rng(seed)
    labels = rng.random((n, 2)) < 0.3
    labels[:4] = [[1, 0], [1, 1], [0, 1], [0, 0]]
    return noise * rng.normal(size=(n, d)) + shift * labels @ rng.normal(size=(2, d)), labels


def left_out(rows, labels, ridge, spread, *, shared):
    """Mean gap and variances of scores of rows that were left out one by one, with all else as it was with them."""
    sums = Sums.of(rows, labels[:, None], shared=shared)
    level = next(iter(groups(sums, [0], unlabelled=1.0, spread=spread, exponent=0.0))).level
    strength = (
        class_ridge(np.array([ridge]), np.array([labels.sum()]), rows.shape[1], shared=shared)[0] * level
    )
    scores = np.zeros(len(rows))
    for i in range(len(rows)):
        rest = np.delete(np.arange(len(rows)), i)
        own, others = rows[rest][labels[rest]], rows[rest][~labels[rest]]
        matrix = np.cov(rows[rest].T, bias=True) if shared else np.cov(others.T, bias=True)
        if not shared:
            matrix = matrix + spread * np.cov(own.T, bias=True)
        w = np.linalg.solve(matrix + strength * np.eye(rows.shape[1]), own.mean(0) - others.mean(0))
        if shared:  # as ridge regression on the label: its length follows the share of positives
            w *= labels[rest].mean() * (1 - labels[rest].mean()) / (labels.mean() * (1 - labels.mean()))
        # The middle of the classes does not matter to a ranking: it is that of the rest.
        scores[i] = w @ (rows[i] - rows[rest].mean(0))
    positive, negative = scores[labels], scores[~labels]
    return positive.mean() - negative.mean(), positive.var(), negative.var()


@pytest.mark.parametrize(("shared", "spread"), [(False, 1.0), (False, 0.3), (True, 0.0)])
@pytest.mark.parametrize(("n", "d", "ridge"), [(120, 6, 0.1), (120, 40, 0.3), (60, 80, 1.0)])
def test_predictions_are_close_to_leaving_rows_out(shared, spread, n, d, ridge):
    wanted, found, naive = [], [], []
    for seed in range(4):
        rows, labels = problem(seed, n=n, d=d)
        group = next(
            iter(
                groups(Sums.of(rows, labels, shared=shared), [0], unlabelled=1.0, spread=spread, exponent=0.0)
            )
        )
        scored = unseen(group, ridge)
        found.append([scored.gap[0], scored.positive_variance[0], scored.negative_variance[0]])
        naive.append((group.gap**2 / group.shifted(ridge)).sum())
        wanted.append(left_out(rows, labels[:, 0], ridge, spread, shared=shared))
    wanted, found = np.mean(wanted, axis=0), np.mean(found, axis=0)
    assert abs(found[0] - wanted[0]) < 0.25 * abs(np.mean(naive) - wanted[0]) + 0.05 * wanted[0]
    # The shared form is cautious where few rows leave open how much of the variance lies between the sides.
    assert (found[1:] > 0.65 * wanted[1:]).all()
    assert (found[1:] < (6 if shared else 1.35) * wanted[1:]).all()


@given(st.integers(0, 1000), st.floats(0.01, 10), st.floats(0, 1))
@settings(max_examples=25, deadline=None)
def test_full_weights_minimise_the_objective(seed, ridge, spread):
    """The mean over pairs of (1 - w.(z+ - z-))^2, the positives' spread weighted, plus the ridge: by its gradient."""
    rows, labels = problem(seed)
    sums = Sums.of(rows * [1, 1e3, 1, 1e-3, 1, 1], labels)
    group = next(iter(groups(sums, [1], unlabelled=1.0, spread=spread, exponent=1.0)))
    w = group.weights(ridge)[0]
    positive, negative = sums.sides(1, 1.0)
    matrix = negative.covariance() + spread * positive.covariance()
    scale = sums.total.variances**-0.5
    level = np.trace(matrix * scale * scale[:, None]) / 6
    matrix += np.diag(
        class_ridge(np.array([ridge]), np.array([positive.count]), 6, shared=False) * level / scale**2
    )
    gap = positive.mean - negative.mean
    np.testing.assert_allclose(scale * (matrix @ w), scale * gap, atol=1e-9 * np.abs(scale * gap).max())


@given(st.integers(0, 1000), st.floats(0.01, 10), st.sampled_from([0.0, 0.4]))
@settings(max_examples=25, deadline=None)
def test_shared_weights_are_ridge_regression_on_the_label(seed, ridge, unlabelled):
    """With spread 0: of rows with a weight, of which some were not annotated and count as negatives."""
    rows, labels = problem(seed)
    known = np.random.default_rng(seed).random(120) < 0.7
    known[:4] = True
    sums = Sums.of(rows, labels, np.repeat(known[:, None], 2, axis=1), shared=True)
    group = next(iter(groups(sums, [0, 1], unlabelled=unlabelled, spread=0.0, exponent=0.0)))
    weights = np.where(known, 1.0, unlabelled)
    centred = rows - np.average(rows, axis=0, weights=weights)
    covariance = (centred * weights[:, None]).T @ centred / weights.sum()
    for k, w in enumerate(group.weights(ridge)):
        marks = (labels[:, k] & known).astype(float)
        strength = (
            class_ridge(np.array([ridge]), np.array([marks.sum()]), 6, shared=True)[0]
            * np.trace(covariance)
            / 6
        )
        target = marks - np.average(marks, weights=weights)
        oracle = np.linalg.solve(
            covariance + strength * np.eye(6), (centred * weights[:, None]).T @ target / weights.sum()
        )
        share = np.average(marks, weights=weights)
        np.testing.assert_allclose(w * share * (1 - share), oracle, atol=1e-10)


def test_the_positives_spread_is_exact_where_they_are_correlated_as_all_rows_are():
    """Their variances are then those of all rows times a number, in every direction."""
    rows, labels = problem(n=4000)
    rows[labels[:, 0]] *= 0.5
    sums = Sums.of(rows, labels, shared=True)
    group = next(iter(groups(sums, [0], unlabelled=1.0, spread=1.0, exponent=0.0)))
    every = all_rows(sums, 0, 1.0).covariance()
    ratio = sums.positive[0].variances / np.diag(every)
    basis = group.vectors
    np.testing.assert_allclose(group.spread[0], group.values * (basis.T**2 @ ratio), rtol=1e-9)
    np.testing.assert_allclose((basis.T @ every @ basis).diagonal(), group.values, rtol=1e-9)


def test_auc_and_average_precision_are_those_of_two_gaussians():
    scored = Unseen(np.zeros((2, 1)), np.array([1.0, 2.0]), np.array([0.5, 1.0]), np.array([2.0, 1.0]))
    prior = np.array([0.2, 0.01])
    for k in range(2):
        high, low = (
            norm(scored.gap[k], scored.positive_variance[k] ** 0.5),
            norm(0, scored.negative_variance[k] ** 0.5),
        )

        def precision(x, high=high, low=low, p=prior[k]):
            return high.pdf(x) * p * high.sf(x) / (p * high.sf(x) + (1 - p) * low.sf(x))

        assert scored.average_precision(prior)[k] == pytest.approx(
            quad(precision, -8, 9, limit=200)[0], abs=0.01
        )
        assert scored.auc[k] == pytest.approx(
            quad(lambda x, h=high, lo=low: h.pdf(x) * lo.cdf(x), -8, 9)[0], abs=1e-6
        )


def test_nothing_is_known_of_unseen_rows_with_one_positive():
    rows, labels = problem()
    labels[:, 0] = np.arange(120) == 3
    for shared in (False, True):
        sums = Sums.of(rows, labels, shared=shared)
        for group in groups(sums, [0], unlabelled=1.0, spread=0.3, exponent=0.0):
            assert np.isnan(unseen(group, 1.0).gap[0])
            assert unseen(group, 1.0).weights[0].any()
    assert not list(groups(Sums.of(rows, labels & False), [0, 1], unlabelled=1.0, spread=0.3, exponent=0.0))
    assert Moments.zeros(3, diagonal=True).second.shape == (3,)
