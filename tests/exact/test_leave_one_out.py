"""What sums say of unseen rows, against leaving out every row in turn."""

from __future__ import annotations

import numpy as np
import pytest

from mlcl.exact import Moments
from mlcl.exact.leave_one_out import unseen, unseen_at
from mlcl.metrics import macro_auc

RIDGES = np.array([1e-3, 0.1, 1.0, 10.0])


def problem(seed, positives, negatives, d, gap=0.4):
    rng = np.random.default_rng(seed)
    mix = rng.normal(size=(d, d)) / np.sqrt(d)
    return rng.normal(size=(positives, d)) @ mix + gap * rng.normal(size=d), rng.normal(
        size=(negatives, d)
    ) @ mix


def spread(rows):
    return np.cov(rows.T, bias=True)


def left_out(positive, negative, ridge):
    """Scores of each positive, minus the mean of the negatives, by the weights without it; variance of negatives."""
    d = positive.shape[1]
    added = ridge * np.trace(spread(positive) + spread(negative)) / d * np.eye(d)
    scores, variances = [], []
    for i in range(len(positive)):
        rest = np.delete(positive, i, axis=0)
        gap = rest.mean(0) - negative.mean(0)
        w = np.linalg.solve(spread(rest) + spread(negative) + added, gap)
        scores.append(w @ (positive[i] - negative.mean(0)))
        variances.append(w @ spread(negative) @ w)
    return np.mean(scores), np.var(scores), np.mean(variances)


@pytest.mark.parametrize(("positives", "d"), [(8, 30), (20, 5), (40, 20), (15, 60)])
def test_it_is_close_to_leaving_out_every_positive(positives, d):
    positive, negative = problem(0, positives, 600, d)
    p, n = Moments.of(positive), Moments.of(negative)
    found = unseen(p, n, ridges=RIDGES, scale=np.ones(d))
    for i, ridge in enumerate(RIDGES):
        gap, own, other = left_out(positive, negative, ridge)
        assert found.gap[i] == pytest.approx(gap, rel=0.1)
        # Each positive also moves the weights against itself, which makes their scores more alike.
        assert found.positive_variance[i] == pytest.approx(own / (1 - 1 / (positives - 1)) ** 2, rel=0.5)
        assert found.negative_variance[i] == pytest.approx(other, rel=0.25)
        seen = found.weights[i] @ (p.mean - n.mean)
        assert found.gap[i] < seen  # rows that were seen score higher


@pytest.mark.parametrize(("positives", "d"), [(3, 30), (20, 5), (200, 40)])
def test_one_ridge_is_the_same_as_one_of_many(positives, d):
    p, n = (Moments.of(rows) for rows in problem(1, positives, 100, d))
    scale = np.linspace(0.5, 2, d)
    many = unseen(p, n, ridges=RIDGES, scale=scale)
    for i, ridge in enumerate(RIDGES):
        one = unseen_at(p, n, ridge=ridge, scale=scale)
        for name in ("weights", "gap", "positive_variance", "negative_variance", "auc"):
            np.testing.assert_allclose(getattr(one, name)[0], getattr(many, name)[i], rtol=1e-6, atol=1e-12)


def test_noise_is_seen_through():
    """Where labels are random, unseen rows are predicted to score like chance, though seen ones separate well."""
    rng = np.random.default_rng(0)
    p, n = Moments.of(rng.normal(size=(30, 60))), Moments.of(rng.normal(size=(500, 60)))
    found = unseen(p, n, ridges=RIDGES, scale=np.ones(60))
    assert (np.abs(found.auc - 0.5) < 0.08).all()


@pytest.mark.parametrize(("positives", "negatives", "d"), [(10, 40, 150), (30, 30, 200), (15, 85, 256)])
def test_fewer_rows_than_dimensions(positives, negatives, d):
    """Small ridges then fit every row; what is predicted for new rows must not follow."""
    found, actual = [], []
    for seed in range(5):
        positive, negative = problem(seed, positives + 1000, negatives + 1000, d, gap=0.1)
        p, n = Moments.of(positive[:positives]), Moments.of(negative[:negatives])
        one = unseen(p, n, ridges=RIDGES, scale=np.ones(d))
        new = [rows @ one.weights.T for rows in (positive[positives:], negative[negatives:])]
        truth = np.repeat(np.arange(2000)[:, None] < 1000, len(RIDGES), axis=1)
        actual.append(macro_auc(np.concatenate(new), truth, average=None))
        found.append(one.auc)
    np.testing.assert_allclose(np.mean(found, axis=0), np.mean(actual, axis=0), atol=0.1)


def test_judged_by_other_negatives():
    positive, negative = problem(2, 30, 400, 6)
    p, n = Moments.of(positive), Moments.of(negative)
    some = Moments.of(negative[:100] + 0.3)
    found = unseen(p, n, ridges=RIDGES, scale=np.ones(6), judged=some)
    same = unseen(p, n, ridges=RIDGES, scale=np.ones(6), judged=n)
    plain = unseen(p, n, ridges=RIDGES, scale=np.ones(6))
    np.testing.assert_allclose(same.gap, plain.gap, rtol=1e-9)
    np.testing.assert_allclose(same.negative_variance, plain.negative_variance, rtol=0.1)
    np.testing.assert_allclose(found.gap, plain.gap + found.weights @ (n.mean - some.mean), rtol=1e-9)


def test_a_single_row_cannot_be_left_out():
    one, many = Moments.of(np.ones((1, 3))), Moments.of(np.eye(3))
    for p, n in ((one, many), (many, one)):
        assert unseen(p, n, ridges=RIDGES, scale=np.ones(3)) is None
        assert unseen_at(p, n, ridge=1.0, scale=np.ones(3)) is None
