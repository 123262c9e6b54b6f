"""Moments against numpy's own mean and covariance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcl.errors import InputError
from mlcl.exact import Moments
from mlcl.exact.moments import Growing, pack, packed_diagonal, unpack, unpack_upper


def rows_of(seed, n, d):
    return np.random.default_rng(seed).normal(size=(n, d))


@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 6))
def test_moments_are_those_of_numpy(seed, n, d):
    rows = rows_of(seed, n, d)
    moments = Moments.of(rows)
    assert moments.count == n
    np.testing.assert_allclose(moments.mean, rows.mean(0), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(unpack(moments.second), rows.T @ rows, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(moments.covariance(), np.cov(rows.T, bias=True).reshape(d, d), atol=1e-13)
    np.testing.assert_allclose(moments.variances, rows.var(0), rtol=1e-9, atol=1e-12)


@given(st.integers(0, 10**6), st.integers(1, 20))
def test_weights_count_as_repetitions(seed, n):
    rows, times = rows_of(seed, n, 3), np.random.default_rng(seed).integers(0, 4, n)
    weighted, repeated = Moments.of(rows, times.astype(float)), Moments.of(np.repeat(rows, times, axis=0))
    assert weighted.count == repeated.count
    np.testing.assert_allclose(weighted.sum, repeated.sum, atol=1e-12)
    np.testing.assert_allclose(weighted.second, repeated.second, atol=1e-12)


@given(st.integers(0, 10**6), st.integers(0, 20), st.integers(0, 20))
def test_sums_of_parts(seed, a, b):
    rows = rows_of(seed, a + b, 4)
    whole, left, right = (Moments.of(part) for part in (rows, rows[:a], rows[a:]))
    np.testing.assert_allclose((left + right).second, whole.second, atol=1e-12)
    np.testing.assert_allclose(whole.without(right).second, left.second, atol=1e-11)
    assert whole.without(right).count == whole.remainder(right).count == a


@given(st.integers(0, 10**6), st.lists(st.integers(0, 9), max_size=6), st.sampled_from([1, 7]))
def test_moments_that_grow_block_by_block_are_those_of_all_rows(seed, sizes, patience):
    rows = rows_of(seed, sum(sizes), 3)
    growing = Growing(3, patience=patience)
    for block in np.split(rows, np.cumsum(sizes)[:-1]) if sizes else []:
        growing.add(block.copy())
    found, whole = growing.moments(), Moments.of(rows)
    assert found.count == whole.count
    np.testing.assert_allclose(found.sum, whole.sum, atol=1e-12)
    np.testing.assert_allclose(found.second, whole.second, atol=1e-12)


def test_a_linear_map_of_moments_is_the_moments_of_mapped_rows():
    rng = np.random.default_rng(0)
    rows, matrix, shift = rng.normal(size=(20, 4)), rng.normal(size=(3, 4)), rng.normal(size=3)
    mapped, direct = Moments.of(rows).mapped(matrix, shift), Moments.of(rows @ matrix.T + shift)
    np.testing.assert_allclose(mapped.sum, direct.sum, rtol=1e-12)
    np.testing.assert_allclose(mapped.second, direct.second, rtol=1e-12)


def test_scaled_moments_are_those_of_weighted_rows():
    rows = rows_of(0, 9, 3)
    scaled, weighted = Moments.of(rows).scaled(0.25), Moments.of(rows, np.full(9, 0.25))
    assert scaled.count == weighted.count == 2.25
    np.testing.assert_allclose(scaled.second, weighted.second, rtol=1e-12)


@pytest.mark.parametrize(
    ("forgotten", "sentence"),
    [
        (np.ones((4, 2)), "3 rows were learnt, but 4 are to be forgotten"),
        (np.full((3, 2), 5.0), "not the same rows"),
        (np.full((1, 2), 50.0), "a variance would be negative"),
        (np.array([[3.0, 0.0]]), "a variance would be negative"),
    ],
)
def test_rows_that_were_not_learnt_are_refused(forgotten, sentence):
    learnt = Moments.of(np.array([[1.0, 2.0], [0.5, 0.0], [3.0, 1.0]]))
    with pytest.raises(InputError, match=sentence):
        learnt.without(Moments.of(forgotten))


def test_all_rows_forgotten_leave_exact_zeros():
    rows = 1e6 * rows_of(0, 50, 3)
    left = Moments.of(rows).without(Moments.of(rows[::-1].copy()))
    assert left.count == 0
    assert not left.sum.any()
    assert not left.second.any()


def test_packing():
    matrix = np.array([[1.0, 2.0, 4.0], [2.0, 3.0, 5.0], [4.0, 5.0, 6.0]])
    packed = pack(matrix)
    assert packed.tolist() == [1, 2, 3, 4, 5, 6]
    assert np.array_equal(unpack(packed), matrix)
    assert np.array_equal(unpack_upper(packed), np.triu(matrix))
    assert packed_diagonal(packed).tolist() == [1, 3, 6]


def test_no_rows():
    nothing = Moments.of(np.zeros((0, 3)))
    assert nothing.count == 0
    assert not nothing.mean.any()
    assert not nothing.covariance().any()
