"""The choice of the ridge, its exponent, and the weight of unlabelled rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from exact_taggers import real
from mlcl.exact import Learner, Options, Sums, solve
from mlcl.exact.ridge import BETTER, DOUBT, EXPONENTS, RARE, RIDGES, Choice, choose, judging, predicted
from mlcl.exact.solution import groups
from mlcl.metrics import average_precision, macro_auc


def problem(seed=0, *, n=300, d=40, classes=3, noise=1.0):
    rng = np.random.default_rng(seed)
    labels = rng.random((n, classes)) < 0.25
    return labels @ rng.normal(size=(classes, d)) * 0.4 + noise * rng.normal(size=(n, d)), labels


FIXED = Choice(1.0, 0.0, 1.0, float("nan"))


def weights_of(sums, k, exponent=0.0):
    """The weights of a class for each ridge."""
    group = next(iter(groups(sums, [k], unlabelled=1.0, spread=0.3, exponent=exponent)), None)
    if group is None:  # without positives
        return np.zeros((len(RIDGES), sums.dimension))
    return np.concatenate([group.weights(ridge) for ridge in RIDGES])


@pytest.mark.parametrize("shared", [False, True])
def test_what_is_predicted_is_close_to_new_rows(shared):
    rows, labels = problem(n=4000)
    sums = Sums.of(rows[:150], labels[:150], shared=shared)
    found = predicted(sums, [0, 1, 2], FIXED, RIDGES, 1.0)
    for k in range(3):
        scores, truth = rows[150:] @ weights_of(sums, k).T, np.repeat(labels[150:, [k]], 15, axis=1)
        over = found[:, :, k] - [one(scores, truth, average=None) for one in (macro_auc, average_precision)]
        assert (over[0] < 0.05).all()
        assert (over[1] < 0.12).all()
        assert (over > (-0.25 if shared else -0.12)).all()


@pytest.mark.parametrize("shared", [False, True])
def test_other_negatives_to_compare_with_are_those_of_the_weight_that_is_measured(shared):
    rows, labels = problem(n=600)
    known = np.arange(600) < 300
    rows[~known, 0] += 2
    sums = Sums.of(rows, labels, np.repeat(known[:, None], 3, axis=1), shared=shared)
    found = predicted(sums, [0, 1, 2], FIXED, np.array([1.0]), 0.0)
    for k in range(3):
        truth, scores = labels[known, k], rows[known] @ weights_of(sums, k)[8]
        assert abs(found[0, 0, k] - macro_auc(scores[:, None], truth[:, None])) < 0.07
    of_all = predicted(sums, [0, 1, 2], FIXED, np.array([1.0]), 1.0)
    assert np.abs(of_all - found)[0].max() > 0.002


def test_a_signal_of_small_variance_needs_a_small_ridge():
    rng = np.random.default_rng(0)
    labels = rng.random((400, 1)) < 0.3
    noise = rng.normal(size=(400, 20))
    chosen = []
    for column, size in ((0, 1.0), (19, 1e-2)):
        rows = noise * np.logspace(0, -2, 20)
        rows[:, column] += size * labels[:, 0]
        chosen.append(choose(Sums.of(rows, labels), exponents=[0.0]).ridge)
    assert chosen[1] < chosen[0] / 10


def test_the_choice_does_not_depend_on_the_units_of_the_features():
    rows, labels = problem()
    plain, scaled = (choose(Sums.of(factor * rows, labels)) for factor in (1.0, 1e6))
    assert (plain.ridge, plain.exponent) == (scaled.ridge, scaled.exponent)
    assert plain.expected == pytest.approx(scaled.expected)


def test_one_feature_in_other_units_is_seen():
    rows, labels = problem(noise=0.5)
    rows = rows - rows.mean(0)
    rows[:, 3] *= 1e4
    choice = choose(Sums.of(rows, labels))
    assert choice.exponent > 0


def test_without_a_class_to_judge_by_the_defaults_are_taken():
    rows, labels = problem()
    for sums in (Sums.of(rows, labels & False), Sums.of(rows[:1], labels[:1]), Sums.zeros(4, 2)):
        choice = choose(sums, unlabelled=(0.5,))
        assert (choice.ridge, choice.exponent, choice.unlabelled) == (1.0, EXPONENTS[0], 0.5)
        assert np.isnan(choice.expected)


def test_the_weight_of_unlabelled_rows_follows_what_is_wanted():
    """Annotated rows lie elsewhere than unlabelled ones, as tasks do: each goal is best served by its own negatives."""
    rng = np.random.default_rng(0)
    n = 2000
    labels = rng.random((n, 1)) < 0.3
    rows = rng.normal(size=(n, 8))
    rows[:, 0] += 1.5 * labels[:, 0]
    known = np.arange(n) < 600
    rows[known, 1] += 3  # a mark of the task, useless within it
    labels[~known] = False
    rows[~known, 2] -= 1
    sums = Sums.of(rows, labels, known[:, None])
    chosen = {goal: choose(sums, unlabelled=(0.0, 0.1, 1.0), measured=goal) for goal in (0.0, 1.0)}
    assert chosen[0.0].unlabelled == 0.0
    assert chosen[1.0].unlabelled > 0.0


def test_of_many_classes_evenly_many_of_every_frequency_judge():
    rows, _ = problem()
    labels = np.random.default_rng(0).random((300, 30)) < np.linspace(0.001, 0.5, 30)
    sums = Sums.of(rows, labels)
    counts = np.array([one.count for one in sums.positive])
    assert set(judging(sums, 30)) == set(np.flatnonzero(counts >= 2))
    chosen = judging(sums, 6)
    assert len(chosen) == 6
    assert counts[chosen[0]] == counts.max()
    assert counts[chosen[-1]] == counts[counts >= 2].min()


@pytest.mark.parametrize("goal", ["auc", "ap", "both"])
@pytest.mark.parametrize("shared", [False, True])
def test_one_for_all_classes_is_the_best_of_the_predicted_means(shared, goal):
    rows, labels = problem(n=150)
    sums = Sums.of(rows, labels, shared=shared)
    choice = choose(sums, goal=goal)
    counts = np.array([one.count for one in sums.positive])
    worth = {}
    for exponent in EXPONENTS:
        found = predicted(sums, [0, 1, 2], replace(choice, exponent=exponent), RIDGES, 1.0)
        found = found @ (counts / (counts + RARE)) / (counts / (counts + RARE)).sum()
        worth[exponent] = {"auc": found[0], "ap": found[1], "both": found.mean(0)}[goal]
    assert worth[choice.exponent].max() >= max(one.max() for one in worth.values()) - BETTER
    doubt = DOUBT * (counts / (counts + RARE)) @ (1 / counts) / (counts / (counts + RARE)).sum()
    found = worth[choice.exponent]
    near = (found == found.max()) | ((found >= found.max() - doubt) & (RIDGES <= 1))
    assert choice.ridge == RIDGES[np.flatnonzero(near)[-1]]
    assert choice.worth == pytest.approx(found[RIDGES.tolist().index(choice.ridge)])


def test_the_spread_follows_the_goal_and_the_positives():
    counts = np.array([10, 1000])
    for goal, expected in (("auc", [0.3, 1.0]), ("both", [0.3, 0.3]), ("ap", [0.1, 0.1])):
        assert replace(FIXED, goal=goal).spreads(counts).tolist() == expected
    assert replace(FIXED, spread=0.7).spreads(counts).tolist() == [0.7, 0.7]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("n", [60, 100])
def test_fewer_rows_than_dimensions_need_a_large_ridge(n, shared):
    """Without one the weights fit every row, and unseen rows score far worse than with it."""
    rows, labels = problem(n=n + 2000, d=150, noise=3.0)
    sums = Sums.of(rows[:n], labels[:n], shared=shared)
    choice = choose(sums, exponents=[0.0])
    scores = []
    for k in range(3):
        weights = weights_of(sums, k)
        scores.append(macro_auc(rows[n:] @ weights.T, np.repeat(labels[n:, [k]], 15, axis=1), average=None))
    actual = np.mean(scores, axis=0)
    assert actual.max() - actual[0] > 0.03
    assert actual[RIDGES.tolist().index(choice.ridge)] > actual.max() - (0.02 if n == 100 else 0.05)


def variants(train, test):
    """The same rows raw, standardised, as principal components, and with one column in other units."""
    centre, deviation = train.mean(0), train.std(0)
    deviation[deviation == 0] = 1
    turned = np.linalg.svd(train - centre, full_matrices=False)[2].T
    units = np.ones(train.shape[1])
    units[3] = 1e4
    return {
        "raw": (train, test),
        "standardised": ((train - centre) / deviation, (test - centre) / deviation),
        "components": ((train - centre) @ turned, (test - centre) @ turned),
        "units": (train * units, test * units),
    }


@pytest.mark.parametrize("seed", [1, 2])
def test_standardised_components_of_the_rows_themselves_are_no_perfect_separation(seed):
    """So scaled, rows are equally far from each other, except for equal mails: all labels seem to separate them."""
    train, labels, _, _ = real("enron")
    some = np.random.default_rng(seed).permutation(len(train))[:100]
    learner = Learner.begin(train[some], form="shared")
    learner = learner.learn(train[some], labels[some], range(labels.shape[1]))
    assert learner.features.random > 150
    choice = choose(learner.sums)
    assert choice.ridge > 0.1
    assert choice.expected < 0.95


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["raw", "standardised", "components", "units"])
@pytest.mark.parametrize("name", ["scene", "enron", "digits"])
def test_on_real_data_the_choice_is_as_good_as_the_best_of_a_grid_on_test_data(name, kind):
    """The grid has every exponent and ridge."""
    train, labels, test, truth = real(name)
    train, test = variants(train.astype(float), test.astype(float))[kind]
    learner = Learner.begin(train).learn(train, labels, range(labels.shape[1]))
    found = macro_auc(solve(learner, Options(goal="auc")).scores(test), truth)
    assert found > best_of_grid(learner, test, truth) - 0.002


@pytest.mark.slow
@pytest.mark.parametrize(("name", "rows"), [("scene", 100), ("scene", 200), ("enron", 300), ("digits", 600)])
def test_on_few_rows_of_real_data_the_choice_is_close_to_the_best_of_the_grid(name, rows):
    """Of training rows alone: some are learnt, the others score. The mean over three draws is close."""
    train, labels, _, _ = real(name)
    lost = []
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(train))
        some, others = order[:rows], order[rows : rows + 1500]
        learner = Learner.begin(train[some]).learn(train[some], labels[some], range(labels.shape[1]))
        found = macro_auc(solve(learner, Options(goal="auc")).scores(train[others]), labels[others])
        lost.append(best_of_grid(learner, train[others], labels[others]) - found)
    assert np.mean(lost) < 0.02


def best_of_grid(learner, test, truth):
    sums, mapped = learner.sums, learner.features(test)
    best = 0.0
    for exponent in EXPONENTS:
        weights = [weights_of(sums, k, exponent) for k in range(sums.classes)]
        best = max(best, *(macro_auc(mapped @ one.T, truth) for one in np.stack(weights, axis=1)))
    return best
