"""Brier score, log-loss, calibration error and reliability bins, against scikit-learn and plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.calibration import calibration_curve

from mlcl.errors import InputError
from mlcl.metrics import brier_score, calibration_error, log_loss, reliability
from sklearn import metrics as oracle

RNG = np.random.default_rng(3)
P = RNG.beta(0.7, 2.0, (160, 4))
Y = (RNG.random(P.shape) < P).astype(np.uint8)
KNOWN = RNG.random(P.shape) < 0.6


def test_brier_and_log_loss_are_those_of_scikit_learn():
    brier = [oracle.brier_score_loss(Y[:, k], P[:, k]) for k in range(4)]
    nats = [oracle.log_loss(Y[:, k], P[:, k]) for k in range(4)]
    assert brier_score(P, Y, average=None) == pytest.approx(brier)
    assert log_loss(P, Y, average=None) == pytest.approx(nats)
    assert (
        brier_score(P, Y)
        == pytest.approx(np.mean(brier))
        == pytest.approx(brier_score(P, Y, average="pooled"))
    )
    assert log_loss(P, Y, average="pooled") == pytest.approx(np.mean(nats))


def test_cells_that_are_not_known_do_not_count():
    hidden = np.where(KNOWN, P, np.nan)
    for metric, one in ((brier_score, oracle.brier_score_loss), (log_loss, oracle.log_loss)):
        per_class = [one(Y[KNOWN[:, k], k], P[KNOWN[:, k], k]) for k in range(4)]
        assert metric(hidden, Y, average=None, mask=KNOWN) == pytest.approx(per_class)
        assert metric(hidden, Y, average="pooled", mask=KNOWN) == pytest.approx(one(Y[KNOWN], P[KNOWN]))
    none = KNOWN & np.array([True, False, True, True])
    assert np.isnan(brier_score(P, Y, average=None, mask=none)).tolist() == [False, True, False, False]


def test_a_sure_mistake_costs_much_but_not_infinity():
    assert log_loss([[0.0]], [[1]]) == pytest.approx(oracle.log_loss([1, 0], [0.0, 0.0]) * 2, rel=1e-6)


@pytest.mark.parametrize(("binning", "strategy"), [("width", "uniform"), ("mass", "quantile")])
@pytest.mark.parametrize("bins", [1, 7, 15])
def test_bins_are_those_of_calibration_curve(binning, strategy, bins):
    found = reliability(P[:, :1], Y[:, :1], bins=bins, binning=binning)
    share, mean = calibration_curve(Y[:, 0], P[:, 0], n_bins=bins, strategy=strategy)
    assert found.share[found.count > 0] == pytest.approx(share)
    assert found.probability[found.count > 0] == pytest.approx(mean)
    assert found.count.sum() == len(P)


def plain_error(p, y, bins):
    total = 0.0
    for low in range(bins):
        cells = [i for i, value in enumerate(p) if max(np.ceil(value * bins) - 1, 0) == low]
        total += abs(sum(p[i] for i in cells) - sum(int(y[i]) for i in cells)) / len(p)
    return total


def test_the_calibration_error_is_that_of_a_loop_over_bins():
    per_class = [plain_error(P[:, k], Y[:, k], 15) for k in range(4)]
    assert calibration_error(P, Y, average=None) == pytest.approx(per_class)
    assert calibration_error(P, Y) == pytest.approx(np.mean(per_class))
    pooled = plain_error(P.ravel(), Y.ravel(), 15)
    assert calibration_error(P, Y, average="pooled") == pytest.approx(pooled)
    masked = calibration_error(P, Y, average=None, mask=KNOWN)
    assert masked == pytest.approx([plain_error(P[m, k], Y[m, k], 15) for k, m in enumerate(KNOWN.T)])


def test_right_probabilities_have_a_small_error_and_shifted_ones_a_large_one():
    p = np.random.default_rng(0).random((20000, 1))
    y = np.random.default_rng(1).random(p.shape) < p
    assert calibration_error(p, y) < 0.02
    assert calibration_error(np.clip(p + 0.2, 0, 1), y) > 0.15


def test_what_is_no_probability_is_refused():
    with pytest.raises(InputError, match=r"probabilities has the value 1\.5 at row 0, column 1"):
        brier_score([[0.5, 1.5]], [[0, 1]])
    with pytest.raises(InputError, match="average is 'micro'"):
        log_loss(P, Y, average="micro")
    with pytest.raises(InputError, match="bins is 0"):
        reliability(P, Y, bins=0)
