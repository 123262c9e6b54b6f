"""What is derived from the result matrix, against explicit loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcl.errors import InputError
from mlcl.metrics import ResultMatrix


def mean(values):
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def close(got, expected):
    return got == pytest.approx(expected, abs=1e-9, nan_ok=True)


@st.composite
def matrices(draw):
    t = draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = rng.random((t, t))
    values[rng.random((t, t)) < draw(st.sampled_from([0.0, 0.3, 1.0]))] = np.nan
    return values * draw(st.sampled_from([1.0, 100.0]))


@given(matrices())
@settings(deadline=None, max_examples=60)
def test_summaries_by_loops(values):
    t = len(values)
    rows = values.tolist()
    result = ResultMatrix(values)
    assert result.tasks == t
    assert close(result.overall, mean(rows[t - 1]))
    assert close(list(result.seen_means), [mean(rows[s][: s + 1]) for s in range(t)])

    best_lost, last_lost, backward, forward = [], [], [], []
    for i in range(t - 1):
        earlier = [rows[s][i] for s in range(t - 1) if not math.isnan(rows[s][i])]
        best_lost.append(max(earlier) - rows[t - 1][i] if earlier else math.nan)
        last_lost.append(rows[i][i] - rows[t - 1][i])
        backward.append(rows[t - 1][i] - rows[i][i])
    points = np.nanmax(values) > 1 if not np.isnan(values).all() else False
    base = [(50 if points else 0.5) + i / 10 for i in range(t)]
    for i in range(1, t):
        forward.append(rows[i - 1][i] - base[i])
    assert close(list(result.forgetting_per_task()), best_lost)
    assert close(list(result.forgetting_per_task("last")), last_lost)
    assert close(result.forgetting(), mean(best_lost))
    assert close(result.forgetting("last"), mean(last_lost))
    assert close(result.backward_transfer, mean(backward))
    assert close(result.forward_transfer(base), mean(forward))


@given(matrices())
@settings(deadline=None, max_examples=30)
def test_unit_is_kept(values):
    share = values / 100 if np.nanmax(np.append(values, 0)) > 1 else values
    small, large = ResultMatrix(share), ResultMatrix(share * 100)
    assert close(large.overall, small.overall * 100)
    assert close(large.forgetting(), small.forgetting() * 100)
    assert close(large.forward_transfer(50.0), small.forward_transfer() * 100)


def test_max_forgetting_looks_at_all_earlier_rows():
    # Task 1 was best before it was learnt, which the literal definition counts.
    values = [[0.7, 0.9, 0.5], [0.7, 0.6, 0.5], [0.7, 0.5, 0.5]]
    assert ResultMatrix(values).forgetting_per_task() == pytest.approx([0.0, 0.4])
    assert ResultMatrix(values).forgetting_per_task("last") == pytest.approx([0.0, 0.1])


def test_joint_training_has_one_row():
    result = ResultMatrix([[80.0, 90.0, 70.0]])
    assert result.overall == 80.0
    assert result.seen_means.tolist() == [80.0]
    assert np.isnan(result.forgetting_per_task()).tolist() == [True, True]
    assert np.isnan([result.forgetting(), result.forgetting("last"), result.backward_transfer]).all()
    assert np.isnan(result.forward_transfer(50))


def test_values_are_a_read_only_copy():
    source = np.eye(2)
    result = ResultMatrix(source)
    source[0, 0] = 0.5
    assert result.values[0, 0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        result.values[0, 0] = 0.3
    assert ResultMatrix(torch.eye(2)).overall == 0.5


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0.5, 0.6], r"shape \(2,\)"),
        (np.zeros((2, 3)), r"shape \(2, 3\)"),
        (np.zeros((0, 0)), r"shape \(0, 0\)"),
        ([[0.5, 0.6], [0.7, -0.1]], "value -0.1 at row 1, column 1"),
        ([[100.5]], "value 100.5"),
        ([[np.inf]], "value inf"),
        ([["a"]], "dtype <U1, but a matrix of numbers"),
    ],
)
def test_bad_matrix_is_refused(values, message):
    with pytest.raises(InputError, match=message):
        ResultMatrix(values)


def test_bad_options_are_refused():
    result = ResultMatrix([[70.0, 50.0], [60.0, 80.0]])
    with pytest.raises(InputError, match=r"kind is 'maximum'.*Did you mean 'max'"):
        result.forgetting("maximum")
    with pytest.raises(InputError, match=r"baseline is 0.5, but the matrix is in points"):
        result.forward_transfer()
    with pytest.raises(InputError, match="for each of 2 tasks"):
        result.forward_transfer([50.0, 50.0, 50.0])
    with pytest.raises(InputError, match="baseline is 'chance'"):
        result.forward_transfer("chance")
