"""Log-odds and thresholds of two Gaussians against a logistic regression and a search on samples of them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from mlcl.exact.probabilities import ScoreMoments, best_thresholds, log_odds_line

CASES = [
    (2.0, 0.0, 1.0, 1.0, 0.5),
    (1.0, -1.0, 3.0, 0.5, 0.05),
    (0.5, 0.3, 0.2, 2.0, 0.3),
    (4.0, 1.0, 1.0, 1.0, 0.01),
]


def moments(*cases):
    up, un, vp, vn, _ = np.array(cases).T
    return ScoreMoments(up, un, vp, vn), np.array([case[-1] for case in cases])


def sample(case, n=400_000, seed=0):
    up, un, vp, vn, prior = case
    rng = np.random.default_rng(seed)
    labels = rng.random(n) < prior
    noise = rng.normal(size=n)
    return np.where(labels, up + np.sqrt(vp) * noise, un + np.sqrt(vn) * noise), labels


@pytest.mark.parametrize("case", CASES)
def test_the_line_is_that_of_logistic_regression_on_samples(case):
    scores, labels = sample(case)
    expected = LogisticRegression(C=np.inf, tol=1e-8).fit(scores[:, None], labels)
    slope, offset = log_odds_line(*moments(case))
    assert slope[0] == pytest.approx(expected.coef_[0, 0], rel=0.05)
    assert offset[0] == pytest.approx(expected.intercept_[0], rel=0.05, abs=0.05)
    assert expit(slope[0] * scores + offset[0]).mean() == pytest.approx(case[-1], rel=0.02)


@pytest.mark.parametrize("case", CASES[:2])
def test_the_thresholds_have_the_best_f1_on_samples(case):
    scores, labels = sample(case)
    order = np.argsort(-scores)
    hits = np.cumsum(labels[order])
    f1 = 2 * hits / (np.arange(1, len(scores) + 1) + labels.sum())
    threshold = best_thresholds(*moments(case))[0]
    found = f1[np.searchsorted(-scores[order], -threshold)]
    assert found == pytest.approx(f1.max(), abs=0.002)


def test_classes_do_not_influence_each_other():
    together = np.array(log_odds_line(*moments(*CASES)))
    alone = np.hstack([log_odds_line(*moments(case)) for case in CASES])
    np.testing.assert_allclose(together, alone, rtol=1e-9)


def test_scores_that_say_nothing_give_the_prior_and_keep_the_order():
    slope, offset = log_odds_line(*moments((0.0, 1.0, 1.0, 1.0, 0.2), (0.5, 0.5, 1.0, 2.0, 0.2)))
    assert (slope > 0).all()
    np.testing.assert_allclose(expit(slope * 0.5 + offset), 0.2, rtol=1e-6)
    slope, offset = log_odds_line(*moments((0.0, 0.0, 0.0, 0.0, 0.7)))
    assert slope[0] == 0
    assert expit(offset[0]) == pytest.approx(0.7)


def test_extreme_moments_stay_finite():
    cases = [
        (1e6, 0.0, 1.0, 1e-12, 1e-6),
        (1.0, 0.0, 0.0, 1.0, 0.5),
        (1e-9, 0.0, 1e-20, 1e-20, 0.999),
        (9.0, 0.0, 1e-3, 1e-3, 0.5),
    ]
    slope, offset = log_odds_line(*moments(*cases))
    assert np.isfinite(slope).all()
    assert np.isfinite(offset).all()
    assert (slope > 0).all()
    assert np.isfinite(best_thresholds(*moments(*cases))).all()
