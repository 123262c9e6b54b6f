"""The field's measures per session, against loops over cells and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, f1_score, precision_recall_fscore_support

from mlcl.errors import InputError
from mlcl.metrics import false_positive_rate, precision_forgetting, session_means, session_measures


def by_hand(scores, labels, threshold):
    """Count decisions one cell at a time."""
    wrong = negatives = 0
    for row in range(len(scores)):
        for k in range(scores.shape[1]):
            if not labels[row, k]:
                negatives += 1
                wrong += scores[row, k] > threshold
    return wrong / negatives


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.floats(-1, 1))
def test_measures_agree_with_counting_and_with_scikit_learn(seed, threshold):
    rng = np.random.default_rng(seed)
    scores, labels = rng.normal(size=(30, 4)), (rng.random((30, 4)) < 0.3).astype(int)
    labels[0] = 1
    labels[1] = 0
    found = session_measures(scores, labels, threshold=threshold)
    decided = scores > threshold
    cp, cr, _, _ = precision_recall_fscore_support(labels, decided, average="macro", zero_division=0)
    assert found["map"] == pytest.approx(average_precision_score(labels, scores, average="macro"))
    assert (found["cp"], found["cr"]) == pytest.approx((cp, cr))
    assert found["cf1"] == pytest.approx(2 * cp * cr / (cp + cr) if cp + cr else 0)
    assert found["of1"] == pytest.approx(f1_score(labels, decided, average="micro", zero_division=0))
    assert found["mf1"] == pytest.approx(f1_score(labels, decided, average="macro", zero_division=0))
    assert found["fpr"] == pytest.approx(by_hand(scores, labels, threshold))
    assert found["fpr"] == false_positive_rate(scores, labels, threshold=np.full(4, threshold))


def test_a_false_positive_rate_needs_negatives():
    assert np.isnan(false_positive_rate([[1.0]], [[1]], threshold=0.0))
    with pytest.raises(InputError, match="threshold is"):
        false_positive_rate([[1.0]], [[1]], threshold=[0.0, 1.0])


def test_means_skip_sessions_without_a_value():
    found = session_means([{"map": 0.2, "fpr": np.nan}, {"map": 0.4}])
    assert found["map"] == pytest.approx(0.3)
    assert np.isnan(found["fpr"])


def test_forgetting_is_the_drop_from_the_best_session_since_a_task_was_learnt():
    nan = np.nan
    # Classes 0 and 1 are task 1, class 2 is task 2, class 3 task 3; the value before a class is learnt does not count.
    precisions = [[0.8, 0.6, 0.99, nan], [0.9, 0.7, 0.5, nan], [0.6, 0.5, 0.4, 0.9]]
    expected = ((0.8 - 0.55) + (0.5 - 0.4)) / 2
    assert precision_forgetting(precisions, [[0, 1], [2], [3]]) == pytest.approx(expected)
    assert np.isnan(precision_forgetting([[0.5, 0.5]], [[0, 1]]))  # joint training
    with pytest.raises(InputError, match="precisions has shape"):
        precision_forgetting([0.5], [[0]])
