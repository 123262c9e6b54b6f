"""From sums to a linear layer: what the scores, probabilities and thresholds are."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit

from exact_taggers import real
from mlcl.errors import InputError
from mlcl.exact import Learner, Options, solve
from mlcl.exact.solution import groups
from mlcl.metrics import macro_auc


def problem(seed=0, *, n=400, d=6, classes=3):
    rng = np.random.default_rng(seed)
    labels = rng.random((n, classes)) < [0.5, 0.2, 0.1]
    return labels @ np.eye(3, d) + 0.5 * rng.normal(size=(n, d)) + 3.0, labels


@pytest.mark.parametrize("dimensions", [None, 4])
def test_the_weights_are_those_of_the_closed_form_on_the_rows_as_they_came(dimensions):
    rows, labels = problem()
    learner = Learner.begin(rows, dimensions=dimensions).learn(rows, labels, range(3))
    found = solve(learner, Options(ridge=0.2, exponent=1.0))
    for k, weights in enumerate(found.weights):
        group = next(iter(groups(learner.sums, [k], unlabelled=1.0, spread=0.3, exponent=1.0)))
        w = group.weights(0.2)[0]
        expected = w if dimensions is None else learner.features.projection @ w
        np.testing.assert_allclose(
            weights / np.linalg.norm(weights), expected / np.linalg.norm(expected), rtol=1e-8
        )
    np.testing.assert_allclose(found.scores(rows), rows @ found.weights.T + found.intercepts, atol=1e-9)
    np.testing.assert_allclose(found.scores(sparse.csr_matrix(rows)), found.scores(rows), atol=1e-9)
    np.testing.assert_allclose(found.probabilities(rows), expit(found.scores(rows)), rtol=1e-12)


def test_probabilities_are_calibrated_and_thresholds_are_better_than_one_half():
    rows, labels = problem()
    found = solve(Learner.begin(rows).learn(rows, labels, range(3)))
    fresh, truth = problem(1, n=20000)
    chances = found.probabilities(fresh)
    np.testing.assert_allclose(chances.mean(0), truth.mean(0), atol=0.03)
    for k in range(3):
        for low in (0.0, 0.2, 0.4, 0.6, 0.8):
            chosen = (chances[:, k] >= low) & (chances[:, k] < low + 0.2)
            if chosen.sum() > 300:
                assert abs(chances[chosen, k].mean() - truth[chosen, k].mean()) < 0.12

    def f1(predicted):
        return (2 * (predicted & truth).sum(0) / (predicted.sum(0) + truth.sum(0))).mean()

    assert f1(found.scores(fresh) > found.thresholds()) > f1(chances > 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scene", "enron", "music"])
def test_on_real_data_probabilities_beat_the_raw_score_and_the_prior(name):
    train, labels, test, truth = real(name)
    learner = Learner.begin(train).learn(train, labels, range(labels.shape[1]))
    found = solve(learner)
    raw = test @ found.weights.T
    raw = (raw - raw.mean(0)) / np.maximum(raw.std(0), 1e-12)

    def losses(chances):
        chances = np.clip(chances, 1e-12, 1 - 1e-12)
        brier = ((chances - truth) ** 2).mean()
        return brier, -np.log(np.where(truth == 1, chances, 1 - chances)).mean()

    ours = losses(found.probabilities(test))
    for other in (expit(raw), np.broadcast_to(found.prior, truth.shape)):
        assert all(a < b for a, b in zip(ours, losses(other), strict=True))


def test_a_single_positive_keeps_the_order_and_has_about_its_prior():
    rows, labels = problem()
    labels[:, 2] = False
    labels[7, 2] = True
    found = solve(Learner.begin(rows).learn(rows, labels, range(3)))
    assert found.defined.all()
    assert found.weights[2].any()
    chances = found.probabilities(rows)[:, 2]
    assert chances[7] > np.quantile(chances, 0.95)
    assert chances.max() < 0.05


def test_options_and_what_is_chosen():
    rows, labels = problem()
    learner = Learner.begin(rows).learn(
        rows, labels, range(3), annotated=np.random.default_rng(0).random((400, 3)) < 0.5
    )
    choice = solve(learner, Options(ridge=0.5, exponent=0.5, unlabelled=0.3)).choice
    assert (choice.ridge, choice.exponent, choice.unlabelled) == (0.5, 0.5, 0.3)
    for goal in ("in-task", "pooled"):
        auto = solve(learner, Options(unlabelled=goal, exponent=1.0)).choice
        assert auto.exponent == 1.0
        assert 0 <= auto.unlabelled <= 1
        assert 0.5 < auto.expected < 1
    with pytest.raises(InputError, match="knows no class"):
        solve(Learner.begin(rows))


@pytest.mark.parametrize("rows", [6, 10, 20])
def test_probabilities_from_a_few_rows_are_not_overconfident(rows):
    """The log-loss on other rows is close to the prior's, or better; means over 20 draws of random problems."""
    losses = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        labels = rng.random((rows + 500, 3)) < 0.3
        x = labels @ rng.normal(size=(3, 40)) * 0.3 + rng.normal(size=(rows + 500, 40))
        found = solve(Learner.begin(x[:rows]).learn(x[:rows], labels[:rows], range(3)))
        truth = labels[rows:]
        for chances in (found.probabilities(x[rows:]), np.broadcast_to(found.prior, truth.shape)):
            losses.append(-np.log(np.where(truth, chances, 1 - chances)).mean())
    ours, prior = np.array(losses).reshape(-1, 2).mean(0)
    assert ours < 1.2 * prior


def test_where_the_shared_form_fails_and_leading_directions_help():
    """Positives vary ten times as much as others in a direction that no feature shows alone.

    The full form leaves it out of the score. The shared one must find it among the leading directions.
    """
    rng = np.random.default_rng(0)
    labels = rng.random((16_000, 1)) < 0.03
    rows, hidden = rng.normal(size=(16_000, 90)), np.zeros(90)
    rows[:, :50] *= 6
    hidden[50:85] = 35**-0.5
    own = labels[:, 0]
    rows[own] += (1.2 + 10 * rng.normal(size=(own.sum(), 1))) * hidden
    rows[own, 85] += 1.2

    def auc(scale, **form):
        scaled = rows * np.where(hidden > 0, scale, 1)
        learner = Learner.begin(scaled, dimensions=512, **form).learn(scaled[:8_000], labels[:8_000])
        scores = solve(learner, Options(spread=1.0, ridge=0.1, exponent=1.0)).scores(scaled[8_000:])
        return macro_auc(scores, labels[8_000:])

    full = auc(1, form="full")
    assert full - auc(1, form="shared", fixed=True) > 0.01
    assert abs(full - auc(20, form="shared", fixed=True)) < 0.005
    assert full - auc(20, form="shared", fixed=False) > 0.01
