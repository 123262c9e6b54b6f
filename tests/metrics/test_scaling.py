"""Lines from scores to log-odds: order kept, known cases found, rare classes safe."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, special

from mlcl.errors import InputError
from mlcl.metrics import LogOddsLines, brier_score, fit_lines, macro_auc, prior_shift
from mlcl.metrics.scaling import logistic_lines


def sample(seed, rows=600, classes=3, *, slope=1.0, offset=0.0):
    """Scores whose log-odds are known: ``(score - offset) / slope``."""
    rng = np.random.default_rng(seed)
    log_odds = rng.normal(-2, 1.5, (rows, classes))
    return slope * log_odds + offset, rng.random(log_odds.shape) < special.expit(log_odds)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.floats(0.05, 50), st.floats(-20, 20), st.integers(2, 60))
def test_order_ties_and_auc_stay_whatever_is_fitted(seed, slope, offset, rows):
    scores, labels = sample(seed, rows, slope=slope, offset=offset)
    scores = scores.round(1).astype(np.float32)  # with ties
    lines, _ = fit_lines(scores, labels, start=LogOddsLines.identity(3), prior=np.full(3, 0.2))
    assert (lines.slope > 0).all()
    found = lines.log_odds(scores)
    for k in range(3):
        assert np.array_equal(
            np.unique(scores[:, k], return_inverse=True)[1], np.unique(found[:, k], return_inverse=True)[1]
        )
    before, after = macro_auc(scores, labels, average=None), macro_auc(found, labels, average=None)
    assert np.array_equal(before, after, equal_nan=True)


def test_even_labels_against_the_scores_keep_the_order():
    scores, labels = sample(0)
    lines, own = fit_lines(-scores, labels, start=LogOddsLines.identity(3), prior=labels.mean(0))
    assert own.all()
    assert (lines.slope > 0).all()
    assert macro_auc(lines.log_odds(-scores), labels) == macro_auc(-scores, labels)


def test_many_rows_give_the_true_line():
    scores, labels = sample(1, 20000, slope=4.0, offset=3.0)
    lines, own = fit_lines(scores, labels, start=LogOddsLines.identity(3), prior=labels.mean(0))
    assert own.all()
    assert lines.slope == pytest.approx(np.full(3, 0.25), rel=0.1)
    assert lines.offset == pytest.approx(np.full(3, -0.75), abs=0.15)


def test_newton_finds_the_minimum_that_scipy_finds():
    z, labels = sample(2, 80)
    z = (z - z.mean(0)) / z.std(0)
    centre = np.array([1.5, 0.7, 2.5]), np.array([-1.0, 0.5, -3.0])
    slope, offset = logistic_lines(
        z, np.ones_like(labels), labels, *centre, spread=(0.5 * centre[0], 0.5), reach=centre[0]
    )
    for k in range(3):

        def penalised(line, k=k):
            eta = line[0] * z[:, k] + line[1]
            loss = np.logaddexp(0, eta).sum() - eta[labels[:, k]].sum()
            loss += ((line[0] / centre[0][k] - 1) / 0.5) ** 2 / 2
            return loss + ((line[1] - centre[1][k]) / 0.5) ** 2 / 2

        best = optimize.minimize(penalised, [1.0, 0.0], tol=1e-12)
        assert [slope[k], offset[k]] == pytest.approx(best.x, abs=1e-4)


def test_a_rare_class_gets_about_the_mean_of_its_prior_and_the_slope_of_the_others():
    scores, labels = sample(3, 300, classes=6, slope=2.0)
    labels[:, 5] = False
    prior = np.append(labels[:, :5].mean(0), 0.002)
    lines, own = fit_lines(scores, labels, start=LogOddsLines.identity(6), prior=prior)
    assert own.tolist() == [True] * 5 + [False]
    assert 0.001 < lines.probabilities(scores)[:, 5].mean() < 0.005
    assert lines.slope[5] == pytest.approx(np.median(lines.slope[:5]), rel=0.2)


def test_few_rows_leave_the_line_in_theory_where_it_is():
    ratio = []
    for seed in range(20):
        scores, labels = sample(seed, 2000, classes=10)
        lines, _ = fit_lines(scores[:30], labels[:30], start=LogOddsLines.identity(10), prior=labels.mean(0))
        rest = scores[30:], labels[30:]
        ratio.append(
            brier_score(lines.probabilities(rest[0]), rest[1]) / brier_score(special.expit(rest[0]), rest[1])
        )
    assert np.mean(ratio) < 1.02  # 1.05 where each class was fitted to its own labels first


def test_labels_of_a_row_that_go_together_count_as_fewer():
    scores, labels = sample(1, 60, classes=1)
    again = [np.repeat(one, 11, axis=1) for one in (scores, labels)]
    one, many = (
        fit_lines(x, y, start=LogOddsLines.identity(x.shape[1]), prior=np.full(x.shape[1], y.mean()))[0]
        for x, y in ((scores, labels), again)
    )
    assert np.allclose(one.slope, many.slope, rtol=0.02)
    assert np.allclose(one.offset, many.offset, atol=0.02)


def test_a_class_without_known_rows_keeps_the_line_in_theory():
    scores, labels = sample(4)
    known = np.ones_like(labels)
    known[:, 1] = False
    start = LogOddsLines(np.array([1.0, 2.0, 1.0]), np.array([0.0, -3.0, 0.0]))
    hidden = np.where(known, scores, np.nan)
    lines, own = fit_lines(hidden, labels, start=start, prior=np.full(3, 0.2), mask=known)
    assert (lines.slope[1], lines.offset[1], own[1]) == (2.0, -3.0, False)
    alone, _ = fit_lines(
        scores[:, [0, 2]], labels[:, [0, 2]], start=LogOddsLines.identity(2), prior=np.full(2, 0.2)
    )
    assert np.allclose(lines.slope[[0, 2]], alone.slope)


def test_the_prior_shift_is_bayes_rule():
    p, trained, wanted = 0.7, 0.5, 0.1
    odds = p / (1 - p) * (wanted / trained) / ((1 - wanted) / (1 - trained))
    shifted = special.expit(special.logit(p) + prior_shift([trained], [wanted])[0])
    assert shifted == pytest.approx(odds / (1 + odds))


def test_probabilities_get_better_on_other_rows():
    scores, labels = sample(5, 400, slope=5.0, offset=6.0)
    lines, _ = fit_lines(
        scores[:200], labels[:200], start=LogOddsLines.identity(3), prior=labels[:200].mean(0)
    )
    before, after = (
        brier_score(one.probabilities(scores[200:]), labels[200:])
        for one in (LogOddsLines.identity(3), lines)
    )
    best = brier_score(special.expit((scores[200:] - 6) / 5), labels[200:])
    assert best < after < best * 1.05 < before / 1.5


def test_lines_that_would_turn_the_order_are_refused():
    with pytest.raises(InputError, match="a slope is not positive"):
        LogOddsLines(np.array([0.0]), np.array([0.0]))
    with pytest.raises(InputError, match=r"slope has shape \(1,\) and offset \(2,\)"):
        LogOddsLines(np.ones(1), np.ones(2))
