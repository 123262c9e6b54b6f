"""Log-odds and thresholds of two Gaussians against a logistic regression and a search on samples of them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, ndtr
from sklearn.linear_model import LogisticRegression

from mlcl.exact.probabilities import ScoreMoments, best_thresholds, log_odds_line
from mlcl.metrics import Goal

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


GOALS = [Goal(), Goal("precision", 0.9), Goal("recall", 0.8), Goal("cost", 3.0)]


@pytest.mark.parametrize("goal", GOALS, ids=str)
@pytest.mark.parametrize("case", CASES[:2])
def test_the_thresholds_are_the_best_on_samples(case, goal):
    """Against all thresholds on a sample; of those for F1 only the ones that give the label seldom enough."""
    scores, labels = sample(case)
    order = np.argsort(-scores)
    hits, given = np.cumsum(labels[order]), np.arange(1, len(scores) + 1)
    f1, precision, recall = 2 * hits / (given + labels.sum()), hits / given, hits / labels.sum()
    worth = {
        "f1": np.where(given <= 1.5 * labels.sum(), f1, 0),
        "precision": np.where((precision >= 0.9) & (given > 1000), recall, 0),
        "recall": np.where(recall >= 0.8, precision, 0),
        "cost": (3 * hits - (given - hits)) / labels.sum(),
    }[goal.kind]
    threshold = best_thresholds(*moments(case), goal=goal)[0]
    kept, gained = {"precision": (precision, recall), "recall": (recall, precision)}.get(
        goal.kind, (worth, worth)
    )
    found = np.searchsorted(-scores[order], -threshold) - 1
    assert gained[found] == pytest.approx(worth.max(), abs=0.02)
    assert kept[found] >= (goal.value or 0) - 0.01 or goal.kind == "cost"


def test_the_best_f1_over_all_labels_against_a_search():
    scores, prior = moments(*CASES)
    chosen = best_thresholds(scores, prior, Goal("f1-overall"))

    def overall(cuts):
        deviations = np.sqrt(scores.positive_variance), np.sqrt(scores.negative_variance)
        hits = prior * ndtr((scores.positive_mean - cuts) / deviations[0])
        false = (1 - prior) * ndtr((scores.negative_mean - cuts) / deviations[1])
        return 2 * hits.sum() / (hits.sum() + false.sum() + prior.sum())

    best = overall(chosen)
    rng = np.random.default_rng(0)
    assert all(overall(chosen + rng.normal(0, size, 4)) <= best + 1e-5 for size in (0.05, 0.3, 1.0) * 30)


def test_a_label_that_cannot_be_told_apart_is_not_given_to_every_row():
    """The plain F1 would be best there."""
    same = (0.0, 0.0, 1.0, 1.0, 0.1)
    threshold = best_thresholds(*moments(same))[0]
    assert 1 - ndtr(threshold) == pytest.approx(0.15, abs=0.002)
    assert best_thresholds(*moments(same), goal=Goal("precision", 0.5))[0] == np.inf


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
